// Package payment charges customers for orders and gives the money back when an order is cancelled. Both are asked for by
// events. It stores the intent before it asks the provider and the outcome after, never holds a transaction open
// meanwhile, and takes no answer for what it is: unknown, to be asked again under the same key. It never charges an order
// twice, and keeps nothing of an order that was cancelled.
package payment

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	paymentv1 "example.com/watertight/proto/payment/v1"
)

// Stream is the stream that the service fills.
const Stream = "payments"

//go:embed migrations/*.sql
var embedded embed.FS

// Deps is what the service works with. All must be set.
type Deps struct {
	Pool     *pgxpool.Pool
	Database postgres.Config // for the migrations, which may use another role than Pool
	// Events is the service's part in the traffic of events; the service subscribes and runs it.
	Events         *outbox.Outbox
	Provider       Provider
	Log            *slog.Logger
	TracerProvider trace.TracerProvider
	Registry       prometheus.Registerer
}

// Service is payment.v1.PaymentService. Its methods may be called from any goroutine.
type Service struct {
	paymentv1.UnimplementedPaymentServiceServer

	deps   Deps
	worker *worker
}

var _ paymentv1.PaymentServiceServer = (*Service)(nil)

// New makes the service and subscribes it to its events. It starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	s := &Service{deps: deps, worker: &worker{
		cfg: cfg, store: store{deps.Pool}, provider: deps.Provider, log: deps.Log, metrics: m,
		answered: deps.Events.Answered, told: deps.Events.Wake, woken: make(chan struct{}, 1),
		tracer: deps.TracerProvider.Tracer("example.com/watertight/services/payment"),
	}}
	deps.Events.Consume(ordersStream, s.handlers())
	return s, nil
}

// Callers says which processes may call what, when certificates prove who calls.
func Callers() rpc.Callers {
	return rpc.Callers{
		paymentv1.PaymentService_GetPayment_FullMethodName: {"lab"},
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { paymentv1.RegisterPaymentServiceServer(r, s) }

// Start adds the service's work to the process, which becomes ready when the database is migrated.
func (s *Service) Start(p *lifecycle.Process) {
	migrated := p.Ready("database")
	p.Worker("payment", func(ctx context.Context) error { return s.work(ctx, migrated) })
}

// work migrates the database, then hears and tells of events and asks the provider until ctx ends.
func (s *Service) work(ctx context.Context, migrated func()) error {
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return fmt.Errorf("open migrations: %w", err)
	}
	if err := postgres.Migrate(ctx, s.deps.Database, migrations, s.deps.Log); err != nil {
		return err
	}
	migrated()
	var asking sync.WaitGroup
	asking.Go(func() { s.worker.run(ctx) })
	defer asking.Wait()
	return s.deps.Events.Run(ctx)
}
