package bulkhead_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpcerr"
)

func newPool(t testing.TB, cfg bulkhead.Config, reg prometheus.Registerer) *bulkhead.Bulkhead {
	t.Helper()
	pool, err := bulkhead.New("test", cfg, reg)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// deadlineIn returns a context that lives for d at most and not longer than the test.
func deadlineIn(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// acquire takes a slot that must be free at once.
func acquire(t *testing.T, pool *bulkhead.Bulkhead) *bulkhead.Slot {
	t.Helper()
	slot, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatalf("Acquire = %v, want a slot; %+v", err, pool.Stats())
	}
	return &slot
}

// stubborn returns work that takes d whatever happens to its context.
func stubborn(d time.Duration) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		time.Sleep(d)
		return "done", nil
	}
}

// wantIdle fails unless every slot is free and can be taken, all at the same time.
func wantIdle(t *testing.T, pool *bulkhead.Bulkhead) {
	t.Helper()
	if s := pool.Stats(); s.InFlight != 0 || s.Queued != 0 || s.Abandoned != 0 {
		t.Errorf("after everything settled: in flight %d, queued %d, abandoned %d, want 0 each", s.InFlight, s.Queued, s.Abandoned)
	}
	var slots []*bulkhead.Slot
	for range pool.Stats().Size {
		slots = append(slots, acquire(t, pool))
	}
	for _, s := range slots {
		s.Release()
	}
}

// Rule 1.
func TestBulkhead_CallerDeadlineRunsFromEnqueue(t *testing.T) {
	t.Run("a waiter that reaches it leaves the queue and never gets a slot", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, nil)
			held := acquire(t, pool)
			start := time.Now()
			slot, err := pool.Acquire(deadlineIn(t, 50*time.Millisecond))
			if err != bulkhead.ErrExpired || time.Since(start) != 50*time.Millisecond {
				t.Fatalf("Acquire = %v after %v, want ErrExpired after 50ms", err, time.Since(start))
			}
			slot.Release() // the zero slot: must not touch the pool
			if s := pool.Stats(); s.InFlight != 1 || s.Queued != 0 || s.RejectedExpired != 1 {
				t.Errorf("stats = %+v, want 1 in flight, none queued, 1 expired", s)
			}
			held.Release()
			wantIdle(t, pool)
		})
	})
	t.Run("the caller of running work is freed at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, nil)
			start := time.Now()
			_, err := bulkhead.Do(deadlineIn(t, 50*time.Millisecond), pool, time.Second, stubborn(400*time.Millisecond))
			if err != bulkhead.ErrTimedOut || time.Since(start) != 50*time.Millisecond {
				t.Fatalf("Do = %v after %v, want ErrTimedOut after 50ms", err, time.Since(start))
			}
			time.Sleep(time.Second)
			wantIdle(t, pool)
		})
	})
	t.Run("time in the queue counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, nil)
			held := acquire(t, pool)
			time.AfterFunc(30*time.Millisecond, held.Release)
			start := time.Now()
			_, err := bulkhead.Do(deadlineIn(t, 50*time.Millisecond), pool, 0, stubborn(40*time.Millisecond))
			if err != bulkhead.ErrTimedOut || time.Since(start) != 50*time.Millisecond {
				t.Fatalf("Do = %v after %v, want ErrTimedOut after 50ms: 30ms in the queue and 20 of 40 at work", err, time.Since(start))
			}
			time.Sleep(time.Second)
		})
	})
	t.Run("a caller that goes away leaves too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, nil)
			held := acquire(t, pool)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := pool.Acquire(ctx); err != bulkhead.ErrCancelled {
				t.Errorf("Acquire = %v, want ErrCancelled", err)
			}
			held.Release()

			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := bulkhead.Do(ctx, pool, 0, stubborn(time.Second)); err != bulkhead.ErrAbandoned {
				t.Errorf("Do = %v, want ErrAbandoned", err)
			}
			time.Sleep(time.Second)
			wantIdle(t, pool)
		})
	})
}

