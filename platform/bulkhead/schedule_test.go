package bulkhead_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	fsbulkhead "github.com/failsafe-go/failsafe-go/bulkhead"
	fstimeout "github.com/failsafe-go/failsafe-go/timeout"
	"pgregory.net/rapid"

	"example.com/watertight/platform/bulkhead"
)

// How a piece of work behaves.
type manner int

const (
	cooperative manner = iota // stops when signalled
	obstinate                 // ignores the signal, fails afterwards if there was one
	panics                    // at the end of its time
	exits                     // ends its goroutine at the end of its time
	manners
)

// call is one caller of a schedule; times are in virtual time from the schedule's start.
type call struct {
	arrival  time.Duration
	deadline time.Duration // from arrival
	exec     time.Duration // 0: none
	takes    time.Duration
	leaves   time.Duration // from arrival; 0: never
	manner   manner
	acquire  bool // Acquire and Release instead of Do; only for work that is cooperative
}

func (c call) String() string {
	return fmt.Sprintf("{at %v, deadline %v, exec %v, takes %v, leaves %v, manner %d, acquire %v}",
		c.arrival, c.deadline, c.exec, c.takes, c.leaves, c.manner, c.acquire)
}

// limit is how long the caller may be kept.
func (c call) limit() time.Duration {
	if c.leaves > 0 && c.leaves < c.deadline {
		return c.leaves
	}
	return c.deadline
}

// drawSchedule draws whole milliseconds and then adds a few nanoseconds of its own to every time, so that no two events
// of a schedule coincide: at a tie every order is right, and nothing could be compared.
func drawSchedule(t *rapid.T, most manner) []call {
	nudges := rand.New(rand.NewPCG(7, 11))
	nudge := func() time.Duration { return time.Duration(1 + nudges.IntN(400_000)) }
	ms := func(label string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * time.Millisecond
	}
	calls := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) call {
		return call{
			arrival:  ms("arrival", 0, 200),
			deadline: ms("deadline", 1, 120),
			exec:     ms("exec", 0, 60),
			takes:    ms("takes", 0, 150),
			leaves:   max(0, ms("leaves", -100, 100)),
			manner:   manner(rapid.IntRange(0, int(most)-1).Draw(t, "manner")),
			acquire:  rapid.Bool().Draw(t, "acquire"),
		}
	}), 1, 40).Draw(t, "calls")
	for i := range calls {
		c := &calls[i]
		c.arrival, c.deadline, c.takes = c.arrival+nudge(), c.deadline+nudge(), c.takes+nudge()
		if c.exec > 0 {
			c.exec += nudge()
		}
		if c.leaves > 0 {
			c.leaves += nudge()
		}
		c.acquire = c.acquire && c.manner == cooperative
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.arrival, b.arrival) })
	return calls
}

func (c call) work(ctx context.Context) error {
	timer := time.NewTimer(c.takes)
	defer timer.Stop()
	if c.manner == cooperative {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	} else {
		<-timer.C
	}
	switch c.manner {
	case panics:
		panic("broken work")
	case exits:
		runtime.Goexit()
	default:
	}
	return ctx.Err()
}

// answer is what a caller got and when, since its arrival.
type answer struct {
	outcome string // ok, full or failed
	after   time.Duration
}

// play runs the schedule in virtual time: each caller at its moment, under a context with its deadline.
func play(calls []call, guard func(i int, ctx context.Context) string) []answer {
	answers := make([]answer, len(calls))
	var callers sync.WaitGroup
	start := time.Now()
	for i, c := range calls {
		time.Sleep(c.arrival - time.Since(start))
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
			defer cancel()
			if c.leaves > 0 {
				time.AfterFunc(c.leaves, cancel)
			}
			began := time.Now()
			answers[i] = answer{outcome: guard(i, ctx), after: time.Since(began)}
		})
		synctest.Wait()
	}
	callers.Wait()
	time.Sleep(5 * time.Second) // longer than any work: all settle
	synctest.Wait()
	return answers
}

// watch records what the work sees: how many run at once, and in which order they start.
type watch struct {
	mu            sync.Mutex
	running, peak int
	started       []int
}

