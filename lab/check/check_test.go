package check_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/watertight/lab/check"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
)

// books are the three databases as the services make them.
type books struct {
	t    *testing.T
	urls check.Databases
	conn map[string]*pgx.Conn
}

func newBooks(t *testing.T) *books {
	t.Helper()
	b := &books{t: t, conn: map[string]*pgx.Conn{}}
	for service, url := range map[string]*string{"checkout": &b.urls.Checkout, "inventory": &b.urls.Inventory, "payment": &b.urls.Payment} {
		*url = pgtest.New(t)
		cfg := postgres.Config{URL: *url, MaxConns: 2, ConnectTimeout: 10 * time.Second, MigrateTimeout: time.Minute}
		if err := postgres.Migrate(t.Context(), cfg, os.DirFS("../../services/"+service+"/migrations"), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), *url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		b.conn[service] = conn
	}
	return b
}

// in runs statements, each with $1 standing for nothing else than what args say, in one database.
func (b *books) in(service, statements string) {
	b.t.Helper()
	if _, err := b.conn[service].Exec(b.t.Context(), statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		b.t.Fatalf("%s: %v\n%s", service, err, statements)
	}
}

// The orders of a shop in which all is well: one confirmed, one rejected, one declined, one refunded, and one cancelled
// before anybody else heard of it.
const (
	confirmed = "00000000-0000-7000-8000-00000000000c"
	rejected  = "00000000-0000-7000-8000-00000000000d"
	declined  = "00000000-0000-7000-8000-00000000000e"
	refunded  = "00000000-0000-7000-8000-0000000000f0"
	early     = "00000000-0000-7000-8000-0000000000f1"
	missing   = "00000000-0000-7000-8000-0000000000aa"
)

func wellRun(t *testing.T) *books {
	t.Helper()
	b := newBooks(t)
	b.in("inventory", `ALTER TABLE stock DROP CONSTRAINT stock_available_check`) // so that a case can break it
	b.fill()
	return b
}

// fill empties the tables and makes all well again.
func (b *books) fill() {
	b.t.Helper()
	b.in("checkout", `TRUNCATE orders, order_lines, order_events, outbox, inbox`)
	b.in("inventory", `TRUNCATE stock, reservations, reservation_lines, outbox, inbox`)
	b.in("payment", `TRUNCATE payments, sandbox_keys, sandbox_ledger, outbox, inbox, dead_letters`)
	b.in("checkout", strings.NewReplacer("C!", confirmed, "R!", rejected, "D!", declined, "F!", refunded, "E!", early).Replace(`
		INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
		SELECT id::uuid, 'c-1', status, 'GBP', 700, 'tok_ok', now(), now() FROM (VALUES ('C!', 'confirmed'), ('R!', 'rejected'),
			('D!', 'cancelled'), ('F!', 'cancelled'), ('E!', 'cancelled')) AS o (id, status);
		INSERT INTO order_lines (order_id, position, product_id, name, quantity, unit_price, line_total)
		SELECT id, 1, 'b', 'B', 2, 100, 200 FROM orders UNION ALL SELECT id, 2, 'A', 'A', 1, 500, 500 FROM orders;
		INSERT INTO outbox (id, type, subject, payload, published_at)
		VALUES ('00000000-0000-7000-8000-0000000000e1', 'T', 'orders.placed', '', now()),
			('00000000-0000-7000-8000-0000000000e2', 'T', 'orders.cancelled', '', now()),
			('00000000-0000-7000-8000-0000000000e3', 'T', 'orders.payment_requested', '', now()),
			('00000000-0000-7000-8000-0000000000e4', 'T', 'orders.confirmed', '', now());
		INSERT INTO inbox (id) VALUES ('00000000-0000-7000-8000-0000000000e5'), ('00000000-0000-7000-8000-0000000000e6')`))
	b.in("inventory", strings.NewReplacer("C!", confirmed, "R!", rejected, "D!", declined, "F!", refunded, "E!", early).Replace(`
		INSERT INTO stock (product_id, available, reserved) VALUES ('A', 9, 1), ('b', 0, 2), ('c', 5, 0);
		INSERT INTO reservations (order_id, status) VALUES ('C!', 'reserved'), ('R!', 'rejected'), ('D!', 'released'), ('F!', 'released'), ('E!', 'released');
		INSERT INTO reservation_lines (order_id, product_id, quantity) VALUES ('C!', 'A', 1), ('C!', 'b', 2);
		INSERT INTO inbox (id) VALUES ('00000000-0000-7000-8000-0000000000e1'), ('00000000-0000-7000-8000-0000000000e2');
		INSERT INTO outbox (id, type, subject, payload, published_at) VALUES ('00000000-0000-7000-8000-0000000000e5', 'T', 'inventory.reserved', '', now())`))
	b.in("payment", strings.NewReplacer("C!", confirmed, "R!", rejected, "D!", declined, "F!", refunded, "E!", early).Replace(`
		INSERT INTO payments (order_id, status, currency, amount, charged, refunded, called_off, due_at) VALUES
			('C!', 'charged', 'GBP', 700, 700, 0, false, NULL), ('D!', 'declined', 'GBP', 700, 0, 0, false, NULL),
			('F!', 'refunded', 'GBP', 700, 700, 700, true, NULL), ('E!', 'cancelled', '', 0, 0, 0, true, NULL);
		INSERT INTO sandbox_keys (key, state) VALUES ('C!', 'charged'), ('D!', 'declined'), ('F!', 'called_off');
		INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ('C!', 'charge', 'GBP', 700), ('F!', 'charge', 'GBP', 700), ('F!', 'refund', 'GBP', 700);
		INSERT INTO inbox (id) VALUES ('00000000-0000-7000-8000-0000000000e2');
		INSERT INTO dead_letters (id, stream, subject, type, payload, traceparent, tracestate, created_at, attempts, last_error)
		VALUES ('00000000-0000-7000-8000-0000000000e3', 'orders', 'orders.payment_requested', 'T', '', '', '', now(), 1, 'no');
		INSERT INTO outbox (id, type, subject, payload, published_at) VALUES ('00000000-0000-7000-8000-0000000000e6', 'T', 'payments.charged', '', now())`))
}

