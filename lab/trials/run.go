package trials

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/watertight/platform/bulkhead"
)

// Run plays a trial in real time and returns when all its work has settled, or with ctx.
func (s Setup) Run(ctx context.Context, t Trial) (Outcome, error) {
	pools, err := newPools(s.pools(t))
	if err != nil {
		return Outcome{}, fmt.Errorf("trial %s: %w", t.Name, err)
	}
	calls := s.calls(t)
	endings := make([]ending, len(calls))
	var callers sync.WaitGroup
	start := time.Now()
	late, err := onTime(ctx, start, calls, func(i int) {
		callers.Go(func() { endings[i] = send(ctx, pools[calls[i].pool], calls[i]).ending })
	})
	callers.Wait()
	if err != nil {
		return Outcome{}, fmt.Errorf("trial %s: %w", t.Name, err)
	}
	if err := settle(ctx, pools); err != nil {
		return Outcome{}, fmt.Errorf("trial %s: %w", t.Name, err)
	}
	o := tally(endings)
	o.LateBy = late
	return o, nil
}

func newPools(configs []bulkhead.Config) ([]*bulkhead.Bulkhead, error) {
	pools := make([]*bulkhead.Bulkhead, len(configs))
	for i, cfg := range configs {
		pool, err := bulkhead.New(fmt.Sprintf("trial-%d", i), cfg, nil)
		if err != nil {
			return nil, err
		}
		pools[i] = pool
	}
	return pools, nil
}

// onTime calls send for each call at its time, and returns the most that it was late.
func onTime(ctx context.Context, start time.Time, calls []call, send func(i int)) (late time.Duration, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i, c := range calls {
		timer.Reset(time.Until(start.Add(c.at)))
		select {
		case <-ctx.Done():
			return late, context.Cause(ctx)
		case <-timer.C:
		}
		late = max(late, time.Since(start)-c.at)
		send(i)
	}
	return late, nil
}

// settle waits until all slots are free, so that the next trial does not meet what this one has left running.
func settle(ctx context.Context, pools []*bulkhead.Bulkhead) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for _, pool := range pools {
		for pool.Stats().InFlight > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-look.C:
			}
		}
	}
	return context.Cause(ctx)
}

// send is one caller.
func send(ctx context.Context, pool *bulkhead.Bulkhead, c call) answer {
	arrived := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	_, err := bulkhead.Do(ctx, pool, c.timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.work(ctx) })
	a := answer{ending: ok, after: time.Since(arrived)}
	switch {
	case errors.Is(err, bulkhead.ErrFull):
		a.ending = full
	case err != nil:
		a.ending = failed
	}
	return a
}

// work takes its time. It ends early with the signal, unless it is deaf, and fails after one in any case.
func (c call) work(ctx context.Context) error {
	timer := time.NewTimer(c.takes)
	defer timer.Stop()
	if c.deaf {
		<-timer.C
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
