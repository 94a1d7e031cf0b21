package monolith

import (
	"testing"

	"google.golang.org/grpc"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
	paymentv1 "example.com/watertight/proto/payment/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

func TestCallers_ListEveryMethodAndNothingElse(t *testing.T) {
	left := callers()
	for _, service := range []grpc.ServiceDesc{
		checkoutv1.CheckoutService_ServiceDesc, inventoryv1.InventoryService_ServiceDesc, paymentv1.PaymentService_ServiceDesc,
		recsv1.RecsService_ServiceDesc, searchv1.SearchService_ServiceDesc,
	} {
		var methods []string
		for _, m := range service.Methods {
			methods = append(methods, m.MethodName)
		}
		for _, s := range service.Streams {
			methods = append(methods, s.StreamName)
		}
		for _, m := range methods {
			full := "/" + service.ServiceName + "/" + m
			if len(left[full]) == 0 {
				t.Errorf("nobody may call %s", full)
			}
			delete(left, full)
		}
	}
	for method := range left {
		t.Errorf("%s is no method of a contract", method)
	}
}
