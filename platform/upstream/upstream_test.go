package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/telemetry/names"
	"example.com/watertight/platform/upstream"
)

// recsConfig is DESIGN's recommendation upstream.
func recsConfig() upstream.Config {
	return upstream.Config{
		Addr: "dns:///recs:50051", Timeout: 150 * time.Millisecond, MaxInFlight: 32, MaxQueue: 8, MaxStreams: 256,
		Breaker: upstream.BreakerConfig{
			Window: 10 * time.Second, MinCalls: 20, Ratio: 0.5, Consecutive: 5, Open: 5 * time.Second, Probes: 3,
		},
	}
}

func newUpstream(t testing.TB, change func(*upstream.Config)) *upstream.Upstream {
	t.Helper()
	cfg := recsConfig()
	if change != nil {
		change(&cfg)
	}
	u, err := upstream.New("recs", cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The ways an upstream can behave.
func answers(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

func healthy(context.Context) error { return nil }

func refuses(context.Context) error { return status.Error(codes.Unavailable, "connection refused") }

// hangs until its context ends and then fails as a gRPC call does.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// wantOutcomes compares the counts that are not zero.
func wantOutcomes(t *testing.T, u *upstream.Upstream, want map[string]uint64) {
	t.Helper()
	got := u.Status().Outcomes
	for o, n := range got {
		if n == 0 {
			delete(got, o)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func wantBreaker(t *testing.T, u *upstream.Upstream, want string) {
	t.Helper()
	if got := u.Status().Breaker; got != want {
		t.Errorf("breaker is %s, want %s", got, want)
	}
}

// wantError checks the code and the reason of an error that the guard made.
func wantError(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	if status.Code(err) != code || rpcerr.Reason(err) != reason {
		t.Errorf("error = %v (reason %q), want %v (reason %q)", err, rpcerr.Reason(err), code, reason)
	}
}

// Each way a call can end: what is counted, what the caller gets, and whether it speaks for or against the upstream.
// The last shows in the breaker: after 4 failures one more sick call opens it; a healthy one resets the count.
func TestDo_JudgesEachCall(t *testing.T) {
	shed := rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "busy", rpcerr.RetryAfter(time.Second))
	wrapped := fmt.Errorf("recommend: %w", context.DeadlineExceeded)
	inTime := func(t *testing.T) context.Context { t.Helper(); return t.Context() }
	shortOf := func(d time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
	}
	leaving := func(d time.Duration) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(d, cancel)
			return ctx
		}
	}
	left := func(t *testing.T) context.Context {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}
	const sick, neutral, well = "sick", "neutral", "healthy"
	for _, c := range []struct {
		name    string
		caller  func(*testing.T) context.Context
		call    func(context.Context) error
		outcome string
		code    codes.Code
		reason  string
		verdict string
	}{
		{"success", inTime, healthy, "ok", codes.OK, "", well},
		{"not found", inTime, answers(rpcerr.New(codes.NotFound, rpcerr.NotFound, "no such product")), "ok", codes.NotFound, rpcerr.NotFound, well},
		{"invalid", inTime, answers(rpcerr.Invalid("limit", "too large")), "ok", codes.InvalidArgument, rpcerr.InvalidArgument, well},
		{"already exists", inTime, answers(status.Error(codes.AlreadyExists, "")), "ok", codes.AlreadyExists, "", well},
		{"unimplemented", inTime, answers(status.Error(codes.Unimplemented, "")), "ok", codes.Unimplemented, "", well},
		{"a client's quota", inTime, answers(rpcerr.New(codes.ResourceExhausted, rpcerr.RateLimited, "slow down")), "ok", codes.ResourceExhausted, rpcerr.RateLimited, well},
		{"the server's pool is full", inTime, answers(shed), "rejected_full", codes.ResourceExhausted, rpcerr.BulkheadFull, neutral},
		{"unavailable", inTime, refuses, "failed", codes.Unavailable, "", sick},
		{"draining", inTime, answers(rpcerr.New(codes.Unavailable, rpcerr.Draining, "going")), "failed", codes.Unavailable, rpcerr.Draining, sick},
		{"internal", inTime, answers(status.Error(codes.Internal, "")), "failed", codes.Internal, "", sick},
		{"data loss", inTime, answers(status.Error(codes.DataLoss, "")), "failed", codes.DataLoss, "", sick},
		{"unknown", inTime, answers(status.Error(codes.Unknown, "")), "failed", codes.Unknown, "", sick},
		{"not a status", inTime, answers(errors.New("broken")), "failed", codes.Unknown, "", sick},
		{"a context error of some layer below, within our deadline", inTime, answers(wrapped), "failed", codes.Unknown, "", sick},
		{"our deadline", inTime, hangs, "timed_out", codes.DeadlineExceeded, rpcerr.Timeout, sick},
		{"our deadline, told as a bare context error", inTime, func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("recommend: %w", ctx.Err()) },
			"timed_out", codes.DeadlineExceeded, rpcerr.Timeout, sick},
		{"the caller's deadline, after most of the time-out", shortOf(100 * time.Millisecond), hangs, "timed_out", codes.DeadlineExceeded, rpcerr.Timeout, sick},
		{"the caller's deadline, too soon to tell", shortOf(50 * time.Millisecond), hangs, "timed_out", codes.DeadlineExceeded, rpcerr.Timeout, neutral},
		{"the caller's deadline, past at arrival", shortOf(-time.Second), healthy, "timed_out", codes.DeadlineExceeded, rpcerr.Timeout, neutral},
		{"a deadline of the server's own making", inTime, answers(status.Error(codes.DeadlineExceeded, "db")), "timed_out", codes.DeadlineExceeded, rpcerr.Timeout, neutral},
		{"the caller goes away", leaving(100 * time.Millisecond), hangs, "cancelled", codes.Canceled, "", neutral},
		{"the caller goes away, told as a bare context error", leaving(100 * time.Millisecond), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			"cancelled", codes.Canceled, "", neutral},
		{"the caller goes away and the connection breaks", leaving(100 * time.Millisecond), func(ctx context.Context) error { <-ctx.Done(); return refuses(ctx) },
			"cancelled", codes.Canceled, "", neutral},
		{"the caller had gone before", left, healthy, "cancelled", codes.Canceled, "", neutral},
		{"an answer that was there before the caller went", leaving(time.Millisecond), func(ctx context.Context) error { <-ctx.Done(); return nil }, "ok", codes.OK, "", well},
		{"cancelled by the server", inTime, answers(status.Error(codes.Canceled, "")), "cancelled", codes.Canceled, "", neutral},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, nil)
				for range 4 {
					_ = u.Do(t.Context(), refuses)
				}
				before := u.Status().Outcomes
				err := u.Do(c.caller(t), c.call)
				wantError(t, err, c.code, c.reason)
				if got := u.Status().Outcomes[c.outcome] - before[c.outcome]; got != 1 {
					t.Errorf("%s counted %d times, want once; %v", c.outcome, got, u.Status().Outcomes)
				}
				got := neutral
				if u.Status().Breaker == "open" {
					got = sick
				} else if _ = u.Do(t.Context(), refuses); u.Status().Breaker == "closed" {
					got = well
				}
				if got != c.verdict {
					t.Errorf("the breaker took it as %s, want %s", got, c.verdict)
				}
				if s := u.Status(); s.InFlight != 0 || s.Queued != 0 {
					t.Errorf("left behind: %+v", s)
				}
			})
		})
	}
}

func TestDo_DeadlineIsTheCallersCappedByTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		for _, c := range []struct{ caller, want time.Duration }{
			{time.Hour, 150 * time.Millisecond},
			{40 * time.Millisecond, 40 * time.Millisecond},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.caller)
			err := u.Do(ctx, func(ctx context.Context) error {
				deadline, ok := ctx.Deadline()
				if left := time.Until(deadline); !ok || left != c.want {
					t.Errorf("caller has %v: the call has %v, want %v", c.caller, left, c.want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			cancel()
		}
	})
}

func TestDo_TimeInTheQueueCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue = 1, 1 })
		go func() { _ = u.Do(t.Context(), takes(100*time.Millisecond)) }()
		synctest.Wait()
		err := u.Do(t.Context(), func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			if left := time.Until(deadline); left != 50*time.Millisecond {
				t.Errorf("after 100ms in the queue the call has %v, want 50ms", left)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDo_WhatTheQueueAteIsNotHeldAgainstTheUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue = 1, 2 })
		for range 20 { // in each round one call is served, one gets too little time, one never gets a slot
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() { _ = u.Do(t.Context(), takes(100*time.Millisecond)) })
				synctest.Wait()
			}
			calls.Wait()
		}
		wantOutcomes(t, u, map[string]uint64{"ok": 20, "timed_out": 40})
		wantBreaker(t, u, "closed")
	})
}