func (b *books) check(wait time.Duration, acknowledged ...string) check.Report {
	b.t.Helper()
	var ids []uuid.UUID
	for _, id := range acknowledged {
		ids = append(ids, uuid.MustParse(id))
	}
	report, err := check.Run(b.t.Context(), b.urls, ids, wait)
	if err != nil {
		b.t.Fatal(err)
	}
	return report
}

func TestRun_AShopInWhichAllIsWellIsClean(t *testing.T) {
	report := wellRun(t).check(0, confirmed, early, confirmed)
	if !report.Clean || len(report.Broken()) > 0 {
		t.Errorf("got %+v, want a clean report", report)
	}
	if want := map[string]int64{"confirmed": 1, "rejected": 1, "cancelled": 3}; !cmp.Equal(report.Orders, want) {
		t.Errorf("orders: %s", cmp.Diff(want, report.Orders))
	}
	examined := map[string]int64{}
	for _, r := range report.Invariants {
		examined[r.Name] = r.Examined
	}
	want := map[string]int64{
		"acknowledged_exist": 2, "orders_final": 5, "confirmed_charged_once": 1, "confirmed_reserved_once": 1, "ended_nothing_reserved": 4,
		"ended_nothing_charged": 4, "provider_charged_once": 4, "books_agree": 4, "no_unknown_orders": 5, "stock_not_negative": 3,
		"stock_counts_reservations": 3, "reserved_equals_sold": 2, "events_sent": 6, "events_received": 6,
	}
	if diff := cmp.Diff(want, examined); diff != "" {
		t.Errorf("examined: %s", diff)
	}
	if report.DeadLetters["payment"] != 1 || report.DeadLetters["checkout"] != 0 {
		t.Errorf("dead letters: got %v, want payment's one", report.DeadLetters)
	}
}

