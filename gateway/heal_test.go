package gateway_test

import (
	"testing"
	"time"

	"example.com/watertight/gateway/shoptest"
)

// After a fault is cleared and the process runs, pages are whole again within 5 s: reconnecting, health and breaker together.
func TestRecsHeals_WithinFiveSeconds(t *testing.T) {
	const outage = 10 * time.Second // long enough for the reconnect pause to be at its longest, and the breaker to have opened twice
	for name, fault := range map[string]func(t *testing.T, e *edge) (mend func()){
		"killed, and started again on its address": func(t *testing.T, e *edge) func() {
			t.Helper()
			e.Recs.Stop()
			return func() { e.Recs = shoptest.StartRecs(t, e.Recs.Addr) }
		},
		"hung, and alive": func(_ *testing.T, e *edge) func() {
			e.Recs.Hang(nil)
			return func() { e.Recs.Do(nil) }
		},
	} {
		for _, shards := range []string{"0", "1"} {
			t.Run(name+", shards "+shards, func(t *testing.T) {
				t.Parallel()
				e := newEdge(t, options{environ: []string{"RECS_TIMEOUT=250ms", "RECS_BREAKER_OPEN=5s", "RECS_SHARD_SIZE=" + shards}})
				whole := func() bool { return e.get(t, "/api/v1/products/P-1").Header.Get("Watertight-Degraded") == "" }
				eventually(t, "the page is whole", whole)

				mend := fault(t, e)
				for end := time.Now().Add(outage); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					if whole() {
						t.Fatal("the page has recommendations while recs is out")
					}
				}
				mend()
				cleared := time.Now()
				eventually(t, "ten whole pages in a row", func() bool {
					for range 10 {
						if !whole() {
							time.Sleep(20 * time.Millisecond) // paces the load
							return false
						}
					}
					return true
				})
				took := time.Since(cleared)
				t.Logf("whole again after %v", took)
				if took > 5*time.Second {
					t.Errorf("pages were whole again after %v, want 5 s at most", took)
				}
			})
		}
	}
}
