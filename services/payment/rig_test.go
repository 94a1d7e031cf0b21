package payment_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpc"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	paymentv1 "example.com/watertight/proto/payment/v1"
	"example.com/watertight/services/payment"
	"example.com/watertight/services/payment/sandbox"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 40 * time.Second

// settings are those of the command.
type settings struct {
	Process  lifecycle.Config
	Server   rpc.ServerConfig
	Database postgres.Config
	Broker   broker.Config
	Outbox   outbox.Config
	Payment  payment.Config
	Sandbox  sandbox.Config
}

// rig is a database, a broker with the stream of the orders, and what the test itself reaches them by.
type rig struct {
	app, owner string
	pool       *pgxpool.Pool
	broker     *brokertest.Server
	js         jetstream.JetStream
}

func newRig(t *testing.T) *rig {
	t.Helper()
	app, owner := pgtest.NewRoles(t)
	return rigOn(t, app, owner)
}

func rigOn(t *testing.T, app, owner string) *rig {
	t.Helper()
	own, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + owner})
	must(t, err)
	pool, err := postgres.Open(t.Context(), own, postgres.Deps{Name: "test"})
	must(t, err)
	t.Cleanup(pool.Close)
	server := brokertest.Start(t)
	r := &rig{app: app, owner: owner, pool: pool, broker: server, js: server.JetStream()}
	_, err = r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	must(t, err)
	return r
}

// replica is one payment process inside the test.
type replica struct {
	paymentv1.PaymentServiceClient
	stop func() // begins the drain and waits for the end
}

// start starts a process that asks the sandbox, or what wrap makes of it, and waits until it is ready.
func (r *rig) start(t *testing.T, wrap func(payment.Provider) payment.Provider, environ ...string) *replica {
	t.Helper()
	cfg, err := config.Load[settings](append([]string{"ADMIN_ADDR=127.0.0.1:0", "GRPC_ADDR=127.0.0.1:0", "DRAIN_DELAY=0s", "DRAIN_TIMEOUT=5s",
		"DATABASE_URL=" + r.app, "MIGRATE_DATABASE_URL=" + r.owner, "NATS_URL=" + r.broker.URL()}, environ...))
	must(t, err)
	log, registry := slog.New(slog.NewTextHandler(t.Output(), nil)), prometheus.NewRegistry()
	process, err := lifecycle.New(cfg.Process, log, registry)
	must(t, err)
	server, err := rpc.NewServer(cfg.Server, rpc.ServerDeps{Log: log, Registry: registry, TracerProvider: tracenoop.NewTracerProvider(),
		MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{}, MapError: postgres.RPCError})
	must(t, err)
	pool, err := postgres.Open(t.Context(), cfg.Database, postgres.Deps{Name: "payment"})
	must(t, err)
	conn, err := broker.Connect(cfg.Broker, "payment", log)
	must(t, err)
	events, err := outbox.New(t.Context(), cfg.Outbox, outbox.Deps{Service: "payment", Stream: payment.Stream, Database: cfg.Database, Conn: conn,
		Log: log, Registry: registry})
	must(t, err)
	var provider payment.Provider
	provider, err = sandbox.New(cfg.Sandbox, pool)
	must(t, err)
	if wrap != nil {
		provider = wrap(provider)
	}
	service, err := payment.New(cfg.Payment, payment.Deps{Pool: pool, Database: cfg.Database, Events: events, Provider: provider, Log: log,
		TracerProvider: tracenoop.NewTracerProvider(), Registry: registry})
	must(t, err)
	service.Register(server)
	service.Start(process)
	process.Server("grpc", server)
	process.Closer("postgres", func(context.Context) error { pool.Close(); return nil })
	process.Closer("broker", func(ctx context.Context) error { return broker.Close(ctx, conn) })

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("process ended with %v", err)
		}
	})
	t.Cleanup(stop)
	client, err := rpc.Dial("static:///"+server.Addr(), rpc.ClientDeps{TracerProvider: tracenoop.NewTracerProvider(),
		MeterProvider: metricnoop.NewMeterProvider(), Propagator: propagation.TraceContext{}})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	p := &replica{paymentv1.NewPaymentServiceClient(client), stop}
	_, err = p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: uuid.NewString()}, grpc.WaitForReady(true))
	if err == nil {
		t.Fatal("there is a payment for an order that nobody placed")
	}
	return p
}

