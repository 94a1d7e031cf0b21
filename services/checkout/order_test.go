package checkout

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// model is what an order should come to, computed with big numbers and the rules as the contract words them.
type model struct {
	products   []string // as first named
	quantities map[string]*big.Int
	total      *big.Int
	tooMany    bool // of one product
	tooLarge   bool // a line or the total, for an int64
}

func modelOf(lines []*checkoutv1.NewLine, prices map[string]price) model {
	m := model{quantities: map[string]*big.Int{}, total: new(big.Int)}
	for _, l := range lines {
		if m.quantities[l.GetProductId()] == nil {
			m.quantities[l.GetProductId()] = new(big.Int)
			m.products = append(m.products, l.GetProductId())
		}
		sum := m.quantities[l.GetProductId()]
		sum.Add(sum, big.NewInt(l.GetQuantity()))
		if l.GetQuantity() < 1 || sum.Cmp(big.NewInt(100_000)) > 0 {
			m.tooMany = true
		}
	}
	for _, id := range m.products {
		line := new(big.Int).Mul(m.quantities[id], big.NewInt(prices[id].minor))
		m.total.Add(m.total, line)
		if !m.total.IsInt64() {
			m.tooLarge = true
		}
	}
	return m
}

func TestOrder_MergesAndSumsAsBigNumbersWould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"A", "B", "C", "D"}
		prices := map[string]price{}
		for _, id := range ids {
			prices[id] = price{name: "name of " + id, currency: "GBP", minor: rapid.OneOf(
				rapid.Int64Range(1, 10_000), rapid.Int64Range(1, math.MaxInt64), rapid.Int64Range(math.MaxInt64/100_001, math.MaxInt64/99_999)).Draw(t, "price")}
		}
		req := &checkoutv1.PlaceOrderRequest{IdempotencyKey: "k", CustomerId: "c", Currency: "GBP", PaymentToken: "p"}
		for range rapid.IntRange(1, 8).Draw(t, "lines") {
			req.Lines = append(req.Lines, &checkoutv1.NewLine{
				ProductId: rapid.SampledFrom(ids).Draw(t, "product"),
				Quantity:  rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 100_001), rapid.Int64()).Draw(t, "quantity"),
			})
		}
		want := modelOf(req.GetLines(), prices)
		parsed, err := parseOrder(req)
		if (err != nil) != want.tooMany {
			t.Fatalf("parse: got error %v, want one: %t", err, want.tooMany)
		}
		if err != nil {
			return
		}
		got, err := parsed.at(prices, uuid.New(), time.Now())
		if (err != nil) != want.tooLarge {
			t.Fatalf("price: got error %v, want one: %t", err, want.tooLarge)
		}
		if err != nil {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "lines[") {
				t.Fatalf("price: got %v, want INVALID_ARGUMENT naming the line", err)
			}
			return
		}
		if big.NewInt(got.total).Cmp(want.total) != 0 {
			t.Fatalf("total: got %d, want %s", got.total, want.total)
		}
		sum := int64(0)
		for i, l := range got.lines {
			if l.productID != want.products[i] || big.NewInt(l.quantity).Cmp(want.quantities[l.productID]) != 0 || l.lineTotal != l.quantity*l.unitPrice {
				t.Fatalf("line %d: got %+v, want %s × %s", i, l, want.quantities[want.products[i]], want.products[i])
			}
			sum += l.lineTotal
		}
		if sum != got.total {
			t.Fatalf("the lines sum up to %d, the total is %d", sum, got.total)
		}
	})
}

// drawOrder makes small orders, so that two of them are often equal.
func drawOrder(t *rapid.T, label string) *checkoutv1.PlaceOrderRequest {
	text := rapid.StringMatching(`[ab]{1,2}`)
	req := &checkoutv1.PlaceOrderRequest{
		IdempotencyKey: "k", CustomerId: text.Draw(t, label+" customer"), Currency: rapid.SampledFrom([]string{"GBP", "EUR"}).Draw(t, label+" currency"),
		PaymentToken: text.Draw(t, label+" token"),
	}
	if rapid.Bool().Draw(t, label+" expects") {
		req.ExpectedTotal = new(rapid.Int64Range(0, 2).Draw(t, label+" expected"))
	}
	for range rapid.IntRange(1, 3).Draw(t, label+" lines") {
		req.Lines = append(req.Lines, &checkoutv1.NewLine{ProductId: text.Draw(t, label+" product"), Quantity: rapid.Int64Range(1, 2).Draw(t, label+" quantity")})
	}
	return req
}

