package outbox

// All SQL of the package is here. Times are the database's: the clocks of those who share an outbox need not agree.
//
// A claim walks outbox_due from its head and locks the rows it takes; what others have locked it passes over. The ids go
// through an array so that every plan finds the rows by primary key, whatever the statistics say of a table that was empty
// a moment ago.
const (
	appendEvent = `-- name: AppendEvent
INSERT INTO outbox (id, type, subject, payload, traceparent, tracestate) VALUES ($1, $2, $3, $4, $5, $6)`

	leaseBatch = `-- name: LeaseBatch
UPDATE outbox SET lease_owner = $2, lease_expires_at = now() + $3::interval
WHERE id = ANY (ARRAY(
	SELECT id FROM outbox
	WHERE published_at IS NULL AND dead_at IS NULL AND next_attempt_at <= now()
	AND (lease_expires_at IS NULL OR lease_expires_at <= now())
	ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, type, subject, payload, traceparent, tracestate, created_at`

	endLeases = `-- name: EndLeases
UPDATE outbox SET lease_owner = '', lease_expires_at = NULL
WHERE lease_owner = $1 AND published_at IS NULL AND dead_at IS NULL`

	lockBatch = `-- name: LockBatch
SELECT id, type, subject, payload, traceparent, tracestate, created_at FROM outbox
WHERE published_at IS NULL AND dead_at IS NULL AND next_attempt_at <= now()
AND (lease_expires_at IS NULL OR lease_expires_at <= now())
ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED`

	// Whoever got the acknowledgement notes it, also when its lease has run out.
	markPublished = `-- name: MarkPublished
UPDATE outbox SET published_at = now(), lease_owner = '', lease_expires_at = NULL
WHERE id = ANY ($1::uuid[]) AND published_at IS NULL`

	// The owner is empty when the rows are locked rather than leased, whoever had leased them before.
	postpone = `-- name: Postpone
UPDATE outbox SET next_attempt_at = now() + $3::interval, last_error = $4, lease_owner = '', lease_expires_at = NULL
WHERE id = ANY ($1::uuid[]) AND (lease_owner = $2 OR $2 = '') AND published_at IS NULL`

	// attempts is the count before this refusal; the exponent is bounded so that power stays a number.
	noteRefusals = `-- name: NoteRefusals
UPDATE outbox SET attempts = attempts + 1, last_error = refused.error, lease_owner = '', lease_expires_at = NULL,
	next_attempt_at = now() + least($4::interval * power(2, least(attempts, 20)), interval '1 minute'),
	dead_at = CASE WHEN attempts + 1 >= $5 THEN now() END
FROM unnest($1::uuid[], $2::text[]) AS refused (id, error)
WHERE outbox.id = refused.id AND (lease_owner = $3 OR $3 = '') AND published_at IS NULL
RETURNING dead_at IS NOT NULL`

	// Rows that never failed wait in the order of their age; the others have an index of their own.
	oldestAge = `-- name: OldestUnpublished
SELECT extract(epoch FROM now() - least(
	(SELECT created_at FROM outbox WHERE published_at IS NULL AND dead_at IS NULL AND last_error = ''
	 ORDER BY next_attempt_at LIMIT 1),
	(SELECT created_at FROM outbox WHERE published_at IS NULL AND dead_at IS NULL AND last_error <> ''
	 ORDER BY created_at LIMIT 1)))::float8`

	purgeOutbox = `-- name: PurgeOutbox
DELETE FROM outbox WHERE id = ANY (ARRAY(
	SELECT id FROM outbox WHERE published_at < now() - $1::interval
	ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

	purgeInbox = `-- name: PurgeInbox
DELETE FROM inbox WHERE id = ANY (ARRAY(
	SELECT id FROM inbox WHERE received_at < now() - $1::interval
	ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED))`

	// A delivery of the same event in another transaction waits here for that one's end.
	noteReceived = `-- name: NoteReceived
INSERT INTO inbox (id) VALUES ($1) ON CONFLICT DO NOTHING`

	bury = `-- name: BuryEvent
INSERT INTO dead_letters (id, stream, subject, type, payload, traceparent, tracestate, created_at, attempts, last_error)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`

	takeRetry = `-- name: TakeRetry
SELECT id, type, subject, payload, traceparent, tracestate, created_at FROM dead_letters
WHERE stream = $1 AND retry_at IS NOT NULL ORDER BY retry_at LIMIT 1 FOR UPDATE SKIP LOCKED`

	endRetry = `-- name: EndRetry
DELETE FROM dead_letters WHERE id = $1`

	failRetry = `-- name: FailRetry
UPDATE dead_letters SET retry_at = NULL, dead_at = now(), attempts = attempts + 1, last_error = $2 WHERE id = $1`

	listDead = `-- name: ListDeadLetters
(SELECT 'published' AS side, id, subject, type, payload, created_at, attempts::bigint, last_error, dead_at, false AS retrying
 FROM outbox WHERE dead_at IS NOT NULL ORDER BY dead_at LIMIT $1)
UNION ALL
(SELECT 'consumed', id, subject, type, payload, created_at, attempts, last_error, dead_at, retry_at IS NOT NULL
 FROM dead_letters ORDER BY dead_at LIMIT $1)
ORDER BY dead_at, id LIMIT $1`

	// It stops at a number of each side, so that many cost no more; the order has it take the index of those that are dead.
	countDead = `-- name: CountDeadLetters
SELECT (SELECT count(*) FROM (SELECT FROM outbox WHERE dead_at IS NOT NULL ORDER BY dead_at LIMIT $1) AS published)
	+ (SELECT count(*) FROM (SELECT FROM dead_letters LIMIT $1) AS consumed)`

	retryPublished = `-- name: RetryPublished
UPDATE outbox SET dead_at = NULL, attempts = 0, next_attempt_at = now()
WHERE dead_at IS NOT NULL AND ($1::uuid[] IS NULL OR id = ANY ($1))`

	retryConsumed = `-- name: RetryConsumed
UPDATE dead_letters SET retry_at = now() WHERE retry_at IS NULL AND ($1::uuid[] IS NULL OR id = ANY ($1))`

	dropPublished = `-- name: DropPublished
DELETE FROM outbox WHERE dead_at IS NOT NULL AND ($1::uuid[] IS NULL OR id = ANY ($1))`

	dropConsumed = `-- name: DropConsumed
DELETE FROM dead_letters WHERE $1::uuid[] IS NULL OR id = ANY ($1)`
)
