-- The statements of PlaceOrder for an order of three lines, for pgbench: a look for the key and the prices, then all rows of the order in one
-- transaction. What the service passes as parameters are parameters here. The relay's work is not part of it.
--
-- With pipelined=0 each statement waits for the answer to the one before it, as pgbench does by itself. With pipelined=1 the statements go
-- out together, in the two round trips that the service makes, the second of them one implicit transaction.
--
--   pgbench -n -M prepared -c 16 -j 2 -t 1500 -D pipelined=0 -D n=100000000000 -D ... -f placeorder.sql URL
--
-- n and c, always of twelve digits, make the order's id: it grows with time, as the service's version 7 UUIDs do. The other variables are
-- the order (orders.go, "order"): customer, products, names, quantities, prices, totals, total, currency, token, status, at, fingerprint,
-- type, subject, payload.
\set n :n + 1
\set c 100000000000 + :client_id
\if :pipelined
\startpipeline
\endif
SELECT order_id, fingerprint FROM idempotency_keys WHERE customer_id = :customer AND key = :n::text || :c::text;
SELECT product_id, name, currency, minor FROM prices WHERE product_id = ANY (:products::text[]);
\if :pipelined
\endpipeline
\startpipeline
\else
BEGIN;
\endif
INSERT INTO idempotency_keys (customer_id, key, fingerprint, order_id)
VALUES (:customer, :n::text || :c::text, :fingerprint, (:n::text || '70008000' || :c::text)::uuid);
INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
VALUES ((:n::text || '70008000' || :c::text)::uuid, :customer, :status, :currency, :total, :token, :at, :at);
INSERT INTO order_lines (order_id, position, product_id, name, quantity, unit_price, line_total)
SELECT (:n::text || '70008000' || :c::text)::uuid, l.position, l.product_id, l.name, l.quantity, l.unit_price, l.line_total
FROM unnest(:products::text[], :names::text[], :quantities::bigint[], :prices::bigint[], :totals::bigint[])
  WITH ORDINALITY AS l (product_id, name, quantity, unit_price, line_total, position);
INSERT INTO order_events (order_id, sequence, status, reason, at)
VALUES ((:n::text || '70008000' || :c::text)::uuid, 1, :status, '', :at);
INSERT INTO outbox (id, type, subject, payload, traceparent, tracestate)
VALUES ((:n::text || '70009000' || :c::text)::uuid, :type, :subject, :payload, '', '');
\if :pipelined
\endpipeline
\else
COMMIT;
\endif
