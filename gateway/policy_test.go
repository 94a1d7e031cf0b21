package gateway_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/shoptest"
	"example.com/watertight/platform/rpcerr"
)

// Field report 4: bad requests neither open the breaker nor come back as 500.
func TestReport4_BadRequestsDoNotOpenTheBreaker(t *testing.T) {
	e := newEdge(t, options{})
	for i := range 200 {
		path, want := "/api/v1/orders/00000000-0000-4000-8000-999999999999", 404
		if i%2 == 0 {
			path, want = "/api/v1/orders/not-a-uuid", 400
		}
		if a := e.get(t, path); a.Status != want {
			t.Fatalf("request %d: %d, want %d: %s", i, a.Status, want, a.Body)
		}
	}
	if a := e.order(t, "k"); a.Status != 201 {
		t.Errorf("the next good one: %d %s", a.Status, a.Body)
	}
	if s := e.Upstreams.Status()[0]; s.Breaker != "closed" || s.Outcomes["failed"] != 0 {
		t.Errorf("checkout: %+v", s)
	}
}

// Field report 6.
func TestReport6_AHangingRecsNeverHoldsMoreThanItsBulkhead(t *testing.T) {
	e := newEdge(t, options{environ: []string{"RECS_MAX_IN_FLIGHT=5", "RECS_MAX_QUEUE=3", "SEARCH_MAX_IN_FLIGHT=1000"}})
	heal := make(chan struct{})
	var now, most atomic.Int64
	e.Recs.Do(func(context.Context, string) error {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old; old = most.Load() {
			most.CompareAndSwap(old, n)
		}
		<-heal
		return nil
	})
	var whole, degraded atomic.Int64
	var pages sync.WaitGroup
	for range 500 {
		pages.Go(func() {
			a, err := e.try(t.Context(), "GET", "/api/v1/products/P-1", "")
			if err != nil || a.Status != 200 {
				t.Errorf("got %d %v %v", a.Status, a.Header, err)
			}
			if a.Header.Get("Watertight-Degraded") == "recs" {
				degraded.Add(1)
			} else {
				whole.Add(1)
			}
		})
	}
	eventually(t, "all but those inside are answered", func() bool { return degraded.Load() == 500-5-3 })
	if s := e.Upstreams.Status()[2]; s.InFlight != 5 || s.Queued != 3 || s.Breaker != "closed" {
		t.Errorf("recs: %+v, want 5 in flight, 3 queued and a closed breaker (field report 7)", s)
	}
	close(heal)
	pages.Wait()
	if most.Load() != 5 || whole.Load() != 8 {
		t.Errorf("%d calls at recs at once and %d whole pages, want 5 and 8", most.Load(), whole.Load())
	}
}

// Field report 10: every shed answer is quick and says when to come back.
func TestReport10_ShedAnswersAreQuickAndSayWhenToComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"checkout's own pool is full": {rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "full", rpcerr.RetryAfter(1500*time.Millisecond)),
			503, "bulkhead_full"},
		"checkout drains":             {rpcerr.New(codes.Unavailable, rpcerr.Draining, "draining"), 503, "draining"},
		"checkout's share is used up": {rpcerr.New(codes.ResourceExhausted, rpcerr.RateLimited, "slow down"), 429, "rate_limited"},
		"checkout is away":            {status.Error(codes.Unavailable, "dial tcp 10.1.2.3:50051: connect refused"), 503, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, options{})
			e.Checkout.Fail(tc.err)
			a := e.order(t, "k")
			wantProblem(t, a, tc.status, tc.code)
			if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("Retry-After = %q, want whole seconds ≥ 1", a.Header.Get("Retry-After"))
			}
			if strings.Contains(a.Body, "dial") || strings.Contains(a.Body, "10.1.2.3") {
				t.Errorf("internals in the body: %s", a.Body)
			}
		})
	}
}

