package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
)

// patience bounds every wait for something that is to happen by itself.
const patience = 30 * time.Second

func logger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	conn, err := broker.Connect(settings(url), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func settings(url string) broker.Config {
	return broker.Config{URL: url, Heartbeat: 100 * time.Millisecond}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until what returns want.
func eventually[T any](t *testing.T, want T, what func() T) {
	t.Helper()
	var got T
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if got = what(); cmp.Equal(got, want) {
			return
		}
	}
	t.Fatalf("did not come true (-want +got):\n%s", cmp.Diff(want, got))
}

func TestConfig_NamesTheVariableAndKeepsThePassword(t *testing.T) {
	for name, variables := range map[string][]string{
		"NATS_URL":           {"NATS_URL=http://user:hunter2@host", "NATS_URL=nats://", "NATS_URL=host:4222", "NATS_URL=nats://a:hunter2@b,", "NATS_URL=nats://hunter2\x7f"},
		"INSTANCE_ID":        {"INSTANCE_ID=a.b", "INSTANCE_ID=>", "INSTANCE_ID=" + strings.Repeat("x", 129)},
		"INSTANCE_HEARTBEAT": {"INSTANCE_HEARTBEAT=1ms", "INSTANCE_HEARTBEAT=2m"},
	} {
		for _, variable := range variables {
			_, err := config.Load[broker.Config]([]string{variable})
			if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%.40s: got %v, want an error that names %s and repeats nothing secret", variable, err, name)
			}
		}
	}
	if _, err := config.Load[broker.Config]([]string{"NATS_URL=nats://a:b@c:4222,tls://d:4222", "INSTANCE_ID=recs-2"}); err != nil {
		t.Error(err)
	}
}

func TestConnect_WithoutAURLIsABrokerThatNeverComes(t *testing.T) {
	conn, err := broker.Connect(settings(""), "test", logger(t))
	if conn != nil || err != nil {
		t.Fatalf("got %v, %v, want no connection and no error", conn, err)
	}
	if err := broker.Await(within(t, 20*time.Millisecond), conn); err == nil {
		t.Error("it came")
	}
	broker.Watch(within(t, 20*time.Millisecond), conn, logger(t), "any", ">", func(broker.Entries) { t.Error("something changed") })
	if got := broker.NewFleet(conn, logger(t)).Services(); len(got) != 0 {
		t.Errorf("got %v, want nobody", got)
	}
	if err := broker.Close(t.Context(), conn); err != nil {
		t.Error(err)
	}
}

func TestConnect_DoesNotWaitForABrokerThatIsAwayAndFindsItLater(t *testing.T) {
	server := brokertest.New(t)
	start := time.Now()
	conn := connect(t, server.URL())
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if err := conn.Publish("x", nil); err == nil {
		t.Error("a message was taken for a broker that is away")
	}
	server.Start()
	if err := broker.Await(within(t, patience), conn); err != nil {
		t.Fatalf("not connected: %v", err)
	}
	server.Stop()
	eventually(t, false, conn.IsConnected)
	server.Start()
	if err := broker.Await(within(t, patience), conn); err != nil {
		t.Fatalf("not connected again: %v", err)
	}
}

func TestConnect_HasTheInboxOfItsUser(t *testing.T) {
	server := brokertest.Start(t)
	for user, prefix := range map[string]string{"": "_INBOX.", "recs:secret@": "_INBOX.recs."} {
		conn := connect(t, strings.Replace(server.URL(), "nats://", "nats://"+user, 1))
		if got := conn.NewInbox(); !strings.HasPrefix(got, prefix) || strings.Contains(got, "..") {
			t.Errorf("user %q: got inbox %s, want %s…", user, got, prefix)
		}
	}
}

