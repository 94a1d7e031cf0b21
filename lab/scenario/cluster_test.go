package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOnCluster_HasARowForEverythingThatAClusterIsAskedToShow(t *testing.T) {
	var names []string
	for _, s := range OnCluster(ClusterInputs(), false) {
		names = append(names, s.Name)
		if s.About == "" || s.Hypothesis == "" || len(s.Signals) == 0 {
			t.Errorf("%s is not whole: %+v", s.Name, s)
		}
		if s.Fault.Bites() && (s.Fault.For <= 0 || len(s.Fault.On) == 0) {
			t.Errorf("%s: its fault is for %v on %v, want an end and a service", s.Name, s.Fault.For, s.Fault.On)
		}
		if !slices.ContainsFunc(s.Signals, func(g Signal) bool { return g.Kind == Books }) {
			t.Errorf("%s: nobody looks into the books", s.Name)
		}
		for _, g := range s.Signals {
			if g.String() == string(g.Kind) {
				t.Errorf("%s: the signal %s has no words", s.Name, g.Kind)
			}
		}
	}
	want := []string{
		Normal, Slow, Crash, Redeployed, OOM, Poison, RetryStorm, SharedDB, CPU,
		RolledOut, Undrained, BadRelease, Killed, Evicted, DBGone, ScaledOut,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestOnCluster_LeavesTheTableAsItIs(t *testing.T) {
	before := Table(ClusterInputs())
	OnCluster(ClusterInputs(), true)
	if diff := cmp.Diff(before, Table(ClusterInputs())); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestProof_TakesFiveMinutes(t *testing.T) {
	rows := Proof(ClusterInputs())
	var faults time.Duration
	for _, s := range rows {
		faults += s.Fault.At + s.Fault.For
		for range max(s.Fault.Times, 1) - 1 {
			faults += s.Fault.Pause + s.Fault.For
		}
	}
	// The rest is for pods: their starts and drains, in rollout and kill above all.
	if len(rows) != 5 || faults > 150*time.Second {
		t.Errorf("got %d rows of %v, want 5 of two and a half minutes at most", len(rows), faults)
	}
}