// publish puts an event on the stream of the orders, as checkout's relay does, under a new id.
func (r *rig) publish(t *testing.T, subject string, message proto.Message, header ...string) {
	t.Helper()
	payload, err := proto.Marshal(message)
	must(t, err)
	m := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{
		jetstream.MsgIDHeader: {uuid.NewString()}, "ce-type": {string(message.ProtoReflect().Descriptor().FullName())},
	}}
	for i := 0; i < len(header); i += 2 {
		m.Header[header[i]] = []string{header[i+1]}
	}
	_, err = r.js.PublishMsg(t.Context(), m)
	must(t, err)
}

func (r *rig) request(t *testing.T, order, token string, header ...string) {
	t.Helper()
	r.publish(t, "orders.payment_requested", &eventsv1.PaymentRequested{OrderId: order, CustomerId: "c-1",
		Amount: &moneyv1.Money{Currency: "GBP", Minor: 510}, PaymentToken: token}, header...)
}

func (r *rig) cancel(t *testing.T, order string) {
	t.Helper()
	r.publish(t, "orders.cancelled", &eventsv1.OrderCancelled{OrderId: order, Reason: "expired"})
}

// state is a payment and all that it left, in short: its status, what the ledger and the events say of it.
func (r *rig) state(t *testing.T, order string) string {
	t.Helper()
	var s string
	err := r.pool.QueryRow(t.Context(), `SELECT
		coalesce((SELECT status || ' ' || charged || '-' || refunded FROM payments WHERE order_id = $1), 'none')
		|| ' | ledger ' || (SELECT coalesce(string_agg(kind || ' ' || amount, ', ' ORDER BY entry), 'empty') FROM sandbox_ledger WHERE key = $1)
		|| ' | ' || (SELECT coalesce(string_agg(subject, ', ' ORDER BY created_at, id), 'silent') FROM outbox WHERE position($2 in payload) > 0)`,
		order, []byte(order)).Scan(&s)
	must(t, err)
	return s
}

// becomes waits until the order's payment is in the state and all its events are published.
func (r *rig) becomes(t *testing.T, order, want string) {
	t.Helper()
	got := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got = r.state(t, order); got == want {
			return
		}
	}
	t.Fatalf("payment of %s:\n got %s\nwant %s", order, got, want)
}

// settled waits until every event was consumed and every payment is final.
func (r *rig) settled(t *testing.T) {
	t.Helper()
	eventually(t, "every event is consumed and every payment settled", func() bool {
		stream, err := r.js.Stream(t.Context(), "orders")
		must(t, err)
		said, err := stream.Info(t.Context())
		must(t, err)
		consumer, err := stream.Consumer(t.Context(), "payment")
		if err != nil {
			return false
		}
		heard, err := consumer.Info(t.Context())
		return err == nil && heard.AckFloor.Stream >= said.State.LastSeq && r.count(t, "SELECT count(*) FROM payments WHERE due_at IS NOT NULL") == 0
	})
}

func (r *rig) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	must(t, r.pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gate lets each call to the provider pass only when the test says so.
type gate struct {
	payment.Provider
	calls chan call
}

// call is a call that waits; the test answers with what is to happen.
type call struct {
	name string
	key  uuid.UUID
	pass chan verdict
}

type verdict int

const (
	through    verdict = iota // done and answered
	lostBefore                // never done, no answer
	lostAfter                 // done, no answer
)

var errLost = fmt.Errorf("connection lost")

func (g *gate) wait(name string, key uuid.UUID) verdict {
	c := call{name, key, make(chan verdict, 1)}
	g.calls <- c
	return <-c.pass
}

func (g *gate) Charge(ctx context.Context, key uuid.UUID, c payment.Charge) (payment.Answer, error) {
	v := g.wait("charge", key)
	if v == lostBefore {
		return payment.Answer{}, errLost
	}
	answer, err := g.Provider.Charge(context.WithoutCancel(ctx), key, c)
	if v == lostAfter {
		return payment.Answer{}, errLost
	}
	return answer, err
}

func (g *gate) CallOff(ctx context.Context, key uuid.UUID) (int64, error) {
	v := g.wait("call off", key)
	if v == lostBefore {
		return 0, errLost
	}
	refunded, err := g.Provider.CallOff(context.WithoutCancel(ctx), key)
	if v == lostAfter {
		return 0, errLost
	}
	return refunded, err
}

// next is the next call to the provider.
func (g *gate) next(t *testing.T, name string) call {
	t.Helper()
	select {
	case c := <-g.calls:
		if c.name != name {
			t.Fatalf("the provider was asked to %s, want %s", c.name, name)
		}
		return c
	case <-time.After(patience):
		t.Fatalf("the provider was not asked to %s", name)
		return call{}
	}
}