func TestRun_EachInvariantBrokenByHandIsCaught(t *testing.T) {
	b, caught := wellRun(t), map[string]bool{}
	for _, tc := range []struct {
		name         string
		in           string
		statements   string
		acknowledged string
		broken       []string
	}{
		{name: "an acknowledged order is lost", in: "checkout", acknowledged: missing, statements: "SELECT 1", broken: []string{"acknowledged_exist"}},
		{name: "an order is stuck", in: "checkout",
			statements: `INSERT INTO orders VALUES ('` + missing + `', 'c', 'pending', '', 'GBP', 1, 't', now(), now())`, broken: []string{"orders_final"}},
		{name: "an order waits for payment for ever", in: "checkout",
			statements: `INSERT INTO orders VALUES ('` + missing + `', 'c', 'awaiting_payment', '', 'GBP', 1, 't', now(), now())`, broken: []string{"orders_final"}},
		{name: "a confirmed order is not charged", in: "payment",
			statements: `DELETE FROM sandbox_ledger WHERE key = '` + confirmed + `'; DELETE FROM payments WHERE order_id = '` + confirmed + `'`,
			broken:     []string{"confirmed_charged_once"}},
		{name: "a confirmed order is charged something else", in: "payment",
			statements: `UPDATE payments SET amount = 699, charged = 699 WHERE order_id = '` + confirmed + `'; UPDATE sandbox_ledger SET amount = 699 WHERE key = '` + confirmed + `'`,
			broken:     []string{"confirmed_charged_once"}},
		{name: "a confirmed order is charged in another currency", in: "payment",
			statements: `UPDATE sandbox_ledger SET currency = 'EUR' WHERE key = '` + confirmed + `'`, broken: []string{"confirmed_charged_once"}},
		{name: "a confirmed order is refunded", in: "payment",
			statements: `UPDATE payments SET status = 'refunded', refunded = 700 WHERE order_id = '` + confirmed + `';
				INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ('` + confirmed + `', 'refund', 'GBP', 700)`,
			broken: []string{"confirmed_charged_once"}},
		{name: "an order is charged twice", in: "payment",
			statements: `INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ('` + confirmed + `', 'charge', 'GBP', 700)`,
			broken:     []string{"books_agree", "confirmed_charged_once", "provider_charged_once"}},
		{name: "more is refunded than was charged", in: "payment",
			statements: `INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ('` + refunded + `', 'refund', 'GBP', 1)`,
			broken:     []string{"books_agree", "ended_nothing_charged", "provider_charged_once"}},
		{name: "a cancelled order stays charged", in: "payment",
			statements: `UPDATE payments SET status = 'charged', refunded = 0 WHERE order_id = '` + refunded + `'; DELETE FROM sandbox_ledger WHERE kind = 'refund'`,
			broken:     []string{"ended_nothing_charged"}},
		{name: "a cancelled order is still asked for", in: "payment",
			statements: `UPDATE payments SET status = 'pending', due_at = now() WHERE order_id = '` + declined + `'`, broken: []string{"ended_nothing_charged"}},
		{name: "only the provider knows of a charge", in: "payment",
			statements: `INSERT INTO sandbox_keys (key, state) VALUES ('` + rejected + `', 'charged');
				INSERT INTO sandbox_ledger (key, kind, currency, amount) VALUES ('` + rejected + `', 'charge', 'GBP', 700)`,
			broken: []string{"books_agree", "ended_nothing_charged"}},
		{name: "only payment knows of a charge", in: "payment",
			statements: `DELETE FROM sandbox_ledger WHERE key = '` + confirmed + `'`, broken: []string{"books_agree", "confirmed_charged_once"}},
		{name: "an unknown order is charged", in: "payment",
			statements: `INSERT INTO payments (order_id, status) VALUES ('` + missing + `', 'declined')`, broken: []string{"no_unknown_orders"}},
		{name: "an unknown order is reserved", in: "inventory",
			statements: `INSERT INTO reservations (order_id, status) VALUES ('` + missing + `', 'rejected')`, broken: []string{"no_unknown_orders"}},
		{name: "a confirmed order is not reserved", in: "inventory",
			statements: `DELETE FROM reservation_lines; DELETE FROM reservations WHERE order_id = '` + confirmed + `'; UPDATE stock SET reserved = 0`,
			broken:     []string{"confirmed_reserved_once", "reserved_equals_sold"}},
		{name: "a confirmed order's line is short", in: "inventory",
			statements: `UPDATE reservation_lines SET quantity = 1 WHERE product_id = 'b'; UPDATE stock SET reserved = 1 WHERE product_id = 'b'`,
			broken:     []string{"confirmed_reserved_once", "reserved_equals_sold"}},
		{name: "a cancelled order holds stock", in: "inventory",
			statements: `UPDATE reservations SET status = 'reserved' WHERE order_id = '` + declined + `';
				INSERT INTO reservation_lines VALUES ('` + declined + `', 'c', 1); UPDATE stock SET reserved = 1, available = 4 WHERE product_id = 'c'`,
			broken: []string{"ended_nothing_reserved", "reserved_equals_sold"}},
		{name: "stock is negative", in: "inventory",
			statements: `UPDATE stock SET available = -1 WHERE product_id = 'b'`,
			broken:     []string{"stock_not_negative"}},
		{name: "stock counts a reservation that is not there", in: "inventory",
			statements: `UPDATE stock SET reserved = 3 WHERE product_id = 'b'`, broken: []string{"stock_counts_reservations"}},
		{name: "an event is never published", in: "checkout",
			statements: `INSERT INTO outbox (id, type, subject, payload) VALUES ('` + missing + `', 'T', 'orders.placed', '')`, broken: []string{"events_sent"}},
		{name: "an event is lost on its way to inventory", in: "inventory",
			statements: `DELETE FROM inbox WHERE id = '00000000-0000-7000-8000-0000000000e1'`, broken: []string{"events_received"}},
		{name: "an event is lost on its way to payment", in: "payment", statements: `DELETE FROM dead_letters`, broken: []string{"events_received"}},
		{name: "an event is lost on its way to checkout", in: "checkout", statements: `DELETE FROM inbox`, broken: []string{"events_received"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.fill()
			b.in(tc.in, tc.statements)
			acknowledged := []string{confirmed}
			if tc.acknowledged != "" {
				acknowledged = append(acknowledged, tc.acknowledged)
			}
			report := b.check(0, acknowledged...)
			broken := slices.Sorted(slices.Values(report.Broken()))
			if !cmp.Equal(broken, tc.broken) || report.Clean {
				t.Errorf("got %v, clean %v, want %v\n%+v", broken, report.Clean, tc.broken, report)
			}
			for _, name := range broken {
				caught[name] = true
			}
		})
	}
	b.fill()
	for _, r := range b.check(0).Invariants {
		if !caught[r.Name] {
			t.Errorf("no case broke %s", r.Name)
		}
	}
}

