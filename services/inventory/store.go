package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// All SQL of this service is here. Everybody locks an order's row first and rows of stock after that, in the order of their
// ids, so that no two transactions can wait for each other.
const (
	insertReservationRow = `-- name: InsertReservation
INSERT INTO reservations (order_id, status) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	lockReservationRow = `-- name: LockReservation
SELECT status, short FROM reservations WHERE order_id = $1 FOR UPDATE`

	updateReservation = `-- name: UpdateReservation
UPDATE reservations SET status = $2, short = $3, updated_at = now() WHERE order_id = $1`

	lockStockRows = `-- name: LockStock
SELECT product_id, available FROM stock WHERE product_id = ANY ($1::text[]) ORDER BY product_id FOR UPDATE`

	takeFromStock = `-- name: TakeStock
UPDATE stock SET available = available - wanted.quantity, reserved = reserved + wanted.quantity
FROM unnest($1::text[], $2::bigint[]) AS wanted (product_id, quantity)
WHERE stock.product_id = wanted.product_id AND wanted.quantity >= 1 AND available >= wanted.quantity`

	insertLines = `-- name: InsertReservationLines
INSERT INTO reservation_lines (order_id, product_id, quantity)
SELECT $1, wanted.product_id, wanted.quantity FROM unnest($2::text[], $3::bigint[]) AS wanted (product_id, quantity)`

	lockReservedStock = `-- name: LockReservedStock
SELECT FROM stock WHERE product_id IN (SELECT product_id FROM reservation_lines WHERE order_id = $1)
ORDER BY product_id FOR UPDATE`

	returnToStock = `-- name: ReturnStock
WITH given AS (DELETE FROM reservation_lines WHERE order_id = $1 RETURNING product_id, quantity)
UPDATE stock SET available = available + given.quantity, reserved = reserved - given.quantity
FROM given WHERE stock.product_id = given.product_id`

	readStock = `-- name: ReadStock
SELECT stock.product_id, available, reserved
FROM unnest($1::text[]) WITH ORDINALITY AS asked (product_id, position) JOIN stock USING (product_id)
ORDER BY position`

	// Rows are inserted, and so locked, in the order of their ids. Of a product that is named twice the last count holds.
	setStock = `-- name: SetStock
INSERT INTO stock (product_id, available)
SELECT DISTINCT ON (product_id) product_id, available
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS counts (product_id, available, position)
ORDER BY product_id, position DESC
ON CONFLICT (product_id) DO UPDATE SET available = excluded.available`
)

// reservation is how an order stands; short is the product that was, if it is rejected.
type reservation struct{ status, short string }

// insertReservation says whether the order was not heard of before.
func insertReservation(ctx context.Context, tx pgx.Tx, orderID uuid.UUID, status string) (bool, error) {
	tag, err := tx.Exec(ctx, insertReservationRow, orderID, status)
	if err != nil {
		return false, fmt.Errorf("insert reservation: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

func lockReservation(ctx context.Context, tx pgx.Tx, orderID uuid.UUID) (r reservation, err error) {
	if err := tx.QueryRow(ctx, lockReservationRow, orderID).Scan(&r.status, &r.short); err != nil {
		return r, fmt.Errorf("lock reservation: %w", err)
	}
	return r, nil
}

func setReservation(ctx context.Context, tx pgx.Tx, orderID uuid.UUID, r reservation) error {
	if _, err := tx.Exec(ctx, updateReservation, orderID, r.status, r.short); err != nil {
		return fmt.Errorf("update reservation: %w", err)
	}
	return nil
}

// lockStock locks the rows of the products and returns how many pieces are available of each that exists.
func lockStock(ctx context.Context, tx pgx.Tx, items []item) (map[string]int64, error) {
	ids, _ := columns(items)
	rows, _ := tx.Query(ctx, lockStockRows, ids) // its error comes out of ForEachRow
	available := make(map[string]int64, len(items))
	var id string
	var pieces int64
	_, err := pgx.ForEachRow(rows, []any{&id, &pieces}, func() error { available[id] = pieces; return nil })
	if err != nil {
		return nil, fmt.Errorf("lock stock: %w", err)
	}
	return available, nil
}

// takeStock moves the items from available to reserved. Their rows are locked and there is enough; the statement checks
// that again, since it must never be wrong.
func takeStock(ctx context.Context, tx pgx.Tx, orderID uuid.UUID, items []item) error {
	ids, quantities := columns(items)
	tag, err := tx.Exec(ctx, takeFromStock, ids, quantities)
	if err != nil {
		return fmt.Errorf("take stock: %w", err)
	}
	if tag.RowsAffected() != int64(len(items)) {
		return fmt.Errorf("take stock for order %s: %d of %d products had enough", orderID, tag.RowsAffected(), len(items))
	}
	if _, err := tx.Exec(ctx, insertLines, orderID, ids, quantities); err != nil {
		return fmt.Errorf("insert reservation lines: %w", err)
	}
	return nil
}

// giveStockBack moves what is reserved for an order back to available.
func giveStockBack(ctx context.Context, tx pgx.Tx, orderID uuid.UUID) error {
	for _, statement := range []string{lockReservedStock, returnToStock} {
		if _, err := tx.Exec(ctx, statement, orderID); err != nil {
			return fmt.Errorf("give stock back: %w", err)
		}
	}
	return setReservation(ctx, tx, orderID, reservation{status: released})
}

func columns(items []item) (ids []string, quantities []int64) {
	for _, i := range items {
		ids, quantities = append(ids, i.productID), append(quantities, i.quantity)
	}
	return ids, quantities
}

// store is the stock as the service's calls see it.
type store struct{ pool *pgxpool.Pool }

// levels returns the stock of the products that exist, in the order asked for.
func (s store) levels(ctx context.Context, ids []string) ([]*inventoryv1.StockLevel, error) {
	rows, _ := s.pool.Query(ctx, readStock, ids) // its error comes out of CollectRows
	levels, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*inventoryv1.StockLevel, error) {
		level := &inventoryv1.StockLevel{}
		return level, row.Scan(&level.ProductId, &level.Available, &level.Reserved)
	})
	if err != nil {
		return nil, fmt.Errorf("read stock: %w", err)
	}
	return levels, nil
}

// set stores the counts in one transaction.
func (s store) set(ctx context.Context, counts []*inventoryv1.StockCount) error {
	ids, available := make([]string, 0, len(counts)), make([]int64, 0, len(counts))
	for _, c := range counts {
		ids, available = append(ids, c.GetProductId()), append(available, c.GetAvailable())
	}
	if err := postgres.SendTx(ctx, s.pool, func(b *pgx.Batch) { b.Queue(setStock, ids, available) }); err != nil {
		return fmt.Errorf("set stock: %w", err)
	}
	return nil
}
