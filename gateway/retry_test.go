package gateway_test

import (
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Field report 14, and what it prevents. The breaker stands aside here: it would end each storm after five calls.
func TestRetryStorm_IsSeenWithoutTheBudgetAndNotWithIt(t *testing.T) {
	for _, tc := range []struct {
		budget, layers, path string
		requests             int
		least, most          float64 // tries per request
	}{
		{"off", "0", "/api/v1/products", 40, 1, 1}, // a proxy retries instead
		{"on", "1", "/api/v1/recommendations?product_id=P-1", 1000, 1, 1},
		{"on", "1", "/api/v1/products", 1000, 1, 1.1},
		{"off", "1", "/api/v1/recommendations?product_id=P-1", 40, 1, 1},
		{"off", "1", "/api/v1/products", 40, 3, 3},
		// The budget is the channel's: a second layer above it has none of its own.
		{"on", "2", "/api/v1/recommendations?product_id=P-1", 200, 3, 3.3},
		{"on", "2", "/api/v1/products", 200, 3, 3.3},
		{"off", "2", "/api/v1/recommendations?product_id=P-1", 40, 9, 9},
		{"off", "2", "/api/v1/products", 40, 9, 9},
	} {
		t.Run(fmt.Sprintf("budget %s, layers %s, %s", tc.budget, tc.layers, tc.path), func(t *testing.T) {
			e := newEdge(t, options{environ: []string{
				"RETRY_BUDGET=" + tc.budget, "RETRY_LAYERS=" + tc.layers, "SEARCH_BREAKER_CONSECUTIVE=1000000", "SEARCH_BREAKER_MIN_CALLS=1000000",
				"RECS_BREAKER_CONSECUTIVE=1000000", "RECS_BREAKER_MIN_CALLS=1000000", "RECS_MAX_QUEUE=1000", "SEARCH_MAX_QUEUE=1000",
			}})
			sick := e.Recs
			if tc.path == "/api/v1/products" {
				sick = e.Search
			}
			e.get(t, tc.path) // connects
			sick.Fail(status.Error(codes.Unavailable, "down"))
			before := sick.Calls.Load()
			var clients sync.WaitGroup
			for range 20 {
				clients.Go(func() {
					for range tc.requests / 20 {
						if _, err := e.try(t.Context(), "GET", tc.path, ""); err != nil {
							t.Error(err)
						}
					}
				})
			}
			clients.Wait()
			perRequest := float64(sick.Calls.Load()-before) / float64(tc.requests)
			t.Logf("%.3f tries per request", perRequest)
			if perRequest < tc.least || perRequest > tc.most {
				t.Errorf("%.3f tries per request, want %v to %v", perRequest, tc.least, tc.most)
			}
		})
	}
}

// With two layers the breaker, which stands outside of both, still ends the storm.
func TestRetryStorm_TheBreakerEndsIt(t *testing.T) {
	e := newEdge(t, options{environ: []string{"RETRY_BUDGET=off", "RETRY_LAYERS=2"}})
	e.Recs.Fail(status.Error(codes.Unavailable, "down"))
	for range 100 {
		if a := e.get(t, "/api/v1/products/P-1"); a.Status != 200 {
			t.Fatalf("page: %d %s", a.Status, a.Body)
		}
	}
	if got := e.Recs.Calls.Load(); got != 5*9 {
		t.Errorf("100 pages made %d tries, want 9 for each of the 5 calls that open the breaker", got)
	}
}
