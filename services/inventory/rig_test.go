package inventory_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpc"
	eventsv1 "example.com/watertight/proto/events/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
	"example.com/watertight/services/inventory"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 30 * time.Second

// shop is a broker with inventory's replicas on it, and what stands for checkout: it announces orders from an outbox of its
// own and hears what inventory says to them.
type shop struct {
	t      *testing.T
	broker *brokertest.Server
	orders *pgxpool.Pool // of checkout's database
	relay  *outbox.Outbox
	app    string // URLs of inventory's database
	owner  string
	pool   *pgxpool.Pool

	mu    sync.Mutex
	heard map[uuid.UUID][]string // what was said to each order: the subjects, with the short product
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, broker: brokertest.Start(t), heard: map[uuid.UUID][]string{}}
	s.app, s.owner = pgtest.NewRoles(t)
	s.pool = open(t, s.app)
	url := pgtest.New(t)
	migrations := fstest.MapFS{"00001_outbox.sql": {Data: []byte(outbox.Schema)}}
	must(t, postgres.Migrate(t.Context(), database(t, url, url), migrations, slog.New(slog.DiscardHandler)))
	s.orders = open(t, url)
	relay, err := outbox.New(t.Context(), load[outbox.Config](t, "RELAY_POLL=10ms"), outbox.Deps{Service: "checkout", Stream: "orders",
		Database: database(t, url, url), Conn: connect(t, s.broker.URL()), Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	must(t, err)
	s.relay = relay
	relay.Consume("inventory", map[string]outbox.Handler{
		"inventory.reserved": outbox.Decode(func(_ context.Context, _ pgx.Tx, m *eventsv1.StockReserved) error {
			return s.hear(m.GetOrderId(), "reserved")
		}),
		"inventory.rejected": outbox.Decode(func(_ context.Context, _ pgx.Tx, m *eventsv1.StockRejected) error {
			return s.hear(m.GetOrderId(), "rejected "+m.GetProductId())
		}),
		"inventory.released": outbox.Decode(func(_ context.Context, _ pgx.Tx, m *eventsv1.StockReleased) error {
			return s.hear(m.GetOrderId(), "released")
		}),
	})
	run(t, relay.Run)
	return s
}

// run runs do until the test ends.
func run(t *testing.T, do func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- do(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("did not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (s *shop) hear(orderID, what string) error {
	id, err := uuid.Parse(orderID)
	if err != nil {
		return outbox.Permanent(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[id] = append(s.heard[id], what)
	return nil
}

// answers returns what was said to an order so far.
func (s *shop) answers(order uuid.UUID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard[order])
}

// answer waits for the n-th thing said to an order and returns it.
func (s *shop) answer(order uuid.UUID, n int) string {
	s.t.Helper()
	eventually(s.t, "order is answered", func() bool { return len(s.answers(order)) >= n })
	return s.answers(order)[n-1]
}

func (s *shop) announce(subject string, message proto.Message) {
	s.t.Helper()
	event, err := outbox.NewEvent(subject, message)
	must(s.t, err)
	must(s.t, postgres.InTx(s.t.Context(), s.orders, func(tx pgx.Tx) error { return outbox.Append(s.t.Context(), tx, event) }))
	s.relay.Wake()
}

func (s *shop) place(order uuid.UUID, items ...*eventsv1.Item) {
	s.t.Helper()
	s.announce("orders.placed", &eventsv1.OrderPlaced{OrderId: order.String(), Items: items})
}

func (s *shop) cancel(order uuid.UUID) {
	s.t.Helper()
	s.announce("orders.cancelled", &eventsv1.OrderCancelled{OrderId: order.String()})
}

func of(product string, quantity int64) *eventsv1.Item {
	return &eventsv1.Item{ProductId: product, Quantity: quantity}
}

// replica is one process of the service.
type replica struct {
	inventoryv1.InventoryServiceClient
	stop     func()
	registry *prometheus.Registry
}

// start runs a replica and waits until it has migrated its database.
func (s *shop) start() *replica {
	s.t.Helper()
	t := s.t
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	registry := prometheus.NewRegistry()
	process, err := lifecycle.New(lifecycle.Config{AdminAddr: "127.0.0.1:0", DrainTimeout: 5 * time.Second}, log, registry)
	must(t, err)
	server, err := rpc.NewServer(rpc.ServerConfig{Addr: "127.0.0.1:0", Pool: bulkhead.Config{Size: 16, Queue: 16}, MaxStreams: 16, MaxConnectionAge: time.Hour},
		rpc.ServerDeps{Log: log, Registry: registry, TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
			Propagator: propagation.TraceContext{}, MapError: postgres.RPCError})
	must(t, err)
	pool := open(t, s.app)
	events, err := outbox.New(t.Context(), load[outbox.Config](t), outbox.Deps{Service: "inventory", Stream: inventory.Stream,
		Database: database(t, s.app, s.owner), Conn: connect(t, s.broker.URL()), Log: log, Registry: registry})
	must(t, err)
	feature := inventory.New(inventory.Deps{Pool: pool, Database: database(t, s.app, s.owner), Events: events, Log: log})
	feature.Register(server)
	feature.Start(process)
	process.Server("grpc", server)
	stop := run(t, process.Run)
	conn, err := rpc.Dial("static:///"+server.Addr(), rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{}})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r := &replica{inventoryv1.NewInventoryServiceClient(conn), stop, registry}
	_, err = r.GetStock(t.Context(), &inventoryv1.GetStockRequest{ProductIds: []string{"none"}}, grpc.WaitForReady(true))
	must(t, err)
	return r
}

func (r *replica) stock(t *testing.T, counts ...*inventoryv1.StockCount) {
	t.Helper()
	stream, err := r.ImportStock(t.Context(), grpc.WaitForReady(true))
	must(t, err)
	must(t, stream.Send(&inventoryv1.ImportStockRequest{Counts: counts}))
	_, err = stream.CloseAndRecv()
	must(t, err)
}

func have(product string, available int64) *inventoryv1.StockCount {
	return &inventoryv1.StockCount{ProductId: product, Available: available}
}

// level is the stock of one product as the service tells it.
type level struct{ Available, Reserved int64 }

func (r *replica) level(t *testing.T, product string) level {
	t.Helper()
	resp, err := r.GetStock(t.Context(), &inventoryv1.GetStockRequest{ProductIds: []string{product}}, grpc.WaitForReady(true))
	must(t, err)
	if len(resp.GetLevels()) != 1 {
		t.Fatalf("stock of %s: got %v, want one level", product, resp)
	}
	return level{resp.GetLevels()[0].GetAvailable(), resp.GetLevels()[0].GetReserved()}
}

func (r *replica) wantLevel(t *testing.T, product string, available, reserved int64) {
	t.Helper()
	if got, want := r.level(t, product), (level{available, reserved}); got != want {
		t.Errorf("stock of %s: got %+v, want %+v", product, got, want)
	}
}

func (s *shop) count(query string, args ...any) int {
	s.t.Helper()
	var n int
	must(s.t, s.pool.QueryRow(s.t.Context(), query, args...).Scan(&n))
	return n
}

func load[T any](t *testing.T, environ ...string) T {
	t.Helper()
	cfg, err := config.Load[T](environ)
	must(t, err)
	return cfg
}

func database(t *testing.T, app, owner string) postgres.Config {
	t.Helper()
	return load[postgres.Config](t, "DATABASE_URL="+app, "MIGRATE_DATABASE_URL="+owner)
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), database(t, url, url), postgres.Deps{Name: "test"})
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	conn, err := broker.Connect(load[broker.Config](t, "NATS_URL="+url), "test", slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(conn.Close)
	return conn
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
