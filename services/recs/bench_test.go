package recs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs/similarity"
)

// benchProducts is the size of the catalog that the service's speed is stated for.
const benchProducts = 4070

// benchService serves a model in which every product has 50 neighbours.
func benchService(b *testing.B) (*Service, []string) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]string, benchProducts)
	for i := range ids {
		ids[i] = fmt.Sprintf("%05dA", i)
	}
	model, err := similarity.Assemble(similarity.Size{Baskets: 20_000}, func(yield func(similarity.Product, error) bool) {
		for i, id := range ids {
			p := similarity.Product{ID: id, Baskets: 1 + random.IntN(2000)}
			for n := range similarity.MaxNeighbours {
				p.Neighbours = append(p.Neighbours, ids[(i+1+n*7)%len(ids)])
				p.Scores = append(p.Scores, 1/float32(n+1))
			}
			if !yield(p, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	s := &Service{deps: Deps{Log: slog.New(slog.DiscardHandler)}}
	s.swap(context.Background(), nil, &versioned{model, 1})
	return s, ids
}

// BenchmarkRecommend measures the handler; p99-ns is of single calls, clock included.
func BenchmarkRecommend(b *testing.B) {
	s, ids := benchService(b)
	for _, limit := range []int32{8, 50} {
		b.Run(fmt.Sprintf("known/limit=%d", limit), func(b *testing.B) { measure(b, s, ids, limit) })
	}
	b.Run("unknown/limit=8", func(b *testing.B) { measure(b, s, []string{"unheard of"}, 8) })
}

func measure(b *testing.B, s *Service, ids []string, limit int32) {
	b.Helper()
	ctx := context.Background()
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		resp, err := s.Recommend(ctx, &recsv1.RecommendRequest{ProductId: ids[i%len(ids)], Limit: limit})
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
		if err != nil || len(resp.GetRecommendations()) != int(limit) {
			b.Fatalf("got %v, %v", resp, err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// BenchmarkModel_Memory states what a model of full neighbour lists holds.
func BenchmarkModel_Memory(b *testing.B) {
	var before, after runtime.MemStats
	var s *Service
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, _ = benchService(b)
		runtime.GC()
		runtime.ReadMemStats(&after)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/benchProducts, "B/product")
	runtime.KeepAlive(s)
}
