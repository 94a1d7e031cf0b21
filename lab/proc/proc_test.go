//go:build unix

package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestIdentify_NamesALivingProcessTheSameEachTime(t *testing.T) {
	first, ok := Identify(os.Getpid())
	if !ok {
		t.Fatal("cannot identify this process")
	}
	second, _ := Identify(os.Getpid())
	if first != second || !first.Alive() {
		t.Errorf("got %+v, then %+v, alive %v", first, second, first.Alive())
	}
	if dir, ok := WorkingDir(os.Getpid()); ok {
		if here, err := os.Getwd(); err != nil || dir != here {
			t.Errorf("working folder: got %s, want %s (%v)", dir, here, err)
		}
	}
}

func TestIdentify_TellsTwoProcessesOfOneNameApart(t *testing.T) {
	// A command with blanks and a parenthesis in its name would shift the fields of a careless reader.
	odd := filepath.Join(t.TempDir(), "a ) 1 (b")
	if err := os.Symlink("/bin/sleep", odd); err != nil {
		t.Fatal(err)
	}
	starter := NewStarter()
	defer starter.Close()
	var ids []ID
	for range 2 {
		cmd := exec.CommandContext(t.Context(), odd, "60")
		if err := starter.Start(cmd, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		id, ok := Identify(cmd.Process.Pid)
		if !ok {
			t.Fatal("cannot identify a child")
		}
		ids = append(ids, id)
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	if ids[0] == ids[1] {
		t.Errorf("two processes are both %+v", ids[0])
	}
}

func TestID_OfAnotherProcessWithThatPidIsLeftAlone(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := starter.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	stale := ID{PID: cmd.Process.Pid, Start: "another boot/1"}
	if stale.Alive() {
		t.Error("a stale id counts as alive")
	}
	if err := stale.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if id, ok := Identify(cmd.Process.Pid); !ok || !id.Alive() {
		t.Error("a foreign process was signalled")
	}
}

func TestID_OfAZombieIsNotAlive(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, ok := Identify(cmd.Process.Pid)
	if !ok {
		t.Fatal("cannot identify a child")
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := id.Wait(ctx); err != nil { // nobody has reaped it yet
		t.Errorf("a killed child that was not reaped: %v", err)
	}
	_ = cmd.Wait()
}

func TestStarter_GivesEachChildItsOwnProcessGroup(t *testing.T) {
	starter := NewStarter()
	defer starter.Close()
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := starter.Start(cmd, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	group, err := syscall.Getpgid(cmd.Process.Pid)
	if err != nil || group != cmd.Process.Pid {
		t.Errorf("process group: got %d (%v), want %d", group, err, cmd.Process.Pid)
	}
}

func TestLookupAccount_TakesTheFirstThatExists(t *testing.T) {
	got, err := LookupAccount("nobody-of-this-name", "root")
	if err != nil || got.Name != "root" || got.UID != 0 {
		t.Errorf("got %+v (%v), want root", got, err)
	}
	if got, err := LookupAccount("nobody-of-this-name"); err == nil {
		t.Errorf("got %+v, want an error", got)
	}
}