// Rule 2.
func TestBulkhead_ExecutionTimeoutRunsFromSlotGrantAndOnlySignals(t *testing.T) {
	for _, c := range []struct {
		name              string
		exec, deadline    time.Duration
		signalAt, freedAt time.Duration // since the caller asked
		err               error
	}{
		{"from slot grant", 100 * time.Millisecond, time.Second, 160 * time.Millisecond, 260 * time.Millisecond, nil},
		{"capped by what is left of the deadline", 100 * time.Millisecond, 120 * time.Millisecond, 120 * time.Millisecond, 120 * time.Millisecond, bulkhead.ErrTimedOut},
		{"none but the deadline", 0, 200 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond, bulkhead.ErrTimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, nil)
				time.AfterFunc(60*time.Millisecond, acquire(t, pool).Release)
				start := time.Now()
				var signalled atomic.Int64
				got, err := bulkhead.Do(deadlineIn(t, c.deadline), pool, c.exec, func(ctx context.Context) (string, error) {
					context.AfterFunc(ctx, func() { signalled.CompareAndSwap(0, int64(time.Since(start))) })
					return stubborn(200 * time.Millisecond)(ctx)
				})
				freed := time.Since(start)
				synctest.Wait()
				if at := time.Duration(signalled.Load()); at != c.signalAt {
					t.Errorf("work was signalled after %v, want %v", at, c.signalAt)
				}
				if err != c.err || freed != c.freedAt {
					t.Errorf("Do = %q, %v after %v, want error %v after %v", got, err, freed, c.err, c.freedAt)
				}
				if err == nil && got != "done" {
					t.Errorf("Do = %q, want the result of work that finished late but in the caller's time", got)
				}
				time.Sleep(time.Second)
				wantIdle(t, pool)
			})
		})
	}
}

// Rule 3.
func TestBulkhead_SlotStaysTakenUntilWorkSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, bulkhead.Config{Size: 1, Queue: 0}, nil)
		_, err := bulkhead.Do(deadlineIn(t, 10*time.Millisecond), pool, 5*time.Millisecond, stubborn(100*time.Millisecond))
		if err != bulkhead.ErrTimedOut {
			t.Fatalf("Do = %v, want ErrTimedOut", err)
		}
		if s := pool.Stats(); s.InFlight != 1 || s.Abandoned != 1 || s.LateSettles != 0 {
			t.Errorf("while abandoned work runs: %+v, want 1 in flight, 1 abandoned", s)
		}
		time.Sleep(89 * time.Millisecond) // 99 of 100 ms
		if _, err := pool.Acquire(t.Context()); err != bulkhead.ErrFull {
			t.Errorf("Acquire = %v before the work settled, want ErrFull", err)
		}
		time.Sleep(2 * time.Millisecond)
		if s := pool.Stats(); s.InFlight != 0 || s.Abandoned != 0 || s.LateSettles != 1 {
			t.Errorf("after the work settled: %+v, want nothing in flight, 1 late settle", s)
		}
		wantIdle(t, pool)
	})
}

// Rule 3, for work that does not return.
func TestBulkhead_PanicAndGoexitNeverLoseASlot(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		work  func(context.Context) (int, error)
		check func(t *testing.T, err error)
	}{
		{"panic", func(context.Context) (int, error) { panic(broken) }, func(t *testing.T, err error) {
			t.Helper()
			p, ok := errors.AsType[*bulkhead.PanicError](err)
			if !ok || !errors.Is(err, broken) || !strings.Contains(string(p.Stack), "bulkhead_test.go") {
				t.Errorf("Do = %v, want a PanicError with the cause and the stack of the work", err)
			}
		}},
		{"Goexit", func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, func(t *testing.T, err error) {
			t.Helper()
			if err != bulkhead.ErrGoexit {
				t.Errorf("Do = %v, want ErrGoexit", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := newPool(t, bulkhead.Config{Size: 2, Queue: 1}, nil)
				for range 20 {
					_, err := bulkhead.Do(t.Context(), pool, 0, c.work)
					c.check(t, err)
					if got := status.Code(err); got != codes.Internal {
						t.Errorf("code = %v, want Internal", got)
					}
					if msg := status.Convert(err).Message(); msg != "internal error" {
						t.Errorf("message for clients = %q, want nothing of the cause", msg)
					}
				}
				// Once more with nobody left to hear of it.
				_, err := bulkhead.Do(deadlineIn(t, time.Millisecond), pool, 0, func(ctx context.Context) (int, error) {
					time.Sleep(time.Second)
					return c.work(ctx)
				})
				if err != bulkhead.ErrTimedOut {
					t.Errorf("Do = %v, want ErrTimedOut", err)
				}
				time.Sleep(2 * time.Second)
				wantIdle(t, pool)
			})
		})
	}
}

