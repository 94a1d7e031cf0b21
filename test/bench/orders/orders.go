// Package orders compares PlaceOrder with pgbench running the same statements with as many clients: one after the other, as pgbench does
// by itself, and in the two round trips that the service makes. Everyone has a database of their own, all made alike.
package orders

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"example.com/watertight/platform/collector"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/service"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	"example.com/watertight/services/checkout"
	"example.com/watertight/test/bench/servers"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

//go:embed placeorder.sql
var statements string

// idsPerRun keeps the ids of pgbench's orders apart; the first has twelve digits.
const idsPerRun = 1_000_000_000

// each is pgbench as it comes.
const each = "pgbench, each statement"

// clients is how many place orders at once.
const clients = 16

// fewest is what each of pgbench's clients places at least: with fewer, its new connections, which are cold, make it slower than it is.
const fewest = 1_000

// before is how many orders every database holds at first: for an empty table PostgreSQL plans to read all of it, and connections keep
// such a plan while the table grows.
const before = 5_000

// order is the one that everyone places, as pgbench's script names its parts.
func order() map[string]string {
	return map[string]string{
		"customer": "c-1", "products": "{A,B,C}", "names": "{Name of A,Name of B,Name of C}", "quantities": "{1,2,3}", "prices": "{100,200,300}",
		"totals": "{100,400,900}", "total": "1400", "currency": "GBP", "token": "tok_ok", "status": "pending", "at": time.Now().UTC().Format(time.RFC3339Nano),
		"fingerprint": `\x` + strings.Repeat("ab", sha256.Size), "type": "events.v1.OrderPlaced", "subject": "checkout.placed",
		"payload": `\x` + strings.Repeat("ab", 110), // as long as the event of this order
	}
}

type rows struct {
	servers  *servers.Servers
	orders   int // of each client, each time
	script   string
	variants []variant
}

// variant is a way to place orders.
type variant struct {
	row      *table.Row // against pgbench statement by statement
	limit    *table.Row // against pgbench in the service's two round trips; nil: no row
	database string
	nats     string // where the relay publishes; empty: it does nothing
	how      func(*shop) place
}

