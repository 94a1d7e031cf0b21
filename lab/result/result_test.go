package result_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
)

func feature(requests, ok int64, p50 float64) result.Feature {
	f := result.Feature{Requests: requests, OK: ok, P50MS: p50, P95MS: 1.5 * p50}
	f.ErrorsPercent = 100 * f.Errors()
	return f
}

func cell(name, design string, checkout, recs result.Feature) result.Cell {
	figures := result.Figures{OrdersPerSecond: float64(checkout.OK) / 10, Features: map[scenario.Feature]result.Feature{
		scenario.Checkout: checkout, scenario.Recs: recs, scenario.Search: feature(800, 800, 12),
	}}
	expected := scenario.Expectation{Checkout: scenario.Fine, Recs: scenario.Down}
	if name == scenario.Normal {
		expected.Recs = scenario.Fine
	}
	return result.Cell{Scenario: name, Design: design, Measured: figures, Expected: expected}
}

// run is a normal day and a sick one in two designs, and a cell that was left out.
func run() *result.File {
	f := &result.File{Kind: result.Kind, Target: result.Processes, Started: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), Seed: 19, Cells: []result.Cell{
		cell(scenario.Normal, scenario.SharedPool, feature(400, 400, 20), feature(800, 800, 15)),
		cell(scenario.Normal, scenario.Split, feature(400, 399, 23), feature(800, 800, 18)),
		cell(scenario.Slow, scenario.SharedPool, feature(400, 10, 900), feature(800, 0, 0)),
		cell(scenario.Slow, scenario.Split, feature(400, 400, 35), feature(800, 0, 0)),
		{Scenario: scenario.Exports, Design: scenario.Split, Skipped: "there is none"},
	}}
	for i := range f.Cells[:2] {
		f.Cells[i].Simulated = &f.Cells[i].Measured
		f.Cells[i].Predicted = &sim.Prediction{OrdersPerSecond: 40}
	}
	f.Judge()
	return f
}

func TestJudge_ComparesEachDesignWithItsOwnNormalDay(t *testing.T) {
	var got []scenario.Expectation
	for _, c := range run().Cells {
		got = append(got, c.Became)
	}
	want := []scenario.Expectation{
		{Checkout: scenario.Fine, Recs: scenario.Fine}, {Checkout: scenario.Fine, Recs: scenario.Fine}, // one request of 400 is chance
		{Checkout: scenario.Down, Recs: scenario.Down}, {Checkout: scenario.Slower, Recs: scenario.Down}, // 35 ms are more than 1.5 x 23
		{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestExpected_LeavesOutCellsForWhichTheMachineHadNoTime(t *testing.T) {
	f := run()
	f.Cells[2].Starved = true
	if met, measured := f.Expected(); met != 2 || measured != 3 {
		t.Errorf("got %d of %d, want 2 of 3", met, measured)
	}
	if got := f.Cells[2].Columns(); got[len(got)-2] != "down*" {
		t.Errorf("got %q, want the word with a mark", got[len(got)-2])
	}
}

func TestJudge_LeavesOutAFeatureThatNobodyAskedFor(t *testing.T) {
	f := run()
	delete(f.Cells[3].Measured.Features, scenario.Recs)
	f.Cells[3].Measured.Features[scenario.Checkout] = feature(400, 400, 23)
	f.Judge()
	if c := f.Cells[3]; c.Became.Recs != "" || !c.Met() {
		t.Errorf("got %+v, met %v, want no word for recs, and as expected", c.Became, c.Met())
	}
}

func TestNormalDay_IsTheDifferenceBetweenTheDesigns(t *testing.T) {
	f := run()
	f.NormalDay(2600 * time.Microsecond)
	want := &result.Cost{From: scenario.SharedPool, To: scenario.Split, P50MS: 3, P95MS: 4.5, SimulatedP50MS: 3, SimulatedP95MS: 4.5, AssumedMeanHops: 2.6}
	if diff := cmp.Diff(want, f.Cost); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.Cost, f.Cells[0].Skipped = nil, "no time"
	if f.NormalDay(0); f.Cost != nil {
		t.Errorf("got %+v from a cell that was not measured", f.Cost)
	}
}

func TestTable_EndsWithTheResultForPrograms(t *testing.T) {
	f := run()
	f.Cells[0].Series = []result.Second{{T: 1}}
	f.NormalDay(2600 * time.Microsecond)
	var out bytes.Buffer
	if err := f.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	line, ok := strings.CutPrefix(lines[len(lines)-1], "RESULT ")
	if !ok {
		t.Fatalf("the last line is %q, want RESULT {json}", lines[len(lines)-1])
	}
	var back result.File
	if err := json.Unmarshal([]byte(line), &back); err != nil || len(back.Cells) != len(f.Cells) || back.Cells[0].Series != nil {
		t.Errorf("got %d cells, %v, want all, without what changes over time", len(back.Cells), err)
	}
	for _, want := range []string{
		"slower (expected fine)", "97.5", "+3.00 ms at the median", "Not measured, because there is none: export in split.", "As expected: 2 of 4 cells.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRead_RefusesOtherJSON(t *testing.T) {
	var out bytes.Buffer
	f := run()
	if err := f.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	back, err := result.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, back); diff != "" {
		t.Errorf("written and read again, -want +got:\n%s", diff)
	}
	if _, err := result.Read(strings.NewReader(`{"kind":"else"}`)); !errors.Is(err, result.ErrOther) {
		t.Errorf("got %v, want ErrOther", err)
	}
	if _, err := result.Read(strings.NewReader(`{`)); err == nil || errors.Is(err, result.ErrOther) {
		t.Errorf("got %v, want an error of its own", err)
	}
}
