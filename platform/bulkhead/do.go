package bulkhead

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Do runs work that may not honour its context. It takes a slot as Acquire does, runs work in a goroutine of its own and
// returns work's result, or returns without it as soon as ctx ends. Work still running then has been signalled, keeps
// its slot until it settles and is counted in Stats.Abandoned meanwhile; its result is dropped.
//
// The context given to work ends execTimeout after the slot was granted, or with ctx if that is sooner. That is a signal
// and nothing more: Do goes on waiting until ctx itself ends. An execTimeout of 0 or less leaves only ctx.
//
// Errors are those of Acquire; ErrTimedOut or ErrAbandoned when ctx ended while work was running; *PanicError when work
// panicked and ErrGoexit when it ended its goroutine; otherwise work's own.
//
// The price over Acquire is a goroutine, a context with a timer and a channel: nine allocations and 1 to 2 µs on the machine
// it was measured on (BenchmarkDo).
func Do[T any](ctx context.Context, b *Bulkhead, execTimeout time.Duration, work func(context.Context) (T, error)) (T, error) {
	var none T
	slot, err := b.Acquire(ctx)
	if err != nil {
		return none, err
	}
	workCtx, signal := execution(ctx, execTimeout)
	j := &job[T]{pool: b, slot: slot, signal: signal, result: make(chan result[T], 1)}
	go j.run(workCtx, work)

	select {
	case r := <-j.result:
		return r.value, r.err
	case <-ctx.Done():
	}
	if !j.abandon() {
		r := <-j.result // settled at the same moment: a result that exists is not thrown away
		return r.value, r.err
	}
	if why(ctx.Err()) == cancelled {
		return none, ErrAbandoned
	}
	return none, ErrTimedOut
}

// job is one piece of work inside Do, shared by the caller, who may leave, and the goroutine, which may outlive it.
type job[T any] struct {
	pool   *Bulkhead
	slot   Slot
	signal context.CancelFunc
	parted atomic.Bool // set by the first of "the caller left" and "the work settled"
	result chan result[T]
}

type result[T any] struct {
	value T
	err   error
}

// execution derives the context that work sees; ctx's own deadline caps the timeout.
func execution(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// run always releases the slot and always leaves a result, whichever way work ends.
func (j *job[T]) run(ctx context.Context, work func(context.Context) (T, error)) {
	r := result[T]{err: ErrGoexit} // stands when work neither returns nor panics
	defer func() {
		if p := recover(); p != nil {
			r.err = &PanicError{Value: p, Stack: debug.Stack()}
			j.pool.panics.Add(1)
		}
		j.settle()
		j.result <- r // after the release: whoever has the result may count on the slot
	}()
	r.value, r.err = work(ctx)
}

// abandon reports whether the caller left before the work settled.
func (j *job[T]) abandon() bool {
	// Counted before the flag is set, so that the count cannot go below zero when the work settles right after.
	j.pool.abandoned.Add(1)
	if j.parted.CompareAndSwap(false, true) {
		return true
	}
	j.pool.abandoned.Add(-1)
	return false
}

func (j *job[T]) settle() {
	if !j.parted.CompareAndSwap(false, true) {
		j.pool.abandoned.Add(-1)
		j.pool.lateSettles.Add(1)
	}
	j.signal()
	j.slot.Release()
}
