package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.uber.org/goleak"
)

func start(t *testing.T, shop *fakeShop) Target {
	t.Helper()
	server := httptest.NewServer(shop)
	t.Cleanup(server.Close)
	return target(t, server.URL)
}

// Were the schedule to wait for any answer, it would wait here for all: nobody is answered before the last has arrived.
func TestDrive_NeverWaitsForAnswers(t *testing.T) {
	const n = 200
	all := make(chan struct{})
	shop := &fakeShop{}
	shop.script = func(http.ResponseWriter, *http.Request) bool {
		if shop.arrived.Load() == n {
			close(all)
		}
		<-all
		return false
	}
	gateway := start(t, shop)
	result := drive(t, gateway, evenly(n, 400, orderNumber(gateway)), options())
	if got := result.Total.Outcomes; got.OK != n {
		t.Errorf("got %+v, want %d ok", got, n)
	}
	if got := result.Generator.MaxInFlight; got != n {
		t.Errorf("most in flight: got %d, want %d", got, n)
	}
	if first := result.Series[0]; first.Operations[Checkout].Max < 400 {
		t.Errorf("the longest wait was %v ms, want the half second from the first arrival to the last", first.Operations[Checkout].Max)
	}
}

func TestDrive_CountsWhatItDoesNotSend(t *testing.T) {
	const n, limit = 50, 10
	release := make(chan struct{})
	shop := &fakeShop{script: func(http.ResponseWriter, *http.Request) bool { <-release; return false }}
	gateway := start(t, shop)
	o := options()
	o.MaxInFlight = limit
	o.Progress = func(p Progress) {
		if p.NotSent == n-limit {
			select {
			case <-release:
			default:
				close(release)
			}
		}
	}
	result := drive(t, gateway, evenly(n, 1000, orderNumber(gateway)), o)
	if got := result.Total; got.Outcomes.OK != limit || got.Outcomes.Lost != n-limit || got.Codes[CodeInFlightLimit] != n-limit || got.Tries != limit {
		t.Errorf("got %+v, want %d ok, the rest lost and not sent", got, limit)
	}
	if got := shop.arrived.Load(); got != limit {
		t.Errorf("the shop got %d requests, want %d", got, limit)
	}
	if len(result.Warnings) == 0 || !strings.Contains(strings.Join(result.Warnings, "\n"), "40 requests were not sent") {
		t.Errorf("warnings: got %q, want one about 40 requests", result.Warnings)
	}
}

func TestDrive_CountsEveryOutcomeAndLeavesTheWarmUpOut(t *testing.T) {
	turn := 0
	shop := &fakeShop{}
	gateway := start(t, shop)
	shop.script = func(w http.ResponseWriter, _ *http.Request) bool {
		shop.mu.Lock()
		defer shop.mu.Unlock()
		turn++
		switch turn % 5 {
		case 0:
			problem(w, http.StatusServiceUnavailable, "breaker_open")
		case 1:
			problem(w, http.StatusGatewayTimeout, "timeout")
		case 2:
			problem(w, http.StatusInternalServerError, "internal")
		case 3:
			panic(http.ErrAbortHandler)
		case 4:
			w.Header().Set("Watertight-Degraded", "recs")
			writeJSON(w, http.StatusOK, map[string]any{})
		}
		return true
	}
	recommend := func(int) Request { return gateway.Recommend("P01", "c-1") }
	o := options()
	o.Warmup = 500 * time.Millisecond
	result := drive(t, gateway, evenly(150, 100, recommend), o) // 1.5 s
	want := OutcomeCounts{Degraded: 20, Rejected: 20, TimedOut: 20, Error: 20, Lost: 20}
	got := result.Operation(Recs)
	// The order in which requests reach the shop may differ from that in which they started by a few.
	for _, n := range []int64{got.Outcomes.Degraded, got.Outcomes.Rejected, got.Outcomes.TimedOut, got.Outcomes.Error, got.Outcomes.Lost} {
		if n < 15 || n > 25 {
			t.Errorf("outcomes: got %+v, want %+v", got.Outcomes, want)
			break
		}
	}
	if got.Requests != 100 || got.Outcomes.Sum() != 100 || got.ErrorRatio != 1 || got.Goodput != 0 {
		t.Errorf("got %+v, want 100 requests after the warm-up and no goodput: degraded is an error here", got)
	}
	if got.Latency.Count != got.Outcomes.Degraded || got.LatencyAll.Count != 100 {
		t.Errorf("latencies of %d and %d, want those of the %d degraded and of all", got.Latency.Count, got.LatencyAll.Count, got.Outcomes.Degraded)
	}
	if len(result.Series) != 2 || !result.Series[0].Warmup || result.Series[1].Warmup || result.Series[0].Operations[Recs].Requests != 100 {
		t.Errorf("series: got %+v, want two seconds, the first with the warm-up in it", result.Series)
	}
	codes := got.Codes["breaker_open"] + got.Codes["timeout"] + got.Codes["internal"] + got.Codes[CodeClosed] + got.Codes[CodeReset]
	if codes != 100-got.Outcomes.Degraded {
		t.Errorf("codes: got %v, want one for each request that was not answered well", got.Codes)
	}
}

