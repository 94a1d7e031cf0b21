package sim

import (
	"math"
	"slices"
	"time"

	"example.com/watertight/lab/scenario"
)

// Cell is one scenario in one design under one seed. Requests are counted by arrival, from the warm-up's end to the run's.
type Cell struct {
	Scenario        string                             `json:"scenario"`
	Design          string                             `json:"design"`
	OrdersPerSecond float64                            `json:"orders_per_second"` // checkouts that went well
	Features        map[scenario.Feature]FeatureResult `json:"features"`
	Pools           []PoolResult                       `json:"pools"`
	BusyWorkers     float64                            `json:"busy_workers"` // mean, of the pool that checkout uses
	Predicted       Prediction                         `json:"predicted"`
	Became          scenario.Expectation               `json:"became"`
	Expected        scenario.Expectation               `json:"expected"`
	Events          int64                              `json:"-"` // that were handled: what it took to simulate, and no result
}

// FeatureResult is what became of a feature's requests. The latencies are those of requests that went well; they are left out
// when there was none.
type FeatureResult struct {
	Arrived       int     `json:"arrived"`
	OK            int     `json:"ok"`
	Failed        int     `json:"failed"`
	ErrorsPercent float64 `json:"errors_percent"`
	P50MS         float64 `json:"p50_ms,omitempty"`
	P95MS         float64 `json:"p95_ms,omitempty"`

	TimedOut   int `json:"timed_out"`         // the client gave up
	Refused    int `json:"refused"`           // the process was away
	Killed     int `json:"killed"`            // it ended with the request in it
	Rejected   int `json:"rejected"`          // the queue was full
	Dependency int `json:"dependency_failed"` // a checkout did not get its recommendations
}

// PoolResult is what became of the work that reached a pool, over the whole run. Work whose client has given up is expired
// when a worker finds it at the head of the queue, and waits there until then.
type PoolResult struct {
	Name      string  `json:"name"`
	Workers   int     `json:"workers"`
	Arrived   int64   `json:"arrived"`
	Refused   int64   `json:"refused"`
	Rejected  int64   `json:"rejected"`
	Expired   int64   `json:"expired"`
	Admitted  int64   `json:"admitted"`
	Completed int64   `json:"completed"`
	Killed    int64   `json:"killed"` // queued or running
	BusyMean  float64 `json:"busy_mean"`
	QueueMax  int     `json:"queue_max"`
	Queue     []int32 `json:"queue,omitempty"` // its length every 100 ms
}

// collect reads a finished run. It uses room for the latencies, and leaves it for the next.
func (e *engine) collect(s *scenario.Scenario, d *scenario.Design, room *[]int64) Cell {
	c := Cell{
		Scenario: s.Name, Design: d.Name, Expected: s.Expect[d.Name], Events: e.handled,
		Features: make(map[scenario.Feature]FeatureResult, len(s.Routes)),
	}
	seconds := (s.Length - s.WarmUp).Seconds()
	for i, r := range s.Routes {
		var f FeatureResult
		f, *room = e.feature(int32(i), (*room)[:0])
		c.Features[r.Feature] = f
		if r.Feature == scenario.Checkout {
			c.OrdersPerSecond = rounded(float64(f.OK) / seconds)
			c.BusyWorkers = e.pools[e.plan.poolOf[i]].result(seconds).BusyMean
		}
	}
	for i := range e.pools {
		c.Pools = append(c.Pools, e.pools[i].result(seconds))
	}
	return c
}

// judge finds the words for what became of the features, beside the same design's normal day.
func (c *Cell) judge(normal *Cell) {
	word := func(feature scenario.Feature) scenario.Word {
		f, day := c.Features[feature], normal.Features[feature]
		failed := 0.0
		if f.Arrived > 0 {
			failed = float64(f.Failed) / float64(f.Arrived)
		}
		return scenario.Judge(failed, fromMillis(f.P50MS), fromMillis(day.P50MS))
	}
	c.Became = scenario.Expectation{Checkout: word(scenario.Checkout), Recs: word(scenario.Recs)}
}

func (e *engine) feature(route int32, latencies []int64) (FeatureResult, []int64) {
	var counts [verdicts]int
	for i := range e.traffic.requests {
		r := &e.traffic.requests[i]
		if r.route != route || r.at < e.plan.warm {
			continue
		}
		counts[e.decided[i]]++
		if e.decided[i] == ok {
			latencies = append(latencies, e.latency[i])
		}
	}
	f := FeatureResult{
		OK: counts[ok], TimedOut: counts[timedOut], Refused: counts[refused], Killed: counts[killed], Rejected: counts[rejected],
		Dependency: counts[dependency],
	}
	f.Failed = f.TimedOut + f.Refused + f.Killed + f.Rejected + f.Dependency
	f.Arrived = f.OK + f.Failed
	if f.Arrived > 0 {
		f.ErrorsPercent = rounded(100 * float64(f.Failed) / float64(f.Arrived))
	}
	if f.OK > 0 {
		slices.Sort(latencies)
		f.P50MS, f.P95MS = millis(quantile(latencies, 50)), millis(quantile(latencies, 95))
	}
	return f, latencies
}

func (p *pool) result(seconds float64) PoolResult {
	return PoolResult{
		Name: p.name, Workers: len(p.running), Arrived: p.arrived, Refused: p.refused, Rejected: p.rejected, Expired: p.expired,
		Admitted: p.admitted, Completed: p.completed, Killed: p.killedQueued + p.killedRunning,
		BusyMean: rounded(float64(p.area) / 1e9 / seconds), QueueMax: p.longest,
	}
}

// quantile is the smallest value that percent of them do not exceed. The values are sorted, and there is one at least.
func quantile(values []int64, percent int) int64 {
	return values[(len(values)*percent+99)/100-1]
}

// millis rounds to a microsecond.
func millis(ns int64) float64 { return float64((ns+500)/1000) / 1000 }

func fromMillis(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

// rounded keeps three decimals: fewer than the last digits in which machines could differ.
func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }
