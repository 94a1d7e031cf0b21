package load

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sample is what became of one request.
type sample struct {
	arrival  Arrival
	delay    time.Duration // from the intended start to the real one
	latency  time.Duration // from the intended start to the end of the last try
	tries    int
	outcome  Outcome
	code     string
	replayed bool
}

// Latencies are kept in microseconds, up to the longest that a client with retries can wait; longer ones count as that.
const (
	longestLatency = int64(2 * time.Hour / time.Microsecond)
	exactDigits    = 3 // of the whole run: 0.1 %
	seriesDigits   = 2 // of one second: 1 %
)

func newHistogram(digits int) *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longestLatency, digits)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d.Microseconds(), 1), longestLatency)) // always within its range
}

// tally counts one operation after the warm-up.
type tally struct {
	requests, tries, replayed int64
	outcomes                  map[Outcome]int64
	codes                     map[string]int64
	good                      *hdrhistogram.Histogram // answered, in full or degraded
	all                       *hdrhistogram.Histogram // whatever became of it, once it was sent
}

func newTally() *tally {
	return &tally{outcomes: map[Outcome]int64{}, codes: map[string]int64{}, good: newHistogram(exactDigits), all: newHistogram(exactDigits)}
}

// second counts the arrivals of one second of the run, by operation.
type second struct {
	open       int64 // not settled yet
	inFlight   int64
	operations map[Operation]*secondTally
}

type secondTally struct {
	outcomes map[Outcome]int64
	all      *hdrhistogram.Histogram
}

// recorder counts. Its memory does not grow with the requests, and by a few hundred bytes with each second.
type recorder struct {
	options Options

	mu          sync.Mutex
	operations  map[Operation]*tally
	delays      *hdrhistogram.Histogram
	late        int64
	notSent     int64
	inFlight    int64
	maxInFlight int64
	seconds     map[int64]*second
	series      []Second
	recent      recent
}

// recent counts the arrivals of about one second, for Progress.
type recent struct {
	arrived int64
	from    time.Duration
	rate    float64 // of the second before
}

func newRecorder(o Options) *recorder {
	return &recorder{options: o, operations: map[Operation]*tally{}, delays: newHistogram(exactDigits), seconds: map[int64]*second{}}
}

func (r *recorder) counted(a Arrival) bool { return a.At >= r.options.Warmup }

// arrive counts a request that is due, and reports whether it may be sent: false when too many wait already.
func (r *recorder) arrive(a Arrival, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.second(a).open++
	r.recent.arrived++
	if r.inFlight < int64(limit) {
		r.inFlight++
		r.maxInFlight = max(r.maxInFlight, r.inFlight)
		return true
	}
	if r.counted(a) {
		r.notSent++
	}
	r.count(sample{arrival: a, outcome: Lost, code: CodeInFlightLimit})
	return false
}

// settle counts what became of a request that was sent.
func (r *recorder) settle(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	if r.counted(s.arrival) {
		record(r.delays, s.delay)
		if s.delay > r.options.LateAfter {
			r.late++
		}
	}
	r.count(s)
}

func (r *recorder) count(s sample) {
	sec := r.second(s.arrival)
	sec.open--
	inSecond := sec.of(s.arrival.Request.Operation)
	inSecond.outcomes[s.outcome]++
	if s.tries > 0 {
		record(inSecond.all, s.latency)
	}
	good := s.outcome == OK || s.outcome == Degraded
	op := r.tally(s.arrival.Request.Operation)
	if !r.counted(s.arrival) {
		return
	}
	op.requests++
	op.tries += int64(s.tries)
	op.outcomes[s.outcome]++
	if s.code != "" {
		op.codes[s.code]++
	}
	if s.replayed {
		op.replayed++
	}
	if s.tries > 0 {
		record(op.all, s.latency)
	}
	if good {
		record(op.good, s.latency)
	}
}

