//go:build unix

package measure

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
)

func table(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	s, found := scenario.Find(scenario.Table(scenario.Default()), name, func(s scenario.Scenario) string { return s.Name })
	if !found {
		t.Fatalf("no scenario %s", name)
	}
	return &s
}

func design(t *testing.T, name string) *scenario.Design {
	t.Helper()
	d, found := scenario.Find(scenario.Running(), name, func(d scenario.Design) string { return d.Name })
	if !found {
		t.Fatalf("no design %s", name)
	}
	return &d
}

func TestProfile_GivesEachDesignThePoolsAndLimitsOfTheExperiment(t *testing.T) {
	for name, want := range map[string]map[string]map[string]string{
		scenario.SharedPool:      {shop.Monolith: {"POOL_SIZE": "16", "FAULT_IGNORE_CANCELLATION": "true"}},
		scenario.PoolPerFeature:  {shop.Monolith: {"POOL_SIZE": "16", "CHECKOUT_POOL_SIZE": "4", "SEARCH_POOL_SIZE": "6", "RECS_POOL_SIZE": "6", "FAULT_IGNORE_CANCELLATION": ""}},
		scenario.Roles:           {"checkout": {"CHECKOUT_POOL_SIZE": "4"}, "recs": {"RECS_POOL_SIZE": "6"}},
		scenario.Split:           {"checkout": {"POOL_SIZE": "4", "RECS_IN_CHECKOUT": ""}, "search": {"POOL_SIZE": "6"}, "recs": {"POOL_SIZE": "6", "FAULT_IGNORE_CANCELLATION": ""}},
		scenario.SyncCall:        {"checkout": {"RECS_IN_CHECKOUT": "raw", "RECS_RAW_TIMEOUT": "1s", "POOL_QUEUE": "100000"}, "gateway": {"RECS_TIMEOUT": "1s", "RECS_BREAKER_CONSECUTIVE": "1000000"}},
		scenario.SyncCallGuarded: {"checkout": {"RECS_IN_CHECKOUT": "guarded", "POOL_QUEUE": "", "FAULT_IGNORE_CANCELLATION": ""}, "gateway": {"RECS_TIMEOUT": ""}},
	} {
		o := options(shop.Options{PortOffset: 7}, scenario.Default(), table(t, scenario.Slow), design(t, name))
		if err := o.Validate(); err != nil || o.PortOffset != 7 {
			t.Errorf("%s: offset %d, %v", name, o.PortOffset, err)
		}
		for service, variables := range want {
			for variable, value := range variables {
				if got := o.Env[service][variable]; got != value {
					t.Errorf("%s: %s.%s is %q, want %q", name, service, variable, got, value)
				}
			}
			if got := o.Env[service]["FAULT_SERVICE_TIMES"]; got != "PlaceOrder:20ms,SearchProducts:10ms,Recommend:15ms" {
				t.Errorf("%s: service times of %s: %q", name, service, got)
			}
		}
	}
}

func TestProfile_PlaysExportsWithRecommendations(t *testing.T) {
	in, s := scenario.Default(), table(t, scenario.Exports)
	o := options(shop.Options{}, in, s, design(t, scenario.PoolPerFeature))
	env := o.Env[shop.Monolith]
	got := map[string]string{}
	for _, name := range []string{"CHECKOUT_POOL_SIZE", "SEARCH_POOL_SIZE", "RECS_POOL_SIZE", "RECS_POOL_QUEUE"} {
		got[name] = env[name]
	}
	want := map[string]string{"CHECKOUT_POOL_SIZE": "46", "SEARCH_POOL_SIZE": "69", "RECS_POOL_SIZE": "16", "RECS_POOL_QUEUE": "32"}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(env["FAULT_SERVICE_TIMES"], "Recommend:500ms") {
		t.Errorf("pools (-want +got) and service times %q:\n%s", env["FAULT_SERVICE_TIMES"], diff)
	}
	target, err := load.ParseTarget("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if c := traffic(in, s, target, nil, 19); c.Rate != 140 || c.Mix != (load.Mix{Checkout: 40, Search: 80, Recs: 20}) {
		t.Errorf("got %v a second as %v, want the everyday traffic without recommendations, and 20 exports", c.Rate, c.Mix)
	}
}

