package payment

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"

	"example.com/watertight/platform/outbox"
	eventsv1 "example.com/watertight/proto/events/v1"
)

// What this service hears of and what it tells.
const (
	ordersStream     = "orders"
	subjectRequested = "orders.payment_requested"
	subjectCancelled = "orders.cancelled"
	subjectCharged   = "payments.charged"
	subjectDeclined  = "payments.declined"
	subjectRefunded  = "payments.refunded"
)

func (s *Service) handlers() map[string]outbox.Handler {
	return map[string]outbox.Handler{
		subjectRequested: outbox.Decode(s.paymentRequested),
		subjectCancelled: outbox.Decode(s.orderCancelled),
	}
}

// paymentRequested stores the intent, and no more: the provider must not be asked with a transaction open. For an order
// that was cancelled already, and for one that is asked for again, nothing changes.
func (s *Service) paymentRequested(ctx context.Context, tx pgx.Tx, e *eventsv1.PaymentRequested) error {
	id, err := orderID(e.GetOrderId())
	if err != nil {
		return err
	}
	if e.GetAmount().GetMinor() < 1 || e.GetAmount().GetCurrency() == "" {
		return outbox.Permanent(fmt.Errorf("amount: must be more than 0 of a currency, is %v", e.GetAmount()))
	}
	creation := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, creation)
	_, err = tx.Exec(ctx, insertIntent, id, e.GetCustomerId(), e.GetAmount().GetCurrency(), e.GetAmount().GetMinor(), e.GetPaymentToken(),
		creation.Get("traceparent"), creation.Get("tracestate"))
	if err != nil {
		return fmt.Errorf("store intent: %w", err)
	}
	outbox.OnCommit(ctx, s.worker.wake)
	return nil
}

// orderCancelled has the payment called off at the provider, whatever is known of it here.
func (s *Service) orderCancelled(ctx context.Context, tx pgx.Tx, e *eventsv1.OrderCancelled) error {
	id, err := orderID(e.GetOrderId())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, callOff, id); err != nil {
		return fmt.Errorf("call off: %w", err)
	}
	outbox.OnCommit(ctx, s.worker.wake)
	return nil
}

func orderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.UUID{}, outbox.Permanent(errors.New("order_id: must be a UUID"))
	}
	return id, nil
}
