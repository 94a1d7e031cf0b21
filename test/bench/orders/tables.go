package orders

import (
	"context"
	"fmt"

	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// template is a migrated database without orders.
const template = "orders_template"

// kept inserts settled orders of two lines, with their events and keys, as many as %[1]d says. Their ids grow with time, and are older
// than those of new ones.
const kept = `SET synchronous_commit = off;
SET session_replication_role = replica; -- no look-up of the order for each of its lines and events
CREATE TEMPORARY TABLE made AS SELECT n, (lpad(to_hex(1700000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid AS id
FROM generate_series(1, %[1]d) AS n;
INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
SELECT id, 'c-' || n %% 1000, 'confirmed', 'GBP', 500, 'tok_ok', now(), now() FROM made;
INSERT INTO order_lines (order_id, position, product_id, name, quantity, unit_price, line_total)
SELECT id, position, 'A', 'Name of A', 1, 250, 250 FROM made CROSS JOIN generate_series(1, 2) AS position;
INSERT INTO order_events (order_id, sequence, status, reason, at)
SELECT id, sequence, (ARRAY['pending', 'awaiting_payment', 'confirmed'])[sequence], '', now() FROM made CROSS JOIN generate_series(1, 3) AS sequence;
INSERT INTO idempotency_keys (customer_id, key, fingerprint, order_id)
SELECT 'c-' || n %% 1000, 'kept-' || n, decode(repeat('ab', 32), 'hex'), id FROM made`

// tables is PlaceOrder in databases that keep more and more orders. The first keeps few.
type tables struct {
	rows     *rows
	variants []variant
	pgbench  *table.Row // the last variant against pgbench in tables as large
}

// baseline is the copy of a database that pgbench has to itself.
func baseline(database string) string { return database + "_pgbench" }

// StartTables prepares the part: a curve over what checkout's tables keep, against tables that keep little, in the same round.
func StartTables(ctx context.Context, r *suite.Run) (suite.Part, error) {
	sizes, orders := []int{before, 100_000, 1_000_000}, 300
	if r.Quick {
		sizes, orders = []int{before, 50_000}, 40
	}
	s, err := r.Servers(ctx)
	if err != nil {
		return nil, err
	}
	o, err := newRows(s, orders)
	if err != nil {
		return nil, err
	}
	t := &tables{rows: o}
	if err := t.rows.prepare(ctx, template); err != nil {
		return nil, err
	}
	for _, n := range sizes {
		target, against := table.AtLeast(0.7), "with "+table.Number(before)
		if n == before {
			target, against = table.None(), "the same again"
		}
		row := r.Row("curves", "PlaceOrder with "+table.Number(float64(n))+" orders in its tables", against, "orders/s", target)
		v := variant{row: row, database: fmt.Sprintf("orders_%d", n), how: direct}
		if err := s.Create(ctx, v.database, template); err != nil {
			return nil, err
		}
		if err := s.Execute(ctx, v.database, fmt.Sprintf(kept, n)); err != nil {
			return nil, err
		}
		t.variants = append(t.variants, v)
	}
	most := sizes[len(sizes)-1]
	t.pgbench = r.Row("curves", "PlaceOrder with "+table.Number(float64(most))+" orders in its tables", each, "orders/s", table.AtLeast(0.8))
	last := t.variants[len(t.variants)-1].database
	return t, s.Create(ctx, baseline(last), last)
}

// Close ends nothing: each round ends what it started.
func (*tables) Close() error { return nil }

// Round places as many orders in each, and once more in the one that kept little: what that differs by is the machine's.
func (t *tables) Round(ctx context.Context, n int) error {
	variants, last := append([]variant{t.variants[0]}, t.variants...), len(t.variants)-1
	rates := make([]float64, len(variants)+1) // the last is pgbench's
	for turn := range rates {
		i := turn
		if n%2 == 1 { // everyone is early in some rounds and late in others
			i = len(rates) - 1 - turn
		}
		var err error
		if i == len(variants) {
			rates[i], err = t.rows.pgbench(ctx, baseline(t.variants[last].database), n, false)
		} else {
			rates[i], err = t.rows.rate(ctx, 2*n+min(i, 1), variants[i]) // the keys of the second time are others
		}
		if err != nil {
			return err
		}
	}
	for i, v := range t.variants {
		v.row.Add(rates[i+1], rates[0])
	}
	t.pgbench.Add(rates[last+1], rates[len(variants)])
	return nil
}
