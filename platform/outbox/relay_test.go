package outbox_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
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

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
)

// eachMode runs the test with the variable for each of the relay's modes.
func eachMode(t *testing.T, test func(t *testing.T, mode string)) {
	t.Helper()
	for _, mode := range []outbox.Mode{outbox.Lease, outbox.Tx} {
		t.Run(string(mode), func(t *testing.T) { test(t, "RELAY_MODE="+string(mode)) })
	}
}

// wire hears each message that is sent to the broker on a subject, also those that the broker knows already.
type wire struct {
	mu    sync.Mutex
	heard map[string]int
	last  nats.Header
}

func (r *rig) listen(subject string) *wire {
	r.t.Helper()
	w := &wire{heard: map[string]int{}}
	conn := connect(r.t, r.broker.URL())
	sub, err := conn.Subscribe(subject, func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.heard[m.Header.Get(jetstream.MsgIDHeader)]++
		w.last = m.Header
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		r.t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		r.t.Fatal(err)
	}
	return w
}

func (w *wire) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.heard)
}

func TestReport25_ThreeRelaysSendNoEventTwice(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		r.stream("test")
		w := r.listen("test.>")
		var relays []*replica
		for range 3 {
			relays = append(relays, r.start(settings(t, mode, "RELAY_BATCH=50")))
		}
		ids := r.append(2000, "test.happened")
		relays[0].Wake()
		eventually(t, time.Minute, "all events are published", func() bool { return r.unpublished() == 0 })
		r.wantStored("test", ids)
		for id, n := range w.counts() {
			if n != 1 {
				t.Errorf("event %s was sent %d times, want once", id, n)
			}
		}
		total := 0.0
		for _, relay := range relays {
			total += relay.metric("watertight_outbox_published_total")
		}
		if total != 2000 {
			t.Errorf("watertight_outbox_published_total: got %v in all, want 2000", total)
		}
	})
}

func TestReport26_RefusedRowsAtTheHeadBlockNobodyAndEndAsDeadLetters(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		r.append(200, "test.not a subject")
		large := outbox.Event{ID: uuid.New(), Type: "test.v1.Large", Subject: "test.large", Payload: make([]byte, 2<<20)}
		if err := postgres.InTx(t.Context(), r.pool, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, large) }); err != nil {
			t.Fatal(err)
		}
		relay := r.start(settings(t, mode, "RELAY_BATCH=100", "RELAY_REFUSAL_BACKOFF=100ms", "RELAY_MAX_REFUSALS=3"))
		good := r.append(1, "test.happened")
		eventually(t, 10*time.Second, "the good event is published", func() bool {
			return r.count("SELECT count(*) FROM outbox WHERE id = $1 AND published_at IS NOT NULL", good[0]) == 1
		})
		eventually(t, 20*time.Second, "the others are dead", func() bool { return r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL") == 201 })
		r.wantStored("test", good)
		if got := r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL AND attempts = 3 AND last_error <> ''"); got != 201 {
			t.Errorf("dead letters after three refusals with a reason: got %d, want 201", got)
		}
		eventually(t, 5*time.Second, "they are counted", func() bool { return relay.metric("watertight_dead_letters_total") == 201 })
		eventually(t, 5*time.Second, "nothing waits", func() bool { return relay.metric("watertight_outbox_oldest_unpublished_seconds") == 0 })
	})
}

func TestReport27_PublishedRowsGoAndUnpublishedStay(t *testing.T) {
	r := newRig(t)
	stay := r.append(300, "nowhere.happened")
	r.append(5000, "test.happened")
	r.start(settings(t, "OUTBOX_RETENTION=1s", "PURGE_PAUSE=100ms", "RELAY_BATCH=1000"))
	eventually(t, time.Minute, "published rows are purged", func() bool { return r.count("SELECT count(*) FROM outbox") == len(stay) })
	if got := r.unpublished(); got != len(stay) {
		t.Errorf("unpublished rows: got %d, want %d", got, len(stay))
	}
}

