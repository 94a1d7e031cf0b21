// Package inventory counts stock and reserves it for orders. It learns of orders by events only, reserves all of an order's
// items or none, and never promises a piece twice. It knows product ids and nothing else of products.
package inventory

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// Stream is the stream that the service fills.
const Stream = "inventory"

// ordersStream is the stream that it consumes.
const ordersStream = "orders"

//go:embed migrations/*.sql
var embedded embed.FS

// Deps is what the service works with.
type Deps struct {
	Pool     *pgxpool.Pool
	Database postgres.Config // for the migrations, which may use another role than Pool
	Events   *outbox.Outbox  // on the same database; the service subscribes it and runs it
	Log      *slog.Logger
}

// Service is inventory.v1.InventoryService. Its methods may be called from any goroutine.
type Service struct {
	inventoryv1.UnimplementedInventoryServiceServer

	deps     Deps
	store    store
	draining <-chan struct{} // nil before Start: never
}

var _ inventoryv1.InventoryServiceServer = (*Service)(nil)

// New makes the service. It starts nothing.
func New(deps Deps) *Service {
	s := &Service{deps: deps, store: store{deps.Pool}}
	deps.Events.Consume(ordersStream, map[string]outbox.Handler{
		"orders.placed":    outbox.Decode(reserve),
		"orders.cancelled": outbox.Decode(release),
	})
	return s
}

// Callers says which processes may call what, when certificates prove who calls.
func Callers() rpc.Callers {
	return rpc.Callers{
		inventoryv1.InventoryService_GetStock_FullMethodName:    {"lab"},
		inventoryv1.InventoryService_ImportStock_FullMethodName: {"lab"},
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { inventoryv1.RegisterInventoryServiceServer(r, s) }

// Start adds the service's work to the process, which becomes ready when the database is migrated.
func (s *Service) Start(p *lifecycle.Process) {
	s.draining = p.Draining()
	migrated := p.Ready("database")
	p.Worker("inventory", func(ctx context.Context) error { return s.work(ctx, migrated) })
}

// work migrates the database and then works on events until ctx ends.
func (s *Service) work(ctx context.Context, migrated func()) error {
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return fmt.Errorf("open migrations: %w", err)
	}
	if err := postgres.Migrate(ctx, s.deps.Database, migrations, s.deps.Log); err != nil {
		return err
	}
	migrated()
	return s.deps.Events.Run(ctx)
}
