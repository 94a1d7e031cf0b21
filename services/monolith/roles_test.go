package monolith_test

import (
	"net/http"
	"strings"
	"testing"
)

// One build in three roles: the recommendations' process can go, and come back, without the others noticing.
func TestRoles_ARoleThatIsGoneTakesItsFeatureOnly(t *testing.T) {
	dbs, owners := databases(t)
	whole := run(t, dbs...) // the data have to come from somewhere
	whole.owners = owners
	whole.fill(t)
	whole.stop()

	recs := run(t, append(dbs, "FEATURES=recs")...)
	search := run(t, append(dbs, "FEATURES=search", "RECS_ADDR=static:///"+recs.grpc)...)
	front := run(t, append(dbs, "FEATURES=checkout", "POOLS=per-feature", "RECS_TIMEOUT=2s", "RECS_BREAKER_OPEN=4s",
		"SEARCH_ADDR=static:///"+search.grpc, "RECS_ADDR=static:///"+recs.grpc)...)
	if a := front.get(t, "/api/v1/products/P-1"); a.status != http.StatusOK || a.header.Get("Watertight-Degraded") != "" || !strings.Contains(a.body, `"score"`) {
		t.Fatalf("a page from three processes: %d %s", a.status, a.body)
	}
	status := front.status(t)
	if status.Design != "roles" || len(status.Upstreams) != 3 {
		t.Errorf("status: %+v, want the design roles and three upstreams", status)
	}
	if here, there := status.upstream(t, "checkout"), status.upstream(t, "recs"); here.Breaker != "none" || there.Breaker != "closed" || here.Limits.MaxInFlight != 4 {
		t.Errorf("checkout %+v, recs %+v; want 4 workers here and a breaker before the other process", here, there)
	}
	if got := recs.status(t).upstream(t, "recs").Outcomes["ok"]; got != 1 {
		t.Errorf("the recs role counts %d requests, want 1", got)
	}

	recs.stop()
	if a := front.get(t, "/api/v1/products/P-1"); a.status != http.StatusOK || a.header.Get("Watertight-Degraded") != "recs" {
		t.Errorf("a page without the recs role: %d %s", a.status, a.body)
	}
	if a := front.order(t, "k"); a.status != http.StatusCreated {
		t.Errorf("an order without the recs role: %d %s", a.status, a.body)
	}
	run(t, append(dbs, "FEATURES=recs", "GRPC_ADDR="+recs.grpc)...)
	eventually(t, "the page is whole again", func() bool { return front.get(t, "/api/v1/products/P-1").header.Get("Watertight-Degraded") == "" })
}

// Over gRPC a role takes a slot of the same pool as over HTTP.
func TestRoles_GRPCCallsRunInThePoolToo(t *testing.T) {
	dbs, _ := databases(t)
	broker := brokerFor(t)
	recs := run(t, append(append(dbs, broker...), "FEATURES=recs", "POOL_SIZE=3", "POOL_QUEUE=0")...)
	front := run(t, append(broker, "FEATURES=none", "RECS_ADDR=static:///"+recs.grpc, "RECS_TIMEOUT=100ms", "RECS_BREAKER_CONSECUTIVE=1000", "RECS_BREAKER_MIN_CALLS=1000", "RECS_BREAKER_OPEN=1s")...)
	front.fault(t, "recs", hang)
	eventually(t, "the role's slots are taken", func() bool {
		front.get(t, "/api/v1/recommendations")
		return recs.status(t).upstream(t, "recs").InFlight == 3
	})
	front.get(t, "/api/v1/recommendations")
	eventually(t, "a call was turned away", func() bool { return recs.status(t).upstream(t, "recs").Outcomes["rejected_full"] > 0 })
	front.fault(t, "recs", "")
	eventually(t, "the slots are back", func() bool { return recs.status(t).upstream(t, "recs").InFlight == 0 })
}