func (w *watch) during(i int, work func() error) error {
	w.mu.Lock()
	w.running++
	w.peak = max(w.peak, w.running)
	w.started = append(w.started, i)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.running--
		w.mu.Unlock()
	}()
	return work()
}

// guardCall sends one call of the schedule through the bulkhead.
func guardCall(ctx context.Context, pool *bulkhead.Bulkhead, c call, work func(context.Context) error) error {
	if c.acquire {
		slot, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer slot.Release()
		return work(ctx)
	}
	_, err := bulkhead.Do(ctx, pool, c.exec, func(ctx context.Context) (struct{}, error) { return struct{}{}, work(ctx) })
	return err
}

func TestBulkhead_KeepsItsRulesOnAnySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bulkhead.Config{Size: rapid.IntRange(1, 5).Draw(rt, "size"), Queue: rapid.IntRange(0, 5).Draw(rt, "queue")}
		calls := drawSchedule(rt, manners)
		var broken []string // a rapid.T must not be used from another goroutine
		report := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }

		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, cfg, nil)
			var seen watch
			var mu sync.Mutex
			checkLimits := func() {
				if s := pool.Stats(); s.InFlight > cfg.Size || s.Queued > cfg.Queue || s.Abandoned > s.InFlight {
					mu.Lock()
					defer mu.Unlock()
					report("stats above the limits: %+v", s)
				}
			}
			answers := play(calls, func(i int, ctx context.Context) string {
				checkLimits()
				defer checkLimits()
				err := guardCall(ctx, pool, calls[i], func(ctx context.Context) error {
					if err := ctx.Err(); err != nil {
						mu.Lock()
						report("call %d was started after its context had ended: %v", i, err)
						mu.Unlock()
					}
					return seen.during(i, func() error { return calls[i].work(ctx) })
				})
				return outcome(err, bulkhead.ErrFull)
			})

			if seen.peak > cfg.Size {
				report("%d pieces of work at once, limit %d", seen.peak, cfg.Size)
			}
			if !slices.IsSorted(seen.started) {
				report("started in order %v: the living were not served first come, first served", seen.started)
			}
			for i, a := range answers {
				if a.after > calls[i].limit() {
					report("call %d was answered after %v, want within %v", i, a.after, calls[i].limit())
				}
				if a.outcome == "full" && a.after != 0 {
					report("call %d was rejected after %v, want at once", i, a.after)
				}
			}
			s := pool.Stats()
			if s.InFlight != 0 || s.Queued != 0 || s.Abandoned != 0 {
				report("after all settled: %+v, want an empty pool", s)
			}
			if got := len(seen.started) + int(s.RejectedFull+s.RejectedExpired+s.RejectedCancelled); got != len(calls) {
				report("%d calls started or rejected, want each of %d once", got, len(calls))
			}
			for range cfg.Size {
				if _, err := pool.Acquire(t.Context()); err != nil {
					report("a slot was lost: %v, %+v", err, pool.Stats())
				}
			}
		})
		for _, b := range broken {
			rt.Error(b)
		}
	})
}

// failsafe-go keeps the same four rules when an outer bulkhead (slots and queue, no waiting), an inner one (slots) and a
// timeout are composed and run asynchronously. Both must give each caller the same answer at the same moment.
func TestBulkhead_AgreesWithFailsafe(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := bulkhead.Config{Size: rapid.IntRange(1, 5).Draw(rt, "size"), Queue: rapid.IntRange(0, 5).Draw(rt, "queue")}
		calls := drawSchedule(rt, panics) // failsafe-go lets a panic end the process
		for i := range calls {
			calls[i].acquire = false // Do is what has an execution timeout
		}
		var ours, theirs []answer
		synctest.Test(t, func(t *testing.T) {
			pool := newPool(t, cfg, nil)
			ours = play(calls, func(i int, ctx context.Context) string {
				return outcome(guardCall(ctx, pool, calls[i], calls[i].work), bulkhead.ErrFull)
			})
		})
		synctest.Test(t, func(*testing.T) {
			peer := newPeer(cfg)
			theirs = play(calls, func(i int, ctx context.Context) string { return peer.call(ctx, calls[i]) })
		})
		for i := range calls {
			if ours[i] != theirs[i] {
				rt.Errorf("call %d %v with %+v: ours %+v, failsafe-go %+v", i, calls[i], cfg, ours[i], theirs[i])
			}
		}
	})
}