func TestClose_IsBoundedAndHandsOutWhatArrived(t *testing.T) {
	server := brokertest.Start(t)
	conn := connect(t, server.URL())
	got := make(chan struct{}, 1)
	if _, err := conn.Subscribe("x", func(*nats.Msg) { got <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish("x", nil); err != nil {
		t.Fatal(err)
	}
	if err := broker.Close(t.Context(), conn); err != nil {
		t.Error(err)
	}
	select {
	case <-got:
	default:
		t.Error("the message was lost")
	}

	stuck := connect(t, server.URL())
	release := make(chan struct{})
	defer close(release)
	arrived := make(chan struct{})
	if _, err := stuck.Subscribe("y", func(*nats.Msg) { close(arrived); <-release }); err != nil {
		t.Fatal(err)
	}
	if err := stuck.Publish("y", nil); err != nil {
		t.Fatal(err)
	}
	<-arrived
	start := time.Now()
	if err := broker.Close(t.Context(), stuck); err == nil || time.Since(start) > 10*time.Second {
		t.Errorf("a handler that hangs: got %v after %s, want an error after about 2 s", err, time.Since(start))
	}
	server.Stop()
	away := connect(t, server.URL())
	if err := broker.Close(t.Context(), away); err != nil {
		t.Errorf("a broker that is away: %v", err)
	}
}

// seen collects what a Watch tells.
type seen struct {
	mu   sync.Mutex
	keys map[string]string
}

func (s *seen) tell(entries broker.Entries) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = map[string]string{}
	for key, entry := range entries {
		s.keys[key] = string(entry.Value())
	}
}

func (s *seen) now() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func TestWatch_TellsWhatIsThereOverOutagesAndBucketsMadeAnew(t *testing.T) {
	server := brokertest.New(t)
	conn := connect(t, server.URL())
	ctx, stop := context.WithCancel(t.Context())
	var got seen
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		broker.Watch(ctx, conn, logger(t), "b", ">", got.tell)
	}()
	server.Start() // the bucket is not there yet
	kv := server.Bucket("b")
	eventually(t, map[string]string{}, got.now)
	put(t, kv, "one", "1")
	put(t, kv, "two", "2")
	eventually(t, map[string]string{"one": "1", "two": "2"}, got.now)
	if err := kv.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	eventually(t, map[string]string{"two": "2"}, got.now)

	server.Stop()
	eventually(t, false, conn.IsConnected)
	if diff := cmp.Diff(map[string]string{"two": "2"}, got.now()); diff != "" {
		t.Errorf("what was told does not stay true (-want +got):\n%s", diff)
	}
	server.Start()
	kv = server.Bucket("b")
	put(t, kv, "three", "3")
	eventually(t, map[string]string{"two": "2", "three": "3"}, got.now)

	stop()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the watch does not end")
	}
}

func TestWatch_EndsWhileTheBrokerIsAway(t *testing.T) {
	server := brokertest.Start(t, "b")
	conn := connect(t, server.URL())
	ctx, stop := context.WithCancel(t.Context())
	told := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		broker.Watch(ctx, conn, logger(t), "b", ">", func(broker.Entries) {
			select {
			case told <- struct{}{}:
			default:
			}
		})
	}()
	<-told
	server.Stop()
	eventually(t, false, conn.IsConnected)
	stop()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the watch does not end")
	}
}

