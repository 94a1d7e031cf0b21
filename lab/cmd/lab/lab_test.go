package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

// asLab makes this test binary behave as lab, also where lab starts itself.
const asLab = "LAB_TEST_AS_LAB"

func TestMain(m *testing.M) {
	if os.Getenv(asLab) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// lab runs lab as its own process in dir.
func lab(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self, args...) // a cleanup calls it too
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asLab+"=1")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestLab_EveryCommandHasHelpWithAnExample(t *testing.T) {
	for _, command := range []string{"up", "down", "ps", "import", "load", "replay", "nats-server", "check", "outbox list", "outbox retry", "outbox purge"} {
		out, errOut, code := lab(t, t.TempDir(), append(strings.Fields(command), "--help")...)
		if code != 0 || !strings.Contains(out, "Example") || !strings.Contains(out, "  lab "+command) {
			t.Errorf("%s --help: exit code %d, %q, %q, want 0 and an example", command, code, out, errOut)
		}
	}
	for _, args := range [][]string{nil, {"--help"}} {
		if out, _, code := lab(t, t.TempDir(), args...); code != 0 || !strings.Contains(out, "up") || strings.Contains(out, "nats-server") {
			t.Errorf("lab %v: exit code %d, %q, want 0 and the commands for people", args, code, out)
		}
	}
}

