package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/scenario"
)

func everything() Options {
	in := scenario.Default()
	return Options{Inputs: in, Scenarios: scenario.Table(in), Designs: scenario.Designs(), Seed: 19, Seeds: 1}
}

func played(t *testing.T, o Options) map[string]Cell {
	t.Helper()
	cells, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Cell{}
	for _, c := range cells {
		byName[c.Scenario+"/"+c.Design] = c
	}
	return byName
}

// The file is what `lab sim` prints. Where a change of the model is meant, `go run ./cmd/lab sim > sim/testdata/seed19.txt`
// makes it anew.
func TestReport_RepeatsSeed19ToTheByte(t *testing.T) {
	want, err := os.ReadFile("testdata/seed19.txt")
	if err != nil {
		t.Fatal(err)
	}
	o := everything()
	cells, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	report := Report{Seed: o.Seed, Seeds: 1, Inputs: o.Inputs.Flags(), Cells: cells}
	if err := report.WriteTable(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("seed 19 (-want +got):\n%s", diff)
	}
}

// published are the ranges that an independent simulation of the same shop gave over forty seeds of its own.
func published() []struct {
	cell      string
	what      string
	of        func(Cell) float64
	low, high float64
} {
	errorsOf := func(c Cell) float64 { return c.Features[scenario.Checkout].ErrorsPercent }
	failed := func(c Cell) float64 { return float64(c.Features[scenario.Checkout].Failed) }
	p50 := func(c Cell) float64 { return c.Features[scenario.Checkout].P50MS }
	recs := func(c Cell) float64 { return c.Features[scenario.Recs].ErrorsPercent }
	return []struct {
		cell      string
		what      string
		of        func(Cell) float64
		low, high float64
	}{
		{"normal/shared-pool", "p50", p50, 19.5, 21.0},
		{"normal/split", "p50", p50, 22.1, 23.7},
		{"normal/shared-pool", "errors", errorsOf, 0, 0},
		{"slow/shared-pool", "errors", errorsOf, 90.2, 98.4},
		{"slow/split", "errors", errorsOf, 0, 0},
		{"slow/shared-pool", "recs errors", recs, 100, 100},
		{"slow/split", "recs errors", recs, 100, 100},
		{"crash/shared-pool", "errors", errorsOf, 96.6, 99.0},
		{"crash/split", "errors", errorsOf, 0, 0},
		{"crash/split", "recs errors", recs, 100, 100},
		{"redeploy/shared-pool", "failed orders", failed, 138, 183},
		{"redeploy/split", "failed orders", failed, 0, 0},
	}
}

func TestSim_IsWithinThePublishedRanges(t *testing.T) {
	o := everything()
	byName := played(t, o)
	for _, p := range published() {
		if got := p.of(byName[p.cell]); got < p.low || got > p.high {
			t.Errorf("seed %d, %s, %s: got %v, want %v to %v", o.Seed, p.cell, p.what, got, p.low, p.high)
		}
	}
}

// Forty other seeds have other extremes: one beyond each end of such a range is what chance gives. So their mean must lie
// inside, and nine in ten of them.
func TestSim_FortySeedsCentreOnThePublishedRanges(t *testing.T) {
	const seeds = 40
	o := everything()
	o.Scenarios = o.Scenarios[:4]
	o.Designs = []scenario.Design{o.Designs[0], o.Designs[3]}
	mean, outside := map[int]float64{}, map[int]int{}
	for seed := range uint64(seeds) {
		o.Seed = 1 + seed
		byName := played(t, o)
		for i, p := range published() {
			v := p.of(byName[p.cell])
			mean[i] += v / seeds
			if v < p.low || v > p.high {
				outside[i]++
			}
		}
	}
	for i, p := range published() {
		const rounding = 1e-9
		if mean[i] < p.low-rounding || mean[i] > p.high+rounding || outside[i] > seeds/10 {
			t.Errorf("seeds 1 to %d, %s, %s: got a mean of %v and %d outside, want %v to %v and at most %d outside", seeds, p.cell, p.what,
				mean[i], outside[i], p.low, p.high, seeds/10)
		}
	}
}

func TestSim_ShortSlownessLeavesTheSharedPoolAlone(t *testing.T) {
	o := everything()
	o.Inputs.SlowDelay = 150 * time.Millisecond
	o.Scenarios = scenario.Table(o.Inputs)
	if got := played(t, o)["slow/shared-pool"].Features[scenario.Checkout].ErrorsPercent; got > 1 {
		t.Errorf("slow by 150 ms, shared pool: got %v %% errors, want next to none: 13.7 of 16 workers are busy", got)
	}
}

