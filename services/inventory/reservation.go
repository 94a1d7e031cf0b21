package inventory

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/outbox"
	eventsv1 "example.com/watertight/proto/events/v1"
)

// The states of a reservation. What is released or rejected stays so.
//
//	(none) ──placed──▶ reserved ──cancelled──▶ released
//	(none) ──placed, too little──▶ rejected
//	(none) ──cancelled──▶ released, a tombstone for the placed that comes later
const (
	reserved = "reserved"
	rejected = "rejected"
	released = "released"
)

// item is a product and how many pieces of it an order wants.
type item struct {
	productID string
	quantity  int64
}

// reserve reserves all that an order wants, or nothing, and announces which. An order that was heard of before is answered
// as it stands.
func reserve(ctx context.Context, tx pgx.Tx, placed *eventsv1.OrderPlaced) error {
	orderID, standing, err := settle(ctx, tx, placed)
	if err != nil {
		return err
	}
	return announce(ctx, tx, orderID, standing)
}

// Reserve is for a process that places orders in this database: it does what the event of a placed order does, in the
// transaction that places it, and instead of announcing a rejection it returns the reason. "" means reserved.
func Reserve(ctx context.Context, tx pgx.Tx, placed *eventsv1.OrderPlaced) (rejection string, err error) {
	orderID, standing, err := settle(ctx, tx, placed)
	switch {
	case err != nil:
		return "", err
	case standing.status == rejected:
		return standing.reason(), nil
	case standing.status == released:
		return "", fmt.Errorf("order %s was released before it was placed", orderID)
	}
	return "", nil
}

// settle makes the reservation, or finds that there is one already.
func settle(ctx context.Context, tx pgx.Tx, placed *eventsv1.OrderPlaced) (orderID uuid.UUID, standing reservation, err error) {
	if orderID, err = parseOrderID(placed.GetOrderId()); err != nil {
		return orderID, standing, err
	}
	items, err := parseItems(orderID, placed.GetItems())
	if err != nil {
		return orderID, standing, err
	}
	// The order's row comes first: it makes all who work on the same order wait for each other.
	fresh, err := insertReservation(ctx, tx, orderID, reserved)
	if err != nil {
		return orderID, standing, err
	}
	if !fresh {
		standing, err = lockReservation(ctx, tx, orderID)
		return orderID, standing, err
	}
	available, err := lockStock(ctx, tx, items)
	if err != nil {
		return orderID, standing, err
	}
	if short, ok := firstShort(items, available); ok {
		standing = reservation{status: rejected, short: short}
		return orderID, standing, setReservation(ctx, tx, orderID, standing)
	}
	return orderID, reservation{status: reserved}, takeStock(ctx, tx, orderID, items)
}

// release gives back what is reserved for an order, and keeps anything from being reserved for it later.
func release(ctx context.Context, tx pgx.Tx, cancelled *eventsv1.OrderCancelled) error {
	orderID, err := parseOrderID(cancelled.GetOrderId())
	if err != nil {
		return err
	}
	fresh, err := insertReservation(ctx, tx, orderID, released)
	if err != nil {
		return err
	}
	if !fresh {
		standing, err := lockReservation(ctx, tx, orderID)
		if err != nil {
			return err
		}
		if standing.status == reserved {
			err = giveStockBack(ctx, tx, orderID)
		}
		if err != nil {
			return err
		}
	}
	// Nothing is reserved for the order now, whichever way it came to that.
	return announce(ctx, tx, orderID, reservation{status: released})
}

// announce tells how an order's reservation stands.
func announce(ctx context.Context, tx pgx.Tx, orderID uuid.UUID, r reservation) error {
	var message proto.Message
	switch r.status {
	case reserved:
		message = &eventsv1.StockReserved{OrderId: orderID.String()}
	case rejected:
		message = &eventsv1.StockRejected{OrderId: orderID.String(), ProductId: r.short, Reason: r.reason()}
	default:
		message = &eventsv1.StockReleased{OrderId: orderID.String()}
	}
	event, err := outbox.NewEvent(Stream+"."+r.status, message)
	if err != nil {
		return err
	}
	return outbox.Append(ctx, tx, event)
}

// reason is why an order was rejected, for people.
func (r reservation) reason() string { return "not enough of " + r.short + " in stock" }

func parseOrderID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil, outbox.Permanent(fmt.Errorf("order_id: %q is not a UUID", text))
	}
	return id, nil
}

// parseItems adds up the items of each product and keeps the order in which products first come. What no checkout may send
// is a permanent error: the order ends by its expiry.
func parseItems(orderID uuid.UUID, sent []*eventsv1.Item) ([]item, error) {
	if len(sent) == 0 {
		return nil, outbox.Permanent(fmt.Errorf("order %s: items: there are none", orderID))
	}
	items := make([]item, 0, len(sent))
	position := make(map[string]int, len(sent))
	for i, s := range sent {
		if s.GetProductId() == "" {
			return nil, outbox.Permanent(fmt.Errorf("order %s: items[%d].product_id: is empty", orderID, i))
		}
		if s.GetQuantity() < 1 {
			return nil, outbox.Permanent(fmt.Errorf("order %s: items[%d].quantity: must be at least 1, is %d", orderID, i, s.GetQuantity()))
		}
		at, known := position[s.GetProductId()]
		if !known {
			position[s.GetProductId()] = len(items)
			items = append(items, item{s.GetProductId(), s.GetQuantity()})
			continue
		}
		if s.GetQuantity() > math.MaxInt64-items[at].quantity {
			return nil, outbox.Permanent(fmt.Errorf("order %s: items[%d].quantity: the sum for the product is too large", orderID, i))
		}
		items[at].quantity += s.GetQuantity()
	}
	return items, nil
}

// firstShort returns the first product of which there is too little; one that is unknown has none.
func firstShort(items []item, available map[string]int64) (string, bool) {
	for _, i := range items {
		if available[i.productID] < i.quantity {
			return i.productID, true
		}
	}
	return "", false
}
