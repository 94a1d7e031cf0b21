package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/gateway/poison"
	"example.com/watertight/gateway/report"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/upstream"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// UpstreamsConfig is the guard of each service behind the edge, with numbers of its own.
type UpstreamsConfig struct {
	Checkout CheckoutConfig `envPrefix:"CHECKOUT_"`
	Search   SearchConfig   `envPrefix:"SEARCH_"`
	Recs     RecsConfig     `envPrefix:"RECS_"`

	// RecsShardSize is apart from Recs, whose fields are those of every guard.
	RecsShardSize int           `env:"RECS_SHARD_SIZE" envDefault:"0" help:"replicas of recs that a customer's requests may reach (shuffle sharding); 0 is all"`
	Retry         RetryConfig   `envPrefix:"RETRY_"`
	Poison        poison.Config `envPrefix:"POISON_"`
}

// Validate checks what is not a guard's.
func (c UpstreamsConfig) Validate() error {
	if c.RecsShardSize < 0 {
		return fmt.Errorf("RECS_SHARD_SIZE: must not be negative, got %d", c.RecsShardSize)
	}
	return nil
}

// CheckoutConfig is upstream.Config with checkout's defaults: an order is worth waiting for.
type CheckoutConfig struct {
	Addr        string                 `env:"ADDR" envDefault:"dns:///checkout:50051" help:"gRPC target of checkout"`
	Timeout     time.Duration          `env:"TIMEOUT" envDefault:"2s" help:"longest a call may take, time in the queue included"`
	MaxInFlight int                    `env:"MAX_IN_FLIGHT" envDefault:"64" help:"most calls at once, for each replica of the gateway"`
	MaxQueue    int                    `env:"MAX_QUEUE" envDefault:"64" help:"most calls waiting, for each replica of the gateway"`
	MaxStreams  int                    `env:"MAX_STREAMS" envDefault:"256" help:"most open streams, apart from the calls"`
	Breaker     upstream.BreakerConfig `envPrefix:"BREAKER_"`
}

// Validate checks the limits.
func (c CheckoutConfig) Validate() error { return upstream.Config(c).Validate() }

// SearchConfig is upstream.Config with search's defaults.
type SearchConfig struct {
	Addr        string                 `env:"ADDR" envDefault:"dns:///search:50051" help:"gRPC target of search"`
	Timeout     time.Duration          `env:"TIMEOUT" envDefault:"800ms" help:"longest a call may take, time in the queue included"`
	MaxInFlight int                    `env:"MAX_IN_FLIGHT" envDefault:"64" help:"most calls at once, for each replica of the gateway"`
	MaxQueue    int                    `env:"MAX_QUEUE" envDefault:"32" help:"most calls waiting, for each replica of the gateway"`
	MaxStreams  int                    `env:"MAX_STREAMS" envDefault:"256" help:"most open streams, apart from the calls"`
	Breaker     upstream.BreakerConfig `envPrefix:"BREAKER_"`
}

// Validate checks the limits.
func (c SearchConfig) Validate() error { return upstream.Config(c).Validate() }

// RecsConfig is upstream.Config with the defaults of recs: nobody waits for a recommendation.
type RecsConfig struct {
	Addr        string                 `env:"ADDR" envDefault:"dns:///recs:50051" help:"gRPC target of recs"`
	Timeout     time.Duration          `env:"TIMEOUT" envDefault:"150ms" help:"longest a call may take, time in the queue included"`
	MaxInFlight int                    `env:"MAX_IN_FLIGHT" envDefault:"32" help:"most calls at once, for each replica of the gateway"`
	MaxQueue    int                    `env:"MAX_QUEUE" envDefault:"8" help:"most calls waiting, for each replica of the gateway"`
	MaxStreams  int                    `env:"MAX_STREAMS" envDefault:"256" help:"most open streams, apart from the calls"`
	Breaker     upstream.BreakerConfig `envPrefix:"BREAKER_"`
}

// Validate checks the limits.
func (c RecsConfig) Validate() error { return upstream.Config(c).Validate() }

// Budgets are the routes' budgets that go with the upstreams' time-outs.
func (c UpstreamsConfig) Budgets() Budgets {
	return Budgets{Checkout: c.Checkout.Timeout, Search: c.Search.Timeout, Recs: c.Recs.Timeout}
}

// Upstreams are the guarded connections to the services.
type Upstreams struct {
	guards []*upstream.Upstream // in the order of the status page
	byName map[string]*upstream.Upstream
	conns  map[string]*grpc.ClientConn
	cfg    UpstreamsConfig
	poison *poison.Report // nil when recs is not connected
}

