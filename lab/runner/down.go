//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"example.com/watertight/lab/pgserver"
	"example.com/watertight/lab/statedir"
)

// Down ends the shop that uses dir and returns when all of it has ended. It reports whether there was one. A lab that does
// not end within patience is killed, and what it leaves is ended too.
func Down(ctx context.Context, dir statedir.Dir, patience time.Duration) (was bool, err error) {
	if _, err := os.Stat(dir.Path()); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	instance, err := dir.LastInstance()
	if err != nil {
		return false, err
	}
	was = instance.Supervisor.Alive()
	if err := endSupervisor(ctx, instance, patience); err != nil {
		return was, err
	}
	lock, err := dir.Lock()
	if err != nil {
		return was, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	leftovers := false
	err = endLeftovers(ctx, dir, func(string, ...any) { leftovers = true })
	return was || leftovers, err
}

func endSupervisor(ctx context.Context, instance statedir.Instance, patience time.Duration) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := errors.Join(instance.Supervisor.Signal(sig), instance.Supervisor.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		err := instance.Supervisor.Wait(wait)
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("lab (pid %d) does not end", instance.Supervisor.PID)
}

// endLeftovers ends the processes of a lab that was killed before it could, and forgets its record. The caller holds the
// lock, so that lab is gone. A pid that has been given to another process since is left alone.
func endLeftovers(ctx context.Context, dir statedir.Dir, sayf func(format string, args ...any)) error {
	last, err := dir.LastInstance()
	if err != nil {
		// Nothing in it can be trusted, and the database server is still found by its own lock.
		sayf("the record of the last run is unreadable and is dropped: %v", err)
		return dir.RemoveInstance()
	}
	for _, p := range slices.Backward(last.Processes) { // the database, which is first, last
		if p.Process == nil || !p.Process.Alive() {
			continue
		}
		sayf("ending %s (pid %d), which a killed lab left running", p.Name, p.Process.PID)
		if p.Name == postgresName {
			if err := pgserver.End(ctx, *p.Process); err != nil {
				return err
			}
			continue
		}
		if err := p.Process.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		if err := p.Process.Wait(ctx); err != nil {
			return fmt.Errorf("end %s: %w", p.Name, err)
		}
	}
	return dir.RemoveInstance()
}

// Remove removes a state folder with everything in it, and the data that had to be put elsewhere. Nothing may run there.
func Remove(dir statedir.Dir) error {
	if err := empty(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir.Path()); err != nil {
		return fmt.Errorf("remove the state folder: %w", err)
	}
	return nil
}

// empty removes the shop's data wherever they lie.
func empty(dir statedir.Dir) error {
	if err := pgserver.RemoveElsewhere(dir.Postgres()); err != nil {
		return err
	}
	return dir.Empty()
}
