package checkout_test

import (
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkPlaceOrder places orders of three lines over gRPC from parallel clients. TEST_DATABASE_URL chooses a server
// whose commits wait for the disk; the tests' own server does not.
func BenchmarkPlaceOrder(b *testing.B) {
	s := open(b, "POOL_QUEUE=1000")
	s.list(b, "A", 100, "B", 200, "C", 300)
	var n atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.PlaceOrder(b.Context(), wanted(fmt.Sprintf("k-%d", n.Add(1)), "A", 1, "B", 2, "C", 3)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}
