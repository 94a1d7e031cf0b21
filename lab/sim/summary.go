package sim

import (
	"math"

	"example.com/watertight/lab/scenario"
)

// Summary is one scenario in one design under many seeds.
type Summary struct {
	Scenario  string               `json:"scenario"`
	Design    string               `json:"design"`
	Metrics   map[string]Spread    `json:"metrics"`
	Predicted Prediction           `json:"predicted"`
	Expected  scenario.Expectation `json:"expected"`
	Met       int                  `json:"met"` // seeds under which the expectation was met
}

// Spread is a figure under many seeds: its mean, the interval in which the mean over all possible seeds lies with 95 %
// confidence (Student's t), and how far single seeds go. Seeds without the figure, such as the latency of requests that all
// failed, are left out.
type Spread struct {
	Seeds int     `json:"seeds"`
	Mean  float64 `json:"mean"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

// metric is a figure of a cell. Not every cell has every figure.
type metric struct {
	key    string
	head   string // of its column
	digits int
	many   bool // shown for many seeds, too
	of     func(c *Cell) (value float64, has bool)
}

// metrics lists them in the order of the table's columns.
func metrics() []metric {
	latency := func(f scenario.Feature, of func(FeatureResult) float64) func(*Cell) (float64, bool) {
		return func(c *Cell) (float64, bool) { r := c.Features[f]; return of(r), r.OK > 0 }
	}
	failures := func(f scenario.Feature) func(*Cell) (float64, bool) {
		return func(c *Cell) (float64, bool) { r, has := c.Features[f]; return r.ErrorsPercent, has && r.Arrived > 0 }
	}
	p50 := func(f FeatureResult) float64 { return f.P50MS }
	p95 := func(f FeatureResult) float64 { return f.P95MS }
	return []metric{
		{"checkout_p50_ms", "P50 ms", 2, true, latency(scenario.Checkout, p50)},
		{"checkout_p95_ms", "P95 ms", 2, true, latency(scenario.Checkout, p95)},
		{"checkout_errors_percent", "ERRORS %", 1, true, failures(scenario.Checkout)},
		{"orders_failed", "FAILED", 0, true, func(c *Cell) (float64, bool) { return float64(c.Features[scenario.Checkout].Failed), true }},
		{"orders_per_second", "ORDERS/s", 1, true, func(c *Cell) (float64, bool) { return c.OrdersPerSecond, true }},
		{"search_p50_ms", "SEARCH P50", 2, false, latency(scenario.Search, p50)},
		{"search_errors_percent", "SEARCH ERR %", 1, true, failures(scenario.Search)},
		{"recs_errors_percent", "RECS ERR %", 1, true, failures(scenario.Recs)},
		{"export_errors_percent", "EXPORT ERR %", 1, false, failures(scenario.Export)},
		{"queue_max", "QUEUE", 0, true, func(c *Cell) (float64, bool) { return longestQueue(c), true }},
		{"expired", "EXPIRED", 0, false, func(c *Cell) (float64, bool) { return expired(c), true }},
		{"busy_workers", "BUSY", 2, true, func(c *Cell) (float64, bool) { return c.BusyWorkers, true }},
	}
}

func longestQueue(c *Cell) float64 {
	longest := 0
	for i := range c.Pools {
		longest = max(longest, c.Pools[i].QueueMax)
	}
	return float64(longest)
}

func expired(c *Cell) float64 {
	var n int64
	for i := range c.Pools {
		n += c.Pools[i].Expired
	}
	return float64(n)
}

// measure flattens the cells of one seed to figures: all metrics of a cell, then 1 when its expectation was met, cell by cell.
func measure(cells []Cell) []float64 {
	all := metrics()
	values := make([]float64, 0, len(cells)*(len(all)+1))
	for i := range cells {
		c := &cells[i]
		for _, m := range all {
			v, has := m.of(c)
			if !has {
				v = math.NaN()
			}
			values = append(values, v)
		}
		met := 0.0
		if c.Became.Checkout.Meets(c.Expected.Checkout) && c.Became.Recs.Meets(c.Expected.Recs) {
			met = 1
		}
		values = append(values, met)
	}
	return values
}

func summarize(o *Options, values [][]float64) []Summary {
	all := metrics()
	var summaries []Summary
	for i := range o.Scenarios {
		for j := range o.Designs {
			s, d := &o.Scenarios[i], &o.Designs[j]
			first := len(summaries) * (len(all) + 1)
			sum := Summary{
				Scenario: s.Name, Design: d.Name, Metrics: map[string]Spread{}, Predicted: Predict(o.Inputs, s, d), Expected: s.Expect[d.Name],
			}
			for k, m := range all {
				if spread := spreadOf(values, first+k); spread.Seeds > 0 {
					sum.Metrics[m.key] = spread
				}
			}
			for _, v := range values {
				sum.Met += int(v[first+len(all)])
			}
			summaries = append(summaries, sum)
		}
	}
	return summaries
}

// spreadOf works out one column. It adds in the order of the seeds, and rounds each product before it is added.
func spreadOf(values [][]float64, column int) Spread {
	s := Spread{Min: math.Inf(1), Max: math.Inf(-1)}
	total := 0.0
	for _, v := range values {
		if x := v[column]; !math.IsNaN(x) {
			s.Seeds++
			total += x
			s.Min, s.Max = min(s.Min, x), max(s.Max, x)
		}
	}
	if s.Seeds == 0 {
		return Spread{}
	}
	mean := total / float64(s.Seeds)
	squares := 0.0
	for _, v := range values {
		if x := v[column]; !math.IsNaN(x) {
			squares += float64((x - mean) * (x - mean))
		}
	}
	half := 0.0
	if s.Seeds > 1 {
		half = float64(studentT95(s.Seeds-1) * math.Sqrt(squares/float64(s.Seeds-1)/float64(s.Seeds)))
	}
	s.Mean, s.Low, s.High = rounded(mean), rounded(mean-half), rounded(mean+half)
	return s
}

// studentT95 is the two-sided 95 % quantile of Student's t.
func studentT95(freedom int) float64 {
	table := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 1.96 + float64(2.5/float64(freedom)) // within 0.003 of the quantile from here on
}
