package upstream_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
)

// What went wrong for others, as far as one guarded upstream can keep it from going wrong here.

func TestFieldReport_04_BadRequestsNeverOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		for i := range 200 {
			bad := rpcerr.Invalid("product_id", "too long")
			if i%2 == 1 {
				bad = rpcerr.New(codes.NotFound, rpcerr.NotFound, "no such product")
			}
			if got := u.Do(t.Context(), answers(bad)); got != bad {
				t.Fatalf("call %d = %v, want the upstream's own answer", i, got)
			}
		}
		if err := u.Do(t.Context(), healthy); err != nil {
			t.Errorf("the next good call = %v, want success", err)
		}
		wantOutcomes(t, u, map[string]uint64{"ok": 201})
	})
}

func TestFieldReport_05_AQuietOutageOpensTheBreaker(t *testing.T) {
	for _, gap := range []time.Duration{0, time.Second, time.Minute, time.Hour} { // the window is 10 s
		t.Run(gap.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, nil)
				for range 10_000 {
					_ = u.Do(t.Context(), healthy)
				}
				calls := 0
				for range 30 {
					time.Sleep(gap)
					_ = u.Do(t.Context(), func(ctx context.Context) error { calls++; return refuses(ctx) })
					if calls == 5 {
						break
					}
				}
				wantBreaker(t, u, "open")
			})
		})
	}
}

func TestFieldReport_06_AHangingUpstreamNeverHoldsMoreThanTheBulkhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		var now, peak atomic.Int64
		var callers sync.WaitGroup
		start := time.Now()
		for range 500 {
			callers.Go(func() {
				_ = u.Do(t.Context(), func(ctx context.Context) error {
					peak.Store(max(peak.Load(), now.Add(1)))
					defer now.Add(-1)
					return hangs(ctx)
				})
			})
		}
		synctest.Wait()
		if s := u.Status(); s.InFlight != 32 || s.Queued != 8 {
			t.Errorf("in flight %d, queued %d, want the limits 32 and 8", s.InFlight, s.Queued)
		}
		callers.Wait()
		if got := peak.Load(); got != 32 {
			t.Errorf("at most %d at the upstream, want the bulkhead's 32", got)
		}
		if got := time.Since(start); got != 150*time.Millisecond {
			t.Errorf("the last caller was answered after %v, want the time-out of 150ms", got)
		}
		wantOutcomes(t, u, map[string]uint64{"timed_out": 40, "rejected_full": 460})
	})
}

func TestFieldReport_07_OverloadOfAHealthyUpstreamShedsAndNeverOpensTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		serverBusy := rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "busy", rpcerr.RetryAfter(time.Second))
		var callers sync.WaitGroup
		for i := range 4000 { // 2 000 a second against 32 slots of 50 ms, which serve 640
			callers.Go(func() {
				err := u.Do(t.Context(), func(ctx context.Context) error {
					if i%10 == 0 {
						return serverBusy
					}
					return takes(50 * time.Millisecond)(ctx)
				})
				if err == nil {
					return
				}
				wantError(t, err, codes.ResourceExhausted, rpcerr.BulkheadFull)
				if d, ok := rpcerr.Delay(err); !ok || d < time.Second {
					t.Errorf("RetryInfo = %v %v, want at least 1s", d, ok)
				}
			})
			time.Sleep(500 * time.Microsecond)
			if got := u.Status().Breaker; got != "closed" {
				t.Errorf("after %d calls the breaker is %s", i+1, got)
				break
			}
		}
		callers.Wait()
		if got := u.Status().Outcomes; got["ok"] < 1000 || got["rejected_full"] < 1000 || got["ok"]+got["rejected_full"] != 4000 {
			t.Errorf("outcomes = %v, want every call either served or shed, and plenty of each", got)
		}
	})
}

func TestFieldReport_08_NoSlotIsLostOnPanicTimeoutOrCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.Breaker.Consecutive, c.Breaker.MinCalls = 10_000, 10_000 })
		for i := range 320 {
			go func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				_ = u.Do(ctx, func(ctx context.Context) error {
					switch i % 4 {
					case 0:
						panic("broken")
					case 1:
						runtime.Goexit()
					case 2:
						cancel()
					}
					return hangs(ctx)
				})
			}()
			time.Sleep(2 * time.Millisecond)
		}
		time.Sleep(time.Second)

		var served atomic.Int64
		for range 32 {
			go func() {
				_ = u.Do(t.Context(), func(ctx context.Context) error { served.Add(1); return takes(100 * time.Millisecond)(ctx) })
			}()
		}
		synctest.Wait()
		if s := u.Status(); served.Load() != 32 || s.InFlight != 32 || s.Queued != 0 {
			t.Errorf("%d of 32 good calls run at once, %+v", served.Load(), s)
		}
		time.Sleep(time.Second)
	})
}

func TestFieldReport_09_WaitersThatGaveUpGetNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.Timeout, c.Breaker.Open = 4*time.Second, 10*time.Second })
		for range 32 {
			go func() { _ = u.Do(t.Context(), takes(time.Second)) }()
		}
		synctest.Wait()
		for range 5 {
			for range 8 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					wantError(t, u.Do(ctx, healthy), codes.DeadlineExceeded, rpcerr.Timeout)
				}()
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second) // the 32 are done
		for range 32 {
			go func() { _ = u.Do(t.Context(), takes(time.Second)) }()
		}
		synctest.Wait()
		if s := u.Status(); s.InFlight != 32 || s.Queued != 0 {
			t.Errorf("in flight %d, queued %d, want all 32 slots in use at once", s.InFlight, s.Queued)
		}
		time.Sleep(2 * time.Second)
		wantOutcomes(t, u, map[string]uint64{"ok": 64, "timed_out": 40})
	})
}

func TestFieldReport_14_AFailingUpstreamIsNotCalledMoreThanAsked(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  time.Duration // between pages
		most int64
	}{
		{"all at once", 0, 5},
		{"100 pages a second for 10 s", 10 * time.Millisecond, 7}, // 5 to open, one probe in each of two half-opens at most
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, nil)
				var calls int64
				for range 1000 {
					err := u.Do(t.Context(), func(context.Context) error { calls++; return status.Error(codes.Unavailable, "crashed") })
					if err == nil {
						t.Fatal("a failing upstream answered")
					}
					u.Degraded(t.Context()) // the page is served without recommendations
					time.Sleep(c.gap)
				}
				if calls > c.most || calls < 5 {
					t.Errorf("the upstream saw %d calls for 1000 pages, want 5 to %d", calls, c.most)
				}
				got := u.Status().Outcomes
				if got["degraded"] != 1000 || got["failed"] != uint64(calls) || got["failed"]+got["rejected_open"] != 1000 {
					t.Errorf("outcomes = %v, want 1000 degraded pages, each with one cause", got)
				}
			})
		})
	}
}