func TestRun_WaitsForWhatIsOnItsWay(t *testing.T) {
	b := wellRun(t)
	b.in("checkout", `UPDATE orders SET status = 'awaiting_payment' WHERE id = '`+confirmed+`'`)
	moved := make(chan error, 1)
	watcher, err := pgx.Connect(t.Context(), b.urls.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close(context.Background()) })
	go func() {
		// The order moves once the check has looked, which shows by its session.
		for looked := false; !looked; {
			if err := watcher.QueryRow(t.Context(), `SELECT count(*) > 2 FROM pg_stat_activity WHERE datname = current_database()`).Scan(&looked); err != nil {
				moved <- err
				return
			}
		}
		_, err := watcher.Exec(t.Context(), `UPDATE orders SET status = 'confirmed' WHERE id = '`+confirmed+`'`)
		moved <- err
	}()
	report := b.check(time.Minute)
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	if !report.Clean {
		t.Errorf("got %v, want a clean report once the order has moved", report.Broken())
	}
}

func TestRun_OrdersThatComeLaterAreNotJudgedUnlessAcknowledged(t *testing.T) {
	b := wellRun(t)
	b.in("checkout", `INSERT INTO orders VALUES ('`+missing+`', 'c', 'pending', '', 'GBP', 1, 't', now() + interval '1 hour', now())`)
	b.in("inventory", `INSERT INTO reservations VALUES ('`+missing+`', 'reserved'); INSERT INTO reservation_lines VALUES ('`+missing+`', 'A', 1);
		UPDATE stock SET available = 8, reserved = 2 WHERE product_id = 'A'`)
	if report := b.check(0); !report.Clean {
		t.Errorf("got %v, want nothing to be said of an order that is newer than the check", report.Broken())
	}
	if report := b.check(0, missing); !cmp.Equal(report.Broken(), []string{"orders_final"}) {
		t.Errorf("got %v, want the acknowledged order to be missed", report.Broken())
	}
}

