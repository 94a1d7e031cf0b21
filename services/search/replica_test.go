package search_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	moneyv1 "example.com/watertight/proto/money/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search"
)

func TestMain(m *testing.M) {
	// The database that the tests of a binary share is a process of its own, with two goroutines that wait for it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"), goleak.IgnoreAnyFunction("os/exec.(*Cmd).watchCtx"))
}

// patience bounds every wait for something that is to happen by itself.
const patience = 20 * time.Second

// replica is the service as its process runs it, on ports of its own.
type replica struct {
	searchv1.SearchServiceClient
	service *search.Service
	pool    *pgxpool.Pool
	admin   string
	stop    func() // begins the drain and waits for the end
	drain   func() // only begins it
}

// start runs a replica on the database and returns at once.
func start(t testing.TB, database, owner string) *replica {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	registry := prometheus.NewRegistry()
	process, err := lifecycle.New(lifecycle.Config{AdminAddr: "127.0.0.1:0", DrainTimeout: 5 * time.Second}, log, registry)
	must(t, err)
	server, err := rpc.NewServer(rpc.ServerConfig{
		Addr: "127.0.0.1:0", Pool: bulkhead.Config{Size: 16, Queue: 64}, MaxStreams: 16, MaxConnectionAge: time.Hour,
	}, rpc.ServerDeps{
		Log: log, Registry: registry, TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		Propagator: propagation.TraceContext{}, MapError: postgres.RPCError,
	})
	must(t, err)
	db := postgres.Config{
		URL: database, MigrateURL: owner, MaxConns: 8, ConnectTimeout: 2 * time.Second, StatementTimeout: 5 * time.Second,
		LockTimeout: 2 * time.Second, IdleInTransactionTimeout: 10 * time.Second, MigrateTimeout: time.Minute,
	}
	pool, err := postgres.Open(t.Context(), db, postgres.Deps{Name: "search"})
	must(t, err)
	service, err := search.New(search.Config{RefreshInterval: 10 * time.Millisecond}, search.Deps{Pool: pool, Database: db, Log: log, Registry: registry})
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
	r := &replica{SearchServiceClient: searchv1.NewSearchServiceClient(conn), service: service, pool: pool, admin: process.AdminAddr(), drain: cancel}
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
		http.DefaultClient.CloseIdleConnections()
	}
	t.Cleanup(r.stop)
	return r
}

// startReady is start, and waits until the replica says that it is ready.
func startReady(t testing.TB, database, owner string) *replica {
	t.Helper()
	r := start(t, database, owner)
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

// find returns the first page of a search.
func (r *replica) find(t testing.TB, query string) *searchv1.SearchProductsResponse {
	t.Helper()
	resp, err := r.SearchProducts(t.Context(), &searchv1.SearchProductsRequest{Query: query}, grpc.WaitForReady(true))
	must(t, err)
	return resp
}

// importing sends each list of products as one message and returns the answer.
func (r *replica) importing(ctx context.Context, messages ...[]*searchv1.Product) (*searchv1.ImportProductsResponse, error) {
	stream, err := r.ImportProducts(ctx, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	for _, products := range messages {
		err := stream.Send(&searchv1.ImportProductsRequest{Products: products})
		if errors.Is(err, io.EOF) {
			break // the server has ended the call; CloseAndRecv tells why
		}
		if err != nil {
			return nil, err
		}
	}
	return stream.CloseAndRecv()
}

func (r *replica) mustImport(t testing.TB, messages ...[]*searchv1.Product) *searchv1.ImportProductsResponse {
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

func product(id, name string) *searchv1.Product {
	return &searchv1.Product{
		Id: id, Name: name, Description: "About " + name, Category: "Home", Price: &moneyv1.Money{Currency: "GBP", Minor: 255}, Popularity: 3,
	}
}

// lamps returns n products, named so that their order by name is that of their numbers.
func lamps(n int) []*searchv1.Product {
	out := make([]*searchv1.Product, n)
	for i := range out {
		out[i] = product(fmt.Sprintf("L%03d", i), fmt.Sprintf("Lamp %03d", i))
	}
	return out
}

func ids(products []*searchv1.Product) string {
	out := make([]string, 0, len(products))
	for _, p := range products {
		out = append(out, p.GetId())
	}
	return strings.Join(out, " ")
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
