package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"example.com/watertight/lab/curve"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
)

// measured is a small run with everything that a page can show.
func measured() *result.File {
	fault := 2.0
	feature := func(requests, ok int64, p95 float64) result.Feature {
		f := result.Feature{Requests: requests, OK: ok, P50MS: p95 / 2, P95MS: p95}
		f.ErrorsPercent = 100 * f.Errors()
		return f
	}
	cell := func(name, design string, ok int64, expected scenario.Word) result.Cell {
		figures := result.Figures{OrdersPerSecond: float64(ok) / 4, Features: map[scenario.Feature]result.Feature{
			scenario.Checkout: feature(160, ok, 40), scenario.Search: feature(320, 320, 20), scenario.Recs: feature(320, 0, 0),
		}}
		c := result.Cell{Scenario: name, Design: design, About: "a <sick> feature & others", Length: 6, WarmUp: 2, FaultAt: &fault,
			Measured: figures, Simulated: &figures, Predicted: &sim.Prediction{ErrorsPercent: 90, OrdersPerSecond: 4},
			Expected: scenario.Expectation{Checkout: expected, Recs: scenario.Down},
			Outages:  []result.Outage{{Process: "recs", At: 2.1, Length: 1.5, Reason: "Error"}}}
		for t := range int64(6) {
			c.Series = append(c.Series, result.Second{T: t, Features: map[scenario.Feature]result.SecondFeature{scenario.Checkout: {Requests: 40, OK: 20, P50MS: 20, P95MS: float64(30 + 100*t)}}})
			c.Samples = append(c.Samples, result.Sample{T: float64(t), Queued: map[string]int{"recs/grpc": int(10 * t)}, Breakers: map[string]string{"gateway/recs": []string{"open", "half-open"}[t%2]}})
		}
		return c
	}
	f := &result.File{Kind: result.Kind, Target: result.Processes, Started: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), Seed: 19,
		Machine: result.Machine{OS: "linux", Arch: "amd64", CPUs: 2}, Versions: map[string]string{"go": "1.26"}, Warnings: []string{"a doubt"},
		Hops: []result.Hop{{Design: scenario.Split, Name: "checkout's work", P50MS: 21, Traces: 40}}}
	for _, d := range scenario.Running() {
		f.Cells = append(f.Cells, cell(scenario.Slow, d.Name, 160, scenario.Fine))
	}
	f.Cells[0] = cell(scenario.Slow, scenario.SharedPool, 4, scenario.Down)
	f.Cells = append(f.Cells, result.Cell{Scenario: scenario.Exports, Design: scenario.Split, Skipped: "there is none"})
	f.Judge()
	return f
}

func simulated() *sim.Report {
	spread := sim.Spread{Seeds: 40, Mean: 95, Low: 94, High: 96, Min: 90.2, Max: 98.4}
	return &sim.Report{Seed: 19, Seeds: 40, Summaries: []sim.Summary{
		{Scenario: scenario.Slow, Design: scenario.SharedPool, Met: 40, Metrics: map[string]sim.Spread{"checkout_errors_percent": spread, "orders_per_second": {Seeds: 40, Mean: 1, Low: 0.9, High: 1.1, Min: 0.5, Max: 2}}},
		{Scenario: scenario.Slow, Design: scenario.Split, Met: 40, Metrics: map[string]sim.Spread{"checkout_errors_percent": {Seeds: 40}, "orders_per_second": {Seeds: 40, Mean: 39.7, Low: 39.6, High: 39.8, Min: 38, Max: 41}}},
	}}
}

func curves() *curve.File {
	step := func(share, goodput, shed float64) curve.Step {
		return curve.Step{Share: share, Offered: goodput + shed, Goodput: goodput, Degraded: goodput / 4, Shed: shed, P50: 3 * share, P99: 40 * share}
	}
	return &curve.File{
		Kind: curve.Kind, Started: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC), StepTime: 4, Warnings: []string{"a doubt about the curve"},
		Load: &curve.Load{Mix: "checkout=20,page=80", Deadline: 1000, Capacity: 1500, Best: 1520, Kept: 0.9737,
			Steps: []curve.Step{step(0.1, 150, 0), step(0.5, 750, 0), step(1, 1520, 10), step(1.5, 1480, 770)}},
		Replicas: []curve.Replicas{{Service: "recs", Workers: 4, ServiceTime: 40, PerReplica: 100, Steps: []curve.ReplicasStep{
			{Replicas: 1, Under: step(0.7, 70, 0), Over: step(1.5, 150, 0)}, {Replicas: 2, Under: step(0.7, 140, 0), Over: step(1.5, 300, 0)},
		}}},
	}
}

