package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/watertight/gateway/poison"
	"example.com/watertight/gateway/shoptest"
	"example.com/watertight/platform/shard"
)

// crashingRecs are replicas that a product kills and a supervisor starts again, as Kubernetes does.
type crashingRecs struct {
	addrs   []string
	crashes []atomic.Int64
}

const poisonID = "P-13"

func newCrashingRecs(t *testing.T, n int) *crashingRecs {
	t.Helper()
	c := &crashingRecs{crashes: make([]atomic.Int64, n)}
	var supervisors sync.WaitGroup
	end := make(chan struct{})
	t.Cleanup(func() { close(end); supervisors.Wait() })
	for i := range n {
		peer := shoptest.StartRecs(t, "127.0.0.1:0")
		peer.CrashOn(poisonID)
		c.addrs = append(c.addrs, peer.Addr)
		supervisors.Go(func() {
			for {
				select {
				case <-peer.Crashed():
				case <-end:
					return
				}
				c.crashes[i].Add(1)
				peer = shoptest.StartRecs(t, peer.Addr)
				peer.CrashOn(poisonID)
			}
		})
	}
	return c
}

func (c *crashingRecs) target() string { return "static:///" + strings.Join(c.addrs, ",") }

// of are the replicas of a customer.
func (c *crashingRecs) of(customer string) []int {
	var out []int
	for _, addr := range shard.Subset("customer "+customer, c.addrs, 2) {
		out = append(out, slices.Index(c.addrs, addr))
	}
	return out
}

func TestPoison_KillsTwoReplicasAtMostAndOthersKeepTheirRecommendations(t *testing.T) {
	recs := newCrashingRecs(t, 6)
	e := newEdge(t, options{environ: []string{"RECS_ADDR=" + recs.target(), "RECS_SHARD_SIZE=2", "RECS_MAX_IN_FLIGHT=200"}})
	const attacker = "attacker"
	struck := recs.of(attacker)

	page := func(customer, product string) (whole bool) {
		a, err := e.try(t.Context(), "GET", "/api/v1/products/"+product, "", "Watertight-Customer", customer)
		if err != nil || a.Status != 200 {
			t.Errorf("%s: %d %s %v", customer, a.Status, a.Body, err)
		}
		return a.Header.Get("Watertight-Degraded") == ""
	}
	everyone := make([]string, 30)
	for i := range everyone {
		everyone[i] = fmt.Sprintf("c-%d", i)
		eventually(t, "all replicas are connected", func() bool {
			first := page(everyone[i], "P-1") // two in a row take both turns
			return first && page(everyone[i], "P-1")
		})
	}

	crashes := func() int64 { return recs.crashes[struck[0]].Load() + recs.crashes[struck[1]].Load() }
	var stop atomic.Bool
	var clients sync.WaitGroup
	sharing, lost := [3]int{}, [3]atomic.Int64{} // by how many of the attacker's replicas a customer has
	var pages atomic.Int64
	for _, customer := range everyone {
		mine := 0
		for _, at := range recs.of(customer) {
			if slices.Contains(struck, at) {
				mine++
			}
		}
		sharing[mine]++
		clients.Go(func() {
			for !stop.Load() {
				if !page(customer, "P-1") {
					lost[mine].Add(1)
				}
				pages.Add(1)
				time.Sleep(10 * time.Millisecond) // paces the load
			}
		})
	}
	eventually(t, "ten crashes", func() bool { page(attacker, poisonID); return crashes() >= 10 })
	stop.Store(true)
	clients.Wait()

	for i := range recs.crashes {
		if n := recs.crashes[i].Load(); n > 0 && !slices.Contains(struck, i) {
			t.Errorf("replica %d crashed %d times; the attacker's are %v", i, n, struck)
		}
	}
	t.Logf("%d crashes and %d pages; customers sharing 0, 1, 2 of the replicas: %v; pages without recommendations: %d, %d, %d",
		crashes(), pages.Load(), sharing, lost[0].Load(), lost[1].Load(), lost[2].Load())
	if lost[0].Load() != 0 || sharing[0] == 0 || sharing[2] > 10 {
		t.Errorf("%v customers share 0, 1, 2 replicas with the attacker; the first lost recommendations %d times, want never", sharing, lost[0].Load())
	}
	// Whoever shares one can only lose what was in flight there: one page for each crash. One in 15 shares both (0 to 10
	// of 30), and has none while they are down.
	if most := int64(sharing[1]) * crashes(); lost[1].Load() > most {
		t.Errorf("%d customers share one replica, and lost recommendations %d times in %d crashes", sharing[1], lost[1].Load(), crashes())
	}
	if s := e.Upstreams.Status()[2]; s.Breaker != "closed" {
		t.Errorf("the breaker, which is everybody's, is %s", s.Breaker)
	}
	wantSuspect(t, e)
}