func TestDrive_RetryStormMultipliesTheLoadAndPlacesEachOrderOnce(t *testing.T) {
	const n, retries = 100, 3
	shop := &fakeShop{}
	tries := map[string]int{}
	shop.script = func(w http.ResponseWriter, r *http.Request) bool {
		shop.mu.Lock()
		defer shop.mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if tries[key]++; tries[key] <= retries {
			problem(w, http.StatusServiceUnavailable, "bulkhead_full")
			return true
		}
		return false
	}
	gateway := start(t, shop)
	o := options()
	o.ClientRetries = retries
	result := drive(t, gateway, evenly(n, 500, orderNumber(gateway)), o)
	if got := result.Total; got.Requests != n || got.Tries != n*(retries+1) || got.Outcomes.OK != n {
		t.Errorf("got %+v, want %d requests in %d tries, all ok in the end", got, n, n*(retries+1))
	}
	if len(shop.orders) != n || shop.arrived.Load() != n*(retries+1) {
		t.Errorf("the shop has %d orders of %d requests, want %d of %d", len(shop.orders), shop.arrived.Load(), n, n*(retries+1))
	}
	o.ClientRetries = retries - 1
	clear(tries)
	if got := drive(t, gateway, evenly(n, 500, orderNumber(gateway)), o).Total; got.Outcomes.Rejected != n || got.Tries != n*retries {
		t.Errorf("one retry less: got %+v, want all rejected", got)
	}
	shop.script = func(w http.ResponseWriter, _ *http.Request) bool {
		problem(w, http.StatusConflict, "price_changed")
		return true
	}
	if got := drive(t, gateway, evenly(n, 500, orderNumber(gateway)), o).Total; got.Outcomes.Error != n || got.Tries != n {
		t.Errorf("an answer that stays the same: got %+v, want one try each", got)
	}
}

