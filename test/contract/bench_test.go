package contract_test

import (
	"fmt"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/rpc/contract"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// BenchmarkPlaceOrder checks an order that is good, by the platform and by the library; each has learned the rules before.
func BenchmarkPlaceOrder(b *testing.B) {
	library, err := protovalidate.New()
	if err != nil {
		b.Fatal(err)
	}
	for _, lines := range []int{3, 100} {
		for _, side := range []struct {
			name  string
			check func(proto.Message) error
		}{
			{"ours", new(contract.Rules).Check},
			{"protovalidate", func(m proto.Message) error { return library.Validate(m) }},
		} {
			b.Run(fmt.Sprintf("lines=%d/%s", lines, side.name), func(b *testing.B) {
				m := order(lines)
				if err := side.check(m); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := side.check(m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func order(lines int) *checkoutv1.PlaceOrderRequest {
	m := &checkoutv1.PlaceOrderRequest{
		IdempotencyKey: "0190f3a0-0000-7000-8000-00000000000a", CustomerId: "customer-1", Currency: "GBP", PaymentToken: "tok_visa", ExpectedTotal: new(int64(4200)),
	}
	for i := range lines {
		m.Lines = append(m.Lines, &checkoutv1.NewLine{ProductId: fmt.Sprintf("%05dA", i), Quantity: int64(i + 1)})
	}
	return m
}