// wantSuspect checks what the status, the log and the metrics say after many crashes.
func wantSuspect(t *testing.T, e *edge) {
	t.Helper()
	got := decode[struct{ Suspects []poison.Suspect }](t, e.get(t, "/api/v1/status")).Suspects
	if len(got) != 1 || got[0].ProductID != poisonID || got[0].Deaths < 10 || got[0].Served != 0 || got[0].Ratio != 1 {
		t.Errorf("suspects = %+v, want %s alone (P-1 was in flight too, and served far more often)", got, poisonID)
	}
	warnings := 0
	for _, line := range e.Log.All() {
		if strings.Contains(line, "replicas of recs die") {
			warnings++
			if !strings.Contains(line, `"product_id":"P-13"`) || !strings.Contains(line, `"level":"WARN"`) {
				t.Errorf("warning: %s", line)
			}
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings, want one", warnings)
	}
	if n := gauge(t, e, "watertight_poison_suspects"); n != 1 {
		t.Errorf("watertight_poison_suspects = %v, want 1", n)
	}
}

func gauge(t *testing.T, e *edge, name string) float64 {
	t.Helper()
	families, err := e.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			if len(f.GetMetric()) != 1 || len(f.GetMetric()[0].GetLabel()) != 0 {
				t.Errorf("%s has labels or several series: %v", name, f)
			}
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// The same poison with round robin, for comparison: it reaches every replica.
func TestPoison_WithoutShardsReachesEveryReplica(t *testing.T) {
	recs := newCrashingRecs(t, 6)
	e := newEdge(t, options{environ: []string{"RECS_ADDR=" + recs.target(), "RECS_BREAKER_CONSECUTIVE=1000000", "RECS_BREAKER_MIN_CALLS=1000000"}})
	eventually(t, "every replica has crashed", func() bool {
		e.get(t, "/api/v1/products/"+poisonID, "Watertight-Customer", "attacker")
		return !slices.ContainsFunc(recs.addrs, func(a string) bool { return recs.crashes[slices.Index(recs.addrs, a)].Load() == 0 })
	})
}

// A customer without an id is told apart by address: the storefront's first visit is confined too.
func TestPoison_AnonymousCustomersAreConfinedToo(t *testing.T) {
	recs := newCrashingRecs(t, 6)
	e := newEdge(t, options{environ: []string{"RECS_ADDR=" + recs.target(), "RECS_SHARD_SIZE=2"}})
	crashed := func() (replicas int, crashes int64) {
		for i := range recs.crashes {
			if n := recs.crashes[i].Load(); n > 0 {
				replicas++
				crashes += n
			}
		}
		return replicas, crashes
	}
	eventually(t, "six crashes", func() bool {
		e.get(t, "/api/v1/products/"+poisonID)
		_, crashes := crashed()
		return crashes >= 6
	})
	if replicas, _ := crashed(); replicas > 2 {
		t.Errorf("%d replicas crashed, want 2 at most", replicas)
	}
}
