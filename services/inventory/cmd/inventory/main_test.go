package main

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	eventsv1 "example.com/watertight/proto/events/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// TestMain is also the main of the processes that the tests kill.
func TestMain(m *testing.M) {
	if os.Getenv("INVENTORY_CHILD") != "" {
		lifecycle.Main("inventory", run)
		return
	}
	os.Exit(m.Run())
}

func TestRun_HelpNamesTheVariablesAndTheirDefaults(t *testing.T) {
	var out bytes.Buffer
	_ = run(t.Context(), []string{"--help"}, nil, &out) // it says that help was shown
	for _, want := range []string{"DATABASE_URL", "GRPC_ADDR", "NATS_URL", "RELAY_MODE", "[lease]", "RELAY_BATCH", "[200]", "INBOX_RETENTION"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("--help lacks %s:\n%s", want, out.String())
		}
	}
}

func TestRun_MistakesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		args, environ []string
		want          string
	}{
		"no database":     {nil, nil, "DATABASE_URL"},
		"useless setting": {nil, []string{"DATABASE_URL=postgres://x@localhost/x", "RELAY_BATCH=0"}, "RELAY_BATCH"},
		"arguments":       {[]string{"serve"}, nil, `"serve"`},
	} {
		err := run(t.Context(), c.args, c.environ, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that names %s", name, err, c.want)
		}
	}
}

func TestRun_ServesWithoutABrokerAndEndsCleanly(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	grpcAddr, adminAddr := freeAddr(t), freeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		ended <- run(ctx, nil, []string{"DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner, "DRAIN_DELAY=0s",
			"NATS_URL=nats://" + freeAddr(t), "GRPC_ADDR=" + grpcAddr, "ADMIN_ADDR=" + adminAddr}, &out)
	}()
	defer cancel()
	eventually(t, 30*time.Second, "ready", func() bool {
		resp, err := http.Get("http://" + adminAddr + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	importStock(t, grpcAddr, 5, "A")
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ended with %v\n%s", err, out.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("did not end")
	}
}

// TestReport35_KilledFiftyTimesAtRandomEachOrderEndsAndStockAddsUp kills one of two replicas fifty times while 500 orders
// are placed, some of them cancelled, one time in three before they are placed.
func TestReport35_KilledFiftyTimesAtRandomEachOrderEndsAndStockAddsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	server := brokertest.Start(t)
	app, owner := pgtest.NewRoles(t)
	environ := []string{"INVENTORY_CHILD=1", "DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner, "NATS_URL=" + server.URL(), "DRAIN_DELAY=0s",
		"LOG_LEVEL=error", "CONSUMER_ACK_WAIT=1s", "RELAY_LEASE=1s", "RELAY_PUBLISH_TIMEOUT=400ms", "FAULTS_ENABLED=true"}
	replicas := []*child{
		{t: t, addr: freeAddr(t), environ: append(environ, "CRASH_POINT=after-commit:0.02")},
		{t: t, addr: freeAddr(t), environ: append(environ, "CRASH_POINT=after-publish:0.02")},
	}
	for _, r := range replicas {
		r.start()
		t.Cleanup(r.kill)
	}
	importStock(t, replicas[0].addr, 300, "A", "B")

	checkout := newCheckout(t, server.URL())
	const orders = 500
	placed := make([]uuid.UUID, orders)
	for n := range placed {
		placed[n] = uuid.New()
		place := func() {
			checkout.announce("orders.placed", &eventsv1.OrderPlaced{OrderId: placed[n].String(), Items: []*eventsv1.Item{
				{ProductId: []string{"A", "B"}[n%2], Quantity: 1}, {ProductId: []string{"B", "A"}[n%2], Quantity: 1}}})
		}
		cancel := func() { checkout.announce("orders.cancelled", &eventsv1.OrderCancelled{OrderId: placed[n].String()}) }
		switch n % 6 {
		case 0:
			place()
			cancel()
		case 1:
			cancel()
			place()
		default:
			place()
		}
		if n%10 == 9 { // 50 times
			victim := replicas[random.IntN(2)]
			time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond) // the moment of the kill is the point
			victim.kill()
			victim.start()
		}
		for _, r := range replicas {
			r.revive()
		}
	}
	pool := open(t, app)
	eventually(t, 90*time.Second, "each order has ended and all events are out", func() bool {
		for _, r := range replicas {
			r.revive()
		}
		return count(t, pool, "SELECT count(*) FROM inbox") == orders+2*84 && count(t, pool, "SELECT count(*) FROM outbox WHERE published_at IS NULL") == 0
	})
	if got := count(t, pool, "SELECT count(*) FROM reservations"); got != orders {
		t.Errorf("seed %d: orders: got %d, want %d", seed, got, orders)
	}
	// Of every six orders two were cancelled; the others, or at least all that there is stock for, are reserved.
	cancelled := count(t, pool, "SELECT count(*) FROM reservations WHERE status = 'released'")
	standing := count(t, pool, "SELECT count(*) FROM reservations WHERE status = 'reserved'")
	if cancelled > 168 || standing > 300 || standing == 0 {
		t.Errorf("seed %d: got %d released and %d reserved, want at most 168 and 300", seed, cancelled, standing)
	}
	for _, product := range []string{"A", "B"} {
		if got := count(t, pool, "SELECT available + reserved FROM stock WHERE product_id = $1", product); got != 300 {
			t.Errorf("seed %d: %s: available + reserved: got %d, want 300", seed, product, got)
		}
		reserved := count(t, pool, "SELECT reserved FROM stock WHERE product_id = $1", product)
		if got := count(t, pool, "SELECT coalesce(sum(quantity), 0) FROM reservation_lines WHERE product_id = $1", product); got != reserved || reserved != standing {
			t.Errorf("seed %d: %s: reserved: got %d, lines add up to %d, orders to %d", seed, product, reserved, got, standing)
		}
	}
	if got := count(t, pool, "SELECT count(*) FROM dead_letters"); got != 0 {
		t.Errorf("seed %d: dead letters: got %d, want 0", seed, got)
	}
}

