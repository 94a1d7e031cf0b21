package check

// All SQL of the package is here. Every statement reads each of its tables once, whatever the number of orders.
const (
	now = `-- name: CheckNow
SELECT now()`

	findOrders = `-- name: CheckOrders
SELECT o.id, o.status, o.currency, o.total, o.created_at <= $1, l.products, l.quantities
FROM orders o LEFT JOIN (
	SELECT order_id, array_agg(product_id ORDER BY product_id COLLATE "C") AS products,
		array_agg(quantity ORDER BY product_id COLLATE "C") AS quantities
	FROM order_lines GROUP BY order_id) l ON l.order_id = o.id
ORDER BY o.id`

	findKnown = `-- name: CheckKnownOrders
SELECT id FROM orders WHERE id = ANY ($1)`

	findReservations = `-- name: CheckReservations
SELECT r.order_id, r.status, l.products, l.quantities
FROM reservations r LEFT JOIN (
	SELECT order_id, array_agg(product_id ORDER BY product_id COLLATE "C") AS products,
		array_agg(quantity ORDER BY product_id COLLATE "C") AS quantities
	FROM reservation_lines GROUP BY order_id) l ON l.order_id = r.order_id
ORDER BY r.order_id`

	findPayments = `-- name: CheckPayments
SELECT coalesce(p.order_id, k.key) AS id, coalesce(p.status, ''), coalesce(p.currency, ''), coalesce(p.amount, 0),
	coalesce(p.charged, 0), coalesce(p.refunded, 0), coalesce(k.charges, 0), coalesce(k.charged, 0), coalesce(k.refunded, 0), k.currencies
FROM payments p FULL JOIN (
	SELECT key, count(*) FILTER (WHERE kind = 'charge') AS charges,
		coalesce(sum(amount) FILTER (WHERE kind = 'charge'), 0)::bigint AS charged,
		coalesce(sum(amount) FILTER (WHERE kind = 'refund'), 0)::bigint AS refunded,
		array_agg(DISTINCT currency) AS currencies
	FROM sandbox_ledger GROUP BY key) k ON k.key = p.order_id
ORDER BY id`

	findStock = `-- name: CheckStock
SELECT s.product_id, s.available, s.reserved, coalesce(l.quantity, 0)::bigint
FROM stock s LEFT JOIN (
	SELECT product_id, sum(quantity) AS quantity FROM reservation_lines GROUP BY product_id) l USING (product_id)`

	countWaiting = `-- name: CheckWaitingEvents
SELECT count(*), count(*) FILTER (WHERE published_at IS NULL AND dead_at IS NULL),
	min(id::text || ' on ' || subject) FILTER (WHERE published_at IS NULL AND dead_at IS NULL)
FROM outbox WHERE created_at <= $1`

	findPublished = `-- name: CheckPublishedEvents
SELECT id, subject FROM outbox WHERE published_at <= $1 AND subject = ANY ($2) ORDER BY id`

	// Both tables may hold an id.
	findReceived = `-- name: CheckReceivedEvents
SELECT id FROM inbox UNION SELECT id FROM dead_letters ORDER BY id`

	countDead = `-- name: CheckDeadLetters
SELECT (SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL) + (SELECT count(*) FROM dead_letters)`
)
