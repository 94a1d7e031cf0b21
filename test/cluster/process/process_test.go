package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/cluster/process"
)

func ensure(t *testing.T, folder process.Folder, c process.Command) (pid string) {
	t.Helper()
	if _, err := folder.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(string(folder), c.Name+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))[0]
}

func stop(t *testing.T, folder process.Folder, grace time.Duration, names ...string) {
	t.Helper()
	if err := folder.Stop(t.Context(), grace, names...); err != nil {
		t.Fatal(err)
	}
}

func TestEnsure_LeavesAloneWhatRunsAsItShould(t *testing.T) {
	folder := process.Folder(t.TempDir())
	c := process.Command{Name: "sleeper", Args: []string{"sleep", "600"}, Config: "one"}
	first := ensure(t, folder, c)
	if again := ensure(t, folder, c); again != first {
		t.Errorf("the same command: process %s, want %s still", again, first)
	}
	c.Config = "two"
	if changed := ensure(t, folder, c); changed == first {
		t.Error("another configuration, and the same process")
	}
	stop(t, folder, time.Minute, "sleeper")
	if folder.Alive("sleeper") {
		t.Error("alive after Stop")
	}
	if later := ensure(t, folder, c); later == first {
		t.Error("after Stop: the same process")
	}
	stop(t, folder, time.Minute, "sleeper")
}

func TestStop_KillsWhatWillNotEnd(t *testing.T) {
	folder := process.Folder(t.TempDir())
	ready := filepath.Join(t.TempDir(), "ready")
	script := fmt.Sprintf("trap '' TERM; touch %s; while :; do sleep 600; done", ready)
	ensure(t, folder, process.Command{Name: "stubborn", Args: []string{"sh", "-c", script}})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the program did not start within a minute")
		}
	}
	stop(t, folder, 50*time.Millisecond, "stubborn", "never-started")
	if folder.Alive("stubborn") {
		t.Error("alive after Stop")
	}
}

// A number that comes round again belongs to somebody else: here, to this test.
func TestStop_SparesAnotherProcessOfThatNumber(t *testing.T) {
	folder := process.Folder(t.TempDir())
	line := fmt.Sprintf("%d 1 1 0123456789abcdef\n", os.Getpid())
	if err := os.WriteFile(filepath.Join(string(folder), "other.pid"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	if folder.Alive("other") {
		t.Error("alive, though the process began at another time")
	}
	stop(t, folder, 0, "other")
}

func TestEnsure_NamesAProgramThatIsNotThere(t *testing.T) {
	folder := process.Folder(t.TempDir())
	if _, err := folder.Ensure(t.Context(), process.Command{Name: "ghost", Args: []string{"/missing"}}); err == nil || !strings.Contains(err.Error(), "start ghost") {
		t.Errorf("got %v, want an error that names the process", err)
	}
}
