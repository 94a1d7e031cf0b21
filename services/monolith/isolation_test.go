package monolith_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hang makes every recommendation wait for the end of the fault, whatever becomes of whoever asked.
const hang = `{"kind":"hang","ttl_s":600}`

// sinkRecs asks for recommendations, which hang, until n slots are held by them, and returns when all those who asked have
// been answered: what is held then is held by work that nobody waits for.
func sinkRecs(t *testing.T, s *shop, n int) {
	t.Helper()
	s.fault(t, "recs", hang)
	eventually(t, "the fault is there", func() bool { return s.get(t, "/api/v1/recommendations").header.Get("Watertight-Degraded") == "recs" })
	var asking sync.WaitGroup
	for range 3 * n {
		asking.Go(func() {
			if _, err := s.try(t.Context(), http.MethodGet, "/api/v1/recommendations?product_id=P-1", ""); err != nil {
				t.Error(err)
			}
		})
	}
	asking.Wait()
	if got := s.status(t).upstream(t, "recs").InFlight; got != n {
		t.Fatalf("recs holds %d slots, want all %d", got, n)
	}
}

// heal ends the fault and waits until no slot is held any more.
func heal(t *testing.T, s *shop) {
	t.Helper()
	s.fault(t, "recs", "")
	eventually(t, "every slot is back", func() bool {
		for _, u := range s.status(t).Upstreams {
			if u.InFlight+u.Queued > 0 {
				return false
			}
		}
		return true
	})
}

// wantShed checks that a request was turned away at once, and told when to come back.
func wantShed(t *testing.T, a answer) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"code":"bulkhead_full"`) {
		t.Errorf("got %d, Retry-After %q, %s; want 503 bulkhead_full after 1", a.status, a.header.Get("Retry-After"), a.body)
	}
}

// The first half of the lesson: one pool for all, and the feature that hangs has it to itself.
func TestSharedPool_AHangingFeatureSinksCheckout(t *testing.T) {
	s := open(t, append(brokerFor(t), "POOLS=shared", "POOL_SIZE=16", "POOL_QUEUE=0", "RECS_TIMEOUT=200ms")...)
	sinkRecs(t, s, 16)
	wantShed(t, s.order(t, "k"))
	wantShed(t, s.get(t, "/api/v1/products"))
	if a := s.get(t, "/", "Accept", "text/html"); a.status != 503 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("the page: %d, Retry-After %q, %s; want 503 as a page", a.status, a.header.Get("Retry-After"), a.header.Get("Content-Type"))
	}
	if got := s.status(t).upstream(t, "checkout").Outcomes["rejected_full"]; got != 1 {
		t.Errorf("checkout's rejected_full: %d, want 1", got)
	}
	metrics := s.do(t, http.MethodGet, s.admin+"/metrics", "").body
	for _, want := range []string{`watertight_bulkhead_in_flight{pool="shared"} 16`, `watertight_faults_active{kind="hang",service="recs"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	heal(t, s)
	if a := s.order(t, "k"); a.status != http.StatusCreated {
		t.Errorf("an order when recs is well again: %d %s", a.status, a.body)
	}
}

// In a queue the order reaches its deadline, which runs from its arrival.
func TestSharedPool_AnOrderInTheQueueReachesItsDeadline(t *testing.T) {
	s := open(t, append(brokerFor(t), "POOL_SIZE=4", "POOL_QUEUE=100", "RECS_TIMEOUT=100ms", "SEARCH_TIMEOUT=100ms", "CHECKOUT_TIMEOUT=300ms")...)
	sinkRecs(t, s, 4)
	if a := s.order(t, "k"); a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, `"code":"timeout"`) {
		t.Errorf("got %d %s, want 504 timeout", a.status, a.body)
	}
	heal(t, s)
	if a := s.order(t, "k"); a.status != http.StatusCreated || a.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the same key again: %d, replayed %q; want 201 and a new order: the first must not have been started", a.status, a.header.Get("Idempotency-Replayed"))
	}
}

// The second half: with a pool of its own, only recs is short of workers.
func TestPoolPerFeature_AHangingFeatureHasItsOwnPoolOnly(t *testing.T) {
	s := open(t, append(brokerFor(t), "POOLS=per-feature", "POOL_SIZE=16", "POOL_QUEUE=0", "RECS_TIMEOUT=200ms")...)
	sinkRecs(t, s, 6)
	wantShed(t, s.get(t, "/api/v1/recommendations"))
	// More pages than search has workers: recommendations are asked for on the side, and must not keep search's slots.
	for range 20 {
		a := s.get(t, "/api/v1/products/P-1")
		if a.status != http.StatusOK || a.header.Get("Watertight-Degraded") != "recs" {
			t.Fatalf("a product: %d, degraded %q, %s", a.status, a.header.Get("Watertight-Degraded"), a.body)
		}
	}
	if a := s.get(t, "/api/v1/products"); a.status != http.StatusOK {
		t.Errorf("search: %d %s", a.status, a.body)
	}
	if a := s.order(t, "k"); a.status != http.StatusCreated {
		t.Errorf("an order: %d %s", a.status, a.body)
	}
	got := map[string][2]int{}
	for _, u := range s.status(t).Upstreams {
		got[u.Name] = [2]int{u.InFlight, u.Queued}
	}
	if diff := cmp.Diff(map[string][2]int{"checkout": {0, 0}, "search": {0, 0}, "recs": {6, 0}}, got); diff != "" {
		t.Errorf("slots and queues (-want +got):\n%s", diff)
	}
	heal(t, s)
	eventually(t, "the page is whole", func() bool { return s.get(t, "/api/v1/products/P-1").header.Get("Watertight-Degraded") == "" })
}

// A fault slows the feature it is set for, and no other.
func TestFaults_BiteTheirOwnFeature(t *testing.T) {
	s := open(t, append(brokerFor(t), "RECS_TIMEOUT=500ms")...)
	s.fault(t, "search", `{"kind":"error","code":"UNAVAILABLE","ttl_s":600}`)
	eventually(t, "search fails", func() bool { return s.get(t, "/api/v1/products").status == http.StatusServiceUnavailable })
	if a := s.order(t, "k"); a.status != http.StatusCreated {
		t.Errorf("an order while search fails: %d %s", a.status, a.body)
	}
	s.fault(t, "search", "")
	eventually(t, "search is well", func() bool { return s.get(t, "/api/v1/products").status == http.StatusOK })
	s.fault(t, "recs", `{"kind":"slow","delay_ms":60000,"ttl_s":600}`)
	eventually(t, "pages go without recommendations", func() bool {
		a := s.get(t, "/api/v1/products/P-1")
		return a.status == http.StatusOK && a.header.Get("Watertight-Degraded") == "recs"
	})
	heal(t, s)
}

// A client that sends its order slowly holds no worker meanwhile.
func TestGuard_ASlowBodyHoldsNoWorker(t *testing.T) {
	s := open(t, "POOL_SIZE=1", "POOL_QUEUE=0")
	body, done := newSlowBody(orderBody), make(chan answer, 1)
	go func() {
		a, err := body.post(s)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	body.waitHalf()
	if a := s.get(t, "/api/v1/products"); a.status != http.StatusOK {
		t.Errorf("search meanwhile: %d %s", a.status, a.body)
	}
	body.finish()
	if a := <-done; a.status != http.StatusCreated {
		t.Errorf("the slow order: %d %s", a.status, a.body)
	}
}
