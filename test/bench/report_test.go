package main

import (
	"strings"
	"testing"
)

func TestMedian_IsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestReport_ComparesRoundByRoundAndFailsFarBelowItsTargetOnly(t *testing.T) {
	r := newReport(effort{Rounds: 3})
	good, near, far := r.row("good", "peer", "rows/s", 2), r.row("near", "peer", "rows/s", 2), r.row("far", "peer", "rows/s", 2)
	for _, slow := range []float64{1, 10, 2} { // the machine is slower in some rounds, for both sides
		good.add(1234567/slow, 400000/slow)
		near.add(1100/slow, 1000/slow)
		far.add(900/slow, 1000/slow)
	}
	var out strings.Builder
	if err := r.print(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"good  617,284  peer           200,000  rows/s  3.09   3.09–3.09  ≥ 2     ok",
		"near  550      peer           500      rows/s  1.10   1.10–1.10  ≥ 2     below",
		"far   450      peer           500      rows/s  0.90   0.90–0.90  ≥ 2     FAILED",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
	if err := r.judge(); err == nil || !strings.HasPrefix(err.Error(), "far: 0.90") || strings.Contains(err.Error(), "near") {
		t.Errorf("judge() = %v, want an error about far alone", err)
	}
}
