package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
)

// migrated opens a database with the outbox in it, as a role that may not change tables.
func migrated(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, _ := migratedWithOwner(t)
	return pool
}

// migratedWithOwner is migrated, with the URL of the role that owns the tables.
func migratedWithOwner(t testing.TB) (*pgxpool.Pool, string) {
	t.Helper()
	app, owner := pgtest.NewRoles(t)
	return migrate(t, app, owner), owner
}

func migrate(t testing.TB, app, owner string) *pgxpool.Pool {
	t.Helper()
	cfg, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner})
	if err != nil {
		t.Fatal(err)
	}
	migrations := fstest.MapFS{"00001_outbox.sql": {Data: []byte(outbox.Schema)}}
	if err := postgres.Migrate(t.Context(), cfg, migrations, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	pool, err := postgres.Open(t.Context(), cfg, postgres.Deps{Name: "outbox-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// traced returns a context inside the sampled span 00-0102…-0102…-01 with a vendor's state.
func traced(t *testing.T) context.Context {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{1, 2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

type row struct {
	ID                      uuid.UUID
	Type, Subject           string
	Payload                 []byte
	Traceparent, Tracestate string
	Attempts                int
	Waiting                 bool
}

func rows(t *testing.T, pool *pgxpool.Pool) []row {
	t.Helper()
	result, err := pool.Query(t.Context(), `SELECT id, type, subject, payload, traceparent, tracestate, attempts,
		published_at IS NULL AND dead_at IS NULL AND lease_expires_at IS NULL AND next_attempt_at <= now() FROM outbox ORDER BY id`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(result, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func event(last byte) outbox.Event {
	return outbox.Event{ID: uuid.UUID{15: last}, Type: "test.v1.Happened", Subject: "test.happened", Payload: []byte{0, 1, 255}}
}

func TestAppend_WritesTheEventWithItsTraceContext(t *testing.T) {
	pool := migrated(t)
	ctx := traced(t)
	if err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, event(1)) }); err != nil {
		t.Fatal(err)
	}
	if err := postgres.SendTx(ctx, pool, func(b *pgx.Batch) { outbox.Queue(ctx, b, event(2)) }); err != nil {
		t.Fatal(err)
	}
	want := row{ID: event(1).ID, Type: "test.v1.Happened", Subject: "test.happened", Payload: []byte{0, 1, 255},
		Traceparent: "00-01020000000000000000000000000000-0102000000000000-01", Tracestate: "vendor=1", Waiting: true}
	second := want
	second.ID = event(2).ID
	if diff := cmp.Diff([]row{want, second}, rows(t, pool)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestAppend_OutsideOfATraceLeavesItsContextEmpty(t *testing.T) {
	pool := migrated(t)
	if err := postgres.SendTx(t.Context(), pool, func(b *pgx.Batch) { outbox.Queue(t.Context(), b, event(1)) }); err != nil {
		t.Fatal(err)
	}
	if got := rows(t, pool); len(got) != 1 || got[0].Traceparent != "" || got[0].Tracestate != "" {
		t.Errorf("got %+v, want one row without trace context", got)
	}
}

func TestAppend_VanishesWithItsTransaction(t *testing.T) {
	pool := migrated(t)
	oops := errors.New("oops")
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if err := outbox.Append(t.Context(), tx, event(1)); err != nil {
			t.Fatal(err)
		}
		return oops
	})
	if !errors.Is(err, oops) {
		t.Fatalf("got %v, want %v", err, oops)
	}
	if got := rows(t, pool); len(got) != 0 {
		t.Errorf("got %+v, want no row", got)
	}
}

func TestAppend_RefusesAnIDTwice(t *testing.T) {
	pool := migrated(t)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		return errors.Join(outbox.Append(t.Context(), tx, event(1)), outbox.Append(t.Context(), tx, event(1)))
	})
	if err == nil {
		t.Error("got no error for a repeated id")
	}
}
