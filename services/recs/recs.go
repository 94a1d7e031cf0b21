// Package recs recommends products from what was bought together. It answers from memory; its database holds the baskets
// and the model made of them, so that a restart or another replica need not make it again. It knows product ids and
// nothing else of products, and it never refuses an answer because its database is away.
package recs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs/similarity"
)

// Config is how recommendations are made and kept fresh.
type Config struct {
	MinSupport   int           `env:"MIN_SUPPORT" envDefault:"3" help:"baskets that must hold two products before one is recommended with the other"`
	MaxBasket    int           `env:"MAX_BASKET" envDefault:"100" help:"most products in a basket that says what goes together; larger ones: popularity only"`
	ModelPoll    time.Duration `env:"MODEL_POLL" envDefault:"1s" help:"how often to look for a model that another replica has made"`
	ModelRefresh time.Duration `env:"MODEL_REFRESH" envDefault:"1m" help:"how long baskets may wait, about, before they are learned from without an import"`
}

// Validate reports every setting that cannot work, by the name of its variable.
func (c Config) Validate() error {
	var errs []error
	if c.MinSupport < 1 {
		errs = append(errs, fmt.Errorf("MIN_SUPPORT: must be at least 1, is %d", c.MinSupport))
	}
	if c.MaxBasket < 2 {
		errs = append(errs, fmt.Errorf("MAX_BASKET: must be at least 2, is %d", c.MaxBasket))
	}
	if c.ModelPoll <= 0 {
		errs = append(errs, fmt.Errorf("MODEL_POLL: must be more than 0, is %s", c.ModelPoll))
	}
	if c.ModelRefresh <= 0 {
		errs = append(errs, fmt.Errorf("MODEL_REFRESH: must be more than 0, is %s", c.ModelRefresh))
	}
	return errors.Join(errs...)
}

// Deps is what the service uses. All must be set.
type Deps struct {
	// Pool leads to the service's database.
	Pool *pgxpool.Pool
	// Database says how to migrate it.
	Database postgres.Config
	// Events is the service's part in the traffic of events, on the same database; the service subscribes and runs it.
	Events *outbox.Outbox
	Log    *slog.Logger
}

// Service serves recommendations. Its exported methods may be called from any goroutine, once Start has returned.
type Service struct {
	recsv1.UnimplementedRecsServiceServer
	cfg      Config
	deps     Deps
	store    store
	draining <-chan struct{}

	learning chan struct{} // holds one token while a model is made: it takes a core and some memory

	served atomic.Pointer[versioned] // nil until the first model is loaded
}

// versioned is a model and its place in the database's count of models.
type versioned struct {
	*similarity.Model
	version int64
}

// New makes the service and subscribes it to its events; it does nothing until Start.
func New(cfg Config, deps Deps) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, deps: deps, store: store{deps.Pool}, learning: make(chan struct{}, 1)}
	deps.Events.Consume(ordersStream, s.handlers())
	return s, nil
}

// Callers says which processes may call what, when certificates prove who calls.
func Callers() rpc.Callers {
	return rpc.Callers{
		recsv1.RecsService_Recommend_FullMethodName:     {"gateway", "checkout"},
		recsv1.RecsService_ImportBaskets_FullMethodName: {"lab"},
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) { recsv1.RegisterRecsServiceServer(r, s) }

// Start adds the worker that migrates the database, loads the model and keeps it fresh, and learns of orders; it makes
// readiness wait for the first model.
func (s *Service) Start(p *lifecycle.Process) {
	s.draining = p.Draining()
	loaded := p.Ready("model")
	p.Worker("model", func(ctx context.Context) error {
		files, err := migrations()
		if err != nil {
			return err
		}
		if err := postgres.Migrate(ctx, s.deps.Database, files, s.deps.Log); err != nil {
			return err
		}
		var following sync.WaitGroup
		following.Go(func() { s.follow(ctx, loaded) })
		defer following.Wait()
		return s.deps.Events.Run(ctx)
	})
}

// AddBasket stores one basket in the caller's transaction, replacing the one with the same id. It is learned from within
// about MODEL_REFRESH. Transactions that add baskets commit one after another.
func (s *Service) AddBasket(ctx context.Context, tx pgx.Tx, basket *recsv1.Basket) error {
	batch := &pgx.Batch{}
	queuePut(batch, []*recsv1.Basket{basket})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("store basket: %w", err)
	}
	return nil
}

