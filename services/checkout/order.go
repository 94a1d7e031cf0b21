package checkout

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// maxQuantity is how many pieces of one product an order may hold, over all lines that name it.
const maxQuantity = 100_000

// wantedOrder is an order as the customer asks for it: checked, each product once. Prices are not known yet.
type wantedOrder struct {
	key, customerID, currency, paymentToken string
	lines                                   []wantedLine
	expectedTotal                           *int64 // minor units; nil when the customer was shown none
}

// wantedLine is one product; line is the index of the request's line that first names it, for errors.
type wantedLine struct {
	productID string
	quantity  int64
	line      int
}

// parseOrder checks what the contract cannot say: the text can be stored, and the quantities keep to their limit when
// the lines of one product are merged.
func parseOrder(req *checkoutv1.PlaceOrderRequest) (wantedOrder, error) {
	o := wantedOrder{
		key: req.GetIdempotencyKey(), customerID: req.GetCustomerId(), currency: req.GetCurrency(),
		paymentToken: req.GetPaymentToken(), expectedTotal: req.ExpectedTotal,
	}
	for _, text := range [][2]string{{"idempotency_key", o.key}, {"customer_id", o.customerID}, {"currency", o.currency}, {"payment_token", o.paymentToken}} {
		if !storable(text[1]) {
			return wantedOrder{}, rpcerr.Invalid(text[0], notStorable)
		}
	}
	lines, err := mergeLines(req.GetLines())
	o.lines = lines
	return o, err
}

// mergeLines makes one line of all that name the same product, in the order in which the products are first named.
func mergeLines(lines []*checkoutv1.NewLine) ([]wantedLine, error) {
	merged := make([]wantedLine, 0, len(lines))
	at := make(map[string]int, len(lines))
	for i, l := range lines {
		if !storable(l.GetProductId()) {
			return nil, rpcerr.Invalid(fmt.Sprintf("lines[%d].product_id", i), notStorable)
		}
		m, known := at[l.GetProductId()]
		if !known {
			m = len(merged)
			at[l.GetProductId()] = m
			merged = append(merged, wantedLine{productID: l.GetProductId(), line: i})
		}
		// Compared by difference, so that no sum can overflow.
		if q := l.GetQuantity(); q < 1 || q > maxQuantity-merged[m].quantity {
			return nil, rpcerr.Invalid(fmt.Sprintf("lines[%d].quantity", i),
				fmt.Sprintf("must be between 1 and %d for each product, over all its lines", maxQuantity))
		}
		merged[m].quantity += l.GetQuantity()
	}
	return merged, nil
}

const notStorable = "must be valid UTF-8 without NUL"

// storable reports whether PostgreSQL can store s as text.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func (o wantedOrder) productIDs() []string {
	ids := make([]string, 0, len(o.lines))
	for _, l := range o.lines {
		ids = append(ids, l.productID)
	}
	return ids
}

// fingerprint tells orders of different content apart. It covers the merged order, not the message: the same order with
// its lines split or in another order is the same content. Each text is preceded by its length, so that no two orders
// write the same bytes.
func (o wantedOrder) fingerprint() [sha256.Size]byte {
	b := []byte{1} // version of this form, to be changed with it
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(o.customerID)
	text(o.currency)
	text(o.paymentToken)
	if o.expectedTotal == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = binary.BigEndian.AppendUint64(b, uint64(*o.expectedTotal))
	}
	byProduct := slices.Clone(o.lines)
	slices.SortFunc(byProduct, func(x, y wantedLine) int { return strings.Compare(x.productID, y.productID) })
	for _, l := range byProduct {
		text(l.productID)
		b = binary.BigEndian.AppendUint64(b, uint64(l.quantity))
	}
	return sha256.Sum256(b)
}

// price is what one piece of a product costs, in minor units.
type price struct {
	name, currency string
	minor          int64
}

// orderStatus is where an order stands, by the name it is stored under.
type orderStatus string

const (
	pending         orderStatus = "pending"
	awaitingPayment orderStatus = "awaiting_payment"
	confirmed       orderStatus = "confirmed"
	rejected        orderStatus = "rejected"
	cancelled       orderStatus = "cancelled"
)

func (s orderStatus) final() bool { return s == confirmed || s == rejected || s == cancelled }

// order is a stored order; amounts are minor units of currency.
type order struct {
	id                   uuid.UUID
	customerID           string
	status               orderStatus
	reason               string
	currency             string
	total                int64
	paymentToken         string
	lines                []orderLine
	createdAt, updatedAt time.Time
}

type orderLine struct {
	productID, name                string
	quantity, unitPrice, lineTotal int64
}

// at prices the order and makes it one of the given id, pending since now.
func (o wantedOrder) at(prices map[string]price, id uuid.UUID, now time.Time) (order, error) {
	lines, total, err := o.priceLines(prices)
	if err != nil {
		return order{}, err
	}
	if o.expectedTotal != nil && *o.expectedTotal != total {
		return order{}, rpcerr.New(codes.FailedPrecondition, rpcerr.PriceChanged,
			fmt.Sprintf("the total is now %d, not the %d expected", total, *o.expectedTotal), rpcerr.Meta("total", strconv.FormatInt(total, 10)))
	}
	return order{
		id: id, customerID: o.customerID, status: pending, currency: o.currency, total: total, paymentToken: o.paymentToken,
		lines: lines, createdAt: now, updatedAt: now,
	}, nil
}

func (o wantedOrder) priceLines(prices map[string]price) (lines []orderLine, total int64, err error) {
	lines = make([]orderLine, 0, len(o.lines))
	for _, l := range o.lines {
		p, known := prices[l.productID]
		switch {
		case !known:
			return nil, 0, rpcerr.New(codes.NotFound, rpcerr.NotFound, fmt.Sprintf("there is no product %q", l.productID),
				rpcerr.Meta("product_id", l.productID))
		case p.currency != o.currency:
			return nil, 0, rpcerr.Invalid("currency", fmt.Sprintf("product %q is priced in %s", l.productID, p.currency))
		case p.minor > math.MaxInt64/l.quantity, p.minor*l.quantity > math.MaxInt64-total:
			return nil, 0, rpcerr.Invalid(fmt.Sprintf("lines[%d]", l.line), "makes the total larger than can be charged")
		}
		line := orderLine{productID: l.productID, name: p.name, quantity: l.quantity, unitPrice: p.minor, lineTotal: p.minor * l.quantity}
		lines = append(lines, line)
		total += line.lineTotal
	}
	return lines, total, nil
}