func (r *recorder) tally(op Operation) *tally {
	t := r.operations[op]
	if t == nil {
		t = newTally()
		r.operations[op] = t
	}
	return t
}

func (r *recorder) second(a Arrival) *second {
	t := int64(a.At / time.Second)
	s := r.seconds[t]
	if s == nil {
		s = &second{operations: map[Operation]*secondTally{}}
		r.seconds[t] = s
	}
	return s
}

func (s *second) of(op Operation) *secondTally {
	t := s.operations[op]
	if t == nil {
		t = &secondTally{outcomes: map[Outcome]int64{}, all: newHistogram(seriesDigits)}
		s.operations[op] = t
	}
	return t
}

// tick closes the seconds of which nothing is missing any more, and says how the run goes.
func (r *recorder) tick(now time.Duration) Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t, s := range r.seconds {
		switch over := now >= time.Duration(t+1)*time.Second; {
		case over && s.open == 0:
			r.closeSecond(t, s)
		case !over:
			s.inFlight = r.inFlight // the last look before its end stays
		}
	}
	if past := now - r.recent.from; past >= time.Second {
		r.recent = recent{from: now, rate: float64(r.recent.arrived) / past.Seconds()}
	}
	p := Progress{At: now, Rate: r.recent.rate, InFlight: r.inFlight, NotSent: r.notSent}
	for _, op := range slices.Sorted(maps.Keys(r.operations)) {
		t := r.operations[op]
		p.Operations = append(p.Operations, OperationProgress{
			Name: op, Requests: t.requests, Good: t.outcomes[OK], P95: microseconds(t.all.ValueAtQuantile(95)),
		})
	}
	return p
}

func (r *recorder) closeSecond(t int64, s *second) {
	delete(r.seconds, t)
	point := Second{T: t, Warmup: time.Duration(t)*time.Second < r.options.Warmup, InFlight: s.inFlight, Operations: map[Operation]SecondOperation{}}
	for op, counts := range s.operations {
		o := SecondOperation{Outcomes: outcomeCounts(counts.outcomes)}
		for _, n := range counts.outcomes {
			o.Requests += n
		}
		o.P50, o.P95 = milliseconds(counts.all.ValueAtQuantile(50)), milliseconds(counts.all.ValueAtQuantile(95))
		o.P99, o.Max = milliseconds(counts.all.ValueAtQuantile(99)), milliseconds(counts.all.Max())
		point.Operations[op] = o
	}
	r.series = append(r.series, point)
}

// result is called when nothing is in flight any more.
func (r *recorder) result(end time.Duration) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range slices.Sorted(maps.Keys(r.seconds)) {
		r.closeSecond(t, r.seconds[t])
	}
	slices.SortFunc(r.series, func(a, b Second) int { return int(a.T - b.T) })
	measured := max(end-r.options.Warmup, 0)
	out := Result{Measured: measured.Seconds(), Operations: []OperationResult{}, Series: r.series}
	total := newTally()
	for _, op := range slices.Sorted(maps.Keys(r.operations)) {
		t := r.operations[op]
		out.Operations = append(out.Operations, t.result(op, measured))
		total.add(t)
	}
	out.Total = total.result("total", measured)
	out.Generator = Generator{
		Late: r.late, LateAfter: milliseconds(r.options.LateAfter.Microseconds()), NotSent: r.notSent,
		StartDelay:  latencies(r.delays),
		MaxInFlight: r.maxInFlight, InFlightLimit: r.options.MaxInFlight,
	}
	if sent := r.delays.TotalCount(); sent > 0 {
		out.Generator.LateShare = float64(r.late) / float64(sent)
	}
	return out
}

func (t *tally) add(other *tally) {
	t.requests += other.requests
	t.tries += other.tries
	t.replayed += other.replayed
	for o, n := range other.outcomes {
		t.outcomes[o] += n
	}
	for c, n := range other.codes {
		t.codes[c] += n
	}
	t.good.Merge(other.good)
	t.all.Merge(other.all)
}
