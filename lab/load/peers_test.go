package load

import (
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
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

// compare repeats a comparison that a busy machine can spoil. It fails when the last attempt finds something wrong, and
// skips when the machine never let the generator itself keep up.
func compare(t *testing.T, attempt func(t *testing.T) (g Generator, wrong []string)) {
	t.Helper()
	const attempts, tooBusy = 5, 50 // ms
	var wrong []string
	for range attempts {
		g, found := attempt(t)
		if len(found) == 0 {
			return
		}
		t.Logf("start delay p99 %.1f ms: %s", g.StartDelay.P99, strings.Join(found, "; "))
		if g.StartDelay.P99 < tooBusy {
			wrong = found
		}
	}
	if wrong == nil {
		t.Skip("this machine is too busy to compare anything on it")
	}
	t.Error(strings.Join(wrong, "; "))
}

// The two run side by side against one server, so that whatever else the machine does hits both.
func TestDrive_MeasuresWhatVegetaMeasures(t *testing.T) {
	const rate, length = 200, 3 * time.Second
	const serviceTime = 20 * time.Millisecond
	shop, _ := startServer(t, serviceTime)
	compare(t, func(t *testing.T) (Generator, []string) {
		t.Helper()
		peer := make(chan *vegeta.Metrics, 1)
		go func() { peer <- attack(shop, rate, length) }()
		n := int(rate * length.Seconds())
		o := options()
		o.End = length
		result := drive(t, shop, evenly(n, rate, func(int) Request { return shop.Recommend("P01", "c-1") }), o)
		ours, theirs := result.Total, <-peer
		if ours.Outcomes.OK != int64(n) || ours.Offered != rate {
			t.Fatalf("got %+v, %.1f/s, want all of %d/s answered", ours.Outcomes, ours.Offered, rate)
		}
		p50, p99 := theirs.Latencies.P50.Seconds()*1000, theirs.Latencies.P99.Seconds()*1000
		t.Logf("ours %.1f/s, p50 %.2f, p99 %.2f ms; vegeta %.1f/s, p50 %.2f, p99 %.2f ms", ours.Offered, ours.LatencyAll.P50,
			ours.LatencyAll.P99, theirs.Rate, p50, p99)
		var wrong []string
		if theirs.Success != 1 || math.Abs(theirs.Rate-rate) > 0.05*rate {
			wrong = append(wrong, "vegeta does not hold the rate")
		}
		// Noise: on a busy machine a median moves by some milliseconds, a p99 by some tens.
		if ours.LatencyAll.P50 < 20 || math.Abs(ours.LatencyAll.P50-p50) > 0.25*p50+5 {
			wrong = append(wrong, "the medians differ")
		}
		if math.Abs(ours.LatencyAll.P99-p99) > max(ours.LatencyAll.P99, p99)/2+50 {
			wrong = append(wrong, "the 99th percentiles differ")
		}
		return result.Generator, wrong
	})
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
	compare(t, func(t *testing.T) (Generator, []string) {
		t.Helper()
		other := make(chan closed, 1)
		go func() {
			p99, n := closedLoop(t, shop, time.Now().Add(length))
			other <- closed{p99, n}
		}()
		o := options()
		o.End = length
		o.Progress = pauseServer(t, server, pause)
		result := drive(t, shop, evenly(500, 100, func(int) Request { return shop.Recommend("P01", "c-1") }), o)
		ours, theirs := result.Total.LatencyAll, <-other
		t.Logf("open loop: p75 %.0f, p99 %.0f ms; closed loop: p99 %v of %d", ours.P75, ours.P99, theirs.p99, theirs.n)
		if ours.P75 < 500 || ours.P99 < 1500 {
			t.Errorf("open loop: p75 %.0f ms, p99 %.0f ms, want 40 %% of the requests to have waited, up to %v", ours.P75, ours.P99, pause)
		}
		if longest := result.Series[1].Operations[Recs].Max; longest < 1000 {
			t.Errorf("series: the second in which the server stopped has a maximum of %.0f ms, want the pause", longest)
		}
		if theirs.p99 > pause/2 {
			return result.Generator, []string{"the closed loop sees the pause"}
		}
		return result.Generator, nil
	})
}

// pauseServer stops the process one second into the run, and lets it go on after the pause.
func pauseServer(t *testing.T, server *os.Process, pause time.Duration) func(Progress) {
	t.Helper()
	todo := []struct {
		at     time.Duration
		signal os.Signal
	}{{time.Second, syscall.SIGSTOP}, {time.Second + pause, syscall.SIGCONT}}
	return func(p Progress) {
		for len(todo) > 0 && p.At >= todo[0].at {
			if err := server.Signal(todo[0].signal); err != nil {
				t.Error(err)
			}
			todo = todo[1:]
		}
	}
}
