// Package bulkheads compares the bulkhead with failsafe-go's, uncontended and with the context of a request. The benchmarks of
// platform/bulkhead look closer.
package bulkheads

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	fstimeout "github.com/failsafe-go/failsafe-go/timeout"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

type rows struct {
	calls       int // each time
	acquire, do *table.Row
}

// Start prepares the part.
func Start(_ context.Context, r *suite.Run) (suite.Part, error) {
	calls := 2_000_000
	if r.Quick {
		calls = 200_000
	}
	return &rows{
		calls:   calls,
		acquire: r.Row("bulkhead", "bulkhead, Acquire and Release", "failsafe-go", "calls/s", table.AtLeast(1)),
		do:      r.Row("bulkhead", "bulkhead, Do with a time-out", "failsafe-go, asynchronous", "calls/s", table.AtLeast(1)),
	}, nil
}

func (*rows) Close() error { return nil }

// Round measures both sides one after the other.
func (b *rows) Round(ctx context.Context, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	ours, err := bulkhead.New("bench", bulkhead.Config{Size: 64, Queue: 64}, nil)
	if err != nil {
		return err
	}
	theirs := fsbulkhead.New[any](64)
	err = compare(b.acquire, b.calls, func() error {
		slot, err := ours.Acquire(ctx)
		slot.Release()
		return err
	}, func() error {
		err := theirs.AcquirePermitWithMaxWait(ctx, time.Second)
		theirs.ReleasePermit()
		return err
	})
	if err != nil {
		return err
	}
	// Two bulkheads, because failsafe-go's alone lets any number wait.
	policies := failsafe.With[int](fsbulkhead.New[int](128), fsbulkhead.NewBuilder[int](64).WithMaxWaitTime(time.Hour).Build(), fstimeout.New[int](time.Second))
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
