//go:build !linux

package load

import (
	"context"
	"time"
)

// alarm wakes the schedule at a point in time. The kernel's queues of events behind Go's timers count in nanoseconds here.
type alarm struct{ timer *time.Timer }

func newAlarm(context.Context) (*alarm, error) { return &alarm{time.NewTimer(0)}, nil }

// wait returns true at the given time, at once when that is over, and false when ctx has ended.
func (a *alarm) wait(ctx context.Context, at time.Time) bool {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err() == nil
	}
	a.timer.Reset(left)
	select {
	case <-a.timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *alarm) close() { a.timer.Stop() }
