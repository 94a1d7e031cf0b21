package supervise

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/watertight/lab/proc"
)

// lockedBuffer is what a child writes to and a test reads from.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// shell is a real child process that runs a script.
func shell(t *testing.T, script string, output io.Writer) func() (Child, error) {
	t.Helper()
	starter := proc.NewStarter()
	t.Cleanup(starter.Close)
	command := Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: os.Environ(), Dir: t.TempDir(), Output: output, DeathSignal: syscall.SIGKILL}
	return func() (Child, error) { return command.Start(starter) }
}

func TestCommand_TellsHowARealProcessEnded(t *testing.T) {
	for script, want := range map[string]Exit{
		"exit 0":      Exited(0),
		"exit 7":      Exited(7),
		"exit 137":    Exited(137),
		"kill -9 $$":  Signalled(syscall.SIGKILL),
		"kill -15 $$": Signalled(syscall.SIGTERM),
	} {
		child, err := shell(t, script, io.Discard)()
		if err != nil {
			t.Fatal(err)
		}
		if got := <-child.Exited(); got != want {
			t.Errorf("%s: got %+v, want %+v", script, got, want)
		}
	}
}

func TestCommand_DoesNotWaitForOutputThatAGrandchildHolds(t *testing.T) {
	child, err := shell(t, "sleep 60 & echo $!", &lockedBuffer{})()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-child.Exited():
		if got.Code != 0 {
			t.Errorf("got %+v, want exit code 0", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("still waiting for the grandchild's output")
	}
	_ = syscall.Kill(-child.ID().PID, syscall.SIGKILL) // the grandchild, which is in the child's group
}

func TestProcess_RestartsRealProcesses(t *testing.T) {
	output := &lockedBuffer{}
	changes := make(chan struct{}, 1)
	p := New(Spec{Name: "looping", Start: shell(t, "echo up; exec sleep 60", output),
		Ready: func(context.Context) error {
			if strings.Contains(output.String(), "up") {
				return nil
			}
			return io.EOF
		},
		Stop: []StopStep{{Signal: syscall.SIGTERM, Wait: 10 * time.Second}},
	}, Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond, Quiet: time.Hour}, func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { p.Run(ctx, nil) })

	deadline := time.After(30 * time.Second)
	until := func(what string, holds func(Status) bool) Status {
		for {
			if s := p.Status(); holds(s) {
				return s
			}
			select {
			case <-changes:
			case <-deadline:
				t.Fatalf("%s: not reached, got %+v", what, p.Status())
			}
		}
	}
	for n := range 3 {
		s := until("ready", func(s Status) bool { return s.Ready && s.Restarts == n })
		if !s.Process.Alive() {
			t.Errorf("run %d: ready but not alive", n)
		}
		if err := s.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	last := until("ready at last", func(s Status) bool { return s.Ready && s.Restarts == 3 })
	cancel()
	wait.Wait()
	if last.Process.Alive() {
		t.Errorf("process %v outlives its supervisor", last.Process)
	}
}