func put(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	if _, err := kv.PutString(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// process is what a process does to be in the fleet.
type process struct {
	announcer *broker.Announcer
	conn      *nats.Conn
	ended     chan error
}

func start(t *testing.T, url, service, instance string) *process {
	t.Helper()
	cfg := settings(url)
	cfg.Instance = instance
	conn := connect(t, url)
	announcer, err := broker.NewAnnouncer(cfg, conn, service, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{announcer: announcer, conn: conn, ended: make(chan error, 1)}
	go func() { p.ended <- announcer.Serve() }()
	return p
}

// crash cuts the process off without a word.
func (p *process) crash() { p.conn.Close() }

func (p *process) leave(t *testing.T) {
	t.Helper()
	if err := p.announcer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

func fleet(t *testing.T, conn *nats.Conn) *broker.Fleet {
	t.Helper()
	f := broker.NewFleet(conn, logger(t))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return f
}

func TestFleet_CountsWhoIsReadyAndWhoStartedAgain(t *testing.T) {
	server := brokertest.Start(t, broker.InstancesBucket)
	f := fleet(t, connect(t, server.URL()))
	first, second := start(t, server.URL(), "recs", "recs"), start(t, server.URL(), "recs", "recs-2")
	other := start(t, server.URL(), "search", "search")
	eventually(t, []broker.Service{{Name: "recs", Running: 2}, {Name: "search", Running: 1}}, f.Services)
	for _, p := range []*process{first, second, other} {
		p.announcer.Ready()
	}
	eventually(t, []broker.Service{{Name: "recs", Ready: 2, Running: 2}, {Name: "search", Ready: 1, Running: 1}}, f.Services)

	first.crash()
	eventually(t, []broker.Service{{Name: "recs", Ready: 1, Running: 1}, {Name: "search", Ready: 1, Running: 1}}, f.Services)
	again := start(t, server.URL(), "recs", "recs")
	again.announcer.Ready()
	eventually(t, []broker.Service{{Name: "recs", Ready: 2, Running: 2, Restarts: 1}, {Name: "search", Ready: 1, Running: 1}}, f.Services)

	other.announcer.Drain()
	eventually(t, []broker.Service{{Name: "recs", Ready: 2, Running: 2, Restarts: 1}, {Name: "search", Running: 1}}, f.Services)
	other.leave(t)
	eventually(t, []broker.Service{{Name: "recs", Ready: 2, Running: 2, Restarts: 1}, {Name: "search"}}, f.Services)
	start(t, server.URL(), "search", "search")
	eventually(t, []broker.Service{{Name: "recs", Ready: 2, Running: 2, Restarts: 1}, {Name: "search", Running: 1, Restarts: 1}}, f.Services)
}

func TestFleet_NobodyAgesWhileTheBrokerIsAway(t *testing.T) {
	server := brokertest.Start(t, broker.InstancesBucket)
	conn := connect(t, server.URL())
	f := fleet(t, conn)
	recs := start(t, server.URL(), "recs", "recs")
	recs.announcer.Ready()
	want := []broker.Service{{Name: "recs", Ready: 1, Running: 1}}
	eventually(t, want, f.Services)
	server.Stop()
	eventually(t, false, conn.IsConnected)
	for start := time.Now(); time.Since(start) < 10*100*time.Millisecond; time.Sleep(10 * time.Millisecond) { // three beats are enough to be gone
		if diff := cmp.Diff(want, f.Services()); diff != "" {
			t.Fatalf("aged while nobody could be heard (-want +got):\n%s", diff)
		}
	}
	recs.crash()
	server.Start()
	eventually(t, []broker.Service{{Name: "recs"}}, f.Services)
}

func TestFleet_OldEntriesAreNoSignOfLife(t *testing.T) {
	server := brokertest.Start(t, broker.InstancesBucket)
	kv := server.Bucket(broker.InstancesBucket)
	old, err := json.Marshal(broker.Announcement{Service: "recs", Instance: "recs", BootID: "a", Ready: true, HeartbeatMS: 1})
	if err != nil {
		t.Fatal(err)
	}
	put(t, kv, "recs.recs", string(old))
	put(t, kv, "recs.forged", string(old))
	put(t, kv, "search.broken", "{")
	f := fleet(t, connect(t, server.URL()))
	eventually(t, []broker.Service{{Name: "recs"}}, f.Services)
}

func TestAnnouncer_TellsWhatTheContractSays(t *testing.T) {
	server := brokertest.Start(t, broker.InstancesBucket)
	cfg := settings(server.URL())
	announcer, err := broker.NewAnnouncer(cfg, connect(t, server.URL()), "recs", logger(t))
	if err != nil {
		t.Fatal(err)
	}
	// Without a connection that has come up yet Announce may fail; this one has.
	eventually(t, nil, func() error { return announcer.Announce(t.Context()) })
	kv := server.Bucket(broker.InstancesBucket)
	keys, err := kv.Keys(t.Context())
	if err != nil || len(keys) != 1 || !strings.HasPrefix(keys[0], "recs.") {
		t.Fatalf("got keys %v (%v), want one of recs", keys, err)
	}
	entry, err := kv.Get(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(entry.Value(), &got); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, got["started_at"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("started_at: got %v (%v), want a time in RFC 3339", got["started_at"], err)
	}
	want := map[string]any{"service": "recs", "instance": strings.TrimPrefix(keys[0], "recs."), "ready": false, "heartbeat_ms": 100.0}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "boot_id" || k == "started_at" })); diff != "" {
		t.Errorf("announcement (-want +got):\n%s", diff)
	}
}

func TestAnnouncer_WithoutABrokerStillServesAndEnds(t *testing.T) {
	announcer, err := broker.NewAnnouncer(settings(""), nil, "recs", logger(t))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- announcer.Serve() }()
	announcer.Ready()
	announcer.Drain()
	if err := announcer.Announce(t.Context()); err == nil {
		t.Error("it announced to nobody")
	}
	if err := announcer.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEnsure_CreatesAndThenUpdates(t *testing.T) {
	js := brokertest.Start(t).JetStream()
	for _, age := range []time.Duration{time.Hour, 2 * time.Hour} {
		stream, err := broker.EnsureStream(t.Context(), js, jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}, MaxAge: age})
		if err != nil || stream.CachedInfo().Config.MaxAge != age {
			t.Fatalf("stream: got %v, want age %s", err, age)
		}
		consumer, err := broker.EnsureConsumer(t.Context(), js, "orders", jetstream.ConsumerConfig{Durable: "recs", AckPolicy: jetstream.AckExplicitPolicy, AckWait: age})
		if err != nil || consumer.CachedInfo().Config.AckWait != age {
			t.Fatalf("consumer: got %v, want wait %s", err, age)
		}
	}
	if _, err := broker.EnsureConsumer(t.Context(), js, "nothing", jetstream.ConsumerConfig{Durable: "recs"}); err == nil || !strings.Contains(err.Error(), "recs") {
		t.Errorf("got %v, want an error that names the consumer", err)
	}
	if _, err := broker.EnsureStream(t.Context(), js, jetstream.StreamConfig{Name: "a.b"}); err == nil || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("got %v, want an error that names the stream", err)
	}
}

