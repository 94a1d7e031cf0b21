package checkout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
)

// All SQL of this service is here. Placing an order takes two round trips: one that reads, and one that writes all of its
// rows as one transaction. It locks no row that another order could want, and imports lock prices in the order of their
// ids, so that no two calls can wait for each other.
const (
	findKey = `-- name: FindKey
SELECT order_id, fingerprint FROM idempotency_keys WHERE customer_id = $1 AND key = $2`

	findPrices = `-- name: FindPrices
SELECT product_id, name, currency, minor FROM prices WHERE product_id = ANY ($1::text[])`

	insertKey = `-- name: InsertKey
INSERT INTO idempotency_keys (customer_id, key, fingerprint, order_id) VALUES ($1, $2, $3, $4)`

	insertOrder = `-- name: InsertOrder
INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)`

	insertLines = `-- name: InsertLines
INSERT INTO order_lines (order_id, position, product_id, name, quantity, unit_price, line_total)
SELECT $1, l.position, l.product_id, l.name, l.quantity, l.unit_price, l.line_total
FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
  WITH ORDINALITY AS l (product_id, name, quantity, unit_price, line_total, position)`

	insertEvent = `-- name: InsertOrderEvent
INSERT INTO order_events (order_id, sequence, status, reason, at) VALUES ($1, 1, $2, '', $3)`

	findOrder = `-- name: FindOrder
SELECT id, customer_id, status, reason, currency, total, payment_token, created_at, updated_at FROM orders WHERE id = $1`

	findLines = `-- name: FindLines
SELECT product_id, name, quantity, unit_price, line_total FROM order_lines WHERE order_id = $1 ORDER BY position`

	findChanges = `-- name: FindOrderChanges
SELECT o.status, e.sequence, e.status, e.reason, e.at
FROM orders o LEFT JOIN order_events e ON e.order_id = o.id AND e.sequence > $2
WHERE o.id = $1 ORDER BY e.sequence`

	findLatest = `-- name: FindLatestChanges
SELECT order_id, max(sequence) FROM order_events WHERE order_id = ANY ($1::uuid[]) GROUP BY order_id`

	putPrices = `-- name: PutPrices
INSERT INTO prices (product_id, name, currency, minor)
SELECT p.product_id, p.name, p.currency, p.minor
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS p (product_id, name, currency, minor)
ON CONFLICT (product_id) DO UPDATE SET name = excluded.name, currency = excluded.currency, minor = excluded.minor
WHERE (prices.name, prices.currency, prices.minor) IS DISTINCT FROM (excluded.name, excluded.currency, excluded.minor)`

	purgeKeys = `-- name: PurgeKeys
DELETE FROM idempotency_keys WHERE (customer_id, key) IN (
  SELECT customer_id, key FROM idempotency_keys WHERE created_at < now() - $1::interval
  ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)`

	// Whoever changes an order holds its row; NO KEY leaves its lines and events insertable.
	lockOne = `-- name: LockOrder
SELECT id, customer_id, status, currency, total, payment_token FROM orders WHERE id = $1 FOR NO KEY UPDATE`

	lockExpired = `-- name: LockExpiredOrders
SELECT id, customer_id, status, currency, total, payment_token FROM orders
WHERE status IN ('pending', 'awaiting_payment') AND created_at < now() - $1::interval
ORDER BY created_at LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED`

	// The clock is read after the lock was had, so that an order's changes are told in the order of their times.
	moveOrder = `-- name: MoveOrder
WITH moved AS (
  UPDATE orders SET status = $3, reason = $4, updated_at = clock_timestamp() WHERE id = $1 AND status = $2 RETURNING id, updated_at)
INSERT INTO order_events (order_id, sequence, status, reason, at)
SELECT id, (SELECT max(sequence) + 1 FROM order_events WHERE order_id = $1), $3, $4, updated_at FROM moved
RETURNING sequence`

	findOldestOpen = `-- name: FindOldestOpenOrder
SELECT min(created_at) FROM orders WHERE status IN ('pending', 'awaiting_payment')`
)

// expireBatch is how many orders one transaction cancels.
const expireBatch = 100

// purgeBatch is how many expired keys one statement removes; small, so that none holds locks for long.
const purgeBatch = 1000

var (
	errNoOrder  = errors.New("no such order")
	errKeyTaken = errors.New("another call has used the idempotency key in the meantime")
)

// store reads and writes the service's tables. Its errors are the database's, wrapped, and the two above.
type store struct {
	pool *pgxpool.Pool
}

