// Package process keeps programs running that outlive the one who started them, and finds them again. It ends no process
// but those: a process is known by its number and the time when it began, as numbers come round again.
package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Folder holds what is known of the processes: NAME.pid and NAME.log for each.
type Folder string

// Command is what to run. Two commands are the same if all their fields are.
type Command struct {
	Name string // of the process, not of the program
	Args []string
	// Config is what the program reads besides its arguments: when it changes, the process is started anew.
	Config string
}

func (c Command) fingerprint() string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", c.Args, c.Config)))[:16]
}

// Ensure starts the command unless it runs already; one that runs with other arguments or another configuration is ended
// first. started says when the process that now runs began, on the clock of this machine.
func (f Folder) Ensure(ctx context.Context, c Command) (started time.Time, err error) {
	if r, alive := f.alive(c.Name); alive {
		if r.fingerprint == c.fingerprint() {
			return r.at, nil
		}
		if err := f.Stop(ctx, 10*time.Second, c.Name); err != nil {
			return time.Time{}, err
		}
	}
	log, err := os.OpenFile(f.Log(c.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return time.Time{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer func() { _ = log.Close() }()
	// Not tied to ctx: the process is to outlive us.
	cmd := exec.Command(c.Args[0], c.Args[1:]...) //nolint:noctx // see above
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	now := time.Now()
	if err := cmd.Start(); err != nil {
		return time.Time{}, fmt.Errorf("start %s: %w", c.Name, err)
	}
	ticks, ok := began(cmd.Process.Pid)
	if !ok {
		return time.Time{}, fmt.Errorf("start %s: it ended at once; see %s", c.Name, f.Log(c.Name))
	}
	line := fmt.Sprintf("%d %s %d %s\n", cmd.Process.Pid, ticks, now.Unix(), c.fingerprint())
	if err := os.WriteFile(f.pid(c.Name), []byte(line), 0o644); err != nil {
		return time.Time{}, fmt.Errorf("start %s: %w", c.Name, errors.Join(err, cmd.Process.Kill()))
	}
	return now, nil
}

// Alive reports whether the process runs that Ensure started under that name.
func (f Folder) Alive(name string) bool {
	_, alive := f.alive(name)
	return alive
}

// Stop asks the processes to end, all at once, and kills those that are still there after grace.
func (f Folder) Stop(ctx context.Context, grace time.Duration, names ...string) error {
	for _, name := range names {
		if r, alive := f.alive(name); alive {
			_ = syscall.Kill(r.pid, syscall.SIGTERM) // it may have ended just now
		}
	}
	deadline := time.Now().Add(grace)
	for _, name := range names {
		for f.Alive(name) {
			if r, alive := f.alive(name); alive && time.Now().After(deadline) {
				_ = syscall.Kill(r.pid, syscall.SIGKILL) // as above
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return fmt.Errorf("stop %s: %w", name, err)
			}
		}
		if err := os.Remove(f.pid(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("stop %s: %w", name, err)
		}
	}
	return nil
}

// Log is the file that holds what the process wrote.
func (f Folder) Log(name string) string { return filepath.Join(string(f), name+".log") }

func (f Folder) pid(name string) string { return filepath.Join(string(f), name+".pid") }

type record struct {
	pid         int
	at          time.Time
	fingerprint string
}

func (f Folder) alive(name string) (record, bool) {
	data, err := os.ReadFile(f.pid(name))
	if err != nil {
		return record{}, false
	}
	fields := strings.Fields(string(data))
	if len(fields) != 4 {
		return record{}, false
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil {
		return record{}, false
	}
	seconds, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return record{}, false
	}
	ticks, ok := began(pid)
	return record{pid: pid, at: time.Unix(seconds, 0), fingerprint: fields[3]}, ok && ticks == fields[1]
}

// began returns when the process began, in ticks since the machine started, unless it has ended. See proc(5), stat: the
// program's name is in parentheses and may hold any character; the state is the first field after it, the time the 20th.
func began(pid int) (ticks string, ok bool) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", false
	}
	return fields[19], true
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
