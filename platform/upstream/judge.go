package upstream

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// outcome is how a call ended for its caller, in the words of metrics, spans and the status page.
type outcome int

const (
	served       outcome = iota // the upstream answered, client errors (not found, invalid) included
	degraded                    // the caller served its fallback; counted besides the call's own outcome
	rejectedFull                // no slot and no place in the queue: here, or at the upstream's own pool
	rejectedOpen                // the breaker did not let the call through
	timedOut                    // a deadline passed, in the queue or at the upstream
	failed                      // the upstream did not answer or broke
	cancelled                   // the caller went away
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"ok", "degraded", "rejected_full", "rejected_open", "timed_out", "failed", "cancelled"}[o]
}

// answer is what one guarded call comes to.
type answer struct {
	outcome outcome
	verdict verdict
	err     error
}

// attempt is a call that was let through, once it has settled.
type attempt struct {
	err  error
	ran  time.Duration
	sent bool // it reached a connection; with false, nobody was asked
}

// judge reads a call that was let through. What was never sent speaks against the upstream in another way than a bad answer.
func (u *Upstream) judge(caller, ctx context.Context, got attempt) answer {
	a := u.read(caller, ctx, got.err, got.ran)
	if a.verdict == sick && !got.sent {
		a.verdict = unreached
	}
	return a
}

// read goes by the caller's context, the status code and the reason: the text of an error, or what it wraps, may stem from
// any layer below.
func (u *Upstream) read(caller, ctx context.Context, err error, ran time.Duration) answer {
	code := status.Code(err)
	switch {
	case answered(code):
		return answer{served, healthy, err}
	case caller.Err() == context.Canceled:
		return answer{cancelled, neutral, errCallerGone}
	case code == codes.DeadlineExceeded, ctx.Err() != nil && (code == codes.Unknown || code == codes.Canceled):
		return u.late(err, ran)
	case code == codes.ResourceExhausted && rpcerr.Reason(err) == rpcerr.BulkheadFull:
		return answer{rejectedFull, neutral, err}
	case code == codes.ResourceExhausted:
		return answer{served, healthy, err}
	case code == codes.Canceled:
		return answer{cancelled, neutral, err}
	case rpcerr.Reason(err) == rpcerr.ShardDown: // the breaker belongs to all customers, the shard to a few
		return answer{failed, neutral, err}
	}
	return answer{failed, sick, err} // UNAVAILABLE, INTERNAL, UNKNOWN, DATA_LOSS
}

// answered says whether the code alone proves that the upstream is at work.
func answered(code codes.Code) bool {
	switch code {
	case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal, codes.Unavailable, codes.DataLoss:
		return false
	default:
		return true
	}
}

// late judges a call that a deadline ended. It speaks against the upstream only if that had a fair chance: at least half
// of the time-out to itself. Otherwise a caller with next to no time left, or a queue that ate most of it, would open the
// breaker on a healthy upstream.
func (u *Upstream) late(err error, ran time.Duration) answer {
	a := answer{timedOut, neutral, err}
	if 2*ran >= u.cfg.Timeout {
		a.verdict = sick
	}
	if rpcerr.Reason(err) == "" {
		a.err = u.errTimeout
	}
	return a
}
