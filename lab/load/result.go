package load

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what became of a run. Everything in it but Series leaves the warm-up out, and each request is counted where it
// was meant to start. Times are in the units that their names in JSON end in.
type Result struct {
	Config      Description       `json:"config"`
	Started     time.Time         `json:"started_at"`
	Measured    float64           `json:"measured_s"` // length of what is counted
	Interrupted bool              `json:"interrupted,omitempty"`
	Operations  []OperationResult `json:"operations"` // by name
	Total       OperationResult   `json:"total"`
	Generator   Generator         `json:"generator"`
	Warnings    []string          `json:"warnings"` // why the numbers may not mean what they seem to
	Series      []Second          `json:"series"`   // seconds without arrivals are left out
}

// Description repeats the configuration of a run.
type Description struct {
	Target        string  `json:"target"`
	Arrivals      Pattern `json:"arrivals"`
	Rate          float64 `json:"rate_per_s"`
	Duration      float64 `json:"duration_s"`
	Warmup        float64 `json:"warmup_s"`
	Timeout       float64 `json:"timeout_ms"`
	Seed          uint64  `json:"seed"`
	RunID         string  `json:"run_id"`
	Mix           Mix     `json:"mix"`
	ClientRetries int     `json:"client_retries"`
	Products      int     `json:"products"`
}

func (c Config) describe() Description {
	return Description{
		Target: c.Target.String(), Arrivals: c.Arrivals, Rate: c.Rate, Duration: c.Duration.Seconds(), Warmup: c.Warmup.Seconds(),
		Timeout: milliseconds(c.Timeout.Microseconds()), Seed: c.Seed, RunID: c.RunID, Mix: c.Mix, ClientRetries: c.ClientRetries,
		Products: len(c.Products),
	}
}

// OperationResult is what became of the requests of one operation, or of all.
type OperationResult struct {
	Name     Operation        `json:"name"`
	Requests int64            `json:"requests"`
	Tries    int64            `json:"tries"` // requests sent; more than Requests when clients tried again
	Outcomes OutcomeCounts    `json:"outcomes"`
	Codes    map[string]int64 `json:"codes"`    // why those that are not ok or degraded are not
	Replayed int64            `json:"replayed"` // orders that an earlier try had placed
	// ErrorRatio is the share of requests that were not ok; a degraded answer counts as an error here.
	ErrorRatio float64      `json:"error_ratio"`
	Offered    float64      `json:"offered_per_s"`
	Goodput    float64      `json:"goodput_per_s"`  // requests that were ok
	Latency    Distribution `json:"latency_ms"`     // of those that were ok or degraded
	LatencyAll Distribution `json:"latency_all_ms"` // of all that were sent, those that were given up included
}

// OutcomeCounts is how many requests had each outcome; it marshals with all of them, also those that did not occur.
type OutcomeCounts struct {
	OK       int64 `json:"ok"`
	Degraded int64 `json:"degraded"`
	Rejected int64 `json:"rejected"`
	TimedOut int64 `json:"timed_out"`
	Error    int64 `json:"error"`
	Lost     int64 `json:"lost"`
}

func outcomeCounts(n map[Outcome]int64) OutcomeCounts {
	return OutcomeCounts{n[OK], n[Degraded], n[Rejected], n[TimedOut], n[Failed], n[Lost]}
}

// Sum is the number of requests.
func (o OutcomeCounts) Sum() int64 {
	return o.OK + o.Degraded + o.Rejected + o.TimedOut + o.Error + o.Lost
}

// Distribution summarises latencies, in milliseconds; all are 0 when there were none.
type Distribution struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	Max   float64 `json:"max"`
	// HDR is the whole histogram, of microseconds, in HdrHistogram's compressed V2 encoding: those of several runs can be
	// merged.
	HDR string `json:"hdr,omitempty"`
}

