-- The statements of PlaceOrder for an order of three lines, for pgbench: a look for the key and the prices, then all rows of
-- the order in one implicit transaction; two round trips, as the service makes them. The relay's work is not part of it.
--
--   pgbench -n -M prepared -c 16 -j 2 -t 1000 -D n=100000000000 -f placeorder.sql URL
--
-- n and c, always of twelve digits, make the order's id: it grows with time, as the service's version 7 UUIDs do.
\set n :n + 1
\set c 100000000000 + :client_id
\startpipeline
SELECT order_id, fingerprint FROM idempotency_keys WHERE customer_id = 'c-1' AND key = :n::text || :c::text;
SELECT product_id, name, currency, minor FROM prices WHERE product_id = ANY ('{A,B,C}'::text[]);
\endpipeline
\startpipeline
INSERT INTO idempotency_keys (customer_id, key, fingerprint, order_id)
VALUES ('c-1', :n::text || :c::text, decode(repeat('ab', 32), 'hex'), (:n::text || '70008000' || :c::text)::uuid);
INSERT INTO orders (id, customer_id, status, currency, total, payment_token, created_at, updated_at)
VALUES ((:n::text || '70008000' || :c::text)::uuid, 'c-1', 'pending', 'GBP', 1400, 'tok_ok', now(), now());
INSERT INTO order_lines (order_id, position, product_id, name, quantity, unit_price, line_total)
SELECT (:n::text || '70008000' || :c::text)::uuid, l.position, l.product_id, l.name, l.quantity, l.unit_price, l.line_total
FROM unnest('{A,B,C}'::text[], '{Name of A,Name of B,Name of C}'::text[], '{1,2,3}'::bigint[], '{100,200,300}'::bigint[], '{100,400,900}'::bigint[])
  WITH ORDINALITY AS l (product_id, name, quantity, unit_price, line_total, position);
INSERT INTO order_events (order_id, sequence, status, reason, at)
VALUES ((:n::text || '70008000' || :c::text)::uuid, 1, 'pending', '', now());
INSERT INTO outbox (id, type, subject, payload, traceparent, tracestate)
VALUES ((:n::text || '70009000' || :c::text)::uuid, 'events.v1.OrderPlaced', 'checkout.placed', decode(repeat('ab', 90), 'hex'),
  '00-01020000000000000000000000000000-0102000000000000-01', '');
\endpipeline
