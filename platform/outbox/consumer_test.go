package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres/pgtest"
)

// effects makes a table in which a handler notes what it handled, and returns such a handler. The note is part of the
// event's transaction; a second one for the same event is not refused, so that it would be seen.
func (r *rig) effects() outbox.Handler {
	r.t.Helper()
	r.create("CREATE TABLE effects (event uuid NOT NULL)")
	return func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", m.ID)
		return err
	}
}

// handled returns the number of effects, and how many events they are of.
func (r *rig) handled() (effects, events int) {
	r.t.Helper()
	return r.count("SELECT count(*) FROM effects"), r.count("SELECT count(DISTINCT event) FROM effects")
}

func consuming(stream string, handlers map[string]outbox.Handler) func(*outbox.Outbox) {
	return func(o *outbox.Outbox) { o.Consume(stream, handlers) }
}

func TestConsumer_AppliesEachEventOnceAndAcknowledgesRepeats(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	r.stream("beta")
	note := r.effects()
	replica := r.startWith(settings(t), func(o *outbox.Outbox) {
		o.Consume("alpha", map[string]outbox.Handler{"alpha.happened": note})
		o.Consume("beta", map[string]outbox.Handler{"beta.happened": note})
	})
	// The broker knows repeats within one stream; those in another it delivers.
	for range 50 {
		id := uuid.NewString()
		r.publish("alpha.happened", id, nil)
		r.publish("beta.happened", id, nil)
	}
	r.publish("alpha.ignored", uuid.NewString(), nil)
	eventually(t, 20*time.Second, "50 effects and 50 duplicates", func() bool {
		effects, _ := r.handled()
		return effects == 50 && replica.metric("watertight_inbox_duplicates_total") == 50
	})
	for _, stream := range []string{"alpha", "beta"} {
		eventually(t, 5*time.Second, "all are acknowledged", func() bool {
			info := r.consumerInfo(stream)
			return info.NumAckPending == 0 && info.NumPending == 0
		})
	}
	if effects, events := r.handled(); effects != 50 || events != 50 {
		t.Errorf("got %d effects of %d events, want 50 of 50", effects, events)
	}
}

func (r *rig) consumerInfo(stream string) *jetstream.ConsumerInfo {
	r.t.Helper()
	c, err := r.broker.JetStream().Consumer(r.t.Context(), stream, "test")
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := c.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

// With one filter the request's subject ends in it, so that the broker's permissions can name it. A durable that has the
// same subject in a list, as it once was made, goes on where it was.
func TestConsumer_OfOneSubjectHasItAsTheFilterAndTakesOverTheListOfOld(t *testing.T) {
	r := newRig(t)
	made := r.stream("alpha")
	r.stream("beta")
	old, err := made.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "test", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute,
		FilterSubjects: []string{"alpha.happened"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.publish("alpha.happened", uuid.NewString(), nil)
	}
	first, err := old.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	note := r.effects()
	r.startWith(settings(t), func(o *outbox.Outbox) {
		o.Consume("alpha", map[string]outbox.Handler{"alpha.happened": note})
		o.Consume("beta", map[string]outbox.Handler{"beta.one": note, "beta.two": note})
	})
	r.publish("beta.two", uuid.NewString(), nil)
	eventually(t, 20*time.Second, "the two events that waited, and beta's", func() bool { return r.count("SELECT count(*) FROM effects") == 3 })
	type filters struct {
		One  string
		Many []string
	}
	for stream, want := range map[string]filters{"alpha": {One: "alpha.happened"}, "beta": {Many: []string{"beta.one", "beta.two"}}} {
		info := r.consumerInfo(stream)
		if diff := cmp.Diff(want, filters{info.Config.FilterSubject, info.Config.FilterSubjects}); diff != "" {
			t.Errorf("filters on %s (-want +got):\n%s", stream, diff)
		}
		if stream == "alpha" && info.Delivered.Consumer != 3 {
			t.Errorf("%d deliveries of three events, want the durable of before, which goes on", info.Delivered.Consumer)
		}
	}
}

func TestConsumer_TheOutcomeLeavesWithTheEffectAndWithoutAPoll(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	w := r.listen("test.>")
	r.stream("test")
	r.startWith(settings(t, "RELAY_POLL=1h"), consuming("alpha", map[string]outbox.Handler{
		"alpha.happened": outbox.Decode(func(ctx context.Context, tx pgx.Tx, m *wrapperspb.StringValue) error {
			e, err := outbox.NewEvent("test.followed", wrapperspb.String("after "+m.GetValue()))
			if err != nil {
				return err
			}
			return outbox.Append(ctx, tx, e)
		}),
	}))
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 10*time.Second, "the outcome is out", func() bool { return len(w.counts()) == 1 })
}

