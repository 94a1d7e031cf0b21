// Package upstream guards every call to another service, so that a sick one takes its own share of this process and no
// more. Outermost first: a deadline (the caller's, capped by the upstream's time-out, time in the queue included), a
// circuit breaker, a bulkhead, then the call. Streams are held apart, under a cap of their own.
//
// It does not retry (that is one layer, in the channel's service config) and knows no fallback (that is the caller's).
package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
	otelcodes "go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/telemetry/names"
)

var errCallerGone = status.Error(codes.Canceled, "the caller went away")

// Upstream guards the calls to one other service. It is safe for concurrent use.
type Upstream struct {
	name    string
	cfg     Config
	breaker *breaker
	pool    *bulkhead.Bulkhead
	streams *bulkhead.Bulkhead

	counts [outcomes]atomic.Uint64

	errFull, errTimeout, errStreams error
}

// New returns the guard of the upstream called name, which labels its metrics. A nil reg leaves it unmeasured.
func New(name string, cfg Config, reg prometheus.Registerer) (*Upstream, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("upstream %s: %w", name, err)
	}
	pool, err := bulkhead.New(name, bulkhead.Config{Size: cfg.MaxInFlight, Queue: cfg.MaxQueue}, reg)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", name, err)
	}
	streams, err := bulkhead.New(name+"-streams", bulkhead.Config{Size: cfg.MaxStreams}, reg)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", name, err)
	}
	u := &Upstream{
		name: name, cfg: cfg, breaker: newBreaker(name, cfg.Breaker, cfg.Timeout), pool: pool, streams: streams,
		errFull: rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "too many calls to "+name+" at once",
			rpcerr.Meta("upstream", name), rpcerr.RetryAfter(time.Second)),
		errTimeout: rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, name+" did not answer in time",
			rpcerr.Meta("upstream", name)),
		errStreams: rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "too many open streams to "+name,
			rpcerr.Meta("upstream", name), rpcerr.RetryAfter(time.Second)),
	}
	if reg != nil {
		if err := u.register(reg); err != nil {
			return nil, fmt.Errorf("upstream %s: register metrics: %w", name, err)
		}
	}
	return u, nil
}

// Do makes one call under guard and returns when it has settled. The context given to call ends at the deadline; call
// must honour it, as every gRPC call does. A call that panics gives back what it holds, counts as failed and panics on.
//
// Errors of Do's own making are gRPC status errors: RESOURCE_EXHAUSTED/BULKHEAD_FULL and UNAVAILABLE/BREAKER_OPEN, both
// with a RetryInfo of at least a second, DEADLINE_EXCEEDED/TIMEOUT, and CANCELLED when the caller went away. Others are
// those of call, unchanged.
func (u *Upstream) Do(caller context.Context, call func(context.Context) error) error {
	return u.do(caller, func(ctx context.Context) (sent bool, err error) { return true, call(ctx) })
}

// do is Do for a call that knows whether it was sent.
func (u *Upstream) do(caller context.Context, call func(context.Context) (sent bool, err error)) error {
	ctx, cancel := u.bounded(caller)
	defer cancel()
	ctx, span := u.span(ctx)
	defer span.End()
	a := answer{outcome: failed, verdict: sick} // stands when call panics or ends its goroutine
	var before gobreaker.State
	if span.IsRecording() {
		before = u.breaker.state()
	}
	defer func() { u.count(span, before, a) }()

	report := u.breaker.allow()
	if report == nil {
		a = u.leftAlone()
		return a.err
	}
	slot, err := u.pool.Acquire(ctx)
	defer slot.Release()
	defer func() { report(a.verdict) }() // before the slot goes to the next in the queue, who asks below
	u.pool.Trace(span, slot, err)
	if err != nil {
		a = u.turnedAway(err)
		return a.err
	}
	if slot.Waited() > 0 && u.breaker.state() == gobreaker.StateOpen { // since this call entered the queue
		a = u.leftAlone()
		return a.err
	}

	granted := time.Now()
	sent, err := call(ctx)
	a = u.judge(caller, ctx, attempt{err, time.Since(granted), sent})
	return a.err
}

// Degraded counts one answer that was served with a fallback in place of this upstream, and says so on the current span.
// Call it once per answer. It adds to the outcome of the call that failed, so that both the loss and its cause can be
// counted; the calls made are the sum of all outcomes but this one.
func (u *Upstream) Degraded(ctx context.Context) {
	u.counts[degraded].Add(1)
	trace.SpanFromContext(ctx).SetAttributes(names.UpstreamName.String(u.name), names.UpstreamOutcome.String(degraded.String()))
}

// turnedAway reads the bulkhead's refusal. The upstream never saw the call, so it says nothing about its health.
func (u *Upstream) turnedAway(err error) answer {
	switch {
	case errors.Is(err, bulkhead.ErrFull):
		return answer{rejectedFull, neutral, u.errFull}
	case errors.Is(err, bulkhead.ErrExpired):
		return answer{timedOut, neutral, u.errTimeout}
	default:
		return answer{cancelled, neutral, errCallerGone}
	}
}

// leftAlone is what a call comes to that the breaker does not let through.
func (u *Upstream) leftAlone() answer {
	return answer{rejectedOpen, neutral, rpcerr.New(codes.Unavailable, rpcerr.BreakerOpen,
		u.name+" has been failing and is left alone for a while",
		rpcerr.Meta("upstream", u.name), rpcerr.RetryAfter(u.breaker.retryAfter()))}
}

// bounded ends the call at the upstream's time-out. A caller with less time than that has a deadline already, and needs no timer.
func (u *Upstream) bounded(caller context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := caller.Deadline(); ok && time.Until(deadline) <= u.cfg.Timeout {
		return caller, func() {}
	}
	return context.WithTimeout(caller, u.cfg.Timeout)
}

// span begins the guard's own span, below the caller's: one page calls several upstreams from one span, where their attributes
// would overwrite each other, and a rejected call has no client span at all. Below a span that nobody records there is none.
func (u *Upstream) span(ctx context.Context) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	tracer := parent.TracerProvider().Tracer("example.com/watertight/platform/upstream")
	return tracer.Start(ctx, names.Upstream(u.name), trace.WithAttributes(names.UpstreamName.String(u.name))) //nolint:spancheck // do ends it
}

// count notes how a call ended, and what became of the breaker meanwhile. It runs when the breaker has heard the verdict.
func (u *Upstream) count(span trace.Span, before gobreaker.State, a answer) {
	u.counts[a.outcome].Add(1)
	if !span.IsRecording() {
		return
	}
	after := u.breaker.state()
	span.SetAttributes(names.UpstreamOutcome.String(a.outcome.String()), names.UpstreamBreaker.String(after.String()))
	if after != before {
		span.AddEvent(names.BreakerChanged, trace.WithAttributes(names.BreakerFrom.String(before.String()), names.BreakerTo.String(after.String())))
	}
	if a.outcome != served && a.outcome != cancelled {
		span.SetAttributes(semconv.ErrorTypeKey.String(a.outcome.String()))
		span.SetStatus(otelcodes.Error, status.Convert(a.err).Message())
	}
}
