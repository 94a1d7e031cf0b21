package scenario

import (
	"math"
	"slices"
	"time"

	"example.com/watertight/platform/fault"
)

// Request is the fault as its switch takes it, for so long; poisonous is the product of poison. There is none for what is
// no kind of package fault. The share of poison is the product's part of the traffic, so that it bites every request that
// matches.
func (f Fault) Request(ttl time.Duration, poisonous string) (r fault.Request, set bool) {
	if !slices.Contains(fault.Kinds(), f.Kind) {
		return fault.Request{}, false
	}
	seconds := max(int64(math.Ceil(ttl.Seconds())), 1)
	r = fault.Request{Kind: f.Kind, TTLS: &seconds}
	delay := f.Delay.Milliseconds()
	switch f.Kind {
	case fault.Slow, fault.Crash:
		r.DelayMS, r.Rate = &delay, &f.Share
	case fault.CPU: // each request keeps the cores busy for so long
		delay = max(delay, 1)
		r.DelayMS = &delay
	case fault.Poison:
		r.DelayMS, r.Match = &delay, map[string]string{"product_id": poisonous}
	}
	return r, true
}

// ExpectedOf is what a real shop of the design should become. A call to recs that is put right is as if it were not there.
func (s *Scenario) ExpectedOf(design string) Expectation {
	if e, has := s.Real[design]; has {
		return e
	}
	if design == SyncCallGuarded {
		design = Split
	}
	return s.Expect[design]
}

// Signal is something that can be read off the running shop.
type Signal struct {
	Kind SignalKind
	Of   string // the upstream or service
	Want string // the breaker's state; nothing for the others
}

// SignalKind is where a signal is read.
type SignalKind string

// The signals. A shop shows them in /api/v1/status and its answers.
const (
	Breaker   SignalKind = "breaker"  // the upstream's breaker was seen in the state Want
	Restarts  SignalKind = "restarts" // the service was started again
	Steady    SignalKind = "steady"   // the service was not started again
	FaultSeen SignalKind = "fault"    // the status shows the fault of the service
	Degraded  SignalKind = "degraded" // answers came without the service's part
	Recovers  SignalKind = "recovers" // answers are whole again once the fault has been cleared
	Bookkept  SignalKind = "pending"  // no order is left waiting when all is over
)

// String says what the signal is.
func (s Signal) String() string {
	switch s.Kind {
	case Breaker:
		return "the breaker of " + s.Of + " is " + s.Want
	case Restarts:
		return s.Of + " is started again"
	case Steady:
		return s.Of + " is not started again"
	case FaultSeen:
		return "the status shows the fault of " + s.Of
	case Degraded:
		return "answers come without the part of " + s.Of
	case Recovers:
		return "answers are whole again after the fault"
	case Bookkept:
		return "no order is left pending after the fault"
	}
	return s.onCluster()
}

// hypothesis is what a game day sets out to refute.
func hypothesis(scenario string) string {
	return map[string]string{
		Normal:     "Nothing happens: checkout takes every order.",
		Slow:       "When every recommendation takes seconds, checkout takes every order as fast as before, and pages come without recommendations.",
		Crash:      "When every recommendation ends its process, recs crash-loops by itself: checkout takes every order and nothing else restarts.",
		Redeployed: "When recs is restarted, no order is lost; some recommendations are.",
		OOM:        "When recs runs out of memory, recs alone is killed and started again, and checkout takes every order.",
		Poison:     "When the requests for one product kill whoever serves them, they kill recs alone, and checkout takes every order.",
		RetryStorm: "When recs is slow and clients try again at once, checkout takes every order all the same.",
		Exports:    "When an export route takes ten seconds, only exports wait for a worker.",
		Killed:     "When every process, the database and the broker are deleted without notice, each acknowledged order comes to its end.",
		RolledOut:  "When every process is replaced in turn, no request fails.",
		Undrained:  "When processes are replaced without a drain, requests fail: this is what the drain is for.",
		BadRelease: "When a release of recs does not start, its rollout stops at the first new pod and the old ones go on serving.",
		Evicted:    "When a node is drained, one pod of a process goes at a time, and no request fails.",
		DBGone:     "When PostgreSQL is away, no process is restarted, and orders work again by themselves when it is back.",
		ScaledOut:  "When recs gets more replicas, they take their share of the calls within a minute, and no request fails.",
		SharedDB:   "When the tables that all features use are locked, the split does not help: orders fail. This is where isolation ends.",
		CPU:        "When recs keeps all cores of the machine busy, orders are slower, and none is lost.",
	}[scenario]
}

// signals are those of the split, which is what game days are held on.
func signals(scenario string) []Signal {
	contained := []Signal{{Kind: Steady, Of: string(Checkout)}, {Kind: Recovers}, {Kind: Bookkept}}
	sick := Signal{Kind: FaultSeen, Of: string(Recs)}
	open := Signal{Kind: Breaker, Of: string(Recs), Want: "open"}
	degraded := Signal{Kind: Degraded, Of: string(Recs)}
	restarts := Signal{Kind: Restarts, Of: string(Recs)}
	switch scenario {
	case Slow, RetryStorm:
		return append([]Signal{sick, open, degraded}, contained...)
	case Crash, OOM:
		return append([]Signal{sick, restarts, degraded}, contained...)
	case Poison:
		return append([]Signal{sick, restarts}, contained...)
	case Redeployed:
		return append([]Signal{restarts}, contained...)
	case SharedDB:
		return []Signal{sick, {Kind: FaultSeen, Of: string(Checkout)}, {Kind: Steady, Of: string(Checkout)}, {Kind: Recovers}, {Kind: Bookkept}}
	case CPU:
		return append([]Signal{sick}, contained...)
	}
	return contained
}

// Quick shortens a run to a few seconds, with everything in it: inputs that are the usual ones are replaced, others stay.
func (in Inputs) Quick() Inputs {
	usual := Default()
	for _, d := range []struct {
		field        *time.Duration
		usual, quick time.Duration
	}{
		{&in.Duration, usual.Duration, 2 * time.Second}, {&in.WarmUp, usual.WarmUp, 400 * time.Millisecond},
		{&in.FaultAt, usual.FaultAt, 400 * time.Millisecond}, {&in.Restart, usual.Restart, time.Second},
		{&in.RedeployAt, usual.RedeployAt, 600 * time.Millisecond}, {&in.RedeployWhole, usual.RedeployWhole, time.Second},
		{&in.RedeployService, usual.RedeployService, 600 * time.Millisecond}, {&in.ExportDuration, usual.ExportDuration, 4 * time.Second},
	} {
		if *d.field == d.usual {
			*d.field = d.quick
		}
	}
	if in.OOMCalls == usual.OOMCalls {
		in.OOMCalls = 20
	}
	if in.ExportSharedWorkers == usual.ExportSharedWorkers && in.ExportRate == usual.ExportRate {
		in.ExportSharedWorkers, in.ExportRate = 60, 40
	}
	return in
}
