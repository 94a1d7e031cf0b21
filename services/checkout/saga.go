package checkout

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/outbox"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
)

// Stream is the stream that the service fills.
const Stream = "orders"

// What this service tells, and what it hears of.
const (
	subjectPlaced           = "orders.placed"
	subjectPaymentRequested = "orders.payment_requested"
	subjectConfirmed        = "orders.confirmed"
	subjectRejected         = "orders.rejected"
	subjectCancelled        = "orders.cancelled"

	inventoryStream       = "inventory"
	subjectStockReserved  = "inventory.reserved"
	subjectStockRejected  = "inventory.rejected"
	paymentsStream        = "payments"
	subjectCharged        = "payments.charged"
	subjectDeclined       = "payments.declined"
	reasonExpired         = "expired"
	reasonPaymentDeclined = "payment declined"
)

// subscribe has the events that move orders handled.
func (s *Service) subscribe(events *outbox.Outbox) {
	events.Consume(inventoryStream, map[string]outbox.Handler{
		subjectStockReserved: outbox.Decode(func(ctx context.Context, tx pgx.Tx, e *eventsv1.StockReserved) error {
			return s.advance(ctx, tx, e.GetOrderId(), stockReserved, "")
		}),
		subjectStockRejected: outbox.Decode(func(ctx context.Context, tx pgx.Tx, e *eventsv1.StockRejected) error {
			return s.advance(ctx, tx, e.GetOrderId(), stockRejected, e.GetReason())
		}),
	})
	events.Consume(paymentsStream, map[string]outbox.Handler{
		subjectCharged: outbox.Decode(func(ctx context.Context, tx pgx.Tx, e *eventsv1.PaymentCharged) error {
			return s.advance(ctx, tx, e.GetOrderId(), paymentCharged, "")
		}),
		subjectDeclined: outbox.Decode(func(ctx context.Context, tx pgx.Tx, e *eventsv1.PaymentDeclined) error {
			return s.advance(ctx, tx, e.GetOrderId(), paymentDeclined, reasonPaymentDeclined+": "+e.GetReason())
		}),
	})
}

// advance takes the order one step further, in the transaction that holds the event's id.
func (s *Service) advance(ctx context.Context, tx pgx.Tx, orderID string, what signal, reason string) error {
	id, err := uuid.Parse(orderID)
	if err != nil {
		return outbox.Permanent(errors.New("order_id: must be a UUID"))
	}
	o, err := lockOrder(ctx, tx, id)
	if errors.Is(err, errNoOrder) {
		return outbox.Permanent(fmt.Errorf("%s for order %s: %w", what, id, err))
	}
	if err != nil {
		return err
	}
	moved, err := take(ctx, tx, o, what, reason)
	if err != nil {
		return err
	}
	outbox.OnCommit(ctx, func() { s.noteMove(moved) })
	return nil
}

// move is a step that changed an order's status; its zero value is one that did not.
type move struct {
	id       uuid.UUID
	to       orderStatus
	sequence int64
}

// noteMove counts a committed move and lets those who watch the order know.
func (s *Service) noteMove(m move) {
	if m.sequence == 0 {
		return
	}
	s.metrics.orders.WithLabelValues(string(m.to)).Inc()
	s.watches.tell(m.id, m.sequence)
}

// take applies a signal to a locked order: its new status, the row for those who watch, and the event that tells others.
func take(ctx context.Context, tx pgx.Tx, o order, what signal, reason string) (move, error) {
	next, err := transition(o.status, what)
	if err != nil {
		return move{}, fmt.Errorf("order %s: %w", o.id, err)
	}
	batch := &pgx.Batch{}
	moved := move{}
	if next.to != o.status {
		moved = move{id: o.id, to: next.to}
		batch.Queue(moveOrder, o.id, o.status, next.to, reason).QueryRow(func(row pgx.Row) error { return row.Scan(&moved.sequence) })
	}
	if next.tell != "" {
		event, err := stepEvent(ctx, tx, o, next.tell, reason)
		if err != nil {
			return move{}, err
		}
		outbox.Queue(ctx, batch, event)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return move{}, fmt.Errorf("take order %s from %s to %s: %w", o.id, o.status, next.to, err)
	}
	return moved, nil
}

// stepEvent is the event on a subject.
func stepEvent(ctx context.Context, tx pgx.Tx, o order, subject, reason string) (outbox.Event, error) {
	var message proto.Message
	switch id := o.id.String(); subject {
	case subjectPaymentRequested:
		message = &eventsv1.PaymentRequested{OrderId: id, CustomerId: o.customerID, PaymentToken: o.paymentToken,
			Amount: &moneyv1.Money{Currency: o.currency, Minor: o.total}}
	case subjectConfirmed:
		lines, err := readLines(ctx, tx, o.id)
		if err != nil {
			return outbox.Event{}, err
		}
		message = &eventsv1.OrderConfirmed{OrderId: id, CustomerId: o.customerID, Items: items(lines)}
	case subjectRejected:
		message = &eventsv1.OrderRejected{OrderId: id, Reason: reason}
	default:
		message = &eventsv1.OrderCancelled{OrderId: id, Reason: reason}
	}
	return outbox.NewEvent(subject, message)
}

func items(lines []orderLine) []*eventsv1.Item {
	all := make([]*eventsv1.Item, 0, len(lines))
	for _, l := range lines {
		all = append(all, &eventsv1.Item{ProductId: l.productID, Quantity: l.quantity})
	}
	return all
}

// expire cancels the orders that have waited too long. Several processes may do it at once.
func (s *Service) expire(ctx context.Context) error {
	for {
		moves, err := s.store.expire(ctx, s.cfg.OrderExpiry)
		if err != nil {
			return err
		}
		for _, m := range moves {
			s.noteMove(m)
			s.deps.Log.InfoContext(ctx, "order expired", "order_id", m.id)
		}
		if len(moves) > 0 {
			s.deps.Events.Wake()
		}
		if len(moves) < expireBatch {
			return nil
		}
	}
}