func TestReport28_WithoutAStreamForTheSubjectRowsWaitAndTheirAgeRises(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		lost := r.append(30, "nowhere.happened")
		relay := r.start(settings(t, mode))
		const age = "watertight_outbox_oldest_unpublished_seconds"
		eventually(t, 20*time.Second, "the age of the oldest event rises", func() bool { return relay.metric(age) > 1 })
		before := relay.metric(age)
		eventually(t, 20*time.Second, "the age goes on rising", func() bool { return relay.metric(age) > before+0.5 })
		found := r.append(30, "test.happened")
		eventually(t, 10*time.Second, "events with a stream are published", func() bool { return r.unpublished() == len(lost) })
		r.wantStored("test", found)
		if got := r.count("SELECT count(*) FROM outbox WHERE published_at IS NULL AND attempts = 0 AND dead_at IS NULL"); got != len(lost) {
			t.Errorf("rows that wait with no attempt used up: got %d, want %d", got, len(lost))
		}
		r.stream("nowhere")
		eventually(t, 10*time.Second, "they are published once there is a stream", func() bool { return r.unpublished() == 0 })
		r.wantStored("nowhere", lost)
		eventually(t, 5*time.Second, "nothing waits", func() bool { return relay.metric(age) == 0 })
	})
}

func TestReport29_TheHeaderCarriesTheTraceOfTheTransactionAndTheSendSpanLinksToIt(t *testing.T) {
	r := newRig(t)
	w := r.listen("test.>")
	r.stream("test")
	spans := tracetest.NewSpanRecorder()
	ctx := traced(t)
	if err := postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, event(1)) }); err != nil {
		t.Fatal(err)
	}
	r.start(settings(t), func(d *outbox.Deps) {
		d.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	})
	eventually(t, 10*time.Second, "the event is published", func() bool { return r.unpublished() == 0 })
	w.mu.Lock()
	header := w.last
	w.mu.Unlock()
	if len(header["ce-time"]) != 1 || header["ce-time"][0] == "" {
		t.Errorf("no ce-time in %v", header)
	}
	delete(header, "ce-time")
	want := nats.Header{"traceparent": {"00-01020000000000000000000000000000-0102000000000000-01"}, "tracestate": {"vendor=1"},
		"Nats-Msg-Id": {event(1).ID.String()}, "ce-id": {event(1).ID.String()}, "ce-type": {"test.v1.Happened"}, "ce-source": {"test"}, "ce-specversion": {"1.0"}}
	if diff := cmp.Diff(want, header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	var send sdktrace.ReadOnlySpan
	eventually(t, 5*time.Second, "the send span ended", func() bool {
		for _, s := range spans.Ended() {
			if s.SpanKind() == trace.SpanKindProducer {
				send = s
			}
		}
		return send != nil
	})
	if creation := trace.SpanContextFromContext(ctx); len(send.Links()) != 1 || send.Links()[0].SpanContext.SpanID() != creation.SpanID() || send.Links()[0].SpanContext.TraceID() != creation.TraceID() {
		t.Errorf("links of %q: got %v, want one to %v", send.Name(), send.Links(), creation)
	}
	if send.Name() != "send test.happened" || send.Parent().IsValid() {
		t.Errorf("got span %q with parent %v, want \"send test.happened\" without", send.Name(), send.Parent())
	}
}

func TestReport37_AnEventThatTheBrokerKnowsIsPublished(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		for _, n := range []int{1, 100} { // one by one, and as a batch that the broker refuses as a whole
			r := newRig(t)
			r.stream("test")
			ids := r.append(n, "test.happened")
			r.publish("test.happened", ids[n/2].String(), nil)
			r.start(settings(t, mode))
			eventually(t, 20*time.Second, "all are published", func() bool { return r.unpublished() == 0 })
			r.wantStored("test", ids)
		}
	})
}

func TestReport20_ABrokerThatComesLateGetsTheEventsAndCostsNoAttempts(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		r.broker.Stop()
		relay := r.start(settings(t, mode))
		ids := r.append(300, "test.happened")
		relay.Wake()
		eventually(t, 10*time.Second, "the age rises", func() bool { return relay.metric("watertight_outbox_oldest_unpublished_seconds") > 0.5 })
		if got := r.count("SELECT count(*) FROM outbox WHERE lease_expires_at IS NOT NULL OR attempts > 0 OR last_error <> ''"); got != 0 {
			t.Errorf("%d rows were touched while the broker was away, want none", got)
		}
		r.broker.Start()
		eventually(t, 10*time.Second, "the events have left", func() bool { return r.unpublished() == 0 })
		r.wantStored("test", ids)
	})
}

