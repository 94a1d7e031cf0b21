package result

import (
	"strings"
	"testing"

	"example.com/watertight/lab/scenario"
)

func TestVerdict_IsOkOnlyWhenEverythingIsAsItShouldBe(t *testing.T) {
	fine := scenario.Expectation{Checkout: scenario.Fine, Recs: scenario.Down}
	for _, c := range []struct {
		name, want string
		cell       Cell
	}{
		{"all is well", "ok", Cell{Became: fine, Expected: fine, Findings: []Finding{{Signal: "a", Met: true}}}},
		{"nothing is expected", "ok", Cell{Became: fine}},
		{"a signal is missing", "FAILED: not so: recs shows OOMKilled (Error)", Cell{
			Became: fine, Expected: fine, Findings: []Finding{{Signal: "books", Met: true}, {Signal: "recs shows OOMKilled", Got: "Error"}},
		}},
		{"checkout suffers", "FAILED: checkout is hurt (expected fine), recs is down", Cell{
			Became: scenario.Expectation{Checkout: scenario.Hurt, Recs: scenario.Down}, Expected: fine,
		}},
		{"not played", "not played: no time", Cell{Skipped: "no time"}},
	} {
		if got := c.cell.Verdict(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWriteVerdicts_SaysWhatBecameOfRecsAndCheckout(t *testing.T) {
	f := File{Cells: []Cell{{
		Scenario: "crash", Design: scenario.Split, Restarts: map[string]int{"recs": 3}, Reasons: map[string][]string{"recs": {"CrashLoopBackOff", "Error"}},
		Measured: Figures{Features: map[scenario.Feature]Feature{
			scenario.Recs: {Requests: 50, OK: 2, Outcomes: map[string]int64{"degraded": 47, "timed_out": 1}}, scenario.Checkout: {Requests: 30, OK: 30},
		}},
	}, {Scenario: "rollout", Design: scenario.SharedPool}}}
	var out strings.Builder
	if err := f.WriteVerdicts(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 of 50 ok, 47 degraded, 1 timed out; restarts 3; CrashLoopBackOff, Error", "30 of 30 ok; restarts 0", "rollout (shared-pool)", "VERDICT",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", out.String(), want)
		}
	}
}
