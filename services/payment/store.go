package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
)

// All SQL of this service is here. Each statement that changes a status says which it changes from: of two workers that
// come with an answer for one payment, the second changes nothing.
const (
	insertIntent = `-- name: InsertIntent
INSERT INTO payments (order_id, status, customer_id, currency, amount, payment_token, traceparent, tracestate)
VALUES ($1, 'pending', $2, $3, $4, $5, $6, $7) ON CONFLICT (order_id) DO NOTHING`

	// A cancellation that overtakes its request leaves a row that the request then finds.
	callOff = `-- name: CallOff
INSERT INTO payments AS p (order_id, status, called_off, due_at) VALUES ($1, 'cancelled', true, NULL)
ON CONFLICT (order_id) DO UPDATE SET called_off = true, due_at = now()
WHERE p.status IN ('pending', 'charged') AND NOT p.called_off`

	// due_at becomes the end of the lease, by which whoever asks is known too.
	lease = `-- name: LeasePayments
UPDATE payments SET attempts = attempts + 1, due_at = now() + $2::interval
WHERE order_id = ANY (ARRAY(
	SELECT order_id FROM payments WHERE due_at <= now() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING order_id, customer_id, currency, amount, payment_token, called_off, charged, attempts, due_at, traceparent, tracestate`

	postpone = `-- name: PostponePayment
UPDATE payments SET due_at = now() + $3::interval WHERE order_id = $1 AND due_at = $2`

	// A charge of which the order knew nothing any more when it came about is given back next.
	noteCharged = `-- name: NoteCharged
UPDATE payments SET status = 'charged', charged = amount, updated_at = now(), due_at = CASE WHEN called_off THEN now() END
WHERE order_id = $1 AND status = 'pending'`

	noteDeclined = `-- name: NoteDeclined
UPDATE payments SET status = 'declined', reason = $2, updated_at = now(), due_at = NULL WHERE order_id = $1 AND status = 'pending'`

	noteRefunded = `-- name: NoteRefunded
UPDATE payments SET status = 'refunded', charged = $2, refunded = $2, updated_at = now(), due_at = NULL
WHERE order_id = $1 AND status IN ('pending', 'charged') AND called_off`

	noteCancelled = `-- name: NoteCancelled
UPDATE payments SET status = 'cancelled', updated_at = now(), due_at = NULL
WHERE order_id = $1 AND status = 'pending' AND called_off`

	findPayment = `-- name: FindPayment
SELECT order_id, status, currency, amount, charged, refunded, created_at, updated_at FROM payments WHERE order_id = $1`
)

var errNoPayment = errors.New("no payment for this order")

// status is where a payment stands, by the name it is stored under.
type status string

const (
	pending   status = "pending"
	charged   status = "charged"
	declined  status = "declined"
	refunded  status = "refunded"
	cancelled status = "cancelled"
)

// payment is a stored payment; amounts are minor units of currency.
type payment struct {
	orderID              uuid.UUID
	status               status
	currency             string
	amount               int64
	charged, refunded    int64
	createdAt, updatedAt time.Time
}

// due is a payment for which the provider is to be asked.
type due struct {
	orderID                 uuid.UUID
	charge                  Charge
	calledOff               bool
	charged                 int64 // as far as is known
	attempt                 int
	leaseEnd                time.Time
	traceparent, tracestate string
}

type store struct{ pool *pgxpool.Pool }

// lease claims payments that are due, at most limit, for as long as the lease.
func (s store) lease(ctx context.Context, limit int, length time.Duration) ([]due, error) {
	rows, _ := s.pool.Query(ctx, lease, limit, length) // its error comes out of CollectRows
	leased, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d due, err error) {
		err = row.Scan(&d.orderID, &d.charge.CustomerID, &d.charge.Currency, &d.charge.Minor, &d.charge.Token, &d.calledOff, &d.charged,
			&d.attempt, &d.leaseEnd, &d.traceparent, &d.tracestate)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("lease payments: %w", err)
	}
	return leased, nil
}

// postpone has the payment asked for again after the pause, unless it was claimed or called off in the meantime.
func (s store) postpone(ctx context.Context, d due, pause time.Duration) error {
	if _, err := s.pool.Exec(ctx, postpone, d.orderID, d.leaseEnd, pause); err != nil {
		return fmt.Errorf("postpone payment: %w", err)
	}
	return nil
}

// note stores an outcome and the event that tells of it, in one transaction. It says whether it was news.
func (s store) note(ctx context.Context, o outcome) (news bool, err error) {
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, o.statement, o.arguments...)
		if err != nil {
			return err
		}
		news = tag.RowsAffected() == 1
		if !news || o.event == nil {
			return nil
		}
		event, err := outbox.NewEvent(o.subject, o.event)
		if err != nil {
			return err
		}
		return outbox.Append(ctx, tx, event)
	})
	if err != nil {
		return false, fmt.Errorf("note that the payment is %s: %w", o.status, err)
	}
	return news, nil
}

// payment reads one, or returns errNoPayment.
func (s store) payment(ctx context.Context, orderID uuid.UUID) (p payment, err error) {
	err = s.pool.QueryRow(ctx, findPayment, orderID).
		Scan(&p.orderID, &p.status, &p.currency, &p.amount, &p.charged, &p.refunded, &p.createdAt, &p.updatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return payment{}, errNoPayment
	}
	if err != nil {
		return payment{}, fmt.Errorf("read payment: %w", err)
	}
	return p, nil
}