func TestRelay_ABrokerThatGoesAndComesAgainLosesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		relay := r.start(settings(t, mode, "RELAY_BATCH=20", "RELAY_LEASE=3s", "RELAY_PUBLISH_TIMEOUT=1s"))
		ids := r.append(1000, "test.happened")
		relay.Wake()
		for round := range 3 {
			// Before the last event is out, so that the outage finds some under way.
			eventually(t, 20*time.Second, "some are published", func() bool { return r.unpublished() < 1000-200*round })
			r.broker.Stop()
			r.broker.Start()
		}
		eventually(t, 30*time.Second, "all are published", func() bool { return r.unpublished() == 0 })
		r.wantStored("test", ids)
		if got := r.count("SELECT count(*) FROM outbox WHERE attempts > 0 OR dead_at IS NOT NULL"); got != 0 {
			t.Errorf("%d rows have attempts used up, want none", got)
		}
	})
}

func TestRelay_BringsAnOlderStreamToItsSettings(t *testing.T) {
	r := newRig(t)
	older := r.stream("test")
	r.start(settings(t, "STREAM_MAX_AGE=24h", "STREAM_MAX_BYTES=1000000"))
	eventually(t, 10*time.Second, "the stream has the new settings", func() bool {
		info, err := older.Info(t.Context())
		return err == nil && info.Config.MaxAge == 24*time.Hour && info.Config.MaxBytes == 1000000 && info.Config.Discard == jetstream.DiscardNew
	})
}

func TestRelay_AFullStreamMakesEventsWaitAndUsesUpNoAttempts(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		ids := r.append(100, "test.happened")
		full := r.start(settings(t, mode, "STREAM_MAX_BYTES=5000"))
		eventually(t, 10*time.Second, "some wait because the stream is full", func() bool {
			return r.count("SELECT count(*) FROM outbox WHERE published_at IS NULL AND last_error <> ''") > 0
		})
		full.stop()
		if got := r.count("SELECT count(*) FROM outbox WHERE attempts > 0"); got != 0 {
			t.Errorf("rows with attempts used up: got %d, want 0", got)
		}
		r.start(settings(t, mode))
		eventually(t, 20*time.Second, "all are published once there is room", func() bool { return r.unpublished() == 0 })
		r.wantStored("test", ids)
	})
}

func TestRelay_WakeDoesNotWaitForThePoll(t *testing.T) {
	r := newRig(t)
	r.stream("test")
	relay := r.start(settings(t, "RELAY_POLL=1h"))
	for range 3 {
		r.append(1, "test.happened")
		relay.Wake()
		eventually(t, 10*time.Second, "the event is published", func() bool { return r.unpublished() == 0 })
	}
}

func TestRelay_AnUnfinishedLeaseIsTakenOverWhenItEnds(t *testing.T) {
	r := newRig(t)
	ids := r.append(10, "test.happened")
	if _, err := r.pool.Exec(t.Context(), "UPDATE outbox SET lease_owner = 'gone', lease_expires_at = now() + interval '2 seconds'"); err != nil {
		t.Fatal(err)
	}
	r.start(settings(t))
	later := r.append(10, "test.happened")
	eventually(t, 10*time.Second, "the free events are published", func() bool { return r.unpublished() <= 10 })
	eventually(t, 10*time.Second, "the leased are published", func() bool { return r.unpublished() == 0 })
	r.wantStored("test", append(ids, later...))
}

func TestRelay_StopsInTheMiddleWithoutLeavingLeasesBehind(t *testing.T) {
	r := newRig(t)
	first := r.start(settings(t, "RELAY_BATCH=20"))
	ids := r.append(2000, "test.happened")
	first.Wake()
	eventually(t, 20*time.Second, "some are published", func() bool { return r.unpublished() < 1900 })
	first.stop()
	if got := r.count("SELECT count(*) FROM outbox WHERE lease_expires_at IS NOT NULL"); got != 0 {
		t.Errorf("leased rows after the stop: got %d, want 0", got)
	}
	r.start(settings(t))
	eventually(t, 30*time.Second, "all are published", func() bool { return r.unpublished() == 0 })
	r.wantStored("test", ids)
}