func TestReport10_AFullBulkheadAndAnOpenBreakerShedAtOnce(t *testing.T) {
	e := newEdge(t, options{environ: []string{"CHECKOUT_MAX_IN_FLIGHT=1", "CHECKOUT_MAX_QUEUE=0"}})
	arrived := make(chan struct{}, 1)
	e.Checkout.Do(func(ctx context.Context, _ string) error {
		arrived <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = e.try(ctx, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "slow")
	}()
	<-arrived
	a := e.order(t, "k")
	wantProblem(t, a, 503, "bulkhead_full")
	if a.Header.Get("Retry-After") != "1" || a.Took > time.Second {
		t.Errorf("Retry-After %q after %v", a.Header.Get("Retry-After"), a.Took)
	}
	leave()
	<-done
	eventually(t, "the slot is free", func() bool { return e.Upstreams.Status()[0].InFlight == 0 })

	e.Checkout.Fail(status.Error(codes.Internal, "boom"))
	for range 5 { // CHECKOUT_BREAKER_CONSECUTIVE
		wantProblem(t, e.order(t, "k"), 500, "internal")
	}
	a = e.order(t, "k")
	wantProblem(t, a, 503, "breaker_open")
	if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 2 || n > 30 {
		t.Errorf("Retry-After = %q, want the time until the breaker lets probes through (30 s at most)", a.Header.Get("Retry-After"))
	}
	if a.Took > time.Second {
		t.Errorf("shed after %v", a.Took)
	}
}

// Field report 11: the connection dies after checkout committed.
func TestReport11_AnOrderIsSentOnce(t *testing.T) {
	e := newEdge(t, options{})
	for _, err := range []error{
		status.Error(codes.Unavailable, "connection reset"), status.Error(codes.Internal, "stream reset"),
		status.Error(codes.DeadlineExceeded, "late"), status.Error(codes.Aborted, "again"),
	} {
		before := e.Checkout.Calls.Load()
		e.Checkout.Fail(err)
		if a := e.order(t, "k"); a.Status < 400 {
			t.Errorf("%v: %d", err, a.Status)
		}
		if calls := e.Checkout.Calls.Load() - before; calls != 1 {
			t.Errorf("%v: checkout was called %d times, want once", err, calls)
		}
	}
	e.Checkout.Do(nil)
	if a := e.order(t, "k"); a.Status != 201 {
		t.Errorf("the client's own second try: %d %s", a.Status, a.Body)
	}
}

func TestReport11_AConnectionThatDiesIsNotTriedAgain(t *testing.T) {
	e := newEdge(t, options{})
	e.Checkout.Do(func(context.Context, string) error {
		go e.Checkout.Stop() // cuts the connection under the call
		<-t.Context().Done()
		return nil
	})
	defer e.Checkout.Do(nil)
	a := e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "k", "Grpc-Timeout", "3S")
	if a.Status != 503 && a.Status != 504 {
		t.Errorf("got %d %s, want 503 or 504", a.Status, a.Body)
	}
	if calls := e.Checkout.Calls.Load(); calls != 1 {
		t.Errorf("checkout was called %d times, want once", calls)
	}
}

// Field report 12.
func TestReport12_WhenTheClientLeavesTheBackendsCallEnds(t *testing.T) {
	ended := make(chan time.Time, 1)
	e := newEdge(t, options{})
	e.Recs.Hang(ended)
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := e.try(ctx, "GET", "/api/v1/products/P-1", "")
		answered <- err
	}()
	eventually(t, "recs is at work", func() bool { return e.Recs.Calls.Load() == 1 })
	leave()
	left := time.Now()
	err := <-answered
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the client got %v, want its own end", err)
	}
	select {
	case at := <-ended:
		if late := at.Sub(left); late > 5*time.Second {
			t.Errorf("recs saw the end %v later", late)
		}
	case <-time.After(15 * time.Second): // RECS_TIMEOUT is 20 s here
		t.Fatal("recs never saw the end")
	}
	eventually(t, "the slot is free", func() bool { return e.Upstreams.Status()[2].InFlight == 0 })
	eventually(t, "the line is in the log", func() bool { return len(e.Log.All()) > 0 })
	line := e.Log.All()[0]
	if !strings.Contains(line, `"status":499`) || !strings.Contains(line, `"level":"INFO"`) {
		t.Errorf("logged %s, want a 499 that is no error", line)
	}
	if s := e.Upstreams.Status()[2]; s.Outcomes["cancelled"] != 1 || s.Outcomes["degraded"] != 0 {
		t.Errorf("recs: %+v, want one cancelled call", s.Outcomes)
	}
}