// Rule 4.
func TestBulkhead_FullQueueRejectsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, bulkhead.Config{Size: 2, Queue: 3}, nil)
		start := time.Now()
		for range 5 {
			go func() { _, _ = bulkhead.Do(t.Context(), pool, 0, stubborn(time.Second)) }()
		}
		synctest.Wait()
		before := pool.Stats()
		_, err := pool.Acquire(t.Context())
		if err != bulkhead.ErrFull || !time.Now().Equal(start) {
			t.Errorf("Acquire = %v after %v, want ErrFull at once", err, time.Since(start))
		}
		want := before
		want.RejectedFull++
		if diff := cmp.Diff(want, pool.Stats()); diff != "" {
			t.Errorf("a rejected caller changed more than its count (-want +got):\n%s", diff)
		}
		if status.Code(err) != codes.ResourceExhausted || rpcerr.Reason(err) != rpcerr.BulkheadFull {
			t.Errorf("ErrFull = %v/%s, want ResourceExhausted/BULKHEAD_FULL", status.Code(err), rpcerr.Reason(err))
		}
		if d, ok := rpcerr.Delay(err); !ok || d < time.Second {
			t.Errorf("RetryInfo = %v %v, want at least 1s", d, ok)
		}
		time.Sleep(5 * time.Second)
		wantIdle(t, pool)
	})
}

// Rule 4.
func TestBulkhead_NeverStartsWorkWhoseDeadlineIsPast(t *testing.T) {
	started := func(context.Context) (bool, error) { return true, nil }
	past, cancelPast := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelPast()
	gone, leave := context.WithCancel(t.Context())
	leave()
	pool := newPool(t, bulkhead.Config{Size: 1}, nil)
	if ran, err := bulkhead.Do(past, pool, 0, started); ran || err != bulkhead.ErrExpired {
		t.Errorf("Do with a past deadline: started %v, error %v, want ErrExpired", ran, err)
	}
	if ran, err := bulkhead.Do(gone, pool, 0, started); ran || err != bulkhead.ErrCancelled {
		t.Errorf("Do for a caller that has left: started %v, error %v, want ErrCancelled", ran, err)
	}
	if ran, err := bulkhead.Do(lateTimer{t.Context(), time.Now().Add(-time.Millisecond)}, pool, 0, started); ran || err != bulkhead.ErrExpired {
		t.Errorf("Do with a past deadline whose timer has not fired: started %v, error %v, want ErrExpired", ran, err)
	}
	wantIdle(t, pool)
}

// lateTimer is a context on a machine too busy to fire its timer: past its deadline, not yet done.
type lateTimer struct {
	context.Context
	deadline time.Time
}

func (c lateTimer) Deadline() (time.Time, bool) { return c.deadline, true }

func TestBulkhead_WinningASlotTooLatePassesItOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, bulkhead.Config{Size: 1, Queue: 2}, nil)
		held := acquire(t, pool)
		late := lateTimer{t.Context(), time.Now().Add(10 * time.Millisecond)}
		var lateErr error
		go func() { _, lateErr = pool.Acquire(late) }()
		synctest.Wait()
		var got []bool
		go func() {
			slot, err := pool.Acquire(t.Context())
			got = append(got, err == nil)
			slot.Release()
		}()
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		held.Release()
		synctest.Wait()
		if lateErr != bulkhead.ErrExpired || !cmp.Equal(got, []bool{true}) {
			t.Errorf("late waiter = %v, next waiter got a slot = %v, want ErrExpired and true", lateErr, got)
		}
		wantIdle(t, pool)
	})
}