// follow keeps the model in memory up with the database until ctx ends, and learns from baskets that no import has
// learned from. What it has goes on being served while the database is away.
func (s *Service) follow(ctx context.Context, loaded func()) {
	tick := time.NewTicker(s.cfg.ModelPoll)
	defer tick.Stop()
	learnAt, away := s.nextLearning(), false
	for {
		row, err := s.catchUp(ctx)
		if err == nil {
			loaded()
		}
		if time.Now().After(learnAt) {
			learnAt = s.nextLearning()
			if err == nil && row.stale() {
				err = s.learn(ctx)
			}
		}
		s.logOutage(ctx, away, err)
		away = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// nextLearning is jittered, so that replicas do not all make the same model at the same moment.
func (s *Service) nextLearning() time.Time {
	return time.Now().Add(s.cfg.ModelRefresh*3/4 + rand.N(s.cfg.ModelRefresh/2+1))
}

// logOutage logs when following the database begins to fail and when that ends, not every time in between.
func (s *Service) logOutage(ctx context.Context, away bool, err error) {
	switch {
	case err != nil && !away && ctx.Err() == nil:
		s.deps.Log.WarnContext(ctx, "cannot look for a newer model, serving the one in memory", "error", err)
	case err == nil && away:
		s.deps.Log.InfoContext(ctx, "can look for newer models again")
	}
}

// catchUp loads the stored model unless it is the one in memory. An older one than that counts too: the database may have
// been restored.
func (s *Service) catchUp(ctx context.Context) (modelRow, error) {
	row, err := s.store.modelRow(ctx)
	if err != nil {
		return row, err
	}
	if old := s.served.Load(); old != nil && old.version == row.version {
		return row, nil
	}
	return row, s.reload(ctx)
}

// reload serves the stored model, unless another was adopted while it was being read.
func (s *Service) reload(ctx context.Context) error {
	old := s.served.Load()
	model, version, err := s.store.load(ctx)
	if err != nil {
		return err
	}
	s.swap(ctx, old, &versioned{model, version})
	return nil
}

// learn makes a model of all baskets, stores it and serves it. When another replica has meanwhile stored one that knows
// more, that one is served instead.
func (s *Service) learn(ctx context.Context) error {
	select {
	case s.learning <- struct{}{}:
		defer func() { <-s.learning }()
	case <-ctx.Done():
		return fmt.Errorf("wait to learn: %w", ctx.Err())
	}
	baskets, learned, err := s.store.baskets(ctx)
	if err != nil {
		return err
	}
	model, err := similarity.Compute(ctx, baskets, similarity.Settings{MinSupport: s.cfg.MinSupport, MaxBasket: s.cfg.MaxBasket})
	if err != nil {
		return fmt.Errorf("compute model: %w", err)
	}
	version, err := s.store.save(ctx, model, learned)
	if errors.Is(err, errNewerModel) {
		return s.reload(ctx)
	}
	if err != nil {
		return err
	}
	for old := s.served.Load(); old == nil || old.version < version; old = s.served.Load() {
		s.swap(ctx, old, &versioned{model, version})
	}
	return nil
}

// swap serves a model instead of old, if that is still the one served.
func (s *Service) swap(ctx context.Context, old, model *versioned) {
	if s.served.CompareAndSwap(old, model) {
		s.deps.Log.InfoContext(ctx, "serving a new model", "version", model.version, "baskets", model.Baskets(), "products", model.Recommendable())
	}
}