// Field report 13.
func TestReport13_TheClientsBudgetReachesEveryBackend(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "first")
	for _, path := range []string{"/api/v1/products/P-1", "/api/v1/products", "/api/v1/recommendations", "/api/v1/orders/" + firstOrder} {
		e.get(t, path, "Grpc-Timeout", "400m")
	}
	e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "k", "Grpc-Timeout", "400m")
	for name, peer := range map[string]*shoptest.Peer{"checkout": e.Checkout, "search": e.Search, "recs": e.Recs} {
		deadlines := peer.Deadlines()
		if name == "checkout" {
			deadlines = deadlines[1:]
		}
		if len(deadlines) == 0 {
			t.Errorf("%s was not called", name)
		}
		for _, left := range deadlines {
			if left < 0 || left > 400*time.Millisecond {
				t.Errorf("%s: %v left at arrival, want at most 400 ms", name, left)
			}
		}
	}
	wantProblem(t, e.get(t, "/api/v1/products", "Grpc-Timeout", "0m"), 504, "timeout")
	for _, odd := range []string{"400", "400ms", "-1S", "1.5S", "123456789S", "S", "400 m"} {
		p := wantProblem(t, e.get(t, "/api/v1/products", "Grpc-Timeout", odd), 400, "invalid_argument")
		if len(p.Errors) != 1 || p.Errors[0].Field != "Grpc-Timeout" {
			t.Errorf("Grpc-Timeout %s: %+v", odd, p)
		}
	}
	if a := e.get(t, "/api/v1/products", "Grpc-Timeout", "99999999H"); a.Status != 200 {
		t.Errorf("a long budget: %d %s", a.Status, a.Body)
	}
}

func TestDeadline_EveryBackendCallHasOne(t *testing.T) {
	e := newEdge(t, options{environ: []string{"CHECKOUT_TIMEOUT=2s", "SEARCH_TIMEOUT=1s", "RECS_TIMEOUT=500ms"}})
	e.order(t, "k")
	e.get(t, "/api/v1/products/P-1")
	for limit, peer := range map[time.Duration]*shoptest.Peer{2 * time.Second: e.Checkout, time.Second: e.Search, 500 * time.Millisecond: e.Recs} {
		for _, left := range peer.Deadlines() {
			if left < 0 || left > limit {
				t.Errorf("%v left at arrival, want at most %v", left, limit)
			}
		}
	}
}

func TestDeadline_AHangingCheckoutIsA504(t *testing.T) {
	e := newEdge(t, options{environ: []string{"CHECKOUT_TIMEOUT=100ms"}})
	e.Checkout.Hang(nil)
	wantProblem(t, e.order(t, "k"), 504, "timeout")
}

// Field report 14.
func TestReport14_AFailingRecsIsNotCalledMoreThanOncePerPage(t *testing.T) {
	e := newEdge(t, options{})
	e.Recs.Fail(status.Error(codes.Unavailable, "down"))
	for range 1000 {
		if a := e.get(t, "/api/v1/products/P-1"); a.Status != 200 {
			t.Fatalf("page: %d %s", a.Status, a.Body)
		}
	}
	if calls := e.Recs.Calls.Load(); calls > 100 {
		t.Errorf("recs saw %d calls for 1000 pages, want few once the breaker is open (5 failures open it)", calls)
	}
	if s := e.Upstreams.Status()[2]; s.Breaker != "open" || s.Outcomes["degraded"] != 1000 {
		t.Errorf("recs: %+v, want an open breaker and 1000 degraded pages", s)
	}
}

func TestRetry_ReadsAreTriedAgainAndOnlyThey(t *testing.T) {
	e := newEdge(t, options{})
	failFirst := func(peer *shoptest.Peer) {
		var n atomic.Int64
		peer.Do(func(context.Context, string) error {
			if n.Add(1) == 1 {
				return status.Error(codes.Unavailable, "blip")
			}
			return nil
		})
	}
	e.order(t, "k")
	for path, peer := range map[string]*shoptest.Peer{"/api/v1/products": e.Search, "/api/v1/orders/" + firstOrder: e.Checkout} {
		failFirst(peer)
		if a := e.get(t, path); a.Status != 200 {
			t.Errorf("GET %s: %d %s, want the second try's answer", path, a.Status, a.Body)
		}
	}
	failFirst(e.Recs)
	if a := e.get(t, "/api/v1/recommendations"); a.Header.Get("Watertight-Degraded") != "recs" {
		t.Errorf("recs was tried again: %s", a.Body)
	}
	failFirst(e.Checkout)
	wantProblem(t, e.order(t, "k"), 503, "unavailable")
}