// A release and a waiter's deadline at the same instant: either may win, but the slot must survive both.
func TestBulkhead_ReleaseAtTheMomentAWaiterExpiresKeepsTheSlot(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1, Queue: 4}, nil)
			time.AfterFunc(10*time.Millisecond, acquire(t, pool).Release)
			for range 4 {
				go func() {
					slot, err := pool.Acquire(deadlineIn(t, 10*time.Millisecond))
					if err != nil && err != bulkhead.ErrExpired {
						t.Errorf("Acquire = %v, want a slot or ErrExpired", err)
					}
					slot.Release()
				}()
			}
			time.Sleep(11 * time.Millisecond)
			wantIdle(t, pool)
		})
	}
}

// Work that ends at the moment its caller's deadline passes is either a result or a late settle, never both or neither.
func TestDo_SettlingAtTheDeadlineIsCountedOnce(t *testing.T) {
	var results, late int
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 1}, nil)
			_, err := bulkhead.Do(deadlineIn(t, 10*time.Millisecond), pool, 0, stubborn(10*time.Millisecond))
			synctest.Wait()
			switch s := pool.Stats(); {
			case err == nil && s.LateSettles == 0:
				results++
			case err == bulkhead.ErrTimedOut && s.LateSettles == 1:
				late++
			default:
				t.Errorf("Do = %v with %d late settles", err, s.LateSettles)
			}
			wantIdle(t, pool)
		})
	}
	t.Logf("%d results, %d late settles", results, late)
}

// Whoever has a result may count on the slot: a caller that works alone is never turned away by its own last call.
func TestDo_FreesTheSlotBeforeItAnswers(t *testing.T) {
	pool := newPool(t, bulkhead.Config{Size: 1}, nil)
	for i := range 2000 {
		if _, err := bulkhead.Do(t.Context(), pool, time.Minute, func(context.Context) (int, error) { return i, nil }); err != nil {
			t.Fatalf("call %d = %v, want a free slot", i, err)
		}
	}
}

func TestBulkhead_WaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(t, bulkhead.Config{Size: 1, Queue: 5}, nil)
		held := acquire(t, pool)
		var order []int
		for i := range 5 {
			ctx := t.Context()
			if i == 2 {
				ctx = deadlineIn(t, time.Millisecond) // leaves from the middle
			}
			go func() {
				slot, err := pool.Acquire(ctx)
				if err != nil {
					return
				}
				order = append(order, i)
				time.Sleep(time.Millisecond)
				slot.Release()
			}()
			synctest.Wait()
		}
		time.Sleep(10 * time.Millisecond)
		held.Release()
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 1, 3, 4}, order); diff != "" {
			t.Errorf("order of service (-want +got):\n%s", diff)
		}
		if slot := acquire(t, pool); slot.Waited() != 0 {
			t.Errorf("Waited = %v for a free slot, want 0", slot.Waited())
		}
	})
}

func TestSlot_ReleasesOnce(t *testing.T) {
	pool := newPool(t, bulkhead.Config{Size: 2}, nil)
	other, slot := acquire(t, pool), acquire(t, pool)
	slot.Release()
	slot.Release()
	if got := pool.Stats().InFlight; got != 1 {
		t.Errorf("in flight = %d after releasing one of two slots twice, want 1", got)
	}
	duplicate := *other
	other.Release()
	defer func() {
		if recover() == nil {
			t.Error("releasing a copy of a released slot did not panic")
		}
	}()
	duplicate.Release()
}

