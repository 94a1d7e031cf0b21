package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
)

// rig is a database with an outbox in it, and a broker.
type rig struct {
	t      *testing.T
	pool   *pgxpool.Pool
	url    string
	owner  string // URL of the role that owns the tables
	broker *brokertest.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	pool, owner := migratedWithOwner(t)
	return &rig{t: t, pool: pool, url: pool.Config().ConnString(), owner: owner, broker: brokertest.Start(t)}
}

// newRigOn is newRig on a database whose role owns it.
func newRigOn(t *testing.T, url string) *rig {
	t.Helper()
	pool := migrate(t, url, url)
	return &rig{t: t, pool: pool, url: url, owner: url, broker: brokertest.Start(t)}
}

// settings are the defaults, with the given variables.
func settings(t testing.TB, environ ...string) outbox.Config {
	t.Helper()
	cfg, err := load(environ...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func load(environ ...string) (outbox.Config, error) { return config.Load[outbox.Config](environ) }

func database(t testing.TB, url string) postgres.Config {
	t.Helper()
	cfg, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + url})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// connect connects to the broker as services do, until the test ends.
func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	cfg, err := config.Load[broker.Config]([]string{"NATS_URL=" + url})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := broker.Connect(cfg, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// replica is one process's Outbox.
type replica struct {
	*outbox.Outbox
	t        *testing.T
	registry *prometheus.Registry
	stop     func()
}

// start runs a replica of the service "test", which fills the stream "test", until the test ends or stop is called.
// prepare may change what it is made with and subscribe it.
func (r *rig) start(cfg outbox.Config, prepare ...func(*outbox.Deps)) *replica {
	return r.startWith(cfg, nil, prepare...)
}

func (r *rig) startWith(cfg outbox.Config, subscribe func(*outbox.Outbox), prepare ...func(*outbox.Deps)) *replica {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	deps := outbox.Deps{Service: "test", Stream: "test", Database: database(r.t, r.url), Conn: connect(r.t, r.broker.URL()),
		Log: slog.New(slog.NewTextHandler(testWriter{r.t}, nil)), Registry: registry}
	for _, p := range prepare {
		p(&deps)
	}
	o, err := outbox.New(r.t.Context(), cfg, deps)
	if err != nil {
		r.t.Fatal(err)
	}
	if subscribe != nil {
		subscribe(o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := o.Run(ctx); err != nil {
			r.t.Errorf("Run: got %v, want nil", err)
		}
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			r.t.Error("Run did not return")
		}
	})
	r.t.Cleanup(stop)
	return &replica{Outbox: o, t: r.t, registry: registry, stop: stop}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(line []byte) (int, error) {
	w.t.Logf("%s", line)
	return len(line), nil
}

// metric returns the value of a counter or gauge.
func (r *replica) metric(name string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return 0
}

// append commits n events on subject, in transactions of 500, and returns their ids.
func (r *rig) append(n int, subject string) []uuid.UUID {
	r.t.Helper()
	return appendEvents(r.t, r.pool, n, subject)
}

func appendEvents(t testing.TB, pool *pgxpool.Pool, n int, subject string) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, 0, n)
	for len(ids) < n {
		err := postgres.SendTx(t.Context(), pool, func(b *pgx.Batch) {
			for range min(500, n-len(ids)) {
				e, err := outbox.NewEvent(subject, wrapperspb.String(fmt.Sprintf("event %d", len(ids))))
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, e.ID)
				outbox.Queue(t.Context(), b, e)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// count runs a query that returns one number.
func (r *rig) count(query string, args ...any) int {
	r.t.Helper()
	return count(r.t, r.pool, query, args...)
}

func count(t testing.TB, pool *pgxpool.Pool, query string, args ...any) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (r *rig) unpublished() int {
	r.t.Helper()
	return r.count("SELECT count(*) FROM outbox WHERE published_at IS NULL")
}

// create makes a table, as the role that owns the others.
func (r *rig) create(table string) {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.owner)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close(r.t.Context()) }()
	if _, err := conn.Exec(r.t.Context(), table); err != nil {
		r.t.Fatal(err)
	}
}

// stream makes a stream for all subjects that begin with name.
func (r *rig) stream(name string) jetstream.Stream {
	r.t.Helper()
	s, err := r.broker.JetStream().CreateOrUpdateStream(r.t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage, AllowAtomicPublish: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// stored returns how often each event is in the stream.
func (r *rig) stored(name string) map[string]int {
	r.t.Helper()
	s, err := r.broker.JetStream().Stream(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	found := map[string]int{}
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq && info.State.Msgs > 0; sequence++ {
		m, err := s.GetMsg(r.t.Context(), sequence)
		if err != nil {
			r.t.Fatal(err)
		}
		found[m.Header.Get(jetstream.MsgIDHeader)]++
	}
	return found
}

// wantStored checks that the stream has each of the events, once.
func (r *rig) wantStored(name string, ids []uuid.UUID) {
	r.t.Helper()
	got := r.stored(name)
	for _, id := range ids {
		if got[id.String()] != 1 {
			r.t.Errorf("event %s is in the stream %d times, want once", id, got[id.String()])
		}
	}
	if len(got) != len(ids) {
		r.t.Errorf("the stream has %d events, want %d", len(got), len(ids))
	}
}

// publish puts an event on the broker as a relay of another service would.
func (r *rig) publish(subject string, id string, header nats.Header) {
	r.t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte{10, 1, 'x'} // a StringValue
	m.Header[jetstream.MsgIDHeader] = []string{id}
	m.Header["ce-type"] = []string{"google.protobuf.StringValue"}
	maps.Copy(m.Header, header)
	if _, err := r.broker.JetStream().PublishMsg(r.t.Context(), m); err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
