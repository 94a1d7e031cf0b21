package checkout_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	"example.com/watertight/services/checkout"
)

// settings are those of the command.
type settings struct {
	Process  lifecycle.Config
	Server   rpc.ServerConfig
	Database postgres.Config
	Broker   broker.Config
	Outbox   outbox.Config
	Checkout checkout.Config
	SyncCall checkout.SyncCallConfig
}

// shop is a checkout process inside the test, reached over gRPC, and its database.
type shop struct {
	checkoutv1.CheckoutServiceClient
	admin string        // URL of the admin listener
	pool  *pgxpool.Pool // of the test, as the owner of the tables
	stop  func()        // begins the drain
	ended <-chan error  // what Run returned
}

// open starts a process on a new database and waits until it is ready. More settings are NAME=value.
func open(t testing.TB, more ...string) *shop {
	t.Helper()
	app, owner := pgtest.NewRoles(t)
	s := start(t, owner, append(more, "DATABASE_URL="+app, "MIGRATE_DATABASE_URL="+owner)...)
	s.waitReady(t)
	return s
}

// start starts a process and does not wait.
func start(t testing.TB, owner string, environ ...string) *shop {
	t.Helper()
	cfg, err := config.Load[settings](append([]string{"ADMIN_ADDR=127.0.0.1:0", "GRPC_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s", "DRAIN_TIMEOUT=5s"}, environ...))
	must(t, err)
	log, registry, tracers := slog.New(slog.DiscardHandler), prometheus.NewRegistry(), sdktrace.NewTracerProvider()
	process, err := lifecycle.New(cfg.Process, log, registry)
	must(t, err)
	server, err := rpc.NewServer(cfg.Server, rpc.ServerDeps{
		Log: log, Registry: registry, TracerProvider: tracers, MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}, MapError: postgres.RPCError,
	})
	must(t, err)
	pool, err := postgres.Open(t.Context(), cfg.Database, postgres.Deps{Name: "checkout"})
	must(t, err)
	nats, err := broker.Connect(cfg.Broker, "checkout", log)
	must(t, err)
	events, err := outbox.New(t.Context(), cfg.Outbox, outbox.Deps{Service: "checkout", Stream: checkout.Stream, Database: cfg.Database, Conn: nats, Log: log, Registry: registry})
	must(t, err)
	call, err := checkout.NewSyncCall(cfg.SyncCall, rpc.ClientDeps{TracerProvider: tracers, MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}}, registry)
	must(t, err)
	process.Closer("recs", call.Close)
	service, err := checkout.New(cfg.Checkout, checkout.Deps{Pool: pool, Database: cfg.Database, Events: events, Log: log, Registry: registry, SyncCall: call})
	must(t, err)
	service.Register(server)
	service.Start(process)
	process.Server("grpc", server)
	process.Closer("postgres", func(context.Context) error { pool.Close(); return nil })
	process.Closer("broker", func(ctx context.Context) error { return broker.Close(ctx, nats) })

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("process: %v", err)
		}
	})
	conn, err := rpc.Dial("static:///"+server.Addr(), rpc.ClientDeps{TracerProvider: tracers, MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	own, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + owner})
	must(t, err)
	mine, err := postgres.Open(t.Context(), own, postgres.Deps{Name: "test"})
	must(t, err)
	t.Cleanup(mine.Close)
	return &shop{checkoutv1.NewCheckoutServiceClient(waiting{conn}), "http://" + process.AdminAddr(), mine, stop, ended}
}

// waiting lets every call wait for the connection, as the first ones would else fail before health is known.
type waiting struct{ *grpc.ClientConn }

func (w waiting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return w.ClientConn.Invoke(ctx, method, args, reply, append(opts, grpc.WaitForReady(true))...)
}

func (w waiting) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return w.ClientConn.NewStream(ctx, desc, method, append(opts, grpc.WaitForReady(true))...)
}

