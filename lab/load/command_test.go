package load

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// execute runs the command line against a default target.
func execute(t *testing.T, defaultTarget string, args ...string) (out, errOut string, err error) {
	t.Helper()
	var f Flags
	parser, err := kong.New(&f, kong.Exit(func(int) { t.Errorf("%v: wants to exit", args) }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return "", "", err
	}
	var stdout, stderr bytes.Buffer
	err = f.Execute(t.Context(), &stdout, &stderr, defaultTarget)
	return stdout.String(), stderr.String(), err
}

func TestFlags_AreTheDefaultConfig(t *testing.T) {
	var f Flags
	if err := kong.ApplyDefaults(&f); err != nil {
		t.Fatal(err)
	}
	got, err := f.config("http://127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if got.Rate != want.Rate || got.Duration != want.Duration || got.Warmup != want.Warmup || got.Timeout != want.Timeout || got.Seed != want.Seed ||
		got.Mix != want.Mix || got.Arrivals != want.Arrivals || got.LateAfter != want.LateAfter || got.Customers != want.Customers ||
		got.MaxProducts != want.MaxProducts || got.ClientRetries != want.ClientRetries || got.Target.String() != "http://127.0.0.1:8080" {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestExecute_ReportsForPeopleAndForPrograms(t *testing.T) {
	shop := &fakeShop{}
	gateway := start(t, shop)
	acked := filepath.Join(t.TempDir(), "acked.txt")
	args := []string{"--rate=100", "--duration=600ms", "--warmup=100ms", "--mix=checkout=1", "--acked", acked}
	out, errOut, err := execute(t, gateway.String(), args...)
	if err != nil || errOut != "" || !strings.Contains(out, "checkout") || strings.Contains(out, "search") || !strings.Contains(out, "generator: 0.5 s counted") {
		t.Errorf("got %q, %q, %v, want a table and nothing on what is no terminal", out, errOut, err)
	}
	content, err := os.ReadFile(acked)
	if got := strings.Count(string(content), "\n"); err != nil || got != len(shop.orders) || got == 0 {
		t.Errorf("acked: got %d lines, %v, want %d", got, err, len(shop.orders))
	}
	out, _, err = execute(t, "http://nobody.invalid", append(args, "--output=json", "--target", gateway.String(), "--arrivals=constant")...)
	var document Result
	if jsonErr := json.Unmarshal([]byte(out), &document); err != nil || jsonErr != nil || document.Total.Requests != 50 || document.Config.Arrivals != Constant {
		t.Errorf("got %s, %v, %v, want 50 requests", out, err, jsonErr)
	}
}

func TestExecute_ReplaysArrivalsFromAFile(t *testing.T) {
	shop := &fakeShop{}
	path := filepath.Join(t.TempDir(), "arrivals")
	if err := os.WriteFile(path, []byte("0.1\n0.2\n0.2\n9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := execute(t, start(t, shop).String(), "--arrivals-file", path, "--duration=300ms", "--warmup=0s", "-ojson")
	var document Result
	if jsonErr := json.Unmarshal([]byte(out), &document); err != nil || jsonErr != nil || document.Total.Requests != 3 || document.Config.Rate != 0 {
		t.Errorf("got %s, %v, %v, want 3 requests: the fourth comes after the end", out, err, jsonErr)
	}
}

func TestExecute_RefusesBeforeItTouchesAnything(t *testing.T) {
	acked := filepath.Join(t.TempDir(), "acked.txt")
	if err := os.WriteFile(acked, []byte("precious\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"rate -1":          {"--rate=-1"},
		"warmup 1m0s":      {"--warmup=1m"},
		"must be a number": {"--mix=checkout=lots"},
		"--arrivals":       {"--arrivals=bursty"},
		"target":           {"--target=shop"},
		"late after":       {"--late-after=0s"},
	} {
		_, _, err := execute(t, "http://127.0.0.1:1", append(args, "--acked", acked)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	if content, err := os.ReadFile(acked); err != nil || string(content) != "precious\n" {
		t.Errorf("acked file: got %q, %v, want it as it was", content, err)
	}
}

func TestExecute_FailsWhenNothingWasAnswered(t *testing.T) {
	shop := &fakeShop{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + listener.Addr().String()
	listener.Close()
	if _, _, err := execute(t, address); err == nil || !strings.Contains(err.Error(), "is the shop running?") {
		t.Errorf("a shop that is not there: got %v", err)
	}
	var f Flags
	lost := Result{Total: OperationResult{Requests: 7, Outcomes: OutcomeCounts{Lost: 7}}}
	var out bytes.Buffer
	if err := f.Report(&out, lost); err == nil || !strings.Contains(err.Error(), "none of the 7") {
		t.Errorf("all lost: got %v", err)
	}
	if shop.arrived.Load() != 0 {
		t.Error("a shop that was not named was asked")
	}
}