func TestReport29_TheConsumersSpanAndItsOutcomeBelongToTheTraceOfTheTransaction(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	spans := tracetest.NewSpanRecorder()
	r.startWith(settings(t), consuming("alpha", map[string]outbox.Handler{
		"alpha.happened": func(ctx context.Context, tx pgx.Tx, _ outbox.Message) error {
			return outbox.Append(ctx, tx, outbox.Event{ID: uuid.New(), Type: "t", Subject: "test.followed"})
		},
	}), func(d *outbox.Deps) { d.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)) })
	r.publish("alpha.happened", uuid.NewString(), nats.Header{"traceparent": {"00-01020000000000000000000000000000-0102000000000000-01"}})
	var process sdktrace.ReadOnlySpan
	eventually(t, 10*time.Second, "the consumer's span ended", func() bool {
		for _, s := range spans.Ended() {
			if s.SpanKind() == trace.SpanKindConsumer {
				process = s
			}
		}
		return process != nil
	})
	if process.Name() != "process alpha.happened" || process.Parent().SpanID() != (trace.SpanID{1, 2}) || process.SpanContext().TraceID() != (trace.TraceID{1, 2}) {
		t.Errorf("got span %q of trace %s with parent %s, want \"process alpha.happened\" in the event's", process.Name(), process.SpanContext().TraceID(), process.Parent().SpanID())
	}
	var traceparent string
	if err := r.pool.QueryRow(t.Context(), "SELECT traceparent FROM outbox").Scan(&traceparent); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("00-01020000000000000000000000000000-%s-01", process.SpanContext().SpanID()); traceparent != want {
		t.Errorf("traceparent of the outcome: got %s, want %s", traceparent, want)
	}
}

func TestConsumer_AFailedEventComesAgainAndLeavesNoTraceBefore(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	note := r.effects()
	var failures atomic.Int64
	replica := r.startWith(settings(t), consuming("alpha", map[string]outbox.Handler{
		"alpha.happened": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			err := note(ctx, tx, m)
			switch failures.Add(1) {
			case 1:
				return errors.Join(err, errors.New("not now"))
			case 2:
				panic("nor now")
			case 3:
				_, err := tx.Exec(ctx, "SELECT 1 / 0") // aborts the transaction
				return err
			}
			return err
		},
	}))
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 20*time.Second, "one effect", func() bool { effects, _ := r.handled(); return effects == 1 })
	if got := failures.Load(); got != 4 {
		t.Errorf("deliveries: got %d, want 4", got)
	}
	if got := replica.metric("watertight_inbox_redeliveries_total"); got != 3 {
		t.Errorf("watertight_inbox_redeliveries_total: got %v, want 3", got)
	}
	if got := r.count("SELECT count(*) FROM dead_letters"); got != 0 {
		t.Errorf("dead letters: got %d, want 0", got)
	}
}