// Connect sets up the connections. It contacts nobody: a service that is away is found out by the first call. Its metrics go to
// reg. Only the upstreams named are connected, and all when none is; a process that does the work of one itself leaves it
// out, and puts its own client into Backends. Close it when done.
func Connect(cfg UpstreamsConfig, telemetry rpc.ClientDeps, reg prometheus.Registerer, names ...string) (*Upstreams, error) {
	u := &Upstreams{byName: map[string]*upstream.Upstream{}, conns: map[string]*grpc.ClientConn{}, cfg: cfg}
	// The channels may try again what is safe to repeat. PlaceOrder is not among it: whether to send an order again is the
	// client's decision. Nor is recs: a retry would carry a poisonous request to a second replica. RETRY_LAYERS=2 does it for
	// all to see.
	telemetry.NoRetryBudget = cfg.Retry.Budget == "off"
	var recsReads []string
	if cfg.Retry.Layers > 1 {
		recsReads = []string{recsv1.RecsService_Recommend_FullMethodName}
	}
	searchReads := []string{searchv1.SearchService_SearchProducts_FullMethodName, searchv1.SearchService_GetProducts_FullMethodName}
	checkoutReads := []string{checkoutv1.CheckoutService_GetOrder_FullMethodName}
	if cfg.Retry.Layers == 0 {
		searchReads, checkoutReads = nil, nil
	}
	for _, to := range []struct {
		name    string
		cfg     upstream.Config
		retries []string
	}{
		{shop.Checkout, upstream.Config(cfg.Checkout), checkoutReads},
		{shop.Search, upstream.Config(cfg.Search), searchReads},
		{shop.Recs, upstream.Config(cfg.Recs), recsReads},
	} {
		if len(names) > 0 && !slices.Contains(names, to.name) {
			continue
		}
		telemetry.Retry = to.retries
		if err := u.connect(to.name, to.cfg, telemetry, reg); err != nil {
			return nil, errors.Join(err, u.Close(context.Background()))
		}
	}
	return u, nil
}

func (u *Upstreams) connect(name string, cfg upstream.Config, deps rpc.ClientDeps, reg prometheus.Registerer) error {
	guard, err := upstream.New(name, cfg, reg)
	if err != nil {
		return err
	}
	options := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(guard.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(guard.StreamClientInterceptor()),
	}
	if name != shop.Checkout && u.cfg.Retry.Layers > 1 {
		options = append(options, grpc.WithChainUnaryInterceptor(retryAgain))
	}
	if name == shop.Recs {
		u.poison, err = poison.New(u.cfg.Poison, recsv1.RecsService_Recommend_FullMethodName, reg)
		if err != nil {
			return fmt.Errorf("upstream %s: %w", name, err)
		}
		options = append(options, grpc.WithStatsHandler(u.poison))
	}
	if name == shop.Recs && u.cfg.RecsShardSize > 0 {
		deps.ShardSize = u.cfg.RecsShardSize
		options = append(options, grpc.WithChainUnaryInterceptor(byCustomer))
	}
	deps.Peer = name
	conn, err := rpc.Dial(cfg.Addr, deps, options...)
	if err != nil {
		return fmt.Errorf("upstream %s: %w", name, err)
	}
	u.guards, u.byName[name], u.conns[name] = append(u.guards, guard), guard, conn
	return nil
}

// Backends are the services' clients, each behind its guard. Those of services that are not connected must not be used.
func (u *Upstreams) Backends(log *slog.Logger) shop.Backends {
	if u.poison != nil {
		u.poison.LogTo(log)
	}
	return shop.Backends{
		Checkout:    checkoutv1.NewCheckoutServiceClient(u.conns[shop.Checkout]),
		Search:      searchv1.NewSearchServiceClient(u.conns[shop.Search]),
		Recs:        recsv1.NewRecsServiceClient(u.conns[shop.Recs]),
		RecsTimeout: u.cfg.Recs.Timeout,
		Degraded:    func(ctx context.Context, name string) { u.byName[name].Degraded(ctx) },
		Log:         log,
	}
}

// Status is how each upstream is doing.
func (u *Upstreams) Status() []report.Upstream {
	out := make([]report.Upstream, 0, len(u.guards))
	for _, guard := range u.guards {
		s := guard.Status()
		out = append(out, report.Upstream{
			Name: s.Name, Breaker: s.Breaker, InFlight: s.InFlight, Queued: s.Queued,
			Limits: report.Limits{Scope: report.PerReplica, Limits: s.Limits}, Outcomes: s.Outcomes,
		})
	}
	return out
}

// Suspects are the products whose requests seem to kill replicas of recs, the most suspicious first.
func (u *Upstreams) Suspects() []poison.Suspect {
	if u.poison == nil {
		return []poison.Suspect{}
	}
	return u.poison.Suspects()
}

// Close closes the connections; calls still under way end with CANCELLED.
func (u *Upstreams) Close(context.Context) error {
	var errs []error
	for name, conn := range u.conns {
		if err := conn.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the connection to %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