// Permits lost on panic, time-out and cancel (report 8).
func TestFieldReport_08_NoSlotIsLostOnPanicTimeoutOrCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 8
		pool := newPool(t, bulkhead.Config{Size: size, Queue: size}, nil)
		for i := range 10 * size {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			go func() {
				defer cancel()
				_, err := bulkhead.Do(ctx, pool, 5*time.Millisecond, func(ctx context.Context) (int, error) {
					switch i % 4 {
					case 0:
						panic("broken")
					case 1:
						runtime.Goexit()
					case 2:
						cancel()
					}
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if err == nil {
					t.Errorf("call %d succeeded, want every call to fail", i)
				}
			}()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		wantIdle(t, pool)
	})
}

// Waiters that gave up still get a permit (report 9).
func TestFieldReport_09_WaitersThatGaveUpGetNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, queued = 4, 6
		pool := newPool(t, bulkhead.Config{Size: size, Queue: queued}, nil)
		var held []*bulkhead.Slot
		for range size {
			held = append(held, acquire(t, pool))
		}
		for range 5 { // five queues full of waiters
			for range queued {
				go func() {
					if _, err := pool.Acquire(deadlineIn(t, time.Millisecond)); err != bulkhead.ErrExpired {
						t.Errorf("Acquire = %v, want ErrExpired", err)
					}
				}()
			}
			time.Sleep(2 * time.Millisecond)
		}
		for _, s := range held {
			s.Release()
		}
		wantIdle(t, pool)
		if got := pool.Stats().RejectedExpired; got != 5*queued {
			t.Errorf("expired = %d, want %d", got, 5*queued)
		}
	})
}

// Real goroutines on real time, for the race detector: the virtual-time tests run in an orderly fashion.
func TestBulkhead_HoldsItsLimitsUnderRealConcurrency(t *testing.T) {
	const size, queued, callers, rounds = 3, 5, 16, 300
	pool := newPool(t, bulkhead.Config{Size: size, Queue: queued}, prometheus.NewRegistry())
	var inFlight, granted, turnedAway atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(c)))
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(400))*time.Microsecond)
				slot, err := pool.Acquire(ctx)
				if err != nil {
					turnedAway.Add(1)
					cancel()
					continue
				}
				granted.Add(1)
				if n := inFlight.Add(1); n > size {
					t.Errorf("%d in flight, limit %d", n, size)
				}
				if s := pool.Stats(); s.InFlight > size || s.Queued > queued {
					t.Errorf("stats %+v above the limits", s)
				}
				for range rnd.IntN(4) {
					runtime.Gosched()
				}
				inFlight.Add(-1)
				slot.Release()
				cancel()
			}
		})
	}
	wg.Wait()
	s := pool.Stats()
	if got := int64(s.RejectedFull + s.RejectedExpired + s.RejectedCancelled); got != turnedAway.Load() {
		t.Errorf("rejections counted = %d, seen by callers = %d", got, turnedAway.Load())
	}
	if granted.Load() == 0 {
		t.Error("nobody got a slot: the test showed nothing")
	}
	wantIdle(t, pool)
}

func TestAcquire_AllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		reg  prometheus.Registerer
	}{{"unmeasured", nil}, {"measured", prometheus.NewRegistry()}} {
		t.Run(c.name, func(t *testing.T) {
			pool := newPool(t, bulkhead.Config{Size: 4, Queue: 4}, c.reg)
			ctx := deadlineIn(t, time.Hour)
			if got := testing.AllocsPerRun(1000, func() {
				slot, err := pool.Acquire(ctx)
				if err != nil {
					t.Fatal(err)
				}
				slot.Release()
			}); got != 0 {
				t.Errorf("Acquire and Release allocate %v times, want 0", got)
			}
			full := newPool(t, bulkhead.Config{Size: 1}, nil)
			acquire(t, full)
			if got := testing.AllocsPerRun(1000, func() { _, _ = full.Acquire(ctx) }); got != 0 {
				t.Errorf("a rejection allocates %v times, want 0", got)
			}
		})
	}
}

