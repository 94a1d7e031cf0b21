package supervise

import (
	"errors"
	"time"
)

// Backoff is the schedule on which a process that dies is started again. The defaults are the kubelet's for
// CrashLoopBackOff: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy.
type Backoff struct {
	First time.Duration // before the first restart; doubles with each restart that follows
	Max   time.Duration // the longest
	Quiet time.Duration // a process that ran this long starts over with First
}

// DefaultBackoff is 10 s, doubling to 5 min, reset after 10 quiet minutes.
func DefaultBackoff() Backoff {
	return Backoff{First: 10 * time.Second, Max: 5 * time.Minute, Quiet: 10 * time.Minute}
}

// Validate refuses a schedule that would restart in a tight loop or shrink.
func (b Backoff) Validate() error {
	if b.First <= 0 || b.Max < b.First || b.Quiet <= 0 {
		return errors.New("restart backoff: the first delay must be above 0 and not above the longest")
	}
	return nil
}

// next returns the delay before a restart, given the delay before the last one (0: there was none) and how long the
// process has run since.
func (b Backoff) next(last, ran time.Duration) time.Duration {
	if last == 0 || ran >= b.Quiet {
		return b.First
	}
	return min(2*last, b.Max)
}

// shown is for how long the reason of an exit is shown before CrashLoopBackOff takes its place: long enough to be read.
func (b Backoff) shown(delay time.Duration) time.Duration {
	return min(2*time.Second, delay/2)
}
