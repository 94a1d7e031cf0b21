package gateway_test

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// The whole way: HTTP over loopback, the guards, gRPC over loopback to the in-memory services and back.
func BenchmarkProductPage(b *testing.B) {
	e := newEdge(b, options{environ: []string{"RECS_MAX_QUEUE=1000"}})
	e.get(b, "/api/v1/products/P-1")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a, err := e.try(b.Context(), "GET", "/api/v1/products/P-1", ""); err != nil || a.Status != 200 || a.Header.Get("Watertight-Degraded") != "" {
				b.Errorf("got %d %v %v", a.Status, a.Header, err)
				return
			}
		}
	})
}

func BenchmarkPlaceOrder(b *testing.B) {
	e := newEdge(b, options{})
	e.order(b, "warm")
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if a, err := e.try(b.Context(), "POST", "/api/v1/orders", orderBody, "Idempotency-Key", fmt.Sprint(n.Add(1))); err != nil || a.Status != 201 {
				b.Errorf("got %d %s %v", a.Status, a.Body, err)
				return
			}
		}
	})
}