type peer struct {
	outer, inner fsbulkhead.Bulkhead[any]
}

func newPeer(cfg bulkhead.Config) peer {
	return peer{
		outer: fsbulkhead.New[any](uint(cfg.Size + cfg.Queue)),
		inner: fsbulkhead.NewBuilder[any](uint(cfg.Size)).WithMaxWaitTime(time.Hour).Build(),
	}
}

func (p peer) call(ctx context.Context, c call) string {
	exec := c.exec
	if exec == 0 {
		exec = time.Hour
	}
	res := failsafe.With[any](p.outer, p.inner, fstimeout.New[any](exec)).WithContext(ctx).
		RunAsyncWithExecution(func(e failsafe.Execution[any]) error { return c.work(e.Context()) })
	select {
	case <-res.Done():
		return outcome(res.Error(), fsbulkhead.ErrFull)
	case <-ctx.Done():
		return "failed"
	}
}

func outcome(err, full error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, full):
		return "full"
	}
	return "failed"
}

// The four trials of the article in virtual time: 60 calls, one every 5 ms, each third a checkout of 20 ms and the
// others recommendations of 2 s; every caller waits 1 s at most.
func TestBulkhead_TrialsGiveTheArticlesCounts(t *testing.T) {
	one := func(size int) func() (checkout, recs bulkhead.Config) {
		return func() (bulkhead.Config, bulkhead.Config) {
			return bulkhead.Config{Size: size, Queue: 4}, bulkhead.Config{}
		}
	}
	perFeature := func() (bulkhead.Config, bulkhead.Config) {
		return bulkhead.Config{Size: 4, Queue: 4}, bulkhead.Config{Size: 12, Queue: 4}
	}
	for _, c := range []struct {
		name         string
		pools        func() (checkout, recs bulkhead.Config) // a recs pool of size 0 means one pool for both
		exec         time.Duration
		recs         manner
		checkoutOK   int
		checkoutLost int
	}{
		{"A shared 16, 1 s", one(16), time.Second, cooperative, 10, 10},
		{"B shared 16, 100 ms", one(16), 100 * time.Millisecond, cooperative, 20, 0},
		{"C as B, recs ignores the signal", one(16), 100 * time.Millisecond, obstinate, 8, 12},
		{"D 4 and 12, 1 s", perFeature, time.Second, cooperative, 20, 0},
	} {
		// An arrival and a checkout's end fall on the same multiple of 5 ms; the counts must hold in either order.
		for _, tie := range []time.Duration{-time.Microsecond, time.Microsecond} {
			t.Run(fmt.Sprintf("%s, ties %v", c.name, tie), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					checkoutCfg, recsCfg := c.pools()
					checkout := newPool(t, checkoutCfg, nil)
					recs := checkout
					if recsCfg.Size > 0 {
						recs = newPool(t, recsCfg, nil)
					}
					calls := make([]call, 60)
					for i := range calls {
						calls[i] = call{arrival: time.Duration(i) * 5 * time.Millisecond, deadline: time.Second, exec: c.exec, takes: 2 * time.Second, manner: c.recs}
						if i%3 == 0 {
							calls[i].takes, calls[i].manner = 20*time.Millisecond+tie, cooperative
						}
					}
					answers := play(calls, func(i int, ctx context.Context) string {
						pool := recs
						if i%3 == 0 {
							pool = checkout
						}
						return outcome(guardCall(ctx, pool, calls[i], calls[i].work), bulkhead.ErrFull)
					})
					var ok, lost, recsOK int
					for i, a := range answers {
						switch {
						case i%3 != 0 && a.outcome == "ok":
							recsOK++
						case i%3 == 0 && a.outcome == "ok":
							ok++
						case i%3 == 0:
							lost++
						}
						if a.after > time.Second {
							t.Errorf("call %d waited %v, want at most its deadline of 1s", i, a.after)
						}
					}
					if ok != c.checkoutOK || lost != c.checkoutLost || recsOK != 0 {
						t.Errorf("checkout %d ok %d failed, recs %d ok; want %d, %d, 0", ok, lost, recsOK, c.checkoutOK, c.checkoutLost)
					}
				})
			})
		}
	}
}