func TestRelay_ConnectionsCutInTheMiddleHoldNoEventUpUntilItsLeaseEnds(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		relay := r.start(settings(t, mode, "RELAY_BATCH=20", "RELAY_LEASE=1h"))
		ids := r.append(1500, "test.happened")
		relay.Wake()
		for deadline := time.Now().Add(time.Minute); r.unpublished() > 0; {
			r.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'test-relay'")
			if time.Now().After(deadline) {
				t.Fatalf("%d events are not published", r.unpublished())
			}
			time.Sleep(150 * time.Millisecond) // the rate of the cuts
		}
		r.wantStored("test", ids)
	})
}

func TestRelay_ModeTxTakesOverExpiredLeasesAndNotesRefusals(t *testing.T) {
	r := newRig(t)
	r.append(1, "test.not a subject")
	if _, err := r.pool.Exec(t.Context(), "UPDATE outbox SET lease_owner = 'gone', lease_expires_at = now()"); err != nil {
		t.Fatal(err)
	}
	r.start(settings(t, "RELAY_MODE=tx", "RELAY_MAX_REFUSALS=2", "RELAY_REFUSAL_BACKOFF=10ms"))
	eventually(t, 10*time.Second, "it is dead", func() bool { return r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL") == 1 })
}

// TestPlans_AreIndexScansHoweverManyPublishedRowsThereAre asks for generic plans: those are what a long-lived connection
// ends up with.
func TestPlans_AreIndexScansHoweverManyPublishedRowsThereAre(t *testing.T) {
	r := newRig(t)
	for _, fill := range []string{
		`INSERT INTO outbox (id, type, subject, payload, published_at) SELECT gen_random_uuid(), 't', 's', 'p', now() FROM generate_series(1, 50000)`,
		`INSERT INTO inbox (id) SELECT gen_random_uuid() FROM generate_series(1, 50000)`,
		`INSERT INTO dead_letters (id, stream, subject, type, payload, traceparent, tracestate, created_at, attempts, last_error)
		 SELECT gen_random_uuid(), 'test', 's', 't', 'p', '', '', now(), 1, 'e' FROM generate_series(1, 5000)`,
		`INSERT INTO outbox (id, type, subject, payload) SELECT gen_random_uuid(), 't', 's', 'p' FROM generate_series(1, 1000)`,
	} {
		if _, err := r.pool.Exec(t.Context(), fill); err != nil {
			t.Fatal(err)
		}
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			conn, err := pgx.Connect(t.Context(), r.owner)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "ANALYZE"); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(t.Context())
		}
		for name, plan := range r.plans() {
			scan := "Seq Scan on"
			if name == "count_dead" {
				scan += " outbox" // of dead_letters all rows count, from wherever
			}
			if strings.Contains(plan, scan) {
				t.Errorf("%s, analyzed %v:\n%s", name, analyzed, plan)
			}
		}
	}
}

// plans returns the generic plan of each statement that runs in a loop.
func (r *rig) plans() map[string]string {
	r.t.Helper()
	plans := map[string]string{}
	for name, s := range outbox.LoopStatements() {
		err := postgres.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error {
			types := strings.Join(s.Types, ", ")
			if types != "" {
				types = "(" + types + ")"
			}
			nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(s.Types)), ", ")
			if nulls != "" {
				nulls = "(" + nulls + ")"
			}
			for _, statement := range []string{"SET LOCAL plan_cache_mode = force_generic_plan", fmt.Sprintf("PREPARE %s %s AS %s", name, types, s.SQL)} {
				if _, err := tx.Exec(r.t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
					return fmt.Errorf("%s: %w", statement, err)
				}
			}
			rows, _ := tx.Query(r.t.Context(), "EXPLAIN EXECUTE "+name+nulls, pgx.QueryExecModeSimpleProtocol)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plans[name] = strings.Join(lines, "\n")
			if err != nil {
				return err
			}
			_, err = tx.Exec(r.t.Context(), "DEALLOCATE "+name)
			return err
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return plans
}