// Field report 15, over the wire.
func TestReport15_EachGRPCCodeHasItsHTTPStatus(t *testing.T) {
	e := newEdge(t, options{environ: []string{"SEARCH_BREAKER_CONSECUTIVE=1000", "SEARCH_BREAKER_MIN_CALLS=1000"}})
	for code, want := range map[codes.Code]int{
		codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504, codes.NotFound: 404,
		codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.Unauthenticated: 401, codes.ResourceExhausted: 429,
		codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501, codes.Internal: 500,
		codes.Unavailable: 503, codes.DataLoss: 500,
	} {
		e.Search.Fail(status.Error(code, "SQLSTATE 42P01"))
		a := e.get(t, "/api/v1/products")
		if a.Status != want || (want >= 500 && strings.Contains(a.Body, "SQLSTATE")) {
			t.Errorf("%v: %d %s, want %d", code, a.Status, a.Body, want)
		}
	}
	for _, line := range e.Log.All() {
		if strings.Contains(line, `"status":499`) && !strings.Contains(line, `"level":"INFO"`) {
			t.Errorf("a client that went away is logged as trouble: %s", line)
		}
	}
}

// Field report 51.
func TestReport51_No5xxSpeaksOfInternals(t *testing.T) {
	e := newEdge(t, options{environ: []string{
		"SEARCH_BREAKER_CONSECUTIVE=1000", "SEARCH_BREAKER_MIN_CALLS=1000", "CHECKOUT_BREAKER_CONSECUTIVE=1000", "CHECKOUT_BREAKER_MIN_CALLS=1000",
	}})
	secrets := `rpc error: code = Unavailable desc = dial tcp 10.9.8.7:5432: connect: connection refused; relation "orders" (SQLSTATE 42P01)`
	check := func(a answer) {
		t.Helper()
		if a.Status < 500 {
			t.Errorf("got %d, want a 5xx: %s", a.Status, a.Body)
		}
		for _, word := range []string{"dial", "SQLSTATE", "rpc error", "10.9.8.7", "127.0.0.1", "relation", "desc =", "transport"} {
			if strings.Contains(a.Body, word) {
				t.Errorf("a %d says %q: %s", a.Status, word, a.Body)
			}
		}
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.DataLoss, codes.Unimplemented, codes.DeadlineExceeded} {
		for _, err := range []error{status.Error(code, secrets), rpcerr.New(code, rpcerr.Internal, secrets, rpcerr.Meta("table", "orders relation"),
			rpcerr.Field("dial", secrets))} {
			e.Search.Fail(err)
			e.Checkout.Fail(err)
			check(e.get(t, "/api/v1/products"))
			check(e.get(t, "/api/v1/products/P-1"))
			check(e.order(t, "k"))
			check(e.get(t, "/api/v1/orders/"+firstOrder))
			check(e.get(t, "/api/v1/orders/"+firstOrder+"/events"))
		}
	}
	e.Search.Stop()
	e.Checkout.Stop()
	check(e.get(t, "/api/v1/products"))
	check(e.order(t, "k"))
	var logged bool
	for _, line := range e.Log.All() {
		logged = logged || strings.Contains(line, "10.9.8.7")
	}
	if !logged {
		t.Error("the cause is not in the log either")
	}
}

func TestClientRate_IsPerClientAndSaysWhenToComeBack(t *testing.T) {
	e := newEdge(t, options{environ: []string{"CLIENT_RATE=0.01"}})
	if a := e.get(t, "/api/v1/products"); a.Status != 200 {
		t.Fatalf("the first request: %d", a.Status)
	}
	// Field report 50: rotating X-Forwarded-For is one client.
	for _, forged := range []string{"1.1.1.1", "2.2.2.2", "3.3.3.3, 4.4.4.4"} {
		a := e.get(t, "/api/v1/products", "X-Forwarded-For", forged)
		wantProblem(t, a, 429, "rate_limited")
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 || n > 100 {
			t.Errorf("Retry-After = %q", a.Header.Get("Retry-After"))
		}
	}

	e = newEdge(t, options{environ: []string{"CLIENT_RATE=0.01", "TRUSTED_PROXIES=127.0.0.0/8"}})
	for _, client := range []string{"1.1.1.1", "2.2.2.2", "9.9.9.9, 3.3.3.3"} {
		if a := e.get(t, "/api/v1/products", "X-Forwarded-For", client); a.Status != 200 {
			t.Errorf("%s behind a trusted proxy: %d", client, a.Status)
		}
	}
	wantProblem(t, e.get(t, "/api/v1/products", "X-Forwarded-For", "8.8.8.8, 3.3.3.3"), 429, "rate_limited")
}