func TestDo_ACallThatWaitedIsNotMadeOnceTheBreakerIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue, c.Breaker.Consecutive = 1, 3, 1 })
		go func() {
			_ = u.Do(t.Context(), func(ctx context.Context) error { _ = takes(50 * time.Millisecond)(ctx); return refuses(ctx) })
		}()
		synctest.Wait()
		for range 3 {
			go func() {
				err := u.Do(t.Context(), func(context.Context) error { t.Error("the call was made"); return nil })
				wantError(t, err, codes.Unavailable, rpcerr.BreakerOpen)
			}()
		}
		time.Sleep(time.Second)
		wantOutcomes(t, u, map[string]uint64{"failed": 1, "rejected_open": 3})
		if got := u.Status().InFlight; got != 0 {
			t.Errorf("in flight = %d, want 0", got)
		}
	})
}

func TestBreaker_OpensAtTheRatio(t *testing.T) {
	for _, c := range []struct {
		name            string
		calls, failures int
		want            string
	}{
		{"half of enough calls", 20, 10, "open"},
		{"less than half", 20, 9, "closed"},
		{"half of too few", 18, 9, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream(t, func(c *upstream.Config) { c.Breaker.Consecutive = 1000 })
				for i := range c.calls {
					call := healthy
					if i >= c.calls-c.failures {
						call = refuses
					}
					_ = u.Do(t.Context(), call)
				}
				wantBreaker(t, u, c.want)
			})
		})
	}
}

func TestBreaker_ForgetsWhatIsOlderThanItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.Breaker.Consecutive = 1000 })
		for range 19 {
			_ = u.Do(t.Context(), refuses)
		}
		time.Sleep(11 * time.Second)
		for range 10 {
			_ = u.Do(t.Context(), healthy)
		}
		_ = u.Do(t.Context(), refuses)
		wantBreaker(t, u, "closed")
	})
}

func TestBreaker_ClosesAfterItsProbesSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		for range 5 {
			_ = u.Do(t.Context(), refuses)
		}
		wantBreaker(t, u, "open")

		err := u.Do(t.Context(), healthy)
		wantError(t, err, codes.Unavailable, rpcerr.BreakerOpen)
		open, _ := rpcerr.Delay(err)
		if open < 3500*time.Millisecond || open > 4500*time.Millisecond {
			t.Errorf("RetryInfo = %v just after opening, want 70 to 90 %% of BREAKER_OPEN (5s)", open)
		}
		time.Sleep(open - 200*time.Millisecond)
		err = u.Do(t.Context(), healthy)
		if d, _ := rpcerr.Delay(err); d != time.Second {
			t.Errorf("RetryInfo = %v with 200ms left, want 1s, the least that can be said in whole seconds", d)
		}

		time.Sleep(201 * time.Millisecond)
		wantBreaker(t, u, "half-open")
		var probes sync.WaitGroup
		for range 3 {
			probes.Go(func() { _ = u.Do(t.Context(), takes(50*time.Millisecond)) })
		}
		synctest.Wait()
		err = u.Do(t.Context(), healthy)
		wantError(t, err, codes.Unavailable, rpcerr.BreakerOpen)
		if d, ok := rpcerr.Delay(err); !ok || d != time.Second {
			t.Errorf("RetryInfo = %v %v while the probes are on their way, want 1s", d, ok)
		}
		probes.Wait()
		wantBreaker(t, u, "closed")
		wantOutcomes(t, u, map[string]uint64{"failed": 5, "rejected_open": 3, "ok": 3})

		for range 4 { // counted afresh: one fewer than it takes
			_ = u.Do(t.Context(), refuses)
		}
		wantBreaker(t, u, "closed")
	})
}