func TestTraffic_GivesThePoisonousProductItsShare(t *testing.T) {
	products := make([]load.Product, 300)
	for i := range products {
		products[i].ID = string(rune('a' + i))
	}
	if c := traffic(scenario.Default(), table(t, scenario.Poison), load.Target{}, products, 19); len(c.Products) != 50 {
		t.Errorf("got %d products, want 50, of which one is 2 %% of the requests", len(c.Products))
	}
	if c := traffic(scenario.Default(), table(t, scenario.Slow), load.Target{}, products, 19); len(c.Products) != 300 || c.Rate != 200 {
		t.Errorf("got %d products at %v a second, want all at 200", len(c.Products), c.Rate)
	}
}

func TestRestart_LeavesTheProcessAwayAsLongAsItIsToBe(t *testing.T) {
	for name, want := range map[string][2]time.Duration{scenario.SharedPool: {4 * time.Second, 3500 * time.Millisecond}, scenario.Split: {1500 * time.Millisecond, time.Second}} {
		s, d := table(t, scenario.Redeployed), design(t, name)
		if got := away(s, d); got != want[0] {
			t.Errorf("%s is to be away for %v, want %v", name, got, want[0])
		}
		if got := restart(s, d, 500*time.Millisecond); got.First != want[1] || got.Max != want[1] || got.Validate() != nil {
			t.Errorf("%s: delays %v to %v, want %v", name, got.First, got.Max, want[1])
		}
	}
	if got := restart(table(t, scenario.Crash), design(t, scenario.Split), time.Minute); got.First <= 0 || got.Validate() != nil {
		t.Errorf("a start-up that is longer than the outage: %+v", got)
	}
}

func TestEveryScenario_CanBeSetAndBroken(t *testing.T) {
	for _, s := range scenario.Table(scenario.Default()) {
		request, set := s.Fault.Request(time.Minute, "P-1")
		if s.Fault.Kind == scenario.None || s.Fault.Kind == scenario.Redeploy {
			if set {
				t.Errorf("%s: got the fault %+v, want none", s.Name, request)
			}
			continue
		}
		if _, err := request.Fault(time.Now()); err != nil || !set || len(s.Fault.On) == 0 {
			t.Errorf("%s: set %v on %v: %v", s.Name, set, s.Fault.On, err)
		}
		if s.Hypothesis == "" || len(s.Signals) == 0 {
			t.Errorf("%s has no hypothesis or no signals", s.Name)
		}
	}
}

