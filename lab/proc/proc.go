//go:build unix

// Package proc starts child processes that cannot outlive their parent, and names processes in a way that stays true:
// a pid together with when that process began. It never signals a pid whose process is not the one that was recorded.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// ID names one process for good: pids are used again, a pid with its start is not.
type ID struct {
	PID int `json:"pid"`
	// Start is opaque: the boot and the clock tick in it on Linux, the start date elsewhere.
	Start string `json:"start"`
}

// Identify returns the ID of the process that has pid now; ok is false when there is none, or only its zombie.
func Identify(pid int) (id ID, ok bool) {
	if pid <= 0 {
		return ID{}, false
	}
	start, ok := startOf(pid)
	return ID{PID: pid, Start: start}, ok
}

// Alive reports whether the process id names still runs.
func (id ID) Alive() bool {
	now, ok := Identify(id.PID)
	return ok && now == id
}

// Signal sends sig to the process when it is still the one that id names, and does nothing when it has ended.
func (id ID) Signal(sig syscall.Signal) error {
	if !id.Alive() {
		return nil
	}
	if err := syscall.Kill(id.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", id.PID, err)
	}
	return nil
}

// Wait returns nil when the process has ended, or ctx's error. It polls, because only a parent may wait for a process.
func (id ID) Wait(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Account is an operating-system user that a child runs as.
type Account struct {
	Name     string
	UID, GID uint32
}

// LookupAccount returns the first of names that exists on this machine.
func LookupAccount(names ...string) (Account, error) {
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return Account{}, fmt.Errorf("user %s has uid %q: %w", name, u.Uid, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return Account{}, fmt.Errorf("user %s has gid %q: %w", name, u.Gid, err)
		}
		return Account{Name: name, UID: uint32(uid), GID: uint32(gid)}, nil
	}
	return Account{}, fmt.Errorf("none of the users %v exists", names)
}

// RunAs makes cmd run as the account instead of as the caller, who must be root. A nil account changes nothing.
func (a *Account) RunAs(cmd *exec.Cmd) {
	if a == nil {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.UID, Gid: a.GID}
}

// Starter starts children in process groups of their own, so that a terminal's Ctrl-C reaches only the parent, who ends
// them in order. On Linux the kernel ends them when the parent is killed. The kernel ties that to the thread that forked,
// not to the process: so one goroutine, locked to its thread, does all the starting for as long as the Starter is open.
type Starter struct {
	requests chan startRequest
	done     chan struct{}
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan error
}

// NewStarter returns a Starter; Close it after the last child has ended.
func NewStarter() *Starter {
	s := &Starter{requests: make(chan startRequest), done: make(chan struct{})}
	go s.serve()
	return s
}

func (s *Starter) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	for r := range s.requests {
		r.result <- r.cmd.Start()
	}
}

// Start starts cmd. When the parent dies without ending it, cmd gets deathSignal (Linux only).
func (s *Starter) Start(cmd *exec.Cmd, deathSignal syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	setDeathSignal(cmd.SysProcAttr, deathSignal)
	result := make(chan error)
	s.requests <- startRequest{cmd: cmd, result: result}
	if err := <-result; err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}

// Close gives the thread back. Start must not be called afterwards.
func (s *Starter) Close() {
	close(s.requests)
	<-s.done
}
