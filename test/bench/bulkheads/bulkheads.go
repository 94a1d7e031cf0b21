// Package bulkheads compares what isolates one call from another: the bulkhead and the whole guard of an upstream, each with
// failsafe-go's, with the context of a request; and a bulkhead that several use at once with one that one uses. The
// benchmarks of platform/bulkhead look closer.
package bulkheads

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	fsbreaker "github.com/failsafe-go/failsafe-go/circuitbreaker"
	fstimeout "github.com/failsafe-go/failsafe-go/timeout"
	"golang.org/x/sync/errgroup"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/upstream"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

type rows struct {
	calls                                         int // each time
	acquire, contended, do, guard, guardAllocated *table.Row
}

// size is how many calls the bulkheads let through at once, and how many more may wait.
const size = 64

// Start prepares the part.
func Start(_ context.Context, r *suite.Run) (suite.Part, error) {
	calls := 2_000_000
	if r.Quick {
		calls = 200_000
	}
	row := func(what, against, unit string, target table.Target) *table.Row {
		return r.Row("bulkhead", what, against, unit, target)
	}
	return &rows{
		calls:          calls,
		acquire:        row("bulkhead, Acquire and Release", "failsafe-go", "calls/s", table.AtLeast(1)),
		contended:      row("bulkhead, Acquire and Release, a call on every CPU", "a call on one", "ns", table.AtMost(3)),
		do:             row("bulkhead, Do with a time-out", "failsafe-go, asynchronous", "calls/s", table.AtLeast(1)),
		guard:          row("guard: deadline, breaker, bulkhead", "failsafe-go's three", "calls/s", table.AtLeast(1)),
		guardAllocated: row("guard, allocations", "failsafe-go's three", "a call", table.AtMost(1)),
	}, nil
}

// Close ends nothing.
func (*rows) Close() error { return nil }

// Round measures both sides of each row, one after the other.
func (b *rows) Round(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	for _, part := range []func(context.Context) error{b.roundAcquire, b.roundDo, b.roundGuard} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *rows) roundAcquire(ctx context.Context) error {
	ours, err := bulkhead.New("bench", bulkhead.Config{Size: size, Queue: size}, nil)
	if err != nil {
		return err
	}
	call := func() error {
		slot, err := ours.Acquire(ctx)
		slot.Release()
		return err
	}
	theirs := fsbulkhead.New[any](size)
	err = compare(b.acquire, b.calls, call, func() error {
		err := theirs.AcquirePermitWithMaxWait(ctx, time.Second)
		theirs.ReleasePermit()
		return err
	})
	if err != nil {
		return err
	}
	together, err := took(b.calls, runtime.GOMAXPROCS(0), call)
	if err != nil {
		return err
	}
	alone, err := took(b.calls, 1, call)
	b.contended.Add(together, alone)
	return err
}

func (b *rows) roundDo(ctx context.Context) error {
	ours, err := bulkhead.New("bench", bulkhead.Config{Size: size, Queue: size}, nil)
	if err != nil {
		return err
	}
	// Two bulkheads, because failsafe-go's alone lets any number wait.
	outer, inner := fsbulkhead.New[int](2*size), fsbulkhead.NewBuilder[int](size).WithMaxWaitTime(time.Hour).Build()
	policies := failsafe.With[int](outer, inner, fstimeout.New[int](time.Second))
	return compare(b.do, b.calls/10, func() error {
		_, err := bulkhead.Do(ctx, ours, time.Second, func(context.Context) (int, error) { return 1, nil })
		return err
	}, func() error {
		result := policies.WithContext(ctx).GetAsyncWithExecution(func(failsafe.Execution[int]) (int, error) { return 1, nil })
		select {
		case <-result.Done():
			return result.Error()
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// roundGuard has both sides make a call that succeeds at once, with a time-out, a breaker that opens when half of the calls of
// ten seconds have failed, and a bulkhead. Ours hears of failures in a row and of ended callers as well.
func (b *rows) roundGuard(ctx context.Context) error {
	ours, err := upstream.New("bench", upstream.Config{
		Addr: "static:///127.0.0.1:1", Timeout: time.Second, MaxInFlight: size, MaxQueue: size, MaxStreams: 1,
		Breaker: upstream.BreakerConfig{Window: 10 * time.Second, MinCalls: 20, Ratio: 0.5, Consecutive: 5, Open: 5 * time.Second, Probes: 3},
	}, nil)
	if err != nil {
		return err
	}
	guard := func() error { return ours.Do(ctx, func(context.Context) error { return nil }) }
	policies := failsafe.With[any](
		fstimeout.New[any](time.Second),
		fsbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20, 10*time.Second).WithDelay(5*time.Second).Build(),
		fsbulkhead.NewBuilder[any](size).WithMaxWaitTime(time.Second).Build(),
	).WithContext(ctx)
	peer := func() error { return policies.RunWithExecution(func(failsafe.Execution[any]) error { return nil }) }
	if err := compare(b.guard, b.calls/10, guard, peer); err != nil {
		return err
	}
	const runs = 1000
	b.guardAllocated.Add(testing.AllocsPerRun(runs, func() { _ = guard() }), testing.AllocsPerRun(runs, func() { _ = peer() }))
	return nil
}

// took returns how long one of n calls takes, in nanoseconds, when so many goroutines make them.
func took(n, goroutines int, call func() error) (float64, error) {
	var group errgroup.Group
	start := time.Now()
	for range goroutines {
		group.Go(func() error {
			for range n / goroutines {
				if err := call(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(time.Since(start).Nanoseconds()) / float64(n/goroutines), err
}

// compare adds to the row how many of n calls each side does in a second.
func compare(r *table.Row, n int, ours, theirs func() error) error {
	var rates [2]float64
	for side, call := range []func() error{ours, theirs} {
		start := time.Now()
		for range n {
			if err := call(); err != nil {
				return err
			}
		}
		rates[side] = float64(n) / time.Since(start).Seconds()
	}
	r.Add(rates[0], rates[1])
	return nil
}