// A probe that hangs reports at its deadline, one whose caller leaves gives its place back, one that cannot get a slot
// does too: half-open is never a dead end.
func TestBreaker_EveryProbeReports(t *testing.T) {
	halfOpen := func(t *testing.T) *upstream.Upstream {
		t.Helper()
		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue, c.Breaker.Probes = 1, 0, 1 })
		for range 5 {
			_ = u.Do(t.Context(), refuses)
		}
		time.Sleep(5001 * time.Millisecond)
		wantBreaker(t, u, "half-open")
		return u
	}
	t.Run("hanging", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := halfOpen(t)
			start := time.Now()
			wantError(t, u.Do(t.Context(), hangs), codes.DeadlineExceeded, rpcerr.Timeout)
			if got := time.Since(start); got >= 5*time.Second {
				t.Errorf("the probe reported after %v, want less than the open time", got)
			}
			wantBreaker(t, u, "open")
		})
	})
	t.Run("abandoned", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := halfOpen(t)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			wantError(t, u.Do(ctx, hangs), codes.Canceled, "")
			wantBreaker(t, u, "half-open")
			if err := u.Do(t.Context(), healthy); err != nil {
				t.Errorf("the next probe = %v, want its place free", err)
			}
			wantBreaker(t, u, "closed")
		})
	})
	t.Run("panicking", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := halfOpen(t)
			func() {
				defer func() { _ = recover() }()
				_ = u.Do(t.Context(), func(context.Context) error { panic("broken") })
			}()
			wantBreaker(t, u, "open")
		})
	})
}

func TestDo_PanicGoesOnAndLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, nil)
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("recovered %v, want the call's own panic", got)
				}
			}()
			_ = u.Do(t.Context(), func(context.Context) error { panic("broken") })
		}()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = u.Do(t.Context(), func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-ended
		wantOutcomes(t, u, map[string]uint64{"failed": 2})
		if got := u.Status().InFlight; got != 0 {
			t.Errorf("in flight = %d, want 0", got)
		}
	})
}

func TestConfig_ErrorsNameTheirVariables(t *testing.T) {
	if err := recsConfig().Validate(); err != nil {
		t.Errorf("Validate = %v for the defaults, want nil", err)
	}
	for name, spoil := range map[string]func(*upstream.Config){
		"ADDR":                func(c *upstream.Config) { c.Addr = "" },
		"TIMEOUT":             func(c *upstream.Config) { c.Timeout = 0 },
		"MAX_IN_FLIGHT":       func(c *upstream.Config) { c.MaxInFlight = 0 },
		"MAX_QUEUE":           func(c *upstream.Config) { c.MaxQueue = -1 },
		"MAX_STREAMS":         func(c *upstream.Config) { c.MaxStreams = 0 },
		"BREAKER_WINDOW":      func(c *upstream.Config) { c.Breaker.Window = 0 },
		"BREAKER_MIN_CALLS":   func(c *upstream.Config) { c.Breaker.MinCalls = 0 },
		"BREAKER_RATIO":       func(c *upstream.Config) { c.Breaker.Ratio = 1.5 },
		"BREAKER_CONSECUTIVE": func(c *upstream.Config) { c.Breaker.Consecutive = 0 },
		"BREAKER_OPEN":        func(c *upstream.Config) { c.Breaker.Open = c.Timeout },
		"BREAKER_PROBES":      func(c *upstream.Config) { c.Breaker.Probes = 0 },
	} {
		cfg := recsConfig()
		spoil(&cfg)
		if err := cfg.Validate(); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s spoiled: Validate = %v, want an error that starts with it", name, err)
		}
		if _, err := upstream.New("recs", cfg, nil); err == nil || !strings.Contains(err.Error(), "upstream recs: "+name+": ") {
			t.Errorf("%s spoiled: New = %v, want an error that names both", name, err)
		}
	}
	everything := upstream.Config{}.Validate()
	if got := len(strings.Split(everything.Error(), "\n")); got < 9 {
		t.Errorf("an empty Config gives %d errors, want all of them at once:\n%v", got, everything)
	}
}

