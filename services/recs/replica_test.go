package recs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 20 * time.Second

// quick makes two baskets evidence and lets replicas look often; baskets that nobody imports wait for an hour.
var quick = recs.Config{MinSupport: 2, MaxBasket: 100, ModelPoll: 20 * time.Millisecond, ModelRefresh: time.Hour}

// replica is the service as its process runs it, on ports of its own.
type replica struct {
	recsv1.RecsServiceClient
	service *recs.Service
	pool    *pgxpool.Pool
	admin   string
	stop    func() // begins the drain and waits for the end
	drain   func() // only begins it
}

// start runs a replica on the database and returns at once; ready waits for it. There is no broker.
func start(t testing.TB, database string, cfg recs.Config) *replica {
	t.Helper()
	return startWithBroker(t, database, cfg, nil)
}

func startWithBroker(t testing.TB, database string, cfg recs.Config, events *nats.Conn) *replica {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	registry := prometheus.NewRegistry()
	process, err := lifecycle.New(lifecycle.Config{AdminAddr: "127.0.0.1:0", DrainTimeout: 5 * time.Second}, log, registry)
	must(t, err)
	server, err := rpc.NewServer(rpc.ServerConfig{
		Addr: "127.0.0.1:0", Pool: bulkhead.Config{Size: 16, Queue: 16}, MaxStreams: 16, MaxConnectionAge: time.Hour,
	}, rpc.ServerDeps{
		Log: log, Registry: registry, TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		Propagator: propagation.TraceContext{}, MapError: postgres.RPCError,
	})
	must(t, err)
	db := postgres.Config{
		URL: database, MaxConns: 8, ConnectTimeout: 2 * time.Second, StatementTimeout: 5 * time.Second, LockTimeout: 2 * time.Second,
		IdleInTransactionTimeout: 10 * time.Second, MigrateTimeout: time.Minute,
	}
	pool, err := postgres.Open(t.Context(), db, postgres.Deps{Name: "recs"})
	must(t, err)
	settings, err := config.Load[outbox.Config](nil)
	must(t, err)
	traffic, err := outbox.New(t.Context(), settings, outbox.Deps{Service: "recs", Database: db, Conn: events, Log: log, Registry: registry})
	must(t, err)
	service, err := recs.New(cfg, recs.Deps{Pool: pool, Database: db, Events: traffic, Log: log})
	must(t, err)
	service.Register(server)
	service.Start(process)
	process.Server("grpc", server)
	process.Closer("postgres", func(context.Context) error { pool.Close(); return nil })

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	conn, err := rpc.Dial("static:///"+server.Addr(), rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{},
	})
	must(t, err)
	stopped := false
	r := &replica{RecsServiceClient: recsv1.NewRecsServiceClient(conn), service: service, pool: pool, admin: process.AdminAddr(), drain: cancel}
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = conn.Close() // nothing is pending on it
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("process ended with %v", err)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// startReady is start, and waits until the replica says that it is ready.
func startReady(t testing.TB, database string, cfg recs.Config) *replica {
	t.Helper()
	r := start(t, database, cfg)
	r.waitReady(t)
	return r
}

func (r *replica) waitReady(t testing.TB) {
	t.Helper()
	eventually(t, "ready", func() (string, bool) {
		code, body := r.get(t, "/readyz")
		return body, code == http.StatusOK
	})
}

func (r *replica) get(t testing.TB, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + r.admin + path)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(body)
}

// recommend returns the recommendations as "id score" lines, after the basis.
func (r *replica) recommend(t testing.TB, product string, limit int32) []string {
	t.Helper()
	resp, err := r.Recommend(t.Context(), &recsv1.RecommendRequest{ProductId: product, Limit: limit}, grpc.WaitForReady(true))
	must(t, err)
	lines := []string{resp.GetBasis().String()}
	for _, p := range resp.GetRecommendations() {
		lines = append(lines, fmt.Sprintf("%s %.4f", p.GetProductId(), p.GetScore()))
	}
	return lines
}

// importing sends each list of baskets as one message and returns the answer.
func (r *replica) importing(ctx context.Context, messages ...[]*recsv1.Basket) (*recsv1.ImportBasketsResponse, error) {
	stream, err := r.ImportBaskets(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	for _, baskets := range messages {
		err := stream.Send(&recsv1.ImportBasketsRequest{Baskets: baskets})
		if errors.Is(err, io.EOF) {
			break // the server has ended the call; CloseAndRecv tells why
		}
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

func (r *replica) mustImport(t testing.TB, messages ...[]*recsv1.Basket) *recsv1.ImportBasketsResponse {
	t.Helper()
	resp, err := r.importing(t.Context(), messages...)
	must(t, err)
	return resp
}

// query reads one value from the database.
func query[T any](t testing.TB, r *replica, sql string) T {
	t.Helper()
	rows, err := r.pool.Query(t.Context(), sql)
	must(t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	must(t, err)
	return value
}

func basket(id string, products ...string) *recsv1.Basket {
	return &recsv1.Basket{Id: id, ProductIds: products}
}

// eventually waits until condition holds; what it last said is printed when it does not.
func eventually(t testing.TB, what string, condition func() (last string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		last, ok := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s; last seen: %s", what, patience, last)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