// usedKey is what an idempotency key was used for.
type usedKey struct {
	orderID     uuid.UUID
	fingerprint []byte
}

// lookup reads what placing the order needs: what its key was used for, nil when for nothing, and the prices that exist
// of its products.
func (s store) lookup(ctx context.Context, o wantedOrder) (used *usedKey, prices map[string]price, err error) {
	prices = make(map[string]price, len(o.lines))
	batch := &pgx.Batch{}
	batch.Queue(findKey, o.customerID, o.key).QueryRow(func(row pgx.Row) error {
		var k usedKey
		err := row.Scan(&k.orderID, &k.fingerprint)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		used = &k
		return err
	})
	batch.Queue(findPrices, o.productIDs()).Query(func(rows pgx.Rows) error {
		var id string
		var p price
		_, err := pgx.ForEachRow(rows, []any{&id, &p.name, &p.currency, &p.minor}, func() error {
			prices[id] = p
			return nil
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return nil, nil, fmt.Errorf("look up key and prices: %w", err)
	}
	return used, prices, nil
}

// insert stores a new order with its key and the event that announces it, or nothing. It returns errKeyTaken when the key
// is in use; a call that is just about to use it is waited for.
func (s store) insert(ctx context.Context, o order, key string, fingerprint [sha256.Size]byte, placed outbox.Event) error {
	err := postgres.SendTx(ctx, s.pool, func(b *pgx.Batch) {
		queueOrder(b, o, key, fingerprint)
		outbox.Queue(ctx, b, placed)
	})
	return insertError(err)
}

// queueOrder adds the statements that store a new order and its key.
func queueOrder(b *pgx.Batch, o order, key string, fingerprint [sha256.Size]byte) {
	columns := columnsOf(o.lines)
	b.Queue(insertKey, o.customerID, key, fingerprint[:], o.id)
	b.Queue(insertOrder, o.id, o.customerID, o.status, o.currency, o.total, o.paymentToken, o.createdAt)
	b.Queue(insertLines, o.id, columns.productIDs, columns.names, columns.quantities, columns.unitPrices, columns.lineTotals)
	b.Queue(insertEvent, o.id, o.status, o.createdAt)
}

func insertError(err error) error {
	var violation *pgconn.PgError
	if errors.As(err, &violation) && violation.ConstraintName == "idempotency_keys_pkey" {
		return errKeyTaken
	}
	if err != nil {
		return fmt.Errorf("insert order: %w", err)
	}
	return nil
}

// lineColumns are an order's lines as one array for each column.
type lineColumns struct {
	productIDs, names                  []string
	quantities, unitPrices, lineTotals []int64
}

func columnsOf(lines []orderLine) lineColumns {
	n := len(lines)
	c := lineColumns{make([]string, n), make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n)}
	for i, l := range lines {
		c.productIDs[i], c.names[i], c.quantities[i], c.unitPrices[i], c.lineTotals[i] = l.productID, l.name, l.quantity, l.unitPrice, l.lineTotal
	}
	return c
}

// order reads one order, or returns errNoOrder.
func (s store) order(ctx context.Context, id uuid.UUID) (order, error) {
	var o order
	batch := &pgx.Batch{}
	batch.Queue(findOrder, id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&o.id, &o.customerID, &o.status, &o.reason, &o.currency, &o.total, &o.paymentToken, &o.createdAt, &o.updatedAt)
	})
	batch.Queue(findLines, id).Query(func(rows pgx.Rows) (err error) {
		o.lines, err = scanLines(rows)
		return err
	})
	err := s.pool.SendBatch(ctx, batch).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return order{}, errNoOrder
	}
	if err != nil {
		return order{}, fmt.Errorf("read order: %w", err)
	}
	return o, nil
}

func scanLines(rows pgx.Rows) (lines []orderLine, err error) {
	var l orderLine
	_, err = pgx.ForEachRow(rows, []any{&l.productID, &l.name, &l.quantity, &l.unitPrice, &l.lineTotal}, func() error {
		lines = append(lines, l)
		return nil
	})
	return lines, err
}

// readLines reads an order's lines.
func readLines(ctx context.Context, tx pgx.Tx, id uuid.UUID) ([]orderLine, error) {
	rows, _ := tx.Query(ctx, findLines, id) // its error comes out of scanLines
	lines, err := scanLines(rows)
	if err != nil {
		return nil, fmt.Errorf("read lines of order %s: %w", id, err)
	}
	return lines, nil
}

