package index_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

// sizes are a mid-size shop's catalog and a large one's.
var sizes = []int{4070, 100_000}

// queriesFor returns what people type to find the products: words of a name, begun, mistyped, ids.
func queriesFor(products []*searchv1.Product, n int) []string {
	queries := make([]string, n)
	for i := range queries {
		p := products[i*7919%len(products)]
		words := strings.Fields(p.GetName())
		q := strings.Join(words[:min(len(words), 1+i%3)], " ")
		switch i % 6 {
		case 1:
			q = q[:len(q)-len(q)/3]
		case 2:
			q = q[:len(q)/2] + "x" + q[len(q)/2:]
		case 3:
			q = p.GetId()
		}
		queries[i] = q
	}
	return queries
}

func BenchmarkSearch(b *testing.B) {
	for _, n := range sizes {
		products := wholesale(n)
		x := build(b, products)
		queries := queriesFor(products, 5000)
		b.Run(fmt.Sprint("products=", n), func(b *testing.B) {
			b.ReportAllocs()
			took := make([]time.Duration, 0, b.N)
			worked := cpu()
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if _, err := x.Search(index.Query{Text: queries[i%len(queries)], Limit: 20}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			b.ReportMetric(float64((cpu()-worked).Microseconds())/float64(b.N), "cpu-µs/op")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range sizes {
		products := wholesale(n)
		b.Run(fmt.Sprint("products=", n), func(b *testing.B) {
			for b.Loop() {
				before, worked := heap(), cpu()
				x, err := index.Build(products)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64((cpu()-worked).Microseconds())/float64(n), "cpu-µs/product")
				b.ReportMetric(float64(heap()-before)/float64(n), "B/product")
				if err := x.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// cpu is the processor time that this process has used: on a busy machine it tells more than the clock.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // bleve keeps what it builds with in a pool, which the first leaves half full
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