// A process declares its own defaults in a struct of the same shape.
func TestConfig_IsReadFromTheEnvironment(t *testing.T) {
	type recs struct {
		Addr        string                 `env:"ADDR" envDefault:"dns:///recs:50051"`
		Timeout     time.Duration          `env:"TIMEOUT" envDefault:"150ms"`
		MaxInFlight int                    `env:"MAX_IN_FLIGHT" envDefault:"32"`
		MaxQueue    int                    `env:"MAX_QUEUE" envDefault:"8"`
		MaxStreams  int                    `env:"MAX_STREAMS" envDefault:"256"`
		Breaker     upstream.BreakerConfig `envPrefix:"BREAKER_"`
	}
	type process struct {
		Recs recs `envPrefix:"RECS_"`
	}
	got, err := config.Load[process]([]string{"RECS_MAX_IN_FLIGHT=7", "RECS_BREAKER_OPEN=3s"})
	if err != nil {
		t.Fatal(err)
	}
	want := recsConfig()
	want.MaxInFlight, want.Breaker.Open = 7, 3*time.Second
	if diff := cmp.Diff(want, upstream.Config(got.Recs)); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestStatus_IsTheUpstreamsPartOfTheStatusPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue = 2, 2 })
		_ = u.Do(t.Context(), healthy)
		for range 3 {
			go func() { _ = u.Do(t.Context(), takes(100*time.Millisecond)) }()
		}
		synctest.Wait()
		u.Degraded(t.Context())
		got, err := json.Marshal(u.Status())
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"name":"recs","breaker":"closed","in_flight":2,"queued":1,` +
			`"limits":{"max_in_flight":2,"max_queue":2,"max_streams":256,"timeout_ms":150},` +
			`"outcomes":{"cancelled":0,"degraded":1,"failed":0,"ok":1,"rejected_full":0,"rejected_open":0,"timed_out":0}}`
		if string(got) != want {
			t.Errorf("status =\n%s, want\n%s", got, want)
		}
		time.Sleep(time.Second)
	})
}

func TestMetrics_ShowEachUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		cfg := recsConfig()
		recs, err := upstream.New("recs", cfg, reg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upstream.New("search", cfg, reg); err != nil {
			t.Fatalf("a second upstream on the same registry: %v", err)
		}
		if _, err := upstream.New("recs", cfg, reg); err == nil || !strings.Contains(err.Error(), "upstream recs") {
			t.Errorf("recs twice on one registry = %v, want an error that names it", err)
		}
		for range 5 {
			_ = recs.Do(t.Context(), refuses)
		}
		_ = recs.Do(t.Context(), healthy)
		recs.Degraded(t.Context())

		want := map[string]float64{}
		for _, o := range []string{"ok", "degraded", "rejected_full", "rejected_open", "timed_out", "failed", "cancelled"} {
			want["watertight_upstream_requests_total recs "+o] = 0
			want["watertight_upstream_requests_total search "+o] = 0
		}
		want["watertight_upstream_requests_total recs failed"] = 5
		want["watertight_upstream_requests_total recs rejected_open"] = 1
		want["watertight_upstream_requests_total recs degraded"] = 1
		want["watertight_upstream_breaker_state recs "] = 2
		want["watertight_upstream_breaker_state search "] = 0
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		pools := map[string]bool{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if pool, ok := labels["pool"]; ok {
					pools[pool] = true
					continue
				}
				got[f.GetName()+" "+labels["upstream"]+" "+labels["outcome"]] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]bool{"recs": true, "recs-streams": true, "search": true, "search-streams": true}, pools); diff != "" {
			t.Errorf("pools (-want +got):\n%s", diff)
		}
		time.Sleep(5001 * time.Millisecond)
		if got := recs.Status().Breaker; got != "half-open" {
			t.Errorf("breaker after its open time = %s, want half-open without a call to wake it", got)
		}
	})
}

func TestSpan_TellsHowTheCallWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		ctx, page := provider.Tracer("test").Start(t.Context(), "GET /products/{id}")

		u := newUpstream(t, func(c *upstream.Config) { c.MaxInFlight, c.MaxQueue = 1, 1 })
		go func() { _ = u.Do(context.Background(), takes(40*time.Millisecond)) }()
		synctest.Wait()
		if err := u.Do(ctx, healthy); err != nil {
			t.Error(err)
		}
		_ = u.Do(ctx, hangs)
		for range 5 {
			_ = u.Do(ctx, refuses)
		}
		u.Degraded(ctx)
		page.End()

		attributes := func(s sdktrace.ReadOnlySpan) map[string]any {
			m := map[string]any{}
			for _, a := range s.Attributes() {
				m[string(a.Key)] = a.Value.AsInterface()
			}
			return m
		}
		ended := spans.Ended()
		if len(ended) != 8 {
			t.Fatalf("%d spans, want one for each of 7 calls and the page's", len(ended))
		}
		for i, want := range map[int]map[string]any{
			0: {"upstream.name": "recs", "upstream.outcome": "ok", "upstream.breaker": "closed", "bulkhead.name": "recs", "bulkhead.queue_wait_seconds": 0.04},
			1: {"upstream.name": "recs", "upstream.outcome": "timed_out", "upstream.breaker": "closed", "error.type": "timed_out"},
			6: {"upstream.name": "recs", "upstream.outcome": "rejected_open", "upstream.breaker": "open", "error.type": "rejected_open"},
			7: {"upstream.name": "recs", "upstream.outcome": "degraded"},
		} {
			if diff := cmp.Diff(want, attributes(ended[i])); diff != "" {
				t.Errorf("span %d %s (-want +got):\n%s", i, ended[i].Name(), diff)
			}
		}
		var events []string
		for _, e := range ended[5].Events() {
			events = append(events, e.Name)
		}
		if want := []string{names.BreakerChanged}; !slices.Equal(events, want) || len(ended[4].Events()) > 0 {
			t.Errorf("the fifth failure in a row has the events %q, want %q, and the ones before none", events, want)
		}
		if got := ended[6].Status().Description; !strings.Contains(got, "recs has been failing") {
			t.Errorf("a call that was not made says %q, want why", got)
		}
		if got := ended[1].Parent().SpanID(); got != page.SpanContext().SpanID() {
			t.Errorf("the call's span has parent %v, want the page's", got)
		}
	})
}

// What is allocated for a call: the deadline's context and its timer, and what the breaker reports with.
func TestDo_AllocatesSixTimesAtMost(t *testing.T) {
	u := newUpstream(t, nil)
	allocations := testing.AllocsPerRun(1000, func() {
		if err := u.Do(context.Background(), healthy); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 6 {
		t.Errorf("got %v allocations for a call, want 6 at most", allocations)
	}
}

func BenchmarkDo(b *testing.B) {
	u := newUpstream(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := u.Do(context.Background(), healthy); err != nil {
			b.Fatal(err)
		}
	}
}