// benchmarks are rows of which some differ in one number.
const benchmarks = `{"started": "2026-11-30T09:00:00Z", "system": "linux/amd64", "cpus": 2, "load": "0.1 0.2 0.3", "rows": [
{"part": "curves", "what": "relay with 0 published rows in its table", "against": "the same again", "unit": "rows/s", "ours": [40000, 42000, 41000], "theirs": [41000], "ratio": 1},
{"part": "curves", "what": "relay with 1,000,000 published rows in its table", "against": "with none", "unit": "rows/s", "ours": [39000], "theirs": [41000], "ratio": 0.95},
{"part": "search", "what": "search, 4,070 products", "against": "limit", "unit": "ms", "ours": [1.2], "theirs": [5], "ratio": 0.24},
{"part": "search", "what": "search, 100,000 products", "against": "limit", "unit": "ms", "ours": [3.5], "theirs": [5], "ratio": 0.7},
{"part": "search", "what": "search, 1 client, 4,070 products", "against": "full text", "unit": "queries/s", "ours": [60000], "theirs": [9000], "ratio": 6.7},
{"part": "search", "what": "search, 1 client, 100,000 products", "against": "full text", "unit": "queries/s", "ours": [7500], "theirs": [430], "ratio": 17},
{"part": "relay", "what": "relay, 100,000 rows", "against": "bare", "unit": "rows/s", "ours": [40000], "theirs": [50000], "ratio": 0.8},
{"part": "relay", "what": "not measured, 3 rows", "against": "bare", "unit": "rows/s", "ours": null, "theirs": null, "ratio": 0}]}`

// page is the report of all kinds.
func page(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, []Source{
		{Name: "run.json", Measured: measured()}, {Name: "sim.json", Simulated: simulated()}, {Name: "curve.json", Curves: curves()},
		{Name: "bench.json", bench: readBench([]byte(benchmarks))},
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements are the page's, by name.
func elements(t *testing.T, page string) map[string][]*html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]*html.Node{}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			found[n.Data] = append(found[n.Data], n)
		}
	}
	return found
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func TestPage_NeedsNothingButItself(t *testing.T) {
	found := elements(t, page(t))
	for _, name := range []string{"script", "img", "iframe", "object", "embed"} {
		if n := len(found[name]); n > 0 {
			t.Errorf("got %d elements %s, want none", n, name)
		}
	}
	for name, all := range found {
		for _, n := range all {
			for _, key := range []string{"src", "href", "xlink:href", "style"} {
				if v := attribute(n, key); v != "" && v != "data:," {
					t.Errorf("%s has %s=%q, want nothing from elsewhere", name, key, v)
				}
			}
		}
	}
	if strings.Contains(page(t), "@import") || strings.Contains(page(t), "url(") {
		t.Error("the style asks for something from elsewhere")
	}
}

func TestPage_DrawingsHaveNamesForThoseWhoCannotSeeThem(t *testing.T) {
	ids := map[string]bool{}
	drawings := 0
	found := elements(t, page(t))
	for _, all := range found {
		for _, n := range all {
			if id := attribute(n, "id"); id != "" {
				if ids[id] {
					t.Errorf("the id %s is there twice", id)
				}
				ids[id] = true
			}
		}
	}
	for _, n := range found["svg"] {
		if attribute(n, "role") != "img" {
			if attribute(n, "aria-hidden") != "true" {
				t.Error("a drawing has neither a name nor is it hidden")
			}
			continue
		}
		drawings++
		for id := range strings.FieldsSeq(attribute(n, "aria-labelledby")) {
			if !ids[id] {
				t.Errorf("a drawing is named by %s, which is not there", id)
			}
		}
	}
	if drawings < 6 {
		t.Errorf("got %d drawings, want orders, latency, queue, timeline, hops and the spread of both figures", drawings)
	}
}

func TestPage_ShowsWhatWasMeasuredInWordsAndNumbers(t *testing.T) {
	text := page(t)
	for _, want := range []string{
		"97.5\u00a0%", "✕</span> down", "●</span> fine", "a &lt;sick&gt; feature &amp; others", "Warning: a doubt", "fault</text>", "95.0 ± 1.0", "seeds 19 to 58",
		"6 of 6 cells", "there is none",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestReadFile_KnowsRunsSimulationsAndTables(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var table bytes.Buffer
	if err := measured().WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	run, err := json.Marshal(measured())
	if err != nil {
		t.Fatal(err)
	}
	simulation, err := json.Marshal(simulated())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"run.json": run, "run.txt": table.Bytes()} {
		s, err := ReadFile(write(name, content))
		if err != nil || s.Measured == nil || len(s.Measured.Cells) != 7 || s.Name != name {
			t.Errorf("%s: got %+v, %v, want a run of 7 cells", name, s, err)
		}
	}
	if s, err := ReadFile(write("sim.json", simulation)); err != nil || s.Simulated == nil {
		t.Errorf("a simulation: got %+v, %v", s, err)
	}
	for name, content := range map[string]string{"nothing": "", "prose": "RESULT", "other": `{"kind":"else"}`, "half": `{"kind":`} {
		path := write(name, []byte(content))
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestReadFile_ReadsTheRunThatIsKept(t *testing.T) {
	s, err := ReadFile(filepath.Join("..", "..", "docs", "results", "run.json"))
	if err != nil || s.Measured == nil {
		t.Fatalf("got %+v, %v", s, err)
	}
	if met, measured := s.Measured.Expected(); measured < 40 || met < measured/2 {
		t.Errorf("%d of %d cells came as expected, want a run that shows something", met, measured)
	}
}
