package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the schedule at a point in time, to a few tens of microseconds. Go's own timers end in epoll_wait on Linux,
// which counts whole milliseconds: too coarse for a median latency of one. A timerfd in the same epoll set is exact, and no
// thread has to wait for it.
type alarm struct {
	timer   *os.File
	poll    syscall.RawConn
	release func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", os.NewSyscallError("timerfd_create", err))
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	poll, err := timer.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a timer: %w", err), timer.Close())
	}
	release := context.AfterFunc(ctx, func() { _ = timer.SetReadDeadline(time.Unix(0, 0)) }) // fails only when it is closed
	return &alarm{timer: timer, poll: poll, release: release}, nil
}

// wait returns true at the given time, at once when that is over, and false when ctx has ended.
func (a *alarm) wait(ctx context.Context, at time.Time) bool {
	for ctx.Err() == nil {
		left := time.Until(at)
		if left <= 0 {
			return true
		}
		a.sleep(left)
	}
	return false
}

// sleep returns after that time, or early when ctx ends. It takes one system call besides the poller's: the timer is set when the
// poller has been told that somebody waits, so that no expiry goes by unseen, and what it counts is never read, because
// setting it anew forgets that.
func (a *alarm) sleep(left time.Duration) {
	set := false
	_ = a.poll.Read(func(fd uintptr) (done bool) { // an error is the end of ctx, at which the caller looks
		if set {
			return true
		}
		set = true
		setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
		if err := unix.TimerfdSettime(int(fd), 0, &setting, nil); err != nil {
			time.Sleep(left) //nolint:forbidigo // cannot happen with a timer of ours and a time above 0; late is better than never
			return true
		}
		return false
	})
}

func (a *alarm) close() {
	a.release()
	a.timer.Close()
}
