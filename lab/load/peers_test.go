package load

import (
	"math"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// attack is the same load from vegeta: constant, the given rate.
func attack(shop Target, rate int, d time.Duration) *vegeta.Metrics {
	attacker := vegeta.NewAttacker(vegeta.Timeout(10*time.Second), vegeta.MaxWorkers(10_000))
	targeter := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodGet, URL: shop.String() + "/api/v1/recommendations?product_id=P01"})
	var m vegeta.Metrics
	for result := range attacker.Attack(targeter, vegeta.Rate{Freq: rate, Per: time.Second}, d, "peer") {
		m.Add(result)
	}
	m.Close()
	return &m
}

// The two run side by side against one server, so that whatever else the machine does hits both.
func TestDrive_MeasuresWhatVegetaMeasures(t *testing.T) {
	const rate, length = 200, 4 * time.Second
	const serviceTime = 20 * time.Millisecond
	shop, _ := startServer(t, serviceTime)
	peer := make(chan *vegeta.Metrics, 1)
	go func() { peer <- attack(shop, rate, length) }()
	n := int(rate * length.Seconds())
	o := options()
	o.End = length
	ours := drive(t, shop, evenly(n, rate, func(int) Request { return shop.Recommend("P01", "c-1") }), o).Total
	theirs := <-peer

	p50, p99 := theirs.Latencies.P50.Seconds()*1000, theirs.Latencies.P99.Seconds()*1000
	t.Logf("rate: ours %.1f, vegeta %.1f/s; p50: %.2f, %.2f ms; p99: %.2f, %.2f ms", ours.Offered, theirs.Rate,
		ours.LatencyAll.P50, p50, ours.LatencyAll.P99, p99)
	if ours.Outcomes.OK != int64(n) || theirs.Success != 1 {
		t.Fatalf("ours %+v, vegeta %v %v: want all answered", ours.Outcomes, theirs.Success, theirs.Errors)
	}
	if math.Abs(ours.Offered-rate) > 1 || math.Abs(theirs.Rate-rate) > 0.05*rate {
		t.Errorf("rates: ours %.1f, vegeta %.1f, want %d/s", ours.Offered, theirs.Rate, rate)
	}
	// Noise: on a busy machine a median moves by some milliseconds, a p99 by some tens.
	if ours.LatencyAll.P50 < 20 || math.Abs(ours.LatencyAll.P50-p50) > 0.25*p50+5 {
		t.Errorf("p50: ours %.2f, vegeta %.2f ms", ours.LatencyAll.P50, p50)
	}
	if math.Abs(ours.LatencyAll.P99-p99) > max(ours.LatencyAll.P99, p99)/2+50 {
		t.Errorf("p99: ours %.2f, vegeta %.2f ms", ours.LatencyAll.P99, p99)
	}
}

// closedLoop is the other kind of generator: one client that asks again as soon as it has an answer. It returns p99.
func closedLoop(t *testing.T, shop Target, until time.Time) (p99 time.Duration, n int) {
	t.Helper()
	c := newClient(shop)
	defer c.close()
	var all []time.Duration
	for time.Now().Before(until) {
		began := time.Now()
		if _, err := c.do(shop.Recommend("P01", "c-1").wire, soon()); err != nil {
			t.Error(err)
			return 0, 0
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)*99/100], len(all)
}

// A server that stands still for 2 of 5 s keeps 40 % of the customers waiting. A closed loop asks nothing meanwhile, and
// has one long answer to show for it.
func TestDrive_ShowsThePauseThatAClosedLoopHides(t *testing.T) {
	const length, pause = 5 * time.Second, 2 * time.Second
	shop, server := startServer(t, time.Millisecond)
	type closed struct {
		p99 time.Duration
		n   int
	}
	other := make(chan closed, 1)
	go func() {
		p99, n := closedLoop(t, shop, time.Now().Add(length))
		other <- closed{p99, n}
	}()
	o := options()
	o.End = length
	stopped, going := false, false
	o.Progress = func(p Progress) {
		if !stopped && p.At > time.Second {
			stopped = true
			if err := server.Signal(syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
		}
		if !going && p.At > time.Second+pause {
			going = true
			if err := server.Signal(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	ours := drive(t, shop, evenly(500, 100, func(int) Request { return shop.Recommend("P01", "c-1") }), o)
	theirs := <-other
	t.Logf("open loop: p75 %.0f, p99 %.0f ms; closed loop: p99 %v of %d", ours.Total.LatencyAll.P75, ours.Total.LatencyAll.P99, theirs.p99, theirs.n)
	if got := ours.Total.LatencyAll; got.P75 < 500 || got.P99 < 1500 {
		t.Errorf("open loop: p75 %.0f ms, p99 %.0f ms, want 40 %% of the requests to have waited, up to %v", got.P75, got.P99, pause)
	}
	if theirs.n < 200 || theirs.p99 > pause/2 {
		t.Errorf("closed loop: p99 %v of %d, want it to see nothing: that is why this generator is not one", theirs.p99, theirs.n)
	}
	if longest := ours.Series[1].Operations[Recs].Max; longest < 1000 {
		t.Errorf("series: the second in which the server stopped has a maximum of %.0f ms, want the pause", longest)
	}
}
