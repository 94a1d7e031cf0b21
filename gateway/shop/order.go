package shop

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// Status is where an order stands.
type Status string

// The order statuses. Confirmed, Rejected and Cancelled are final.
const (
	Pending         Status = "pending"
	AwaitingPayment Status = "awaiting_payment"
	Confirmed       Status = "confirmed"
	Rejected        Status = "rejected"
	Cancelled       Status = "cancelled"
)

// Final says whether an order in this status stays as it is.
func (s Status) Final() bool { return s == Confirmed || s == Rejected || s == Cancelled }

// NewLine is one line of an order as the customer asks for it; Quantity counts pieces.
type NewLine struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"`
}

// NewOrder is the order a customer wants. Its JSON form is the body of POST /api/v1/orders.
type NewOrder struct {
	CustomerID string    `json:"customer_id"`
	Currency   string    `json:"currency"`
	Lines      []NewLine `json:"lines"`
	// ExpectedTotal is the total the customer was shown, in minor units; nil when there was none. A different total
	// now is PRICE_CHANGED.
	ExpectedTotal *int64 `json:"expected_total"`
	PaymentToken  string `json:"payment_token"`
}

// OrderLine is one line of a stored order; amounts are minor units of the order's currency.
type OrderLine struct {
	ProductID string `json:"product_id"`
	Name      string `json:"name"`
	Quantity  int64  `json:"quantity"`
	UnitPrice int64  `json:"unit_price"`
	LineTotal int64  `json:"line_total"`
}

// Order is a stored order; Total is in minor units of Currency.
type Order struct {
	ID         string      `json:"id"`
	CustomerID string      `json:"customer_id"`
	Status     Status      `json:"status"`
	Reason     string      `json:"reason"` // for people; empty while all is well
	Currency   string      `json:"currency"`
	Total      int64       `json:"total"`
	Lines      []OrderLine `json:"lines"`
	CreatedAt  time.Time   `json:"created_at"`
	UpdatedAt  time.Time   `json:"updated_at"`
}

// PlaceOrder stores the order under the idempotency key, which the client chose once for it. It is sent once: whether to
// try again is the client's to decide, and safe with the same key. replayed says that an earlier call had stored it.
// Reasons: INVALID_ARGUMENT, IDEMPOTENCY_KEY_MISSING, IDEMPOTENCY_KEY_REUSED, NOT_FOUND, PRICE_CHANGED, and those of a
// checkout that cannot be reached.
func (s *Shop) PlaceOrder(ctx context.Context, key string, o NewOrder) (order Order, replayed bool, err error) {
	if key == "" {
		return Order{}, false, rpcerr.New(codes.InvalidArgument, rpcerr.IdempotencyKeyMissing,
			"an order needs an idempotency key, chosen by the client once per order")
	}
	if err := allUTF8(field{"idempotency_key", key}, field{"customer_id", o.CustomerID}, field{"currency", o.Currency},
		field{"payment_token", o.PaymentToken}); err != nil {
		return Order{}, false, err
	}
	req := &checkoutv1.PlaceOrderRequest{
		IdempotencyKey: key, CustomerId: o.CustomerID, Currency: o.Currency, ExpectedTotal: o.ExpectedTotal,
		PaymentToken: o.PaymentToken, Lines: make([]*checkoutv1.NewLine, 0, len(o.Lines)),
	}
	for i, l := range o.Lines {
		if !utf8.ValidString(l.ProductID) {
			return Order{}, false, notUTF8(fmt.Sprintf("lines[%d].product_id", i))
		}
		req.Lines = append(req.Lines, &checkoutv1.NewLine{ProductId: l.ProductID, Quantity: l.Quantity})
	}
	resp, err := s.b.Checkout.PlaceOrder(ctx, req)
	if err != nil {
		return Order{}, false, err
	}
	if !resp.GetReplayed() {
		s.orders.count(time.Now())
	}
	return orderOf(resp.GetOrder()), resp.GetReplayed(), nil
}

// Order returns the order as it stands now, or reason NOT_FOUND.
func (s *Shop) Order(ctx context.Context, id string) (Order, error) {
	if err := allUTF8(field{"order_id", id}); err != nil {
		return Order{}, err
	}
	resp, err := s.b.Checkout.GetOrder(ctx, &checkoutv1.GetOrderRequest{OrderId: id})
	if err != nil {
		return Order{}, err
	}
	return orderOf(resp.GetOrder()), nil
}

func orderOf(o *checkoutv1.Order) Order {
	out := Order{
		ID: o.GetId(), CustomerID: o.GetCustomerId(), Status: statusOf(o.GetStatus()), Reason: o.GetReason(),
		Currency: o.GetTotal().GetCurrency(), Total: o.GetTotal().GetMinor(), Lines: make([]OrderLine, 0, len(o.GetLines())),
		CreatedAt: o.GetCreatedAt().AsTime(), UpdatedAt: o.GetUpdatedAt().AsTime(),
	}
	for _, l := range o.GetLines() {
		out.Lines = append(out.Lines, OrderLine{
			ProductID: l.GetProductId(), Name: l.GetName(), Quantity: l.GetQuantity(), UnitPrice: l.GetUnitPrice(), LineTotal: l.GetLineTotal(),
		})
	}
	return out
}

// statusOf is the contract's name in lower case, without its prefix, so that a status added to the contract shows
// under its own name.
func statusOf(s checkoutv1.OrderStatus) Status {
	return Status(strings.ToLower(strings.TrimPrefix(s.String(), "ORDER_STATUS_")))
}

// field is one text of a request under the name that the caller knows it by.
type field struct{ name, value string }

// allUTF8 refuses text that no protobuf string may hold, naming the field: sent as it is, it would come back as an
// internal error of ours. All other limits are the services' to enforce.
func allUTF8(fields ...field) error {
	for _, f := range fields {
		if !utf8.ValidString(f.value) {
			return notUTF8(f.name)
		}
	}
	return nil
}

func notUTF8(name string) error { return rpcerr.Invalid(name, "must be valid UTF-8") }
