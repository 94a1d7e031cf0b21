package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPage_ShowsCurvesAndWhatTheShopKeeps(t *testing.T) {
	shown := page(t)
	for _, want := range []string{
		"<b>1500</b> requests a second", "<b>97.4\u00a0%</b> of its best goodput", "a doubt about the curve", "recs: what replicas add",
		"goodput: 10 % 150, 50 % 750, 100 % 1.5k, 150 % 1.5k", "shed: 10 % 0, 50 % 0, 100 % 10, 150 % 770",
		"asked for 150 %: 1 112, 2 225", "workers ÷ time: 1 100, 2 200",
		"relay with, by published rows in its table", "ours: 0 41k, 1M 39k", "ours: 4.1k 1.2, 100k 3.5; limit: 4.1k 5, 100k 5",
		"search, 1 client, by products", "ours: 4.1k 60k, 100k 7.5k",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(shown, "not measured, 3 rows") || strings.Contains(shown, "relay, by rows") {
		t.Error("the page shows a row without figures, or a curve of one point")
	}
}

func TestRead_TellsCurvesAndBenchmarksApart(t *testing.T) {
	if s, err := read([]byte(`{"kind": "watertight-lab-curve"}`)); err != nil || s.Curves == nil {
		t.Errorf("curves: got %+v, %v", s, err)
	}
	if s, err := read([]byte(benchmarks)); err != nil || s.bench == nil || len(s.bench.Rows) != 7 {
		t.Errorf("benchmarks: got %+v, %v", s, err)
	}
	if _, err := read([]byte(`{"rows": []}`)); err == nil {
		t.Error("benchmarks without rows: got no error")
	}
}

func TestRoundUp_IsTheNextRoundFigure(t *testing.T) {
	got := []float64{}
	for _, v := range []float64{0, 0.7, 1, 1.2, 7, 11, 1268, 41000, 99} {
		got = append(got, roundUp(v))
	}
	if diff := cmp.Diff([]float64{1, 0.8, 1, 1.5, 8, 15, 1500, 50000, 100}, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
