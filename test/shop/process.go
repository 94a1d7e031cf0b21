//go:build unix

package shop

import (
	"context"
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is one line of `lab ps --output json`.
type Process struct {
	Name      string            `json:"name"`
	Service   string            `json:"service"`
	Ready     bool              `json:"ready"`
	Status    string            `json:"status"`
	Restarts  int               `json:"restarts"`
	PID       int               `json:"pid"`
	Addresses map[string]string `json:"addresses"`
}

// Processes returns the shop's processes as lab shows them, by name.
func (s *Shop) Processes(tb testing.TB) map[string]Process {
	tb.Helper()
	out, _ := s.Lab(tb, "ps", "--output", "json", "--dir", s.dir)
	var answer struct {
		Processes []Process `json:"processes"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		tb.Fatalf("lab ps: %v in %s", err, out)
	}
	processes := map[string]Process{}
	for _, p := range answer.Processes {
		processes[p.Name] = p
	}
	return processes
}

// Process returns one of the shop's processes.
func (s *Shop) Process(tb testing.TB, name string) Process {
	tb.Helper()
	p, ok := s.Processes(tb)[name]
	if !ok {
		tb.Fatalf("the shop has no process %s", name)
	}
	return p
}

// Services returns the processes that are the shop's own: all but the database and the broker.
func (s *Shop) Services(tb testing.TB) map[string]Process {
	tb.Helper()
	processes := s.Processes(tb)
	delete(processes, "postgres")
	delete(processes, "nats")
	return processes
}

// HasSaga says whether orders come to an end here: the services that reserve and charge are there.
func (s *Shop) HasSaga(tb testing.TB) bool {
	tb.Helper()
	processes := s.Processes(tb)
	return processes["inventory"].PID != 0 && processes["payment"].PID != 0
}

// DatabaseURL returns the URL that a service itself uses.
func (s *Shop) DatabaseURL(tb testing.TB, service string) string {
	tb.Helper()
	record, err := s.Record()
	if err != nil {
		tb.Fatal(err)
	}
	return record.Databases[service]
}

// Kill kills the process and waits until another one has taken its place and is ready.
func (s *Shop) Kill(tb testing.TB, name string) {
	tb.Helper()
	before := s.Process(tb, name)
	signal(tb, before.PID, syscall.SIGKILL)
	Eventually(tb, time.Minute, name+" runs again", func() bool {
		now := s.Process(tb, name)
		return now.Ready && now.PID != before.PID && now.Restarts > before.Restarts
	})
}

// Crash kills the process and waits for nothing. lab starts it again.
func (s *Shop) Crash(tb testing.TB, name string) {
	tb.Helper()
	signal(tb, s.Process(tb, name).PID, syscall.SIGKILL)
}

// Terminate asks a service to end, as an orchestrator does, and waits for nothing. lab starts it again.
func (s *Shop) Terminate(tb testing.TB, name string) {
	tb.Helper()
	signal(tb, s.Process(tb, name).PID, syscall.SIGTERM)
}

// Freeze stops the process and its children in their tracks: they hold their connections and answer nothing. thaw, which
// also runs at the end of the test, lets them go on.
func (s *Shop) Freeze(tb testing.TB, name string) (thaw func()) {
	tb.Helper()
	parent := s.Process(tb, name).PID
	signal(tb, parent, syscall.SIGSTOP) // first, so that it makes no more children
	frozen := append(children(tb, parent), parent)
	for _, pid := range frozen {
		signal(tb, pid, syscall.SIGSTOP)
	}
	thaw = func() {
		for _, pid := range frozen {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended since
		}
	}
	tb.Cleanup(thaw)
	return thaw
}

func signal(tb testing.TB, pid int, sig syscall.Signal) {
	tb.Helper()
	if pid <= 1 {
		tb.Fatalf("no process with the id %d", pid)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		tb.Fatalf("signal %v to process %d: %v", sig, pid, err)
	}
}

// children lists the direct children of a process.
func children(tb testing.TB, parent int) []int {
	tb.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(tb.Context()), "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		tb.Fatalf("ps: %v", err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			tb.Fatalf("ps: %v", err)
		}
		pids = append(pids, pid)
	}
	return pids
}
