// Package checkout takes orders: it prices them from its own list, stores each with the event that announces it in one
// transaction, sees each through stock and payment to its end, and tells how they stand. It never takes a price from a
// client, and never stores an order twice under one idempotency key.
package checkout

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

//go:embed migrations/*.sql
var embedded embed.FS

// Config is the service's own settings.
type Config struct {
	// IdempotencyRetention is how long a key is remembered at least.
	IdempotencyRetention time.Duration `env:"IDEMPOTENCY_RETENTION" envDefault:"24h" help:"how long idempotency keys are kept, at least"`
	// IdempotencyPurge is how often older keys are removed.
	IdempotencyPurge time.Duration `env:"IDEMPOTENCY_PURGE" envDefault:"1m" help:"pause between removals of expired idempotency keys"`
	// WatchPoll is how often the changes that other processes made to watched orders are asked for.
	WatchPoll time.Duration `env:"WATCH_POLL" envDefault:"100ms" help:"pause between looks for changes of watched orders"`
	// OrderExpiry is how long an order may wait for stock and payment.
	OrderExpiry time.Duration `env:"ORDER_EXPIRY" envDefault:"5m" help:"how long an order may wait for stock and payment before it is cancelled"`
	// ExpiryPoll is how often orders that have waited longer are looked for.
	ExpiryPoll time.Duration `env:"EXPIRY_POLL" envDefault:"1s" help:"pause between looks for orders that have waited too long"`
	// MetricsPoll is how often the oldest pending order is asked for.
	MetricsPoll time.Duration `env:"METRICS_POLL" envDefault:"2s" help:"pause between looks for the oldest pending order"`
}

// Validate checks that every duration is positive.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"IDEMPOTENCY_RETENTION", c.IdempotencyRetention}, {"IDEMPOTENCY_PURGE", c.IdempotencyPurge},
		{"WATCH_POLL", c.WatchPoll}, {"METRICS_POLL", c.MetricsPoll},
		{"ORDER_EXPIRY", c.OrderExpiry}, {"EXPIRY_POLL", c.ExpiryPoll},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: must be more than 0, is %s", d.name, d.value))
		}
	}
	return errors.Join(errs...)
}

// Deps is what the service works with.
type Deps struct {
	Pool     *pgxpool.Pool
	Database postgres.Config // for the migrations, which may use another role than Pool
	// Events is the service's part in the traffic of events, on the same database; the service subscribes and runs it.
	Events *outbox.Outbox
	// Reserve, when set, reserves an order's stock in the transaction that places it.
	Reserve  Reserve
	Log      *slog.Logger
	Registry prometheus.Registerer
	SyncCall *SyncCall // nil, but in the design of that name
}

// Service is checkout.v1.CheckoutService. Its methods may be called from any goroutine.
type Service struct {
	checkoutv1.UnimplementedCheckoutServiceServer

	cfg      Config
	deps     Deps
	store    store
	metrics  *metrics
	watches  *watches
	draining <-chan struct{} // nil before Start: never
}

var _ checkoutv1.CheckoutServiceServer = (*Service)(nil)

// New makes the service and subscribes it to its events. It starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, store: store{deps.Pool}, metrics: m, watches: newWatches()}
	s.subscribe(deps.Events)
	return s, nil
}

// Callers says which processes may call what, when certificates prove who calls.
func Callers() rpc.Callers {
	return rpc.Callers{
		checkoutv1.CheckoutService_PlaceOrder_FullMethodName:   {"gateway"},
		checkoutv1.CheckoutService_GetOrder_FullMethodName:     {"gateway"},
		checkoutv1.CheckoutService_WatchOrder_FullMethodName:   {"gateway"},
		checkoutv1.CheckoutService_ImportPrices_FullMethodName: {"lab"},
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { checkoutv1.RegisterCheckoutServiceServer(r, s) }

// OldestPending is the age in seconds of the oldest order that has no final status; 0 without any.
func (s *Service) OldestPending() float64 { return s.metrics.oldestPending() }

// Start adds the service's work to the process, which becomes ready when the database is migrated.
func (s *Service) Start(p *lifecycle.Process) {
	s.draining = p.Draining()
	migrated := p.Ready("database")
	p.Worker("checkout", func(ctx context.Context) error { return s.work(ctx, migrated) })
}

// work migrates the database and then runs the background loops until ctx ends.
func (s *Service) work(ctx context.Context, migrated func()) error {
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return fmt.Errorf("open migrations: %w", err)
	}
	if err := postgres.Migrate(ctx, s.deps.Database, migrations, s.deps.Log); err != nil {
		return err
	}
	migrated()
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(func() { s.repeat(ctx, "cancel orders that have waited too long", s.cfg.ExpiryPoll, s.expire) })
	loops.Go(func() {
		s.repeat(ctx, "purge idempotency keys", s.cfg.IdempotencyPurge, func(ctx context.Context) error {
			return s.store.purgeKeys(ctx, s.cfg.IdempotencyRetention)
		})
	})
	loops.Go(func() {
		s.repeat(ctx, "look for changes of watched orders", s.cfg.WatchPoll, func(ctx context.Context) error {
			return s.watches.poll(ctx, s.store.latest)
		})
	})
	loops.Go(func() {
		s.repeat(ctx, "look for the oldest pending order", s.cfg.MetricsPoll, func(ctx context.Context) error {
			placed, err := s.store.oldestOpen(ctx)
			if err == nil {
				s.metrics.setOldest(placed)
			}
			return err
		})
	})
	return s.deps.Events.Run(ctx)
}

// repeatBound is how long one round of a background loop may take.
const repeatBound = 30 * time.Second

// repeat runs do now and after each pause until ctx ends. It logs when do begins to fail and when it works again, not
// each failure between: with the database away, that would be all the log says.
func (s *Service) repeat(ctx context.Context, what string, pause time.Duration, do func(context.Context) error) {
	failing := false
	for {
		bounded, cancel := context.WithTimeout(ctx, repeatBound)
		err := do(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			s.deps.Log.WarnContext(ctx, "background work fails", "work", what, "error", err)
		} else if err == nil && failing {
			s.deps.Log.InfoContext(ctx, "background work succeeds again", "work", what)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