func TestHeader_KeepsTheNamesInLowerCase(t *testing.T) {
	header := nats.Header{}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
	propagation.TraceContext{}.Inject(ctx, broker.Header(header))
	if _, ok := header["traceparent"]; !ok || len(header) != 1 {
		t.Errorf("got %v, want one traceparent", header)
	}
	back := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), broker.Header(header)))
	if back.TraceID() != (trace.TraceID{1}) {
		t.Errorf("got %v back", back)
	}
	if got := broker.Header(header).Keys(); !cmp.Equal(got, []string{"traceparent"}) {
		t.Errorf("got keys %v", got)
	}
}

func TestConnect_LogsNoPassword(t *testing.T) {
	server := brokertest.Start(t)
	var log bytes.Buffer
	var mu sync.Mutex
	conn, err := broker.Connect(settings(strings.Replace(server.URL(), "nats://", "nats://recs:hunter2@", 1)), "test", slog.New(slog.NewTextHandler(&locked{w: &log, mu: &mu}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	eventually(t, true, func() bool { mu.Lock(); defer mu.Unlock(); return strings.Contains(log.String(), "broker lost") })
	conn.Close()
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has the password:\n%s", log.String())
	}
}

type locked struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestFleet_ShowsTheGreatestGaugeOfThoseThatRun(t *testing.T) {
	server := brokertest.Start(t, broker.InstancesBucket)
	f := fleet(t, connect(t, server.URL()))
	if _, said := f.Gauge("checkout", "age"); said {
		t.Error("a number that nobody has announced")
	}
	for instance, age := range map[string]float64{"checkout-1": 3, "checkout-2": 7} {
		cfg := settings(server.URL())
		cfg.Instance = instance
		announcer, err := broker.NewAnnouncer(cfg, connect(t, server.URL()), "checkout", logger(t))
		if err != nil {
			t.Fatal(err)
		}
		announcer.Gauge("age", func() float64 { return age })
		eventually(t, nil, func() error { return announcer.Announce(t.Context()) })
	}
	eventually(t, 7, func() float64 {
		greatest, _ := f.Gauge("checkout", "age")
		return greatest
	})
}