func TestRun_FindsOneWrongOrderAmongManyAndCountsAll(t *testing.T) {
	const n = 20_000
	b := newBooks(t)
	id := `('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid`
	series := ` FROM generate_series(1, 20000) n`
	b.in("checkout", `INSERT INTO orders SELECT `+id+`, 'c', 'confirmed', '', 'GBP', 5, 't', now(), now()`+series+`;
		INSERT INTO order_lines SELECT `+id+`, 1, 'p' || n % 7, 'P', 1, 5, 5`+series)
	b.in("inventory", `INSERT INTO stock SELECT 'p' || p, 1, 0 FROM generate_series(0, 6) p;
		INSERT INTO reservations SELECT `+id+`, 'reserved'`+series+`; INSERT INTO reservation_lines SELECT `+id+`, 'p' || n % 7, 1`+series+`;
		UPDATE stock SET reserved = (SELECT sum(quantity) FROM reservation_lines l WHERE l.product_id = stock.product_id)`)
	b.in("payment", `INSERT INTO payments (order_id, status, currency, amount, charged) SELECT `+id+`, 'charged', 'GBP', 5, 5`+series+`;
		INSERT INTO sandbox_keys SELECT `+id+`, 'charged'`+series+`;
		INSERT INTO sandbox_ledger (key, kind, currency, amount) SELECT `+id+`, 'charge', 'GBP', 5`+series+`;
		INSERT INTO sandbox_ledger (key, kind, currency, amount) SELECT `+id+`, 'charge', 'GBP', 5 FROM generate_series(9999, 9999) n`)
	report := b.check(0)
	if report.Orders["confirmed"] != n {
		t.Errorf("got %d orders, want %d", report.Orders["confirmed"], n)
	}
	for _, r := range report.Invariants {
		want := int64(0)
		if slices.Contains([]string{"confirmed_charged_once", "provider_charged_once", "books_agree"}, r.Name) {
			want = 1
		}
		if r.Violations != want || int64(len(r.Examples)) != want {
			t.Errorf("%s: got %d violations, %q, want %d", r.Name, r.Violations, r.Examples, want)
		}
	}
}

func TestRun_ADatabaseThatIsAwayIsNamed(t *testing.T) {
	urls := check.Databases{Checkout: pgtest.New(t), Inventory: "postgres://x@127.0.0.1:1/x", Payment: pgtest.New(t)}
	if _, err := check.Run(t.Context(), urls, nil, 0); err == nil || !strings.Contains(err.Error(), "database of inventory") {
		t.Errorf("got %v, want an error that names inventory", err)
	}
}

func TestReadAcknowledged_TakesIdsAndObjects(t *testing.T) {
	ids, err := check.ReadAcknowledged(strings.NewReader(confirmed + "\n\n  " + rejected + " \r\n{\"id\":\"" + early + "\",\"status\":\"pending\"}"))
	if err != nil {
		t.Fatal(err)
	}
	want := []uuid.UUID{uuid.MustParse(confirmed), uuid.MustParse(rejected), uuid.MustParse(early)}
	if !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
}

func TestReadAcknowledged_ABrokenLineIsAnErrorThatNamesIt(t *testing.T) {
	for _, line := range []string{"x", confirmed[:35], "{" + confirmed + "}", `{"id":7}`, `{"id":""}`, `{}`, `{"id":"` + confirmed + `"`, "urn:uuid:" + confirmed,
		strings.Repeat("a", 2<<20)} {
		if _, err := check.ReadAcknowledged(strings.NewReader(confirmed + "\n\n" + line + "\n" + rejected)); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%.60q: got %v, want an error about line 3", line, err)
		}
	}
}