func TestSim_EveryCellBecomesWhatTheTableExpects(t *testing.T) {
	o := everything()
	for _, seed := range []uint64{19, 1, 2, 3} {
		o.Seed = seed
		cells, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cells {
			if !c.Became.Checkout.Meets(c.Expected.Checkout) || !c.Became.Recs.Meets(c.Expected.Recs) {
				t.Errorf("seed %d, %s, %s: became %+v, expected %+v", seed, c.Scenario, c.Design, c.Became, c.Expected)
			}
		}
	}
}

func TestSim_AFallbackSavesTheCheckoutThatWaitsForRecs(t *testing.T) {
	o := everything()
	o.Inputs.SyncTimeout, o.Inputs.SyncFallback = 50*time.Millisecond, true
	o.Scenarios = scenario.Table(o.Inputs)
	byName := played(t, o)
	for _, name := range []string{"slow/sync-call", "crash/sync-call", "redeploy/sync-call"} {
		if got := byName[name].Features[scenario.Checkout].ErrorsPercent; got != 0 {
			t.Errorf("%s with a 50 ms time-out and a fallback: got %v %% errors, want none", name, got)
		}
	}
}

func TestSim_BusyWorkersFollowLittlesLaw(t *testing.T) {
	byName := played(t, everything())
	for _, name := range []string{"normal/shared-pool", "normal/split", "normal/sync-call", "cpu/shared-pool", "cpu/split"} {
		c := byName[name]
		if got, want := c.BusyWorkers, c.Predicted.BusyWorkers; got < 0.93*want || got > 1.07*want {
			t.Errorf("%s: got %v busy workers, want %v within 7 %%", name, got, want)
		}
	}
}

func TestSim_PredictionBoundsTheErrorsFromBelow(t *testing.T) {
	o := everything()
	o.Seeds = 8
	summaries, err := Summarize(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range summaries {
		const chance = 3 // percentage points
		if got := s.Metrics["checkout_errors_percent"].Mean; got < s.Predicted.ErrorsPercent-chance {
			t.Errorf("%s, %s: got %v %% errors in the mean, want %v %% at least", s.Scenario, s.Design, got, s.Predicted.ErrorsPercent)
		}
	}
}

func TestSummarize_DoesNotDependOnParallelism(t *testing.T) {
	o := everything()
	o.Seeds = 12
	o.Scenarios = o.Scenarios[:3]
	var first []Summary
	for _, parallel := range []int{1, 2, 7} {
		o.Parallel = parallel
		got, err := Summarize(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("%d at a time (-one at a time +got):\n%s", parallel, diff)
		}
	}
}

func TestSummarize_KnowsItsInterval(t *testing.T) {
	got := spreadOf([][]float64{{1}, {2}, {3}, {4}, {5}}, 0)
	// t(0.975, 4) = 2.776, s = 1.5811, s/√5 = 0.7071
	if diff := cmp.Diff(Spread{Seeds: 5, Mean: 3, Low: 1.037, High: 4.963, Min: 1, Max: 5}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	o := everything()
	if _, err := Run(ctx, o); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
}

func TestRun_NamesTheFlagThatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"--seeds: must be between 1":      func(o *Options) { o.Seeds = 0 },
		"--parallel: must not":            func(o *Options) { o.Parallel = -1 },
		"--rate: must be more than 0":     func(o *Options) { o.Inputs.Rate = 0 },
		"must add up to 1, got 1.2":       func(o *Options) { o.Inputs.CheckoutShare = 0.4 },
		"--workers: must be between 1":    func(o *Options) { o.Inputs.Workers = 0 },
		"--hop-max: must not be below":    func(o *Options) { o.Inputs.HopMax = 0 },
		"--warm-up: must end before":      func(o *Options) { o.Inputs.WarmUp = time.Minute },
		"--slow-delay: must be more than": func(o *Options) { o.Inputs.SlowDelay = 0 },
	} {
		o := everything()
		change(&o)
		if _, err := Summarize(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestReport_EndsWithAResultThatProgramsRead(t *testing.T) {
	o := everything()
	o.Scenarios, o.Seeds = o.Scenarios[:2], 3
	summaries, err := Summarize(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&Report{Seed: 19, Seeds: 3, Summaries: summaries}).WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	result, found := strings.CutPrefix(lines[len(lines)-1], "RESULT ")
	var back Report
	if err := json.Unmarshal([]byte(result), &back); err != nil || !found {
		t.Fatalf("the last line is %q: %v", lines[len(lines)-1], err)
	}
	if diff := cmp.Diff(summaries, back.Summaries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkSummarize(b *testing.B) {
	o := everything()
	o.Scenarios, o.Designs = o.Scenarios[:4], []scenario.Design{o.Designs[0], o.Designs[1], o.Designs[3]}
	o.Seeds = 20
	before := processorTime(b)
	for b.Loop() {
		if _, err := Summarize(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((processorTime(b)-before).Seconds()/float64(b.N*o.Seeds)*1000, "cpu-s/1000seeds")
}