// Generator is how well the generator itself kept up.
type Generator struct {
	Late          int64        `json:"late"` // started more than LateAfter after they were meant to
	LateShare     float64      `json:"late_share"`
	LateAfter     float64      `json:"late_after_ms"`
	NotSent       int64        `json:"not_sent"` // lost because too many were in flight
	StartDelay    Distribution `json:"start_delay_ms"`
	MaxInFlight   int64        `json:"max_in_flight"`
	InFlightLimit int          `json:"in_flight_limit"`
	Connections   int64        `json:"connections"` // opened, warm-up included
}

// Second is one second of the run: what became of the requests that were meant to start in it.
type Second struct {
	T          int64                         `json:"t_s"`
	Warmup     bool                          `json:"warmup,omitempty"`
	InFlight   int64                         `json:"in_flight"` // near its end
	Operations map[Operation]SecondOperation `json:"operations"`
}

// SecondOperation is a second of one operation; the latencies are of all requests that were sent.
type SecondOperation struct {
	Requests int64         `json:"requests"`
	Outcomes OutcomeCounts `json:"outcomes"`
	P50      float64       `json:"p50_ms"`
	P95      float64       `json:"p95_ms"`
	P99      float64       `json:"p99_ms"`
	Max      float64       `json:"max_ms"`
}

// Operation returns the result of one operation; the zero value when none was asked for.
func (r Result) Operation(op Operation) OperationResult {
	for _, o := range r.Operations {
		if o.Name == op {
			return o
		}
	}
	return OperationResult{Name: op}
}

// Answered returns an error when none of the requests was.
func (r Result) Answered() error {
	if n := r.Total.Requests; n > 0 && r.Total.Outcomes.Lost == n {
		return fmt.Errorf("none of the %d requests was answered", n)
	}
	return nil
}

func (t *tally) result(op Operation, measured time.Duration) OperationResult {
	out := OperationResult{
		Name: op, Requests: t.requests, Tries: t.tries, Outcomes: outcomeCounts(t.outcomes), Codes: t.codes, Replayed: t.replayed,
		Latency: latencies(t.good), LatencyAll: latencies(t.all),
	}
	if t.requests > 0 {
		out.ErrorRatio = 1 - float64(out.Outcomes.OK)/float64(t.requests)
	}
	if measured > 0 {
		out.Offered, out.Goodput = float64(t.requests)/measured.Seconds(), float64(out.Outcomes.OK)/measured.Seconds()
	}
	return out
}

func latencies(h *hdrhistogram.Histogram) Distribution {
	d := Distribution{Count: h.TotalCount()}
	if d.Count == 0 {
		return d
	}
	at := func(percentile float64) float64 { return milliseconds(h.ValueAtQuantile(percentile)) }
	d.Mean, d.Min, d.Max = h.Mean()/1000, milliseconds(h.Min()), milliseconds(h.Max())
	d.P50, d.P75, d.P90, d.P95, d.P99, d.P999 = at(50), at(75), at(90), at(95), at(99), at(99.9)
	if encoded, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase); err == nil { // else the numbers above must do
		d.HDR = string(encoded)
	}
	return d
}

func milliseconds(us int64) float64 { return float64(us) / 1000 }

func microseconds(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// worthWarning is the share of late starts from which the generator says that it fell behind.
const worthWarning = 0.01

// doubts say what makes the numbers mean less than they seem to.
func (r Result) doubts() []string {
	doubts := []string{}
	add := func(format string, args ...any) { doubts = append(doubts, fmt.Sprintf(format, args...)) }
	g := r.Generator
	if g.LateShare >= worthWarning {
		add("the generator fell behind: %.1f %% of the requests started more than %g ms late (p99 %.1f ms, longest %.1f ms); the latencies include that",
			100*g.LateShare, g.LateAfter, g.StartDelay.P99, g.StartDelay.Max)
	}
	if g.NotSent > 0 {
		add("%d requests were not sent, because %d were waiting already: they are counted as lost", g.NotSent, g.InFlightLimit)
	}
	if n := r.Total.Codes[CodeGeneratorLimit]; n > 0 {
		add("%d requests were not sent, because this machine has no more sockets (ulimit -n): they are counted as lost", n)
	}
	if r.Interrupted {
		add("the run ended early, %.1f s into what is counted", r.Measured)
	}
	return doubts
}
