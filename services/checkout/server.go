package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
)

// placeAttempts bounds how often one call tries to place its order: once, once more when another call with its key was
// faster, or when the answer to a commit was lost, and once in reserve.
const placeAttempts = 3

// PlaceOrder stores an order, or finds the one that its key has stored before.
func (s *Service) PlaceOrder(ctx context.Context, req *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error) {
	wanted, err := parseOrder(req)
	if err != nil {
		return nil, err
	}
	if err := s.deps.SyncCall.before(ctx, wanted.lines); err != nil {
		return nil, err
	}
	placed, replayed, err := s.place(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if !replayed {
		s.metrics.orders.WithLabelValues(string(pending)).Inc()
		s.deps.Events.Wake()
	}
	return &checkoutv1.PlaceOrderResponse{Order: orderMessage(placed), Replayed: replayed}, nil
}

// place may run into the key it uses: because another call with the same key commits first, or because its own commit
// went through while the answer was lost. Either way the next look finds the key. Nothing is recorded when it fails.
func (s *Service) place(ctx context.Context, wanted wantedOrder) (placed order, replayed bool, err error) {
	id, err := uuid.NewV7()
	if err != nil {
		return order{}, false, fmt.Errorf("make order id: %w", err)
	}
	for range placeAttempts {
		used, prices, lookupErr := s.store.lookup(ctx, wanted)
		if lookupErr != nil {
			return order{}, false, lookupErr
		}
		if used != nil {
			placed, err = s.recall(ctx, wanted, *used)
			return placed, used.orderID != id, err
		}
		placed, err = wanted.at(prices, id, time.Now().UTC().Truncate(time.Microsecond)) // as exact as the database is
		if err != nil {
			return order{}, false, err
		}
		if placed, err = s.put(ctx, placed, wanted); err == nil {
			return placed, false, nil
		}
		if !errors.Is(err, errKeyTaken) && !errors.Is(err, postgres.ErrOutcomeUnknown) {
			return order{}, false, err
		}
	}
	return order{}, false, err
}

// recall returns the order that a key was used for, if it was for the same content.
func (s *Service) recall(ctx context.Context, wanted wantedOrder, used usedKey) (order, error) {
	if fingerprint := wanted.fingerprint(); !bytes.Equal(fingerprint[:], used.fingerprint) {
		return order{}, rpcerr.New(codes.AlreadyExists, rpcerr.IdempotencyKeyReused, "the idempotency key was used for an order with other content")
	}
	return s.store.order(ctx, used.orderID)
}

// put stores a priced order and announces it, or settles at once what others would do when they hear of it.
func (s *Service) put(ctx context.Context, o order, wanted wantedOrder) (order, error) {
	if s.deps.Reserve != nil {
		return s.putReserved(ctx, o, wanted)
	}
	event, err := outbox.NewEvent(subjectPlaced, placedMessage(o))
	if err != nil {
		return order{}, err
	}
	return o, s.store.insert(ctx, o, wanted.key, wanted.fingerprint(), event)
}

// placedMessage announces a new order.
func placedMessage(o order) *eventsv1.OrderPlaced {
	return &eventsv1.OrderPlaced{
		OrderId: o.id.String(), CustomerId: o.customerID, Total: &moneyv1.Money{Currency: o.currency, Minor: o.total},
		PlacedAt: timestamppb.New(o.createdAt), Items: items(o.lines),
	}
}

// GetOrder reads one order.
func (s *Service) GetOrder(ctx context.Context, req *checkoutv1.GetOrderRequest) (*checkoutv1.GetOrderResponse, error) {
	id, err := parseOrderID(req.GetOrderId())
	if err != nil {
		return nil, err
	}
	o, err := s.store.order(ctx, id)
	if errors.Is(err, errNoOrder) {
		return nil, noOrder(id)
	}
	if err != nil {
		return nil, err
	}
	return &checkoutv1.GetOrderResponse{Order: orderMessage(o)}, nil
}

func parseOrderID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return uuid.UUID{}, rpcerr.Invalid("order_id", "must be a UUID")
	}
	return id, nil
}

func noOrder(id uuid.UUID) error {
	return rpcerr.New(codes.NotFound, rpcerr.NotFound, fmt.Sprintf("there is no order %s", id))
}

func orderMessage(o order) *checkoutv1.Order {
	m := &checkoutv1.Order{
		Id: o.id.String(), CustomerId: o.customerID, Status: statusMessage(o.status), Reason: o.reason,
		Total: &moneyv1.Money{Currency: o.currency, Minor: o.total}, Lines: make([]*checkoutv1.OrderLine, 0, len(o.lines)),
		CreatedAt: timestamppb.New(o.createdAt), UpdatedAt: timestamppb.New(o.updatedAt),
	}
	for _, l := range o.lines {
		m.Lines = append(m.Lines, &checkoutv1.OrderLine{
			ProductId: l.productID, Name: l.name, Quantity: l.quantity, UnitPrice: l.unitPrice, LineTotal: l.lineTotal,
		})
	}
	return m
}

func statusMessage(s orderStatus) checkoutv1.OrderStatus {
	switch s {
	case pending:
		return checkoutv1.OrderStatus_ORDER_STATUS_PENDING
	case awaitingPayment:
		return checkoutv1.OrderStatus_ORDER_STATUS_AWAITING_PAYMENT
	case confirmed:
		return checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED
	case rejected:
		return checkoutv1.OrderStatus_ORDER_STATUS_REJECTED
	case cancelled:
		return checkoutv1.OrderStatus_ORDER_STATUS_CANCELLED
	}
	return checkoutv1.OrderStatus_ORDER_STATUS_UNSPECIFIED
}