func TestConsumer_AHopelessEventBecomesADeadLetterAndLaterOnesGoOn(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	note := r.effects()
	var mended atomic.Bool
	replica := r.startWith(settings(t, "CONSUMER_MAX_DELIVERIES=3", "CONSUMER_MAX_BACKOFF=50ms"), consuming("alpha", map[string]outbox.Handler{
		"alpha.permanent": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			if mended.Load() {
				return note(ctx, tx, m)
			}
			return fmt.Errorf("wrapped: %w", outbox.Permanent(errors.New("never\x00 \xff")))
		},
		"alpha.stubborn": func(context.Context, pgx.Tx, outbox.Message) error { return errors.New("not this time") },
		"alpha.good":     note,
		"alpha.decoded":  outbox.Decode(func(context.Context, pgx.Tx, *wrapperspb.Int64Value) error { return nil }),
	}))
	permanent, stubborn, wrongType := uuid.New(), uuid.New(), uuid.New()
	r.publish("alpha.permanent", permanent.String(), nats.Header{"traceparent": {"bad\xffness"}})
	r.publish("alpha.stubborn", stubborn.String(), nil)
	r.publish("alpha.decoded", wrongType.String(), nil)
	r.publish("alpha.good", "not an id", nil)
	for range 20 {
		r.publish("alpha.good", uuid.NewString(), nil)
	}
	eventually(t, 20*time.Second, "20 effects and 4 dead letters", func() bool {
		effects, _ := r.handled()
		return effects == 20 && replica.metric("watertight_dead_letters_total") == 4
	})
	const waiting = "watertight_dead_letters_waiting"
	eventually(t, 10*time.Second, "four wait", func() bool { return replica.metric(waiting) == 4 })
	letters, err := outbox.DeadLetters(t.Context(), r.pool, 10)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[uuid.UUID]string{}
	for _, l := range letters {
		reasons[l.ID] = fmt.Sprintf("%s %s %d", l.Side, l.Subject, l.Attempts)
		if !slices.Equal(l.Payload, []byte{10, 1, 'x'}) || l.LastError == "" {
			t.Errorf("dead letter %+v: want its payload and a reason", l)
		}
	}
	for id, want := range map[uuid.UUID]string{permanent: "consumed alpha.permanent 1", stubborn: "consumed alpha.stubborn 3", wrongType: "consumed alpha.decoded 1"} {
		if reasons[id] != want {
			t.Errorf("dead letter %s: got %q, want %q", id, reasons[id], want)
		}
	}

	// An operator tries again what has been mended, in vain what has not, and throws the rest away.
	mended.Store(true)
	if n, err := outbox.Retry(t.Context(), r.pool, permanent, stubborn); err != nil || n != 2 {
		t.Fatalf("retry: got %d, %v, want 2", n, err)
	}
	eventually(t, 10*time.Second, "the mended one is handled", func() bool {
		return r.count("SELECT count(*) FROM effects WHERE event = $1", permanent) == 1 && r.count("SELECT count(*) FROM dead_letters WHERE retry_at IS NOT NULL") == 0
	})
	if got := r.count("SELECT count(*) FROM dead_letters WHERE id = $1 AND attempts = 4", stubborn); got != 1 {
		t.Error("the stubborn one should be a dead letter with one more attempt")
	}
	eventually(t, 10*time.Second, "three wait", func() bool { return replica.metric(waiting) == 3 })
	if n, err := outbox.Purge(t.Context(), r.pool); err != nil || n != 3 {
		t.Errorf("purge: got %d, %v, want 3", n, err)
	}
	eventually(t, 10*time.Second, "none waits", func() bool { return replica.metric(waiting) == 0 })
}

