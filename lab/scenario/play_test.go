package scenario_test

import (
	"testing"
	"time"

	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

func TestQuick_ShortensTheUsualInputsAndKeepsThoseThatWereGiven(t *testing.T) {
	usual := scenario.Default()
	quick := usual.Quick()
	if err := quick.Validate(); err != nil {
		t.Fatal(err)
	}
	if quick.Duration > 3*time.Second || quick.ExportDuration > 5*time.Second || quick.RedeployAt+quick.RedeployWhole > quick.Duration || quick.FaultAt >= quick.Duration {
		t.Errorf("got %+v, want runs of seconds in which everything happens", quick)
	}
	if quick.Rate != usual.Rate || quick.SlowDelay != usual.SlowDelay || quick.Workers != usual.Workers {
		t.Errorf("got %+v, want the same traffic, slowness and workers", quick)
	}
	given := usual
	given.Duration, given.Restart, given.ExportRate = 7*time.Second, 3*time.Second, 25
	if got := given.Quick(); got.Duration != given.Duration || got.Restart != given.Restart || got.ExportSharedWorkers != usual.ExportSharedWorkers {
		t.Errorf("got %+v, want what was given to stay", got)
	}
}

func TestRequest_IsTheFaultThatTheRunnersSet(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	for _, s := range scenario.Table(scenario.Default()) {
		r, set := s.Fault.Request(ttl, "P-7")
		if want := s.Fault.Kind != scenario.None && s.Fault.Kind != scenario.Redeploy; set != want {
			t.Errorf("%s: set %v, want %v", s.Name, set, want)
		}
		if !set {
			continue
		}
		f, err := r.Fault(time.Now())
		if err != nil || f.Kind != s.Fault.Kind || f.TTLS != 2 {
			t.Errorf("%s: got %+v, %v, want the scenario's fault for 2 s", s.Name, f, err)
		}
		if poisonous := f.Match["product_id"] == "P-7"; poisonous != (s.Fault.Kind == fault.Poison) || f.Rate != 1 {
			t.Errorf("%s: match %v at rate %v", s.Name, f.Match, f.Rate)
		}
	}
	slow, _ := scenario.Find(scenario.Table(scenario.Default()), scenario.Slow, func(s scenario.Scenario) string { return s.Name })
	if r, _ := slow.Fault.Request(ttl, ""); r.DelayMS == nil || *r.DelayMS != 2000 {
		t.Errorf("slow: got %+v, want a delay of 2 s", r)
	}
}

func TestExpectedOf_IsWhatARealShopBecomes(t *testing.T) {
	find := func(name string) scenario.Scenario {
		s, found := scenario.Find(scenario.Table(scenario.Default()), name, func(s scenario.Scenario) string { return s.Name })
		if !found {
			t.Fatalf("no scenario %s", name)
		}
		return s
	}
	slow, locked := find(scenario.Slow), find(scenario.SharedDB)
	for _, c := range []struct {
		s      scenario.Scenario
		design string
		want   scenario.Expectation
	}{
		{slow, scenario.SharedPool, scenario.Expectation{Checkout: scenario.Down, Recs: scenario.Down}},
		{slow, scenario.SyncCall, scenario.Expectation{Checkout: scenario.Down, Recs: scenario.Down}},
		{slow, scenario.SyncCallGuarded, scenario.Expectation{Checkout: scenario.Fine, Recs: scenario.Down}}, // as if it did not call
		{locked, scenario.Split, scenario.Expectation{Checkout: scenario.Down, Recs: scenario.Fine}},         // recs answers from memory
	} {
		if got := c.s.ExpectedOf(c.design); got != c.want {
			t.Errorf("%s in %s: got %+v, want %+v", c.s.Name, c.design, got, c.want)
		}
	}
}

func TestRunning_AddsTheCallThatIsPutRight(t *testing.T) {
	running := scenario.Running()
	if len(running) != len(scenario.Designs())+1 || !running[len(running)-1].Guarded {
		t.Errorf("got %+v, want the designs of the simulation and the guarded call", running)
	}
	raw := map[string]bool{}
	for _, d := range running {
		raw[d.Name] = d.Raw()
	}
	for name, is := range raw {
		if want := name == scenario.SharedPool || name == scenario.SyncCall; is != want {
			t.Errorf("%s is raw: %v, want %v", name, is, want)
		}
	}
}
