//go:build unix

package measured

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"testing"
)

// step is what the test reads of a step of a curve.
type step struct {
	Offered  float64 `json:"offered"`
	Goodput  float64 `json:"goodput"`
	Degraded float64 `json:"degraded"`
	Shed     float64 `json:"shed"`
	Late     float64 `json:"late"`
	Failed   float64 `json:"failed"`
}

func (s step) full() float64 { return s.Goodput - s.Degraded }

func TestCurve_TwoReplicasAnswerMoreThanOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, scratch := command(ctx, t, "curve", "recs", "--replicas", "2", "--step", "1s", "--output", "json")
	var steps bytes.Buffer
	cmd.Stderr = &steps
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lab curve: %v\n%s", err, steps.String())
	}
	nothingLeft(t, scratch)
	var found struct {
		Load     *struct{} `json:"load"`
		Replicas []struct {
			PerReplica float64 `json:"per_replica"`
			Steps      []struct {
				Under step `json:"under"`
				Over  step `json:"over"`
			} `json:"steps"`
		} `json:"replicas"`
	}
	if err := json.Unmarshal(out, &found); err != nil || found.Load != nil || len(found.Replicas) != 1 || len(found.Replicas[0].Steps) != 2 {
		t.Fatalf("got %s, %v, want the curve of recs alone, with two steps", out, err)
	}
	one, two := found.Replicas[0].Steps[0], found.Replicas[0].Steps[1]
	for _, s := range []step{one.Under, one.Over, two.Under, two.Over} {
		if s.Offered == 0 || math.Abs(s.Goodput+s.Shed+s.Late+s.Failed-s.Offered) > 1e-6*s.Offered {
			t.Errorf("got %+v, want that what was offered became something", s)
		}
	}
	// On a machine with other work neither comes near to what it can take, and two still take more.
	if two.Over.full() < 1.2*one.Over.full() {
		t.Errorf("in full, two replicas answered %.0f/s and one %.0f/s, want more (each can take %.0f/s)\n%s", two.Over.full(), one.Over.full(),
			found.Replicas[0].PerReplica, steps.String())
	}
}