// content writes an order's content in a form that a person can compare, by other means than fingerprint.
func content(req *checkoutv1.PlaceOrderRequest) string {
	sums := map[string]int64{}
	for _, l := range req.GetLines() {
		sums[l.GetProductId()] += l.GetQuantity()
	}
	expected := "none"
	if req.ExpectedTotal != nil {
		expected = fmt.Sprint(req.GetExpectedTotal())
	}
	return fmt.Sprintf("%q %q %q %s %v", req.GetCustomerId(), req.GetCurrency(), req.GetPaymentToken(), expected, sums) // maps print sorted
}

func fingerprintOf(t interface{ Fatal(args ...any) }, req *checkoutv1.PlaceOrderRequest) [32]byte {
	o, err := parseOrder(req)
	if err != nil {
		t.Fatal(err)
	}
	return o.fingerprint()
}

func TestFingerprint_IsTheSameExactlyForTheSameContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawOrder(t, "a"), drawOrder(t, "b")
		if same, want := fingerprintOf(t, a) == fingerprintOf(t, b), content(a) == content(b); same != want {
			t.Fatalf("same fingerprint: got %t, want %t for\n%s\n%s", same, want, content(a), content(b))
		}
		mixed := proto.CloneOf(a)
		mixed.Lines = rapid.Permutation(mixed.GetLines()).Draw(t, "mixed")
		if fingerprintOf(t, a) != fingerprintOf(t, mixed) {
			t.Fatalf("the order of the lines changed the fingerprint of %s", content(a))
		}
	})
}

// FuzzParseOrder feeds any decodable message: parsing must not panic, and what it accepts must be storable and keep to
// the limits, whatever a caller that is not held to the contract sends.
func FuzzParseOrder(f *testing.F) {
	for _, lines := range [][]*checkoutv1.NewLine{
		{{ProductId: "85123A", Quantity: 2}},
		{{ProductId: "A", Quantity: 100_000}, {ProductId: "A", Quantity: 1}},
		{{ProductId: "A\x00", Quantity: -1}, {ProductId: "", Quantity: math.MaxInt64}},
	} {
		seed, err := proto.Marshal(&checkoutv1.PlaceOrderRequest{IdempotencyKey: "k", CustomerId: "c", Currency: "GBP", PaymentToken: "p", Lines: lines, ExpectedTotal: proto.Int64(1)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed, int64(255))
	}
	f.Fuzz(func(t *testing.T, data []byte, minor int64) {
		req := &checkoutv1.PlaceOrderRequest{}
		if proto.Unmarshal(data, req) != nil {
			t.Skip("not a message")
		}
		parsed, err := parseOrder(req)
		if err != nil {
			if rpcerr.Reason(err) != rpcerr.InvalidArgument || len(rpcerr.Fields(err)) == 0 {
				t.Fatalf("got %v, want INVALID_ARGUMENT naming a field", err)
			}
			return
		}
		if slices.Reverse(req.GetLines()); fingerprintOf(t, req) != parsed.fingerprint() {
			t.Fatal("the order of the lines changes the fingerprint")
		}
		prices := map[string]price{}
		for _, id := range parsed.productIDs() {
			if strings.ContainsRune(id, 0) {
				t.Fatalf("accepted NUL in %q", id)
			}
			if _, twice := prices[id]; twice {
				t.Fatalf("product %q is in the merged order twice", id)
			}
			prices[id] = price{name: id, currency: parsed.currency, minor: max(1, minor)}
		}
		placed, err := parsed.at(prices, uuid.New(), time.Now())
		if err != nil {
			return
		}
		if slices.ContainsFunc(placed.lines, func(l orderLine) bool {
			return l.quantity < 1 || l.quantity > maxQuantity || l.lineTotal < 1 || l.lineTotal > placed.total
		}) {
			t.Fatalf("accepted %+v", placed)
		}
	})
}
