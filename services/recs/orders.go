package recs

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/platform/outbox"
	eventsv1 "example.com/watertight/proto/events/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
)

// What this service hears of.
const (
	ordersStream     = "orders"
	subjectConfirmed = "orders.confirmed"
)

func (s *Service) handlers() map[string]outbox.Handler {
	return map[string]outbox.Handler{subjectConfirmed: outbox.Decode(s.orderConfirmed)}
}

// orderConfirmed learns what was bought together. The order's id is the basket's.
func (s *Service) orderConfirmed(ctx context.Context, tx pgx.Tx, e *eventsv1.OrderConfirmed) error {
	if e.GetOrderId() == "" || len(e.GetItems()) == 0 {
		return outbox.Permanent(errors.New("order_id and items: must not be empty"))
	}
	basket := &recsv1.Basket{Id: e.GetOrderId()}
	for _, item := range e.GetItems() {
		basket.ProductIds = append(basket.ProductIds, item.GetProductId())
	}
	return s.AddBasket(ctx, tx, basket)
}
