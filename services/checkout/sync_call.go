package checkout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
	recsv1 "example.com/watertight/proto/recs/v1"
)

// The file holds the design sync-call: placing an order calls recs and waits. The order gains nothing from it. It is here to be
// looked at: raw, the split is undone, and a hanging recs takes checkout's workers with it; guarded, the same call can do no
// harm. It is off unless asked for.

// The values of RECS_IN_CHECKOUT.
const (
	syncCallOff     = "off"
	syncCallRaw     = "raw"
	syncCallGuarded = "guarded"
)

// SyncCallConfig is how placing an order calls recs.
type SyncCallConfig struct {
	Mode       string           `env:"RECS_IN_CHECKOUT" envDefault:"off" help:"off, raw (orders fail with recs), or guarded (they go on without)"`
	RawTimeout time.Duration    `env:"RECS_RAW_TIMEOUT" envDefault:"1s" help:"longest that a raw call to recs may take"`
	Recs       SyncCallUpstream `envPrefix:"RECS_"`
}

// SyncCallUpstream is where recs is and what guards the call.
type SyncCallUpstream struct {
	Addr        string                 `env:"ADDR" envDefault:"dns:///recs:50051" help:"gRPC target of recs, for RECS_IN_CHECKOUT"`
	Timeout     time.Duration          `env:"TIMEOUT" envDefault:"150ms" help:"longest that a guarded call may take"`
	MaxInFlight int                    `env:"MAX_IN_FLIGHT" envDefault:"16" help:"most guarded calls at once; the next order goes on without"`
	Breaker     upstream.BreakerConfig `envPrefix:"BREAKER_"`
}

// Validate checks what is not the guard's.
func (c SyncCallConfig) Validate() error {
	var errs []error
	if !slices.Contains([]string{syncCallOff, syncCallRaw, syncCallGuarded}, c.Mode) {
		errs = append(errs, fmt.Errorf("RECS_IN_CHECKOUT: must be off, raw or guarded, got %q", c.Mode))
	}
	if c.RawTimeout <= 0 {
		errs = append(errs, fmt.Errorf("RECS_RAW_TIMEOUT: must be more than 0s, got %v", c.RawTimeout))
	}
	return errors.Join(errs...)
}

// Validate checks the limits.
func (c SyncCallUpstream) Validate() error { return c.guard().Validate() }

// guard is without a queue: an order does not wait to be told what else might be bought. There are no streams.
func (c SyncCallUpstream) guard() upstream.Config {
	return upstream.Config{Addr: c.Addr, Timeout: c.Timeout, MaxInFlight: c.MaxInFlight, MaxStreams: 1, Breaker: c.Breaker}
}

// SyncCall calls recs inside PlaceOrder. A nil one does not.
type SyncCall struct {
	conn       *grpc.ClientConn
	recs       recsv1.RecsServiceClient
	guard      *upstream.Upstream // nil: raw
	rawTimeout time.Duration
}

// NewSyncCall sets up the call as configured; it is nil when that is off. It contacts nobody. Metrics of the guard go to reg.
func NewSyncCall(cfg SyncCallConfig, deps rpc.ClientDeps, reg prometheus.Registerer) (*SyncCall, error) {
	if err := errors.Join(cfg.Validate(), cfg.Recs.Validate()); err != nil || cfg.Mode == syncCallOff {
		return nil, err
	}
	c := &SyncCall{rawTimeout: cfg.RawTimeout}
	var options []grpc.DialOption
	if cfg.Mode == syncCallGuarded {
		guard, err := upstream.New("recs", cfg.Recs.guard(), reg)
		if err != nil {
			return nil, err
		}
		c.guard = guard
		options = append(options, grpc.WithChainUnaryInterceptor(guard.UnaryClientInterceptor()))
	}
	deps.Peer = "recs"
	conn, err := rpc.Dial(cfg.Recs.Addr, deps, options...)
	if err != nil {
		return nil, fmt.Errorf("RECS_ADDR: %w", err)
	}
	c.conn, c.recs = conn, recsv1.NewRecsServiceClient(conn)
	return c, nil
}

// Close closes the connection.
func (c *SyncCall) Close(context.Context) error {
	if c == nil {
		return nil
	}
	return c.conn.Close()
}

// before is what an order does before it is placed: it asks recs about its first product, and drops the answer. Raw, it fails
// when recs does; guarded, it never fails.
func (c *SyncCall) before(ctx context.Context, lines []wantedLine) error {
	if c == nil || len(lines) == 0 {
		return nil
	}
	req := &recsv1.RecommendRequest{ProductId: lines[0].productID}
	if c.guard != nil {
		if _, err := c.recs.Recommend(ctx, req); err != nil {
			c.guard.Degraded(ctx) // and the guard has counted why
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.rawTimeout)
	defer cancel()
	_, err := c.recs.Recommend(ctx, req)
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Canceled:
		return err
	case codes.DeadlineExceeded:
		return rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the recommendations for this order did not come in time")
	}
	return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "the recommendations for this order cannot be had")
}
