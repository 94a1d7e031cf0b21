// Package search is the service that finds and shows products. It owns the catalog in its own database and answers from
// an index in memory (package index), which it builds when it starts and again when the catalog has changed, here or
// through another replica. A database that is away stops imports and nothing else. It charges no prices: those it shows
// are for show, checkout has its own.
package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	searchv1 "example.com/watertight/proto/search/v1"
)

// Config is the service's own settings.
type Config struct {
	RefreshInterval time.Duration `env:"SEARCH_REFRESH_INTERVAL" envDefault:"1s" help:"how often to look for changes made through other replicas"`
}

// Validate checks the interval.
func (c Config) Validate() error {
	if c.RefreshInterval <= 0 {
		return errors.New("SEARCH_REFRESH_INTERVAL: must be more than 0s")
	}
	return nil
}

// Deps is what the service uses. All must be set.
type Deps struct {
	Pool     *pgxpool.Pool   // of the service's own role
	Database postgres.Config // where to migrate
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Service is one replica of search; it implements search.v1.
type Service struct {
	searchv1.UnimplementedSearchServiceServer

	cfg      Config
	database postgres.Config
	log      *slog.Logger
	catalog  *catalog
	draining <-chan struct{}
}

// New sets the service up. It does no I/O and starts nothing.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return &Service{cfg: cfg, database: deps.Database, log: deps.Log, catalog: newCatalog(store{deps.Pool}, deps.Log, m)}, nil
}

// Callers says which processes may call what, when certificates prove who calls.
func Callers() rpc.Callers {
	return rpc.Callers{
		searchv1.SearchService_SearchProducts_FullMethodName: {"gateway"},
		searchv1.SearchService_GetProducts_FullMethodName:    {"gateway"},
		searchv1.SearchService_ImportProducts_FullMethodName: {"lab"},
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	searchv1.RegisterSearchServiceServer(r, s)
}

// Start adds what the service runs in the background to p, which is ready when the catalog has been loaded.
func (s *Service) Start(p *lifecycle.Process) {
	s.draining = p.Draining()
	loaded := p.Ready("catalog")
	p.Worker("catalog", func(ctx context.Context) error { return s.run(ctx, loaded) })
	p.Closer("catalog", func(context.Context) error { return s.catalog.Close() })
}

func (s *Service) run(ctx context.Context, loaded func()) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := postgres.Migrate(ctx, s.database, files, s.log); err != nil {
		return err
	}
	return s.catalog.follow(ctx, s.cfg.RefreshInterval, loaded)
}