func TestDeadLetters_OfTheBrokersRefusalAreListedRetriedAndPurged(t *testing.T) {
	r := newRig(t)
	r.append(2, "test.not a subject")
	r.start(settings(t, "RELAY_MAX_REFUSALS=1"))
	eventually(t, 10*time.Second, "they are dead", func() bool { return r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL") == 2 })
	letters, err := outbox.DeadLetters(t.Context(), r.pool, 10)
	if err != nil || len(letters) != 2 {
		t.Fatalf("got %v, %v, want two", letters, err)
	}
	if l := letters[0]; l.Side != outbox.PublishedSide || l.Attempts != 1 || !strings.Contains(l.LastError, "subject") || l.Type != "google.protobuf.StringValue" {
		t.Errorf("got %+v", l)
	}
	if _, err := r.pool.Exec(t.Context(), "UPDATE outbox SET subject = 'test.mended' WHERE id = $1", letters[0].ID); err != nil {
		t.Fatal(err)
	}
	if n, err := outbox.Retry(t.Context(), r.pool); err != nil || n != 2 {
		t.Errorf("retry: got %d, %v, want 2", n, err)
	}
	eventually(t, 10*time.Second, "one is published, one dead again", func() bool {
		return r.count("SELECT count(*) FROM outbox WHERE published_at IS NOT NULL") == 1 && r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL") == 1
	})
	// Another process, which has given nothing up, shows what waits as well.
	const waiting = "watertight_dead_letters_waiting"
	other := r.start(settings(t))
	eventually(t, 10*time.Second, "one waits", func() bool { return other.metric(waiting) == 1 })
	if given := other.metric("watertight_dead_letters_total"); given != 0 {
		t.Errorf("the other process has given up %v events, want none", given)
	}
	if n, err := outbox.Purge(t.Context(), r.pool, letters[1].ID, letters[0].ID); err != nil || n != 1 {
		t.Errorf("purge: got %d, %v, want 1: what was published is no dead letter", n, err)
	}
	eventually(t, 10*time.Second, "none waits", func() bool { return other.metric(waiting) == 0 })
}

func TestConsumer_ADatabaseThatIsAwayMakesNoDeadLetters(t *testing.T) {
	server := pgtest.NewServer(t)
	r := newRigOn(t, server.New())
	r.stream("alpha")
	note := r.effects()
	replica := r.startWith(settings(t, "CONSUMER_MAX_DELIVERIES=1", "CONSUMER_MAX_BACKOFF=100ms"),
		consuming("alpha", map[string]outbox.Handler{"alpha.happened": note}))
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 10*time.Second, "the first is handled", func() bool { effects, _ := r.handled(); return effects == 1 })
	server.Stop()
	for range 20 {
		r.publish("alpha.happened", uuid.NewString(), nil)
	}
	eventually(t, 20*time.Second, "they failed more often than they may", func() bool { return replica.metric("watertight_inbox_redeliveries_total") > 40 })
	server.Start()
	eventually(t, 20*time.Second, "all are handled", func() bool {
		var n int
		return r.pool.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&n) == nil && n == 21
	})
	if got := r.count("SELECT count(*) FROM dead_letters"); got != 0 {
		t.Errorf("dead letters: got %d, want 0", got)
	}
}

func TestReport36_ReplicasWithDifferentSettingsShareOneConsumer(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	note := r.effects()
	var mu sync.Mutex
	by := map[string]int{}
	counting := func(name string) outbox.Handler {
		return func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			mu.Lock()
			by[name]++
			mu.Unlock()
			return note(ctx, tx, m)
		}
	}
	both := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return by["second"] > 0 && by["first"] > 0
	}
	replica := func(name, ackWait string) *replica {
		return r.startWith(settings(t, "CONSUMER_ACK_WAIT="+ackWait), consuming("alpha", map[string]outbox.Handler{"alpha.happened": counting(name)}))
	}
	first := replica("first", "30s")
	gone := replica("second", "30s")
	const events = 600
	for n := range events {
		switch n {
		case events / 3:
			gone.stop()
			mu.Lock()
			clear(by)
			mu.Unlock()
			replica("second", "45s")
		case events / 2:
			eventually(t, 10*time.Second, "both replicas get events", func() bool {
				r.publish("alpha.happened", uuid.NewString(), nil)
				return both()
			})
		}
		r.publish("alpha.happened", uuid.NewString(), nil)
	}
	eventually(t, 30*time.Second, "all are handled and acknowledged", func() bool {
		info := r.consumerInfo("alpha")
		return info.NumPending == 0 && info.NumAckPending == 0
	})
	effects, distinct := r.handled()
	if effects != distinct || effects < events {
		t.Errorf("got %d effects of %d events, want as many as events, of which there were at least %d", effects, distinct, events)
	}
	if got := r.consumerInfo("alpha").Config.AckWait; got != 45*time.Second {
		t.Errorf("AckWait: got %s, want that of who came last, 45s", got)
	}
	first.stop() // Run returns nil
}

