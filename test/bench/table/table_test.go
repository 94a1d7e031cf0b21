package table

import (
	"strings"
	"testing"
)

func TestMedian_IsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestNumber_ShowsThreeDigitsAndThousands(t *testing.T) {
	for figure, want := range map[float64]string{
		0: "0", 0.0123: "0.0123", 0.625: "0.625", 3.14159: "3.14", 42.25: "42.2", 617: "617", 1234567: "1,234,567", -123: "-123", -1234: "-1,234",
	} {
		if got := Number(figure); got != want {
			t.Errorf("Number(%v) = %q, want %q", figure, got, want)
		}
	}
}

func TestTable_ComparesRoundByRoundAndFailsFarFromItsTargetOnly(t *testing.T) {
	run := New(false)
	row := func(what string, target Target) *Row { return run.Row("part", what, "peer", "rows/s", target) }
	good, near, far := row("good", AtLeast(2)), row("near", AtLeast(2)), row("far", AtLeast(2))
	small, large, late := row("small", AtMost(1.1)), row("large", AtMost(1.1)), row("late", Within())
	row("not measured", AtLeast(2))
	for _, slow := range []float64{1, 10, 2} { // the machine is slower in some rounds, for both sides
		good.Add(1234567/slow, 400000/slow)
		near.Add(1100/slow, 1000/slow)
		far.Add(900/slow, 1000/slow)
		small.Add(1000/slow, 1000/slow)
		large.Add(3000/slow, 1000/slow)
		late.Add(3000/slow, 1000/slow)
	}
	var out strings.Builder
	if err := run.Print(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"good   617,284  peer           200,000  rows/s  3.09   3.09–3.09  ≥ 2     ok",
		"near   550      peer           500      rows/s  1.10   1.10–1.10  ≥ 2     missed",
		"far    450      peer           500      rows/s  0.90   0.90–0.90  ≥ 2     FAILED",
		"small  500      peer           500      rows/s  1.00   1.00–1.00  ≤ 1.1   ok",
		"large  1,500    peer           500      rows/s  3.00   3.00–3.00  ≤ 1.1   FAILED",
		"late   1,500    peer           500      rows/s  3.00   3.00–3.00  ≤ 1     missed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
	err := run.Judge()
	if err == nil || err.Error() != "far: 0.90 × peer, and the target is ≥ 2\nlarge: 3.00 × peer, and the target is ≤ 1.1" {
		t.Errorf("Judge() = %v, want errors about far and large alone", err)
	}
}

// A side that measured nothing, or less than nothing, keeps no promise: as a plain figure it would be below every limit.
func TestTable_FailsWhatCannotBe(t *testing.T) {
	for what, c := range map[string]struct{ ours, theirs float64 }{"nothing on either side": {0, 0}, "less than nothing": {1, -1}} {
		for _, target := range []Target{AtLeast(2), AtMost(2), Within()} {
			run := New(false)
			run.Row("part", what, "peer", "ms", target).Add(c.ours, c.theirs)
			if run.Judge() == nil {
				t.Errorf("%s, target %s: no error", what, target)
			}
		}
	}
}
