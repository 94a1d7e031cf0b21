package load

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the schedule at a point in time, to a few tens of microseconds. Go's own timers end in epoll_wait on Linux,
// which counts whole milliseconds: too coarse for a median latency of one. A timerfd in the same epoll set is exact, and no
// thread has to wait for it.
type alarm struct {
	timer   *os.File
	fd      int
	release func() bool
}

func newAlarm(ctx context.Context) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", os.NewSyscallError("timerfd_create", err))
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	release := context.AfterFunc(ctx, func() { _ = timer.SetReadDeadline(time.Unix(0, 0)) }) // fails only when it is closed
	return &alarm{timer: timer, fd: fd, release: release}, nil
}

// wait returns true at the given time, at once when that is over, and false when ctx has ended.
func (a *alarm) wait(ctx context.Context, at time.Time) bool {
	for ctx.Err() == nil {
		left := time.Until(at)
		if left <= 0 {
			return true
		}
		setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}
		if err := unix.TimerfdSettime(a.fd, 0, &setting, nil); err != nil {
			time.Sleep(left) //nolint:forbidigo // cannot happen with a timer of ours and a time above 0; late is better than never
			continue
		}
		var expirations [8]byte
		_, _ = a.timer.Read(expirations[:]) // it ends early with ctx, and the loop looks at both
	}
	return false
}

func (a *alarm) close() {
	a.release()
	a.timer.Close()
}
