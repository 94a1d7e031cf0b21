package sim

import (
	"math"
	"slices"
	"time"

	"example.com/watertight/lab/scenario"
)

// request is all that chance decides about a request, drawn before the run: each design gets exactly the same traffic.
// Times are in nanoseconds from the start of the run.
type request struct {
	at    int64
	takes int64 // service time
	there int64 // way to the feature's process, where there is one
	back  int64
	luck  uint64 // whether a fault bites it
	route int32
	call  int32 // index of the recommendation that a checkout asks for, where it does; −1 for all others
}

// subcall is the recommendation that a checkout asks for.
type subcall struct {
	takes, there, back int64
	luck               uint64
}

// traffic is one seed's requests, in order of arrival.
type traffic struct {
	requests []request
	calls    []subcall
	sources  []source
}

// source makes the requests of one route. Each has a random stream of its own, so that changing one route's rate leaves the
// others' requests as they were.
type source struct {
	route scenario.Route
	mean  int64 // between arrivals
	times serviceTimes
	own   generator
	calls *generator // of the recommendations that these requests ask for
	next  request
}

// serviceTimes draws them: evenly over a range, and a share of them longer.
type serviceTimes struct {
	low, width int64
	tail       uint64
	factor     float64
}

func newServiceTimes(base time.Duration, in scenario.Inputs) serviceTimes {
	low := int64(math.Round(float64(base) * (1 - in.Spread)))
	return serviceTimes{low: low, width: 2*(int64(base)-low) + 1, tail: threshold(in.TailShare), factor: in.TailFactor}
}

func (s *serviceTimes) draw(g *generator) int64 {
	takes := s.low + g.below(s.width)
	if g.next() < s.tail {
		takes = scaled(takes, s.factor)
	}
	return takes
}

// scaled is a product of one rounding: no addition that a compiler could fuse with it.
func scaled(d int64, factor float64) int64 { return int64(math.Round(float64(d) * factor)) }

// generate draws the requests that arrive in s under seed. It reuses what t holds.
func (t *traffic) generate(in scenario.Inputs, s *scenario.Scenario, seed uint64) {
	t.requests, t.calls, t.sources = t.requests[:0], t.calls[:0], t.sources[:0]
	recs := newServiceTimes(in.RecsTime, in)
	hop := int64(in.HopMax-in.HopMin) + 1
	// Streams are numbered by route; those of the checkouts' own calls come after all of them.
	callStream := newGenerator(seed, callsOf)
	for i, r := range s.Routes {
		if r.Rate <= 0 {
			continue
		}
		src := source{route: r, mean: int64(math.Round(1e9 / r.Rate)), times: newServiceTimes(r.Time, in), own: newGenerator(seed, i)}
		src.next.route = int32(i)
		if r.Feature == scenario.Checkout {
			src.calls = &callStream
		}
		src.advance(hop, int64(in.HopMin))
		t.sources = append(t.sources, src)
	}
	for {
		first := t.first()
		if first == nil || first.next.at >= int64(s.Length) {
			return
		}
		r := first.next
		r.call = -1
		if g := first.calls; g != nil {
			r.call = int32(len(t.calls))
			t.calls = append(t.calls, subcall{
				takes: recs.draw(g), there: int64(in.HopMin) + g.below(hop), back: int64(in.HopMin) + g.below(hop), luck: g.next(),
			})
		}
		t.requests = append(t.requests, r)
		first.advance(hop, int64(in.HopMin))
	}
}

// callsOf is the stream of the checkouts' own calls, beyond those of any number of routes.
const callsOf = 8

// first is the source whose request comes next.
func (t *traffic) first() *source {
	var first *source
	for i := range t.sources {
		if s := &t.sources[i]; first == nil || s.next.at < first.next.at {
			first = s
		}
	}
	return first
}

// advance draws the source's next request, always the same number of draws.
func (s *source) advance(hop, hopMin int64) {
	g := &s.own
	s.next.at += s.gap(g)
	s.next.takes = s.times.draw(g)
	s.next.there = hopMin + g.below(hop)
	s.next.back = hopMin + g.below(hop)
	s.next.luck = g.next()
}

func (s *source) gap(g *generator) int64 { return g.exponential(s.mean) }

// sameTraffic reports whether two scenarios have the same requests under the same seed.
func sameTraffic(a, b *scenario.Scenario) bool {
	return a.Length == b.Length && slices.EqualFunc(a.Routes, b.Routes, func(x, y scenario.Route) bool {
		return x.Feature == y.Feature && x.Rate == y.Rate && x.Time == y.Time
	})
}
