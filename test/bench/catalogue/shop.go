package catalogue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/service"
	moneyv1 "example.com/watertight/proto/money/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/recs"
	"example.com/watertight/services/search"
	"example.com/watertight/test/bench/servers"
)

// batch is how many products or baskets a message brings.
const batch = 500

// process is a service inside this process, put together as its command does, with a connection to itself.
type process struct {
	base  *service.Base
	conn  *grpc.ClientConn
	stop  context.CancelFunc
	ended chan error
}

// run starts what is registered and started on base.
func run(ctx context.Context, base *service.Base) (*process, error) {
	conn, err := rpc.Dial("static:///"+base.Server.Addr(), rpc.ClientDeps{
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Propagator: base.Telemetry.Propagator,
	})
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	p := &process{base, conn, stop, make(chan error, 1)}
	go func() { p.ended <- base.Run(running) }()
	return p, nil
}

func (p *process) close() error {
	p.stop()
	return errors.Join(p.conn.Close(), <-p.ended)
}

// indexing returns how long the search service says that its index took to build.
func (p *process) indexing() (time.Duration, error) {
	families, err := p.base.Telemetry.Registry.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() == "watertight_search_index_build_seconds" {
			return time.Duration(family.GetMetric()[0].GetGauge().GetValue() * float64(time.Second)), nil
		}
	}
	return 0, errors.New("search does not say how long its index took to build")
}

// settings are the services' own defaults, except that only imports make an index or a model: nothing is to happen by itself
// while something is measured.
func settings(database string) []string {
	return []string{
		"DATABASE_URL=" + database, "NATS_URL=", "GRPC_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s",
		"SEARCH_REFRESH_INTERVAL=24h", "MODEL_REFRESH=24h", "MODEL_POLL=24h", "DB_STATEMENT_TIMEOUT=1m",
	}
}

// openSearch starts the search service on an empty database and brings the products in. It returns the bytes that this
// process keeps for them.
func openSearch(ctx context.Context, s *servers.Servers, database string, c catalog.Catalog) (*search.Service, *process, float64, error) {
	cfg, err := config.Load[struct {
		Service service.Config
		Search  search.Config
	}](settings(s.URL(database)))
	if err != nil {
		return nil, nil, 0, err
	}
	base, err := service.New(ctx, "search", cfg.Service, search.Callers(), io.Discard)
	if err != nil {
		return nil, nil, 0, err
	}
	feature, err := search.New(cfg.Search, search.Deps{
		Pool: base.Pool, Database: cfg.Service.Database, Log: base.Log, Registry: base.Telemetry.Registry,
	})
	if err != nil {
		return nil, nil, 0, err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	p, err := run(ctx, base)
	if err != nil {
		return nil, nil, 0, err
	}
	bytes, err := p.filled(ctx, s, database, "SELECT FROM catalog", func() error {
		stream, err := searchv1.NewSearchServiceClient(p.conn).ImportProducts(ctx, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		return upload(stream, products(c))
	})
	return feature, p, bytes, err
}

func products(c catalog.Catalog) iter.Seq[*searchv1.ImportProductsRequest] {
	return func(yield func(*searchv1.ImportProductsRequest) bool) {
		for products := range slices.Chunk(c.Products, batch) {
			req := &searchv1.ImportProductsRequest{}
			for _, p := range products {
				req.Products = append(req.Products, &searchv1.Product{
					Id: p.ID, Name: p.Name, Description: p.Description, Category: p.Category,
					Price: &moneyv1.Money{Currency: c.Currency, Minor: p.PriceMinor}, Popularity: p.Sold,
				})
			}
			if !yield(req) {
				return
			}
		}
	}
}

// openRecs does for the recs service what openSearch does for search.
func openRecs(ctx context.Context, s *servers.Servers, database string, c catalog.Catalog) (*recs.Service, *process, float64, error) {
	cfg, err := config.Load[struct {
		Service service.Config
		Outbox  outbox.Config
		Recs    recs.Config
	}](settings(s.URL(database)))
	if err != nil {
		return nil, nil, 0, err
	}
	base, err := service.New(ctx, "recs", cfg.Service, recs.Callers(), io.Discard)
	if err != nil {
		return nil, nil, 0, err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "recs", Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Registry: base.Telemetry.Registry,
	})
	if err != nil {
		return nil, nil, 0, err
	}
	feature, err := recs.New(cfg.Recs, recs.Deps{Pool: base.Pool, Database: cfg.Service.Database, Events: events, Log: base.Log})
	if err != nil {
		return nil, nil, 0, err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	p, err := run(ctx, base)
	if err != nil {
		return nil, nil, 0, err
	}
	bytes, err := p.filled(ctx, s, database, "SELECT FROM outbox LIMIT 0", func() error {
		stream, err := recsv1.NewRecsServiceClient(p.conn).ImportBaskets(ctx, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		return upload(stream, bought(c))
	})
	return feature, p, bytes, err
}

func bought(c catalog.Catalog) iter.Seq[*recsv1.ImportBasketsRequest] {
	return func(yield func(*recsv1.ImportBasketsRequest) bool) {
		for baskets := range slices.Chunk(c.Baskets, batch) {
			req := &recsv1.ImportBasketsRequest{}
			for _, b := range baskets {
				basket := &recsv1.Basket{Id: b.ID}
				for _, product := range b.Products {
					basket.ProductIds = append(basket.ProductIds, c.Products[product].ID)
				}
				req.Baskets = append(req.Baskets, basket)
			}
			if !yield(req) {
				return
			}
		}
	}
}

// upload sends all requests. When the service ends the stream before, its answer tells why.
func upload[Request, Response any](stream grpc.ClientStreamingClient[Request, Response], requests iter.Seq[*Request]) error {
	for req := range requests {
		if err := stream.Send(req); err != nil {
			break
		}
	}
	_, err := stream.CloseAndRecv()
	return err
}

// filled waits until the last table is there, has fill bring something in, and returns the bytes that are in use since.
func (p *process) filled(ctx context.Context, s *servers.Servers, database, migrated string, fill func() error) (float64, error) {
	err := servers.Await(ctx, servers.StartBound, func(ctx context.Context) error { return s.Execute(ctx, database, migrated) })
	if err != nil {
		return 0, errors.Join(err, p.close())
	}
	before := inUse()
	if err := fill(); err != nil {
		return 0, errors.Join(fmt.Errorf("import: %w", err), p.close())
	}
	return inUse() - before, nil
}

// inUse is how many bytes of the heap are in use. What is kept in pools goes with the second collection.
func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
