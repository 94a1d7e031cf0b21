package upstream

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// verdict is what a call says about the health of the upstream.
type verdict int

const (
	neutral verdict = iota // nothing: it must neither open nor close the breaker
	healthy
	sick
	unreached // sick, but known without asking: there was no connection to send the call on
)

// The breaker hears of verdicts as errors.
var (
	errNeutral = errors.New("neutral")
	errSick    = errors.New("sick")
)

func (v verdict) err() error {
	return [...]error{neutral: errNeutral, healthy: nil, sick: errSick, unreached: errSick}[v]
}

// breaker is gobreaker's two-step circuit breaker plus what it lacks: a count of consecutive failures that its rolling
// window cannot age out, and the time left until it is half-open.
type breaker struct {
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	cfg     BreakerConfig
	born    time.Time
	open    time.Duration // how long this process's breaker stays open

	failuresInARow atomic.Uint32
	openedAt       atomic.Int64 // nanoseconds since born
}

func newBreaker(name string, cfg BreakerConfig, timeout time.Duration) *breaker {
	// Between 70 and 90 % of the most, drawn once: the replicas of a caller do not probe in step, and an upstream that has
	// healed is whole again, probes included, within cfg.Open.
	open := max(timeout, cfg.Open*7/10+rand.N(cfg.Open/5))
	b := &breaker{cfg: cfg, born: time.Now(), open: open}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:          name,
		MaxRequests:   cfg.Probes,
		Interval:      cfg.Window,
		BucketPeriod:  cfg.Window / buckets,
		Timeout:       open,
		ReadyToTrip:   b.shouldOpen,
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
		OnStateChange: b.changed,
	})
	return b
}

// shouldOpen is asked after each failure while closed. Calls that have not settled yet count neither way.
func (b *breaker) shouldOpen(c gobreaker.Counts) bool {
	if b.failuresInARow.Load() >= b.cfg.Consecutive {
		return true
	}
	settled := c.TotalSuccesses + c.TotalFailures
	return settled >= b.cfg.MinCalls && float64(c.TotalFailures) >= b.cfg.Ratio*float64(settled)
}

// changed runs with the circuit's lock held. The failures in a row need no reset here: the probes that close the circuit
// have done it.
func (b *breaker) changed(_ string, _, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		b.openedAt.Store(int64(time.Since(b.born)))
	}
}

// allow returns the function that must be told the call's verdict once it has settled, or nil when the call may not be
// made. A probe that found no connection has probed nothing: the circuit stays half-open, where such calls fail at once and
// cost the upstream nothing. Opening it again would keep it open for up to its full time after the upstream is back.
func (b *breaker) allow() func(verdict) {
	done, err := b.circuit.Allow()
	if err != nil { // open, or half-open with all probes on their way
		return nil
	}
	return func(v verdict) {
		if v == unreached && b.state() == gobreaker.StateHalfOpen {
			v = neutral
		}
		switch v {
		case sick, unreached:
			b.failuresInARow.Add(1)
		case healthy:
			b.failuresInARow.Store(0)
		case neutral:
		}
		done(v.err())
	}
}

// retryAfter is the time left until probes are let through, and at least a second.
func (b *breaker) retryAfter() time.Duration {
	halfOpenAt := time.Duration(b.openedAt.Load()) + b.open
	return max(time.Second, halfOpenAt-time.Since(b.born))
}

// state is gobreaker's: 0 closed, 1 half-open, 2 open.
func (b *breaker) state() gobreaker.State { return b.circuit.State() }