func TestDrive_AckedFileHasExactlyTheAcknowledgedOrders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acked.txt")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shop := &fakeShop{}
	shop.script = func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.Header.Get("Idempotency-Key"), "3"):
			problem(w, http.StatusServiceUnavailable, "unavailable")
			return true
		case strings.HasSuffix(r.Header.Get("Idempotency-Key"), "7"): // placed, and the answer is lost
			shop.place(httptest.NewRecorder(), r.Header.Get("Idempotency-Key"), "")
			panic(http.ErrAbortHandler)
		}
		return false
	}
	gateway := start(t, shop)
	o := options()
	o.Warmup = 100 * time.Millisecond
	o.Acked = file
	result := drive(t, gateway, evenly(100, 400, orderNumber(gateway)), o)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(string(content))
	var want []string
	for key, id := range shop.orders {
		if !strings.HasSuffix(key, "7") {
			want = append(want, id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(got) != 80 {
		t.Errorf("acked: got %d ids, want the %d orders that were acknowledged, warm-up included", len(got), len(want))
	}
	if got := result.Operation(Checkout); got.Requests != 60 || got.Outcomes.Lost != 6 || got.Outcomes.Rejected != 6 {
		t.Errorf("got %+v, want 60 after the warm-up, 6 of them lost, 6 rejected", got.Outcomes)
	}
	// The lost ones are found again by who tries again, and are acknowledged then.
	o.Acked = new(bytes.Buffer)
	shop.script = nil
	if got := drive(t, gateway, evenly(100, 400, orderNumber(gateway)), o).Operation(Checkout).Replayed; got != 54 {
		t.Errorf("orders that were there already: got %d, want 54 of 60", got)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestDrive_EndsWhenAnAcknowledgedOrderCannotBeWritten(t *testing.T) {
	shop := &fakeShop{}
	gateway := start(t, shop)
	o := options()
	o.Acked = full{}
	result, err := Drive(t.Context(), gateway, evenly(1_000_000, 100, orderNumber(gateway)), o)
	if err == nil || !strings.HasPrefix(err.Error(), "write acknowledged order order-") || !strings.Contains(err.Error(), ": no space left") || !result.Interrupted {
		t.Errorf("got %v, want the reason, and an interrupted result", err)
	}
}

func TestDrive_ReportsWhatItHasWhenInterrupted(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	shop := &fakeShop{}
	server := httptest.NewServer(shop)
	defer server.Close()
	gateway := target(t, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	o := options()
	o.End = time.Hour
	o.Progress = func(p Progress) {
		if len(p.Operations) > 0 && p.Operations[0].Good >= 20 {
			cancel()
		}
	}
	result, err := Drive(ctx, gateway, evenly(1_000_000, 200, orderNumber(gateway)), o)
	if !errors.Is(err, context.Canceled) || !result.Interrupted || result.Total.Outcomes.OK < 20 {
		t.Errorf("got %v, %+v, want cancelled with what was counted", err, result.Total)
	}
	if result.Measured <= 0 || result.Measured > 60 || result.Total.Requests != result.Total.Outcomes.Sum() {
		t.Errorf("measured %v s, %d requests of %+v, want the time until it was interrupted and every request accounted for",
			result.Measured, result.Total.Requests, result.Total.Outcomes)
	}
}

func TestDrive_EndsAtOnceWhenTheNextArrivalIsFarAway(t *testing.T) {
	gateway := start(t, &fakeShop{})
	ctx, cancel := context.WithCancel(t.Context())
	o := options()
	o.Progress = func(Progress) { cancel() }
	far := func(yield func(Arrival) bool) { yield(Arrival{time.Hour, gateway.Recommend("P1", "c")}) }
	began := time.Now()
	if _, err := Drive(ctx, gateway, far, o); !errors.Is(err, context.Canceled) || time.Since(began) > time.Minute {
		t.Errorf("got %v after %v, want cancelled", err, time.Since(began))
	}
}

func TestRun_ReadsTheProductsAndReportsAllInOneDocument(t *testing.T) {
	shop := &fakeShop{}
	c := Default()
	c.Target = start(t, shop)
	c.Rate, c.Duration, c.Warmup, c.RunID = 200, 1500*time.Millisecond, 500*time.Millisecond, "run1"
	result, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Total; got.Outcomes.OK != got.Requests || got.Requests < 130 || got.Requests > 270 { // 200 ± 5σ
		t.Errorf("got %+v, want about 200 ok (seed %d)", got, c.Seed)
	}
	for _, body := range shop.bodies {
		var order Order
		if err := json.Unmarshal([]byte(body), &order); err != nil || order.Currency != "GBP" || len(order.Lines) == 0 || order.Lines[0].ProductID[0] != 'P' {
			t.Fatalf("order %s: %v, want products of the shop", body, err)
		}
	}
	var out bytes.Buffer
	if err := result.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var document Result
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if document.Config.Seed != 19 || document.Config.Products != 20 || document.Measured != 1 || document.Warnings == nil || len(document.Series) != 2 {
		t.Errorf("got %+v", document)
	}
	if len(document.Operations) != 3 || document.Operations[0].Name != Checkout || !strings.Contains(out.String(), `"timed_out": 0`) {
		t.Fatalf("operations: got %+v, want checkout, recs, search, with the outcomes that did not occur", document.Operations)
	}
	checkout := document.Operations[0].Latency
	h, err := hdrhistogram.Decode([]byte(checkout.HDR))
	if err != nil || h.TotalCount() != checkout.Count || float64(h.ValueAtQuantile(50))/1000 != checkout.P50 {
		t.Errorf("histogram: got %v, %v, want %d latencies with median %v ms", h, err, checkout.Count, checkout.P50)
	}
}

func TestRun_SaysWhyThereIsNothingToAskFor(t *testing.T) {
	for want, script := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"sells no products":           func(w http.ResponseWriter, _ *http.Request) bool { writeJSON(w, 200, map[string]any{}); return true },
		"answers 503 breaker_open":    func(w http.ResponseWriter, _ *http.Request) bool { problem(w, 503, "breaker_open"); return true },
		"is not that of a gateway":    func(w http.ResponseWriter, _ *http.Request) bool { w.Write([]byte("hello")); return true },
		"is the shop running? see la": func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
	} {
		c := Default()
		c.Target = start(t, &fakeShop{script: script})
		if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestProducts_FollowsThePages(t *testing.T) {
	shop := &fakeShop{script: func(w http.ResponseWriter, r *http.Request) bool {
		page := r.URL.Query().Get("page_token")
		next := map[string]string{"": "b", "b": "c", "c": ""}[page]
		writeJSON(w, 200, map[string]any{"products": []map[string]any{{"id": "1" + page}, {"id": "2" + page}}, "next_page_token": next})
		return true
	}}
	gateway := start(t, shop)
	for limit, want := range map[int]int{0: 6, 3: 3, 100: 6} {
		if got, err := gateway.Products(t.Context(), limit); err != nil || len(got) != want {
			t.Errorf("limit %d: got %v, %v, want %d", limit, got, err, want)
		}
	}
}
