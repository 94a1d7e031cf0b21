package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres/pgtest"
)

const (
	refusedEvent  = "00000000-0000-7000-8000-000000000001"
	strangeEvent  = "00000000-0000-7000-8000-000000000002"
	strangeEvent2 = "00000000-0000-7000-8000-000000000003"
)

// withDeadLetters returns a service's database with three dead letters: one that the broker refused, two of others' events.
func withDeadLetters(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	url = pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	up, _, _ := strings.Cut(outbox.Schema, "-- +goose Down")
	for _, statement := range []string{up, `
		INSERT INTO outbox (id, type, subject, payload, attempts, last_error, dead_at)
		VALUES ('` + refusedEvent + `', 'T', 'orders.placed', 'abc', 10, 'too large', now() - interval '1 hour');
		INSERT INTO dead_letters (id, stream, subject, type, payload, traceparent, tracestate, created_at, attempts, last_error)
		VALUES ('` + strangeEvent + `', 'orders', 'orders.placed', 'T', '', '', '', now(), 1, 'not a UUID'),
			('` + strangeEvent2 + `', 'orders', 'orders.placed', 'T', '', '', '', now(), 1, 'not a UUID')`} {
		if _, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return url, conn
}

func outboxJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	out, errOut, code := lab(t, t.TempDir(), append([]string{"outbox"}, args...)...)
	if code != 0 {
		t.Fatalf("lab outbox %v: exit code %d, %q", args, code, errOut)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("lab outbox %v: %v in %q", args, err, out)
	}
}

type listed struct {
	Service     string       `json:"service"`
	DeadLetters []deadLetter `json:"dead_letters"`
}

func TestOutbox_ListsRetriesAndPurgesDeadLetters(t *testing.T) {
	url, conn := withDeadLetters(t)
	var before listed
	outboxJSON(t, &before, "list", "checkout", "--database-url", url, "-o", "json")
	if len(before.DeadLetters) != 3 || before.Service != "checkout" {
		t.Fatalf("got %+v, want three dead letters of checkout", before)
	}
	if d := before.DeadLetters[0]; d.ID.String() != refusedEvent || d.Side != "published" || string(d.Payload) != "abc" || d.Attempts != 10 || d.LastError != "too large" {
		t.Errorf("got %+v first, want the refused event", d)
	}
	out, _, code := lab(t, t.TempDir(), "outbox", "list", "checkout", "--database-url", url)
	if code != 0 || strings.Count(out, "\n") != 4 || !strings.Contains(out, "too large") {
		t.Errorf("exit code %d, %q, want a table of three", code, out)
	}

	var retried struct{ Retried int }
	outboxJSON(t, &retried, "retry", "checkout", refusedEvent, strangeEvent, "--database-url", url, "-o", "json")
	var due, asked int
	if err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM outbox WHERE dead_at IS NULL), (SELECT count(*) FROM dead_letters WHERE retry_at IS NOT NULL)`).Scan(&due, &asked); err != nil {
		t.Fatal(err)
	}
	if retried.Retried != 2 || due != 1 || asked != 1 {
		t.Errorf("got %d retried, %d due to be published, %d to be handled, want 2, 1, 1", retried.Retried, due, asked)
	}

	var purged struct{ Purged int }
	outboxJSON(t, &purged, "purge", "checkout", "--database-url", url, "-o", "json")
	out, _, code = lab(t, t.TempDir(), "outbox", "list", "checkout", "--database-url", url)
	if purged.Purged != 2 || code != 0 || out != "checkout has no dead letters\n" {
		t.Errorf("got %d purged, then exit code %d, %q, want 2 and nothing left", purged.Purged, code, out)
	}
}

func TestCheck_ABrokenLineOfTheAcknowledgedIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "acked.txt"), []byte(refusedEvent+"\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, code := lab(t, dir, "check", "--acked", "acked.txt", "--checkout-database-url", "postgres://x", "--inventory-database-url", "postgres://x",
		"--payment-database-url", "postgres://x")
	if code != 1 || !strings.Contains(errOut, "acked.txt: line 2: ") {
		t.Errorf("exit code %d, %q, want 1 and the number of the line", code, errOut)
	}
}
