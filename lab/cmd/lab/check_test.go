package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/lab/check"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
)

// migrated returns a service's database as the service makes it, and a connection to it.
func migrated(t *testing.T, service string) (url string, conn *pgx.Conn) {
	t.Helper()
	url = pgtest.New(t)
	cfg := postgres.Config{URL: url, MaxConns: 2, ConnectTimeout: 10 * time.Second, MigrateTimeout: time.Minute}
	if err := postgres.Migrate(t.Context(), cfg, os.DirFS("../../../services/"+service+"/migrations"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return url, conn
}

func TestCheck_EndsWithOneWhenAnInvariantIsBrokenAndNamesIt(t *testing.T) {
	checkout, conn := migrated(t, "checkout")
	inventory, _ := migrated(t, "inventory")
	payment, _ := migrated(t, "payment")
	args := []string{"check", "--wait", "0s", "--checkout-database-url", checkout, "--inventory-database-url", inventory, "--payment-database-url", payment}

	out, errOut, code := lab(t, t.TempDir(), args...)
	if line := invariant(t, out, "orders_final"); code != 0 || errOut != "" || line != "0 0" {
		t.Errorf("clean: exit code %d, %q, orders_final %q, want 0, no error and nothing examined", code, errOut, line)
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
		VALUES (gen_random_uuid(), 'c-1', 'pending', 'GBP', 700, 'tok_ok', now(), now())`); err != nil {
		t.Fatal(err)
	}
	const want = "lab: 1 of 14 invariants are broken: orders_final\n"
	out, errOut, code = lab(t, t.TempDir(), args...)
	if line := invariant(t, out, "orders_final"); code != 1 || errOut != want || line != "1 1" {
		t.Errorf("broken: exit code %d, %q, orders_final %q, want 1, %q and one broken of one", code, errOut, line, want)
	}
	if line := invariant(t, out, "stock_not_negative"); line != "0 0" {
		t.Errorf("broken: stock_not_negative: got %q, want nothing broken", line)
	}

	out, errOut, code = lab(t, t.TempDir(), append(args, "--output", "json")...)
	var report check.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Clean || code != 1 || errOut != want {
		t.Errorf("broken, as JSON: exit code %d, %q, %v, clean %v, want 1, %q and not clean", code, errOut, err, report.Clean, want)
	}
}

// invariant returns how much was examined for an invariant and how often it is broken, as the table has it.
func invariant(t *testing.T, table, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + `\s+(\d+)\s+(\d+)\s`).FindStringSubmatch(table)
	if found == nil {
		t.Fatalf("no line of %s in %q", name, table)
	}
	return found[1] + " " + found[2]
}
