package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/watertight/lab/sim"
)

func TestExperiments_HaveHelpWithAnExample(t *testing.T) {
	for _, command := range []string{"sim", "bulkhead", "size", "run", "report", "gameday", "cluster"} {
		out, errOut, code := lab(t, t.TempDir(), command, "--help")
		if code != 0 || !strings.Contains(out, "Example") || !strings.Contains(out, "  lab "+command) {
			t.Errorf("%s --help: exit code %d, %q, %q, want 0 and an example", command, code, out, errOut)
		}
	}
}

func TestExperiments_SayWhatIsWrongInOneLine(t *testing.T) {
	for want, args := range map[string][]string{
		"--scenario fire: there is none":    {"sim", "--scenario", "fire"},
		"--design tower: there is none":     {"sim", "--design", "tower"},
		"--seeds: must be between":          {"sim", "--seeds", "0"},
		"--pools: is for a single seed":     {"sim", "--seeds", "2", "--pools"},
		"scenario blaze: there is none":     {"run", "blaze"},
		"--designs mill: there is none":     {"run", "--designs", "mill"},
		"--warm-up: must end before":        {"run", "--quick", "--warm-up", "1h"},
		"scenario flood: there is none":     {"gameday", "flood"},
		"--abort-at: must be more than 0":   {"gameday", "--abort-at", "0"},
		"none.json":                         {"report", "none.json"},
		"--recs-workers: must be between":   {"sim", "--recs-workers=-1"},
		"--calls: must be between":          {"bulkhead", "--calls", "0"},
		"--route recs: must be NAME=":       {"size", "--route", "recs"},
		"--slow nobody: no route":           {"size", "--slow", "nobody"},
		"must be a URL such as":             {"size", "--prometheus", "localhost"},
		"give one of them":                  {"size", "--prometheus", "http://localhost:1", "--route", "recs=1,1s,1"},
		"--output must be one of":           {"size", "--output", "yaml"},
		"--prometheus: the server does not": {"size", "--prometheus", "http://127.0.0.1:1"},
	} {
		out, errOut, code := lab(t, t.TempDir(), args...)
		if code != 1 || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 || out != "" {
			t.Errorf("lab %v: exit code %d, %q, %q, want 1 and one line with %q", args, code, out, errOut, want)
		}
	}
}

func TestSim_PrintsSeed19(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "sim", "testdata", "seed19.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if out, errOut, code := lab(t, t.TempDir(), "sim"); code != 0 || out != string(want) {
		t.Errorf("exit code %d, %q; the output differs from sim/testdata/seed19.txt", code, errOut)
	}
}

func TestSim_PrintsJSONWithTheQueuesOverTime(t *testing.T) {
	out, errOut, code := lab(t, t.TempDir(), "sim", "--scenario", "slow,normal", "--design", "split", "--seed", "7", "-o", "json")
	var report sim.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("exit code %d, %q: %v", code, errOut, err)
	}
	if len(report.Cells) != 2 || report.Cells[0].Scenario != "normal" || report.Seed != 7 || report.Inputs["slow-delay"] != "2s" {
		t.Fatalf("got %+v, want normal and slow in split under seed 7", report)
	}
	for _, pool := range report.Cells[1].Pools {
		if len(pool.Queue) != 200 {
			t.Errorf("pool %s: got %d samples of its queue, want 200", pool.Name, len(pool.Queue))
		}
	}
}

func TestSim_ShowsThePools(t *testing.T) {
	out, errOut, code := lab(t, t.TempDir(), "sim", "--scenario", "slow", "--design", "shared-pool", "--pools")
	if code != 0 || !strings.Contains(out, "QUEUE OVER TIME") || !strings.Contains(out, "█") {
		t.Errorf("exit code %d, %q, %q, want the queue over time", code, out, errOut)
	}
}

func TestBulkhead_GivesTheExactCountsInVirtualTime(t *testing.T) {
	out, errOut, code := lab(t, t.TempDir(), "bulkhead", "--virtual", "--output", "json")
	var answer bulkheadAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || answer.Time != "virtual" {
		t.Fatalf("exit code %d, %q, %q: %v", code, out, errOut, err)
	}
	want := map[string][2]int{"A": {10, 10}, "B": {20, 0}, "C": {8, 12}, "D": {20, 0}}
	for _, trial := range answer.Trials {
		if got := [2]int{trial.Checkout.OK, trial.Checkout.Failed}; got != want[trial.Trial] || trial.Recs.Failed != 40 || trial.Why == "" {
			t.Errorf("%s: got %+v, want checkout %v and 40 failed recommendations", trial.Trial, trial, want[trial.Trial])
		}
	}
	if len(answer.Trials) != len(want) {
		t.Errorf("got %d trials, want %d", len(answer.Trials), len(want))
	}
}

func TestSize_PrintsFiguresAndWarnings(t *testing.T) {
	out, errOut, code := lab(t, t.TempDir(), "size", "--timeout", "300ms")
	for _, want := range []string{"178.8 ms", "99.501 %", "160.000", "3.03 %", "2.6 ms", "WARNING: --timeout 300ms is not below the boundary"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q, %q, want %q", code, out, errOut, want)
		}
	}
	out, errOut, code = lab(t, t.TempDir(), "size", "-o", "json")
	var answer sizeAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 || len(answer.Routes) != 3 || answer.Warnings == nil {
		t.Errorf("exit code %d, %q, %q: %v; want three routes and an empty list of warnings", code, out, errOut, err)
	}
}