// lockOrder reads what the saga needs of an order and keeps others from changing it until tx ends. It returns errNoOrder
// when there is none.
func lockOrder(ctx context.Context, tx pgx.Tx, id uuid.UUID) (order, error) {
	rows, _ := tx.Query(ctx, lockOne, id) // its error comes out of CollectExactlyOneRow
	o, err := pgx.CollectExactlyOneRow(rows, scanLocked)
	if errors.Is(err, pgx.ErrNoRows) {
		return order{}, errNoOrder
	}
	if err != nil {
		return order{}, fmt.Errorf("lock order %s: %w", id, err)
	}
	return o, nil
}

func scanLocked(row pgx.CollectableRow) (o order, err error) {
	err = row.Scan(&o.id, &o.customerID, &o.status, &o.currency, &o.total, &o.paymentToken)
	return o, err
}

// expire cancels orders that were placed longer ago than expiry and have not ended, at most expireBatch of them, those
// that somebody else is changing left out.
func (s store) expire(ctx context.Context, expiry time.Duration) (moves []move, err error) {
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		moves = nil
		rows, _ := tx.Query(ctx, lockExpired, expiry, expireBatch) // its error comes out of CollectRows
		late, err := pgx.CollectRows(rows, scanLocked)
		if err != nil {
			return err
		}
		for _, o := range late {
			m, err := take(ctx, tx, o, expired, reasonExpired)
			if err != nil {
				return err
			}
			moves = append(moves, m)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("expire orders: %w", err)
	}
	return moves, nil
}

// change is one status change of an order.
type change struct {
	sequence int64
	status   orderStatus
	reason   string
	at       time.Time
}

// changes reads an order's changes after a sequence, in order, and whether there will be no more after them. It returns
// errNoOrder when there is no such order.
func (s store) changes(ctx context.Context, id uuid.UUID, after int64) (news []change, complete bool, err error) {
	rows, err := s.pool.Query(ctx, findChanges, id, after)
	if err != nil {
		return nil, false, fmt.Errorf("read order changes: %w", err)
	}
	var now orderStatus
	var sequence *int64
	var status, reason *string
	var at *time.Time
	tag, err := pgx.ForEachRow(rows, []any{&now, &sequence, &status, &reason, &at}, func() error {
		if sequence != nil { // the row of an order without news has none
			news = append(news, change{*sequence, orderStatus(*status), *reason, *at})
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("read order changes: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, false, errNoOrder
	}
	return news, now.final(), nil
}

// latest reads the sequence of the last change of each order.
func (s store) latest(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]int64, error) {
	rows, err := s.pool.Query(ctx, findLatest, ids)
	if err != nil {
		return nil, fmt.Errorf("read latest changes: %w", err)
	}
	latest := make(map[uuid.UUID]int64, len(ids))
	var id uuid.UUID
	var sequence int64
	_, err = pgx.ForEachRow(rows, []any{&id, &sequence}, func() error {
		latest[id] = sequence
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read latest changes: %w", err)
	}
	return latest, nil
}

// putPrices stores prices, all or none. No product may be listed twice, and they must be sorted by id.
func (s store) putPrices(ctx context.Context, sorted []listedPrice) error {
	n := len(sorted)
	ids, names, currencies, minors := make([]string, n), make([]string, n), make([]string, n), make([]int64, n)
	for i, p := range sorted {
		ids[i], names[i], currencies[i], minors[i] = p.productID, p.name, p.currency, p.minor
	}
	err := postgres.SendTx(ctx, s.pool, func(b *pgx.Batch) { b.Queue(putPrices, ids, names, currencies, minors) })
	if err != nil {
		return fmt.Errorf("put prices: %w", err)
	}
	return nil
}

// purgeKeys removes the idempotency keys older than the retention.
func (s store) purgeKeys(ctx context.Context, retention time.Duration) error {
	for {
		tag, err := s.pool.Exec(ctx, purgeKeys, retention, purgeBatch)
		if err != nil {
			return fmt.Errorf("purge idempotency keys: %w", err)
		}
		if tag.RowsAffected() < purgeBatch {
			return nil
		}
	}
}

// oldestOpen reads when the oldest order that is not final was placed; the zero time when all are.
func (s store) oldestOpen(ctx context.Context) (time.Time, error) {
	var at *time.Time
	if err := s.pool.QueryRow(ctx, findOldestOpen).Scan(&at); err != nil {
		return time.Time{}, fmt.Errorf("read oldest open order: %w", err)
	}
	if at == nil {
		return time.Time{}, nil
	}
	return *at, nil
}