// Start prepares the part.
func Start(ctx context.Context, r *suite.Run) (suite.Part, error) {
	s, err := r.Servers(ctx)
	if err != nil {
		return nil, err
	}
	o, err := newRows(s, 1_500)
	if err != nil {
		return nil, err
	}
	if r.Quick {
		o.orders = 300
	}
	row := func(what, against string, target table.Target) *table.Row {
		return r.Row("orders", what, against, "orders/s", target)
	}
	const pipelined = "pgbench, pipelined"
	o.variants = []variant{
		{
			row:   row("PlaceOrder, the method", each, table.AtLeast(0.8)),
			limit: row("PlaceOrder, the method", pipelined, table.AtLeast(0.65)), database: "method", how: direct,
		},
		{
			row:   row("PlaceOrder over gRPC", each, table.AtLeast(0.8)),
			limit: row("PlaceOrder over gRPC", pipelined, table.AtLeast(0.45)), database: "called", how: called,
		},
		{row: row("PlaceOrder over gRPC, relay at work", each, table.None()), database: "relayed", nats: s.NATS, how: called},
	}
	if err := o.prepare(ctx, "baseline"); err != nil {
		return nil, err
	}
	if err := s.Execute(ctx, "baseline", fmt.Sprintf(kept, before)); err != nil {
		return nil, err
	}
	for _, v := range o.variants {
		if err := s.Create(ctx, v.database, "baseline"); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// newRows writes pgbench's script.
func newRows(s *servers.Servers, orders int) (*rows, error) {
	o := &rows{servers: s, orders: orders, script: filepath.Join(s.Dir, "placeorder.sql")}
	return o, os.WriteFile(o.script, []byte(statements), 0o600)
}

// prepare makes a migrated database with the prices of three products.
func (o *rows) prepare(ctx context.Context, database string) error {
	if err := o.servers.Create(ctx, database, "template0"); err != nil {
		return err
	}
	migrating, err := o.open(ctx, database, "")
	if err != nil {
		return err
	}
	if err := migrating.close(); err != nil {
		return err
	}
	return o.servers.Execute(ctx, database, `INSERT INTO prices
		VALUES ('A', 'Name of A', 'GBP', 100), ('B', 'Name of B', 'GBP', 200), ('C', 'Name of C', 'GBP', 300)`)
}

// Close ends nothing: each round ends what it started.
func (*rows) Close() error { return nil }

// Round has everyone place their orders.
func (o *rows) Round(ctx context.Context, n int) error {
	var one, pipelined float64
	rates := make([]float64, len(o.variants))
	steps := []func() error{
		func() (err error) { one, err = o.pgbench(ctx, "baseline", 2*n, false); return err },
		func() (err error) { pipelined, err = o.pgbench(ctx, "baseline", 2*n+1, true); return err },
	}
	for i, v := range o.variants {
		steps = append(steps, func() (err error) { rates[i], err = o.rate(ctx, n, v); return err })
	}
	if n%2 == 1 { // everyone is early in some rounds and late in others
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	for i, v := range o.variants {
		v.row.Add(rates[i], one)
		if v.limit != nil {
			v.limit.Add(rates[i], pipelined)
		}
	}
	return nil
}

// pgbench places as many orders as a variant does, or more; run keeps their ids apart from those of other runs.
func (o *rows) pgbench(ctx context.Context, database string, run int, pipelined bool) (float64, error) {
	program := filepath.Join(o.servers.Cluster.Programs.Bin, "pgbench")
	if err := o.servers.Execute(ctx, database, "VACUUM ANALYZE", "CHECKPOINT"); err != nil {
		return 0, err
	}
	args := []string{
		"--no-vacuum", "--protocol=prepared", "--jobs=2", "--client=" + strconv.Itoa(clients),
		"--transactions=" + strconv.Itoa(max(o.orders, fewest)), "--file=" + o.script,
		"--define=n=" + strconv.Itoa(100_000_000_000+run*idsPerRun), "--define=pipelined=" + strconv.FormatBool(pipelined),
	}
	for name, value := range order() {
		args = append(args, "--define="+name+"="+value)
	}
	out, err := exec.CommandContext(ctx, program, append(args, o.servers.URL(database))...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	found := regexp.MustCompile(`(?m)^tps = ([0-9.]+)`).FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench tells no rate:\n%s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

type place func(context.Context, *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error)

func direct(s *shop) place { return s.feature.PlaceOrder }

func called(s *shop) place {
	return func(ctx context.Context, req *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error) {
		return s.client.PlaceOrder(ctx, req, grpc.WaitForReady(true))
	}
}

// rate starts a checkout process, and has each client place its orders one after the other.
func (o *rows) rate(ctx context.Context, n int, v variant) (_ float64, err error) {
	if err := o.servers.Execute(ctx, v.database, "VACUUM ANALYZE", "CHECKPOINT"); err != nil {
		return 0, err
	}
	s, err := o.open(ctx, v.database, v.nats)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	send := v.how(s)
	if err := o.place(ctx, send, fmt.Sprintf("warm-%d", n), 10); err != nil { // connections and prepared statements
		return 0, err
	}
	start := time.Now()
	err = o.place(ctx, send, strconv.Itoa(n), o.orders)
	return float64(clients*o.orders) / time.Since(start).Seconds(), err
}

func (o *rows) place(ctx context.Context, send place, run string, orders int) error {
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			for n := range orders {
				_, err := send(ctx, &checkoutv1.PlaceOrderRequest{
					IdempotencyKey: fmt.Sprintf("%s-%d-%d", run, c, n), CustomerId: "c-1", Currency: "GBP", PaymentToken: "tok_ok",
					Lines: []*checkoutv1.NewLine{{ProductId: "A", Quantity: 1}, {ProductId: "B", Quantity: 2}, {ProductId: "C", Quantity: 3}},
				})
				if err != nil {
					return fmt.Errorf("place order: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// shop is a checkout process inside this one, put together as its command does.
type shop struct {
	feature *checkout.Service
	client  checkoutv1.CheckoutServiceClient
	close   func() error
}

// open starts a process with the default settings and waits until its database is migrated. Without a broker its relay does nothing.
func (o *rows) open(ctx context.Context, database, nats string) (*shop, error) {
	cfg, err := config.Load[struct {
		Service   service.Config
		Outbox    outbox.Config
		Checkout  checkout.Config
		Collector collector.Config
	}]([]string{
		"DATABASE_URL=" + o.servers.URL(database), "NATS_URL=" + nats, "GRPC_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0",
		"DRAIN_DELAY=0s", "ORDER_EXPIRY=24h",
	})
	if err != nil {
		return nil, err
	}
	base, err := service.New(ctx, "checkout", cfg.Service.BoundByDatabase(), checkout.Callers(), io.Discard)
	if err != nil {
		return nil, err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "checkout", Stream: checkout.Stream, Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Registry: base.Telemetry.Registry,
	})
	if err != nil {
		return nil, err
	}
	feature, err := checkout.New(cfg.Checkout, checkout.Deps{
		Pool: base.Pool, Database: cfg.Service.Database, Events: events, Log: base.Log, Registry: base.Telemetry.Registry,
	})
	if err != nil {
		return nil, err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	conn, err := rpc.Dial("static:///"+base.Server.Addr(), rpc.ClientDeps{
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Propagator: base.Telemetry.Propagator,
	})
	if err != nil {
		return nil, err
	}
	collectAsBefore := cfg.Collector.Apply() // as checkout's command does
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- base.Run(running) }()
	s := &shop{feature, checkoutv1.NewCheckoutServiceClient(conn), func() error {
		stop()
		defer collectAsBefore()
		return errors.Join(conn.Close(), <-ended)
	}}
	err = servers.Await(ctx, servers.StartBound, func(ctx context.Context) error {
		return o.servers.Execute(ctx, database, "SELECT FROM outbox LIMIT 0") // the last table that the migrations make
	})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}