// get returns the status and the text of an admin page.
func (s *shop) get(t testing.TB, page string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin+page, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

func (s *shop) code(t testing.TB, page string) int {
	t.Helper()
	code, _ := s.get(t, page)
	return code
}

func (s *shop) waitReady(t testing.TB) {
	t.Helper()
	eventually(t, "ready", func() bool { return s.code(t, "/readyz") == http.StatusOK })
}

// list puts prices in GBP on the list, given as id, minor units, id, minor units, and so on.
func (s *shop) list(t testing.TB, pairs ...any) {
	t.Helper()
	req := &checkoutv1.ImportPricesRequest{}
	for id, minor := range pairwise(pairs) {
		req.Prices = append(req.Prices, priceOf(id, "Name of "+id, "GBP", minor))
	}
	if _, err := s.imports(t, req); err != nil {
		t.Fatalf("import prices: %v", err)
	}
}

func (s *shop) imports(t testing.TB, messages ...*checkoutv1.ImportPricesRequest) (int64, error) {
	t.Helper()
	stream, err := s.ImportPrices(t.Context())
	must(t, err)
	for _, m := range messages {
		if stream.Send(m) != nil {
			break // the reason comes with CloseAndRecv
		}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetPrices(), err
}

func (s *shop) count(t testing.TB, sql string) (n int) {
	t.Helper()
	must(t, s.pool.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

func (s *shop) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), sql, args...)
	must(t, err)
}

// rowsOfOrders counts the rows of every table that an order writes.
func (s *shop) rowsOfOrders(t testing.TB) int {
	t.Helper()
	return s.count(t, `SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM order_lines) + (SELECT count(*) FROM order_events)
		+ (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM outbox)`)
}

func priceOf(id, name, currency string, minor int64) *checkoutv1.Price {
	return &checkoutv1.Price{ProductId: id, Name: name, Price: &moneyv1.Money{Currency: currency, Minor: minor}}
}

// wanted is an order of lines, given as id, quantity, id, quantity, and so on.
func wanted(key string, pairs ...any) *checkoutv1.PlaceOrderRequest {
	req := &checkoutv1.PlaceOrderRequest{IdempotencyKey: key, CustomerId: "c-1", Currency: "GBP", PaymentToken: "tok_ok"}
	for id, quantity := range pairwise(pairs) {
		req.Lines = append(req.Lines, &checkoutv1.NewLine{ProductId: id, Quantity: quantity})
	}
	return req
}

// pairwise reads ids and numbers that take turns.
func pairwise(pairs []any) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for pair := range slices.Chunk(pairs, 2) {
			id, isText := pair[0].(string)
			number, isNumber := pair[1].(int)
			if !isText || !isNumber {
				panic(fmt.Sprintf("not an id and a number: %v", pair))
			}
			if !yield(id, int64(number)) {
				return
			}
		}
	}
}

// place places an order that must succeed.
func (s *shop) place(t testing.TB, req *checkoutv1.PlaceOrderRequest) *checkoutv1.PlaceOrderResponse {
	t.Helper()
	resp, err := s.PlaceOrder(t.Context(), req)
	if err != nil {
		t.Fatalf("place order: %v", err)
	}
	return resp
}

// wantError checks an error's code and reason, and that it names what it should.
func wantError(t testing.TB, err error, code codes.Code, reason string, names ...string) {
	t.Helper()
	if status.Code(err) != code || rpcerr.Reason(err) != reason {
		t.Errorf("error: got %v with reason %q, want %s with reason %s", err, rpcerr.Reason(err), code, reason)
		return
	}
	text := fmt.Sprint(status.Convert(err).Message(), rpcerr.Info(err).GetMetadata(), rpcerr.Fields(err))
	for _, name := range names {
		if !strings.Contains(text, name) {
			t.Errorf("error: got %s, want it to name %q", text, name)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok, for as long as a loaded machine may need.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