func TestConfig_ErrorNamesTheVariable(t *testing.T) {
	for _, c := range []struct {
		cfg  bulkhead.Config
		want string
	}{
		{bulkhead.Config{Size: 0}, "SIZE: must be between 1 and 1000000, got 0"},
		{bulkhead.Config{Size: 1, Queue: -1}, "QUEUE: must be between 0 and 1000000, got -1"},
		{bulkhead.Config{Size: 1, Queue: math.MaxInt}, "QUEUE: must be between 0 and 1000000, got 9223372036854775807"},
	} {
		if err := c.cfg.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("Validate(%+v) = %v, want %q", c.cfg, err, c.want)
		}
		if _, err := bulkhead.New("recs", c.cfg, nil); err == nil || err.Error() != "bulkhead recs: "+c.want {
			t.Errorf("New(%+v) = %v, want the same with the pool's name", c.cfg, err)
		}
	}
	if err := (bulkhead.Config{Size: 1}).Validate(); err != nil {
		t.Errorf("Validate = %v for a pool without a queue, want nil", err)
	}
}

func TestNew_RefusesASecondPoolOfTheSameName(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := bulkhead.Config{Size: 1}
	for name, wantErr := range map[string]bool{"recs": false, "search": false} {
		if _, err := bulkhead.New(name, cfg, reg); (err != nil) != wantErr {
			t.Errorf("New(%s) = %v", name, err)
		}
	}
	if _, err := bulkhead.New("recs", cfg, reg); err == nil || !strings.Contains(err.Error(), "bulkhead recs") {
		t.Errorf("second New(recs) = %v, want an error that names the pool", err)
	}
}

func TestMetrics_ShowThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		pool := newPool(t, bulkhead.Config{Size: 1, Queue: 1}, reg)
		go func() { // held for 100 ms, its caller gone after 10
			_, _ = bulkhead.Do(deadlineIn(t, 10*time.Millisecond), pool, 0, stubborn(100*time.Millisecond))
		}()
		synctest.Wait()
		go func() { _, _ = bulkhead.Do(t.Context(), pool, 0, stubborn(time.Second)) }() // waits 100 ms
		synctest.Wait()
		_, _ = pool.Acquire(t.Context())
		time.Sleep(20 * time.Millisecond)

		want := map[string]float64{
			"watertight_bulkhead_in_flight": 1, "watertight_bulkhead_queued": 1, "watertight_bulkhead_limit": 1,
			"watertight_bulkhead_abandoned": 1, "watertight_bulkhead_late_settles_total": 0, "watertight_bulkhead_panics_total": 0,
			"watertight_bulkhead_rejected_total/full": 1, "watertight_bulkhead_rejected_total/expired": 0,
			"watertight_bulkhead_rejected_total/cancelled":  0,
			"watertight_bulkhead_queue_wait_seconds/count":  1,
			"watertight_bulkhead_queue_wait_seconds/sum_ms": 0,
			"watertight_bulkhead_hold_seconds/count":        0,
			"watertight_bulkhead_hold_seconds/sum_ms":       0,
		}
		if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
			t.Errorf("while abandoned work holds the slot (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Second)
		want["watertight_bulkhead_in_flight"], want["watertight_bulkhead_queued"] = 0, 0
		want["watertight_bulkhead_abandoned"], want["watertight_bulkhead_late_settles_total"] = 0, 1
		want["watertight_bulkhead_queue_wait_seconds/count"], want["watertight_bulkhead_queue_wait_seconds/sum_ms"] = 2, 100
		want["watertight_bulkhead_hold_seconds/count"], want["watertight_bulkhead_hold_seconds/sum_ms"] = 2, 1100
		if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
			t.Errorf("after all settled (-want +got):\n%s", diff)
		}
	})
}

// gather flattens a registry that holds one pool; every series must carry its label.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, pool := f.GetName(), ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "pool" {
					pool = l.GetValue()
				} else {
					name += "/" + l.GetValue()
				}
			}
			if pool != "test" {
				t.Errorf("%s carries pool=%q, want test", name, pool)
			}
			if h := m.GetHistogram(); h != nil {
				got[name+"/count"], got[name+"/sum_ms"] = float64(h.GetSampleCount()), float64(int(h.GetSampleSum()*1000+.5))
				continue
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}