func TestConsumer_GivesBackWhatItHasNotBegunWhenItStops(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	note := r.effects()
	began, free := make(chan struct{}, 100), make(chan struct{})
	slow := r.startWith(settings(t, "CONSUMER_CONCURRENCY=2"), consuming("alpha", map[string]outbox.Handler{
		"alpha.happened": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			began <- struct{}{}
			select {
			case <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
			return note(ctx, tx, m)
		},
	}))
	for range 20 {
		r.publish("alpha.happened", uuid.NewString(), nil)
	}
	<-began
	start := time.Now()
	slow.stop() // its handlers never end by themselves
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the stop took %s, want about half a second", took)
	}
	r.startWith(settings(t), consuming("alpha", map[string]outbox.Handler{"alpha.happened": note}))
	// Far less than AckWait, after which what was not given back comes anyway.
	eventually(t, 10*time.Second, "another replica has handled all", func() bool { effects, _ := r.handled(); return effects == 20 })
}

func TestConsumer_WaitsForAStreamAndSurvivesTheBroker(t *testing.T) {
	r := newRig(t)
	note := r.effects()
	r.startWith(settings(t), consuming("alpha", map[string]outbox.Handler{"alpha.happened": note}))
	r.stream("alpha")
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 10*time.Second, "handled once the stream is there", func() bool { effects, _ := r.handled(); return effects == 1 })
	r.broker.Stop()
	r.broker.Start()
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 15*time.Second, "handled after the broker came back", func() bool { effects, _ := r.handled(); return effects == 2 })
	// Even when the consumer itself is gone, as after the loss of the broker's disk.
	if err := r.broker.JetStream().DeleteConsumer(t.Context(), "alpha", "test"); err != nil {
		t.Fatal(err)
	}
	r.publish("alpha.happened", uuid.NewString(), nil)
	eventually(t, 20*time.Second, "handled after the consumer was made again", func() bool { effects, _ := r.handled(); return effects == 3 })
}

func TestInbox_IsPurgedAfterItsRetention(t *testing.T) {
	r := newRig(t)
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO inbox (id, received_at) SELECT gen_random_uuid(), now() - interval '2 hours' FROM generate_series(1, 3000)`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.pool.Exec(t.Context(), `INSERT INTO inbox (id) SELECT gen_random_uuid() FROM generate_series(1, 100)`); err != nil {
		t.Fatal(err)
	}
	r.startWith(settings(t, "INBOX_RETENTION=1h", "STREAM_MAX_AGE=30m"), consuming("alpha", nil))
	eventually(t, 10*time.Second, "the old ids are gone", func() bool { return r.count("SELECT count(*) FROM inbox") == 100 })
}

func TestConfig_NamesTheVariableAtFault(t *testing.T) {
	for _, c := range []struct{ name, value string }{
		{"RELAY_MODE", "both"}, {"RELAY_BATCH", "0"}, {"RELAY_BATCH", "1001"}, {"RELAY_LEASE", "0s"}, {"RELAY_POLL", "0s"},
		{"RELAY_MAX_REFUSALS", "0"}, {"RELAY_DB_MAX_CONNS", "0"}, {"CONSUMER_DB_MAX_CONNS", "0"}, {"OUTBOX_RETENTION", "-1s"},
		{"INBOX_RETENTION", "168h"}, {"CRASH_POINT", "somewhere:1"}, {"CRASH_POINT", "after-publish"}, {"CRASH_POINT", "after-publish:2"}, {"CRASH_POINT", "after-publish:NaN"},
		{"CRASH_POINT", "after-publish:0.1,"}, {"CRASH_POINT", "before-reply:0.1,somewhere:0.1"}, {"CRASH_POINT", "after-commit:0.1,after-commit:0.2"},
	} {
		_, err := load(c.name + "=" + c.value)
		if err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s=%s: got %v, want an error that names it", c.name, c.value, err)
		}
	}
	want := map[string]any{"Mode": outbox.Lease, "Batch": 200, "Lease": 30 * time.Second, "Poll": 100 * time.Millisecond,
		"OutboxRetention": time.Hour, "InboxRetention": 8 * 24 * time.Hour, "RelayConns": int32(2), "ConsumerConns": int32(4)}
	cfg := settings(t)
	got := map[string]any{"Mode": cfg.Mode, "Batch": cfg.Batch, "Lease": cfg.Lease, "Poll": cfg.Poll, "OutboxRetention": cfg.OutboxRetention,
		"InboxRetention": cfg.InboxRetention, "RelayConns": cfg.RelayConns, "ConsumerConns": cfg.ConsumerConns}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}