func TestLab_SaysWhatIsWrongInOneLine(t *testing.T) {
	project := t.TempDir()
	if err := os.WriteFile(filepath.Join(project, "go.work"), []byte("go 1.26.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dir  string
		args []string
		want string
	}{
		{t.TempDir(), []string{"ps"}, "no go.work"},
		{t.TempDir(), []string{"up"}, "no go.work"},
		{project, []string{"ps"}, "no shop runs here"},
		{project, []string{"up"}, "there is nothing to run"},
		{project, []string{"up", "--detach"}, "there is nothing to run"},
		{project, []string{"up", "--replicas", "recs"}, "--replicas recs: must be SERVICE=N"},
		{project, []string{"up", "--replicas", "rec=2"}, `no service is called "rec"`},
		{project, []string{"up", "--env", "POOL_SIZE=4"}, "--env POOL_SIZE=4: must be SERVICE.VAR=VALUE"},
		{project, []string{"up", "--env", "recs.=4"}, "must be SERVICE.VAR=VALUE"},
		{project, []string{"up", "--port-offset", "60000"}, "--port-offset 60000"},
		{project, []string{"up", "--restart-backoff", "0s"}, "restart backoff"},
		{project, []string{"up", "--replica", "recs=2"}, "unknown flag --replica"},
		{project, []string{"up", "--restart-backoff", "2s", "--restart-backoff-max", "1s"}, "restart backoff"},
		{project, []string{"up", "--via", "nats"}, "--via nats: must be NAME=HOST:PORT"},
		{project, []string{"up", "--via", "nats=here"}, "--via nats"},
		{project, []string{"up", "--via", "redis=127.0.0.1:1"}, "--via redis: must be postgres or nats"},
		{project, []string{"check"}, "no shop runs here"},
		{project, []string{"check", "--acked", "missing.txt"}, "missing.txt"},
		{project, []string{"check", "--payment-database-url", "postgres://x"}, "the database of checkout is not known"},
		{project, []string{"outbox", "list"}, "<service>"},
		{project, []string{"outbox", "list", "checkout"}, "no shop runs here"},
		{project, []string{"outbox", "list", "checkout", "--limit", "0"}, "--limit 0"},
		{project, []string{"outbox", "purge", "checkout", "7"}, `id "7": must be a UUID`},
		{project, []string{"ps", "--output", "yaml"}, "--output must be one of"},
		{project, []string{"fly"}, "unexpected argument fly"},
	} {
		out, errOut, code := lab(t, tc.dir, tc.args...)
		if code != 1 || !strings.Contains(errOut, tc.want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("lab %v: exit code %d, %q, %q, want 1 and one line with %q", tc.args, code, out, errOut, tc.want)
		}
	}
}

func TestDown_WithoutAShopIsNoError(t *testing.T) {
	out, errOut, code := lab(t, t.TempDir(), "down", "--dir", filepath.Join(t.TempDir(), "state"))
	if code != 0 || out != "nothing runs here\n" {
		t.Errorf("exit code %d, %q, %q, want 0 and a word about it", code, out, errOut)
	}
}

// recorded is an instance with a process in each state that matters to ps.
func recorded(t *testing.T, now time.Time) statedir.Instance {
	t.Helper()
	self, ok := proc.Identify(os.Getpid())
	if !ok {
		t.Fatal("cannot identify this process")
	}
	next := now.Add(8 * time.Second)
	status := func(name string, phase supervise.Phase, ready bool, restarts int, age time.Duration) supervise.Status {
		s := supervise.Status{Name: name, Service: name, Phase: phase, Ready: ready, Restarts: restarts, Created: now.Add(-age), Process: &self}
		if restarts > 0 {
			exit := supervise.Exited(1)
			exit.At = now.Add(-12 * time.Second)
			s.LastExit = &exit
		}
		return s
	}
	waiting := status("recs", supervise.CrashLoopBackOff, false, 3, 3*time.Hour+5*time.Minute)
	waiting.Process, waiting.NextStart = nil, &next
	return statedir.Instance{
		Supervisor: self, Started: now, Ready: true, Gateway: "http://localhost:8080",
		NATS: "nats://lab:secret@127.0.0.1:4222", Databases: map[string]string{"checkout": "postgres://checkout:secret@127.0.0.1/checkout"},
		Processes: []statedir.Process{
			{Status: status("postgres", supervise.Running, true, 0, 50*time.Hour), Addresses: map[string]string{"sql": "127.0.0.1:5433"}},
			{Status: status("checkout", supervise.Running, true, 1, 61*time.Second)},
			{Status: status("search", supervise.Starting, false, 0, 0)},
			{Status: waiting},
		},
	}
}

func TestPs_LooksLikeKubectl(t *testing.T) {
	now := time.Now()
	var out strings.Builder
	if err := writeTable(&out, recorded(t, now), now); err != nil {
		t.Fatal(err)
	}
	want := `NAME       READY   STATUS             RESTARTS      AGE
postgres   1/1     Running            0             2d2h
checkout   1/1     Running            1 (12s ago)   1m1s
search     0/1     Starting           0             0s
recs       0/1     CrashLoopBackOff   3 (12s ago)   3h5m
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestPs_PrintsJSONWithoutPasswords(t *testing.T) {
	dir := statedir.At(filepath.Join(t.TempDir(), "state"))
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteInstance(recorded(t, time.Now())); err != nil {
		t.Fatal(err)
	}
	out, errOut, code := lab(t, t.TempDir(), "ps", "--output", "json", "--dir", dir.Path())
	var answer psAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 {
		t.Fatalf("exit code %d, %q, %q: %v", code, out, errOut, err)
	}
	if strings.Contains(out, "secret") {
		t.Errorf("passwords in %s", out)
	}
	recs := answer.Processes[3]
	if !answer.Ready || answer.PID != os.Getpid() || recs.Status != supervise.CrashLoopBackOff || recs.Restarts != 3 || recs.PID != 0 || recs.LastExit.Code != 1 {
		t.Errorf("got %+v", answer)
	}
}

func TestInstallSelf_ReplacesAnOlderProgram(t *testing.T) {
	dir := statedir.At(filepath.Join(t.TempDir(), "state"))
	if err := dir.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir.Bin(), "lab"), []byte("old"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, err := installSelf(dir)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, "-test.run=^$").CombinedOutput()
	if err != nil {
		t.Errorf("the program does not run: %v, %s", err, out)
	}
	entries, err := os.ReadDir(dir.Bin())
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the folder: %v (%v), want lab alone", entries, err)
	}
}
