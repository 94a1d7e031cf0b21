package load

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkDrive holds 10,000 requests per second against a server that does nothing, in a process of its own. Run it with
// -cpu 1 and, for the share of late starts to mean anything, on a machine with a second core to spare.
func BenchmarkDrive(b *testing.B) {
	const rate = 10_000
	shop, _ := startServer(b, 0)
	c := Default()
	c.Target, c.Rate, c.Duration, c.Warmup = shop, rate, 5*time.Second, time.Second
	for b.Loop() {
		before := cpuTime(b)
		result, err := Run(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		g := result.Generator
		b.ReportMetric(result.Total.Goodput, "ok/s")
		b.ReportMetric(100*g.LateShare, "late-%")
		b.ReportMetric(g.StartDelay.P99*1000, "start-delay-p99-µs")
		b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/(rate*c.Duration.Seconds()), "cpu-µs/req")
		b.ReportMetric(result.Total.Latency.P50*1000, "p50-µs")
		b.ReportMetric(result.Total.Latency.P99*1000, "p99-µs")
	}
}

// BenchmarkArrivals is what the schedule itself costs: drawing a time and making the request.
func BenchmarkArrivals(b *testing.B) {
	c := Default()
	c.Target, c.RunID, c.Duration = Target{}, "r", maxRun
	for range 1000 {
		c.Products = append(c.Products, Product{"85123A", "White Hanging Heart T-Light Holder", "GBP"})
	}
	b.ReportAllocs()
	n := 0
	for range arrivals(c) {
		if n++; n == b.N {
			return
		}
	}
}

// BenchmarkRecorder is what counting a request costs.
func BenchmarkRecorder(b *testing.B) {
	r := newRecorder(Default().Options)
	s := sample{tries: 1, outcome: OK, latency: 20 * time.Millisecond}
	b.ReportAllocs()
	for i := range b.N {
		s.arrival = Arrival{3*time.Second + time.Duration(i/10_000)*time.Second, Request{Operation: Recs}}
		r.arrive(s.arrival, 100)
		r.settle(s)
		if i%10_000 == 0 {
			r.tick(s.arrival.At)
		}
	}
}
