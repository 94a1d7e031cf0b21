package monolith

import (
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/report"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
)

// outcome is how a request ended for its client, in the words that upstreams use.
type outcome int

const (
	served outcome = iota
	degraded
	rejectedFull
	timedOut
	failed
	cancelled
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"ok", "degraded", "rejected_full", "timed_out", "failed", "cancelled"}[o]
}

// outcomeCounts count since the process started.
type outcomeCounts [outcomes]atomic.Uint64

// count counts a request that ended with err, or well.
func (c *outcomeCounts) count(err error) { c[judge(err)].Add(1) }

func judge(err error) outcome {
	if err == nil {
		return served
	}
	if status.Code(err) == codes.ResourceExhausted && rpcerr.Reason(err) == rpcerr.BulkheadFull {
		return rejectedFull
	}
	switch p := problem.FromError(err); {
	case p.Status == http.StatusGatewayTimeout:
		return timedOut
	case p.Status == problem.StatusClientClosedRequest:
		return cancelled
	case p.Status >= http.StatusInternalServerError:
		return failed
	}
	return served // a client's mistake was answered
}

// noBreaker stands where other designs show the state of a circuit breaker: calls in the process have none.
const noBreaker = "none"

// status shows a compartment as an upstream of the process: what it holds of its pool, and the pool's limits.
func (c *compartment) status(timeoutMS int64) report.Upstream {
	limits := c.pool.Stats()
	s := report.Upstream{
		Name: c.name, Breaker: noBreaker, InFlight: int(c.inFlight.Load()), Queued: int(c.queued.Load()),
		Limits: report.Limits{
			Scope:  "per process, in the pool " + c.poolName,
			Limits: upstream.Limits{MaxInFlight: limits.Size, MaxQueue: limits.Queue, TimeoutMS: timeoutMS},
		},
		Outcomes: map[string]uint64{},
	}
	for o := range outcomes {
		s.Outcomes[o.String()] = c.outcomes[o].Load()
	}
	return s
}
