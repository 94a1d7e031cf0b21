package curve

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/load"
)

func TestStepOf_DividesWhatWasOfferedAmongWhatBecameOfIt(t *testing.T) {
	r := load.Result{
		Measured: 2,
		Operations: []load.OperationResult{
			{Name: load.Checkout, Outcomes: load.OutcomeCounts{OK: 40, Rejected: 20}, Codes: map[string]int64{"bulkhead_full": 20}},
			{Name: load.Page, Outcomes: load.OutcomeCounts{OK: 80, Degraded: 40, Rejected: 10, TimedOut: 6, Error: 3, Lost: 1}, Codes: map[string]int64{"bulkhead_full": 10}},
		},
		Total: load.OperationResult{
			Offered: 100, Outcomes: load.OutcomeCounts{OK: 120, Degraded: 40, Rejected: 30, TimedOut: 6, Error: 3, Lost: 1},
			Latency: load.Distribution{P50: 3, P99: 30},
		},
		Generator: load.Generator{LateShare: 0.02},
	}
	want := Step{
		Share: 1.5, Offered: 100, Goodput: 80, Degraded: 20, Shed: 15, Late: 3, Failed: 2, P50: 3, P99: 30, LateStarts: 0.02,
		Answered: map[string]float64{"checkout": 20, "page": 60}, Codes: map[string]float64{"checkout bulkhead_full": 10, "page bulkhead_full": 5},
	}
	got := stepOf(r, 1.5)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if sum := got.Goodput + got.Shed + got.Late + got.Failed; sum != got.Offered {
		t.Errorf("the parts sum up to %v of %v", sum, got.Offered)
	}
	if text := got.answered(); text != "checkout 20, page 60" {
		t.Errorf("by operation: got %q", text)
	}
	if got.Full() != 60 {
		t.Errorf("in full: got %v, want 60", got.Full())
	}
}

// The best step of the search may be a lucky moment of the machine's.
func TestLoad_TakesTheMedianOfTheConfirmingStepsForTheCapacity(t *testing.T) {
	l := Load{Search: []Step{{Offered: 900, Goodput: 900}, {Offered: 1500, Goodput: 1400}, {Offered: 2000, Goodput: 800}}}
	l.settle([]Step{{Offered: 1500, Goodput: 700}, {Offered: 1500, Goodput: 1000}, {Offered: 1500, Goodput: 1100}})
	if l.Capacity != 1000 || len(l.Search) != 6 || l.Search[1].Share != 1.5 {
		t.Errorf("got %+v, want a capacity of 1000 and all six steps as shares of it", l)
	}
}

func TestLoad_TakesTheMedianOfAShareThatWasHeldSeveralTimes(t *testing.T) {
	l := Load{Steps: []Step{
		{Share: 1, Goodput: 90}, {Share: 1.5, Goodput: 20}, {Share: 1.5, Goodput: 95}, {Share: 1, Goodput: 100}, {Share: 1, Goodput: 700}, {Share: 1.5, Goodput: 80},
		{Share: 0.5, Goodput: 50},
	}}
	l.judge()
	want := []Step{{Share: 0.5, Goodput: 50}, {Share: 1, Goodput: 100}, {Share: 1.5, Goodput: 80}}
	if diff := cmp.Diff(want, l.ByShare()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l.Best != 100 || math.Abs(l.Kept-0.8) > 1e-9 {
		t.Errorf("got best %v and %v kept, want 100 and 0.8", l.Best, l.Kept)
	}
}

func TestFile_IsReadAsItIsWritten(t *testing.T) {
	f := &File{Kind: Kind, StepTime: 4, Load: &Load{Mix: "page=1", Capacity: 100, Steps: []Step{{Share: 1, Offered: 100, Goodput: 99}}},
		Replicas: []Replicas{{Service: "recs", Workers: 4, PerReplica: 100, Steps: []ReplicasStep{{Replicas: 1, Over: Step{Goodput: 99}}}}}, Warnings: []string{"a doubt"}}
	var written bytes.Buffer
	if err := f.WriteJSON(&written); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&written)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := Read(strings.NewReader(`{"kind": "watertight-lab-run"}`)); !errors.Is(err, ErrOther) {
		t.Errorf("a file of lab run: got %v, want %v", err, ErrOther)
	}
	var table strings.Builder
	if err := f.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"capacity 100/s of page=1", "recs: 4 workers", "1, over", "warning: a doubt"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, &table)
		}
	}
}