// child is a process of the service.
type child struct {
	t       *testing.T
	addr    string
	environ []string
	cmd     *exec.Cmd
	died    chan struct{}
}

func (c *child) start() {
	c.t.Helper()
	exe, err := os.Executable()
	must(c.t, err)
	c.cmd = exec.Command(exe)
	c.cmd.Env = append(append(os.Environ(), c.environ...), "GRPC_ADDR="+c.addr, "ADMIN_ADDR=127.0.0.1:0")
	c.cmd.Stdout, c.cmd.Stderr = os.Stderr, os.Stderr
	must(c.t, c.cmd.Start())
	died := make(chan struct{})
	c.died = died
	go func(cmd *exec.Cmd) { _ = cmd.Wait(); close(died) }(c.cmd) // how it died does not matter
}

func (c *child) kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL) // it may have died at its crash point
	<-c.died
}

// revive starts the process again when it has died at its crash point.
func (c *child) revive() {
	c.t.Helper()
	select {
	case <-c.died:
		c.start()
	default:
	}
}

// checkout announces orders as that service does.
type checkout struct {
	t    *testing.T
	pool *pgxpool.Pool
	*outbox.Outbox
}

func newCheckout(t *testing.T, brokerURL string) *checkout {
	t.Helper()
	url := pgtest.New(t)
	pool := open(t, url)
	must(t, postgres.Migrate(t.Context(), database(t, url), fstest.MapFS{"00001_outbox.sql": {Data: []byte(outbox.Schema)}}, slog.New(slog.DiscardHandler)))
	brokerConfig, err := config.Load[broker.Config]([]string{"NATS_URL=" + brokerURL})
	must(t, err)
	conn, err := broker.Connect(brokerConfig, "checkout", slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(conn.Close)
	cfg, err := config.Load[outbox.Config](nil)
	must(t, err)
	o, err := outbox.New(t.Context(), cfg, outbox.Deps{Service: "checkout", Stream: "orders", Database: database(t, url), Conn: conn,
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return &checkout{t, pool, o}
}

func (c *checkout) announce(subject string, message proto.Message) {
	c.t.Helper()
	event, err := outbox.NewEvent(subject, message)
	must(c.t, err)
	must(c.t, postgres.InTx(c.t.Context(), c.pool, func(tx pgx.Tx) error { return outbox.Append(c.t.Context(), tx, event) }))
	c.Wake()
}

func importStock(t *testing.T, addr string, pieces int64, products ...string) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	var counts []*inventoryv1.StockCount
	for _, p := range products {
		counts = append(counts, &inventoryv1.StockCount{ProductId: p, Available: pieces})
	}
	client := inventoryv1.NewInventoryServiceClient(conn)
	eventually(t, 30*time.Second, "stock is imported", func() bool {
		stream, err := client.ImportStock(t.Context(), grpc.WaitForReady(true))
		if err != nil {
			return false
		}
		if err := stream.Send(&inventoryv1.ImportStockRequest{Counts: counts}); err != nil {
			return false
		}
		_, err = stream.CloseAndRecv()
		return err == nil
	})
}

func database(t *testing.T, url string) postgres.Config {
	t.Helper()
	cfg, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + url})
	must(t, err)
	return cfg
}

func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), database(t, url), postgres.Deps{Name: "test"})
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func count(t *testing.T, pool *pgxpool.Pool, query string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// freeAddr returns an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func eventually(t *testing.T, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