func TestMetrics_AreReadFromTheTextForm(t *testing.T) {
	page := "# HELP x\nwatertight_bulkhead_queued{pool=\"grpc\"} 7\nwatertight_bulkhead_queued{pool=\"odd\n" +
		"watertight_upstream_breaker_state{upstream=\"recs\"} 2\nwatertight_upstream_breaker_state{upstream=\"search\"} 0\ngo_goroutines 4\n"
	m, err := readMetrics(strings.NewReader(page))
	want := metrics{queued: map[string]int{"grpc": 7}, breakers: map[string]string{"recs": "open", "search": "closed"}}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(metrics{})); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestWatch_NotesFromWhenToWhenAProcessWasAway(t *testing.T) {
	start := time.Now()
	w := &watch{start: start, away: map[string]*result.Outage{}, exits: map[string]time.Time{}}
	exit := supervise.Exited(2)
	exit.At = start.Add(time.Second)
	w.note(supervise.Status{Name: "recs", Ready: true}, start)
	w.note(supervise.Status{Name: "recs", LastExit: &exit}, start.Add(1100*time.Millisecond))
	w.note(supervise.Status{Name: "recs", LastExit: &exit}, start.Add(2*time.Second))
	w.note(supervise.Status{Name: "recs", LastExit: &exit, Ready: true}, start.Add(3*time.Second))
	again := exit
	again.At = start.Add(4 * time.Second)
	w.note(supervise.Status{Name: "recs", LastExit: &again}, start.Add(4100*time.Millisecond))
	w.finish(start.Add(5 * time.Second))
	want := []result.Outage{{Process: "recs", At: 1, Length: 2, Reason: "Error"}, {Process: "recs", At: 4, Length: 1, Reason: "Error"}}
	if diff := cmp.Diff(want, w.outages); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTrace_IsDividedAmongThePartsOfAnOrdersTime(t *testing.T) {
	const ms = uint64(time.Millisecond)
	edge := span{service: "gateway", name: "POST /api/v1/orders", kind: tracepb.Span_SPAN_KIND_SERVER, from: 0, to: 30 * ms}
	client := span{service: "gateway", name: "checkout.v1.CheckoutService/PlaceOrder", kind: tracepb.Span_SPAN_KIND_CLIENT, from: 1 * ms, to: 29 * ms}
	server := span{service: "checkout", name: "checkout.v1.CheckoutService/PlaceOrder", kind: tracepb.Span_SPAN_KIND_SERVER, from: 2 * ms, to: 27 * ms}
	query := span{service: "checkout", name: "batch", database: true, from: 20 * ms, to: 25 * ms}
	inner := span{service: "checkout", name: "query", database: true, from: 21 * ms, to: 26 * ms}
	relay := span{service: "checkout", name: "later", database: true, from: 40 * ms, to: 50 * ms}
	other := span{service: "inventory", name: "theirs", database: true, from: 3 * ms, to: 4 * ms}

	want := map[string]time.Duration{partEdge: 2 * time.Millisecond, partWay: 3 * time.Millisecond, partWork: 19 * time.Millisecond, partDatabase: 6 * time.Millisecond, partWhole: 30 * time.Millisecond}
	if diff := cmp.Diff(want, split([]span{relay, inner, query, other, server, client, edge})); diff != "" {
		t.Errorf("over the network, -want +got:\n%s", diff)
	}
	server.kind = tracepb.Span_SPAN_KIND_INTERNAL
	delete(want, partWay)
	want[partEdge] = 5 * time.Millisecond
	if diff := cmp.Diff(want, split([]span{edge, server, query, inner})); diff != "" {
		t.Errorf("in one process, -want +got:\n%s", diff)
	}
	if got := split([]span{edge, client}); got != nil {
		t.Errorf("got %v from half a trace", got)
	}
}

func TestOOM_TakesAsMuchMemoryAsTheCallsOfTheSimulationFill(t *testing.T) {
	in := scenario.Default()
	if got := oomBound(in); got != 400<<20 { // 80 calls at 80 a second are a second, at 400 MiB a second
		t.Errorf("got %d bytes, want 400 MiB", got)
	}
	in.OOMCalls = 1
	if got := oomBound(in); got != 8<<20 {
		t.Errorf("got %d bytes, want the least", got)
	}
}

func TestGroups_ShareAStageWhereTheyShareTheirData(t *testing.T) {
	r := &run{Options: Options{Designs: scenario.Running()}}
	var got []string
	for _, g := range r.groups() {
		got = append(got, names(g))
	}
	want := []string{"shared-pool, pool-per-feature", "roles, split, sync-call, sync-call-guarded"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, want := range map[string]string{scenario.SharedPool: shop.Monolith, scenario.Roles: "recs", scenario.Split: "recs"} {
		if got := victim(design(t, name)); got != want {
			t.Errorf("%s: a fatal fault of recs ends %s, want %s", name, got, want)
		}
	}
}

func TestStarved_IsACellWhoseLoadCameLateUnlessThatIsTheFault(t *testing.T) {
	late := load.Result{Generator: load.Generator{LateShare: 0.3}}
	if !starved(late, table(t, scenario.Slow)) || starved(late, table(t, scenario.CPU)) || starved(load.Result{}, table(t, scenario.Slow)) {
		t.Error("want a cell to be starved when its load came late, but for the scenario that takes the processors away")
	}
}
