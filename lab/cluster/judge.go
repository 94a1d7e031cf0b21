package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

// judge holds what was seen against the scenario's signals.
func (p *play) judge() {
	for _, g := range p.scenario.Signals {
		if p.design != scenario.Split && p.scenario.Fault.Bites() && contained(g.Kind) {
			continue // what the split keeps apart, the other designs need not; what is expected of them is in the table
		}
		finding := p.find(g)
		finding.Signal = g.String()
		p.cell.Findings = append(p.cell.Findings, finding)
	}
}

// contained signals say that a fault kept to its place.
func contained(k scenario.SignalKind) bool {
	return slices.Contains([]scenario.SignalKind{scenario.Steady, scenario.Alone, scenario.Flawless, scenario.AsFast}, k)
}

func (p *play) find(g scenario.Signal) result.Finding {
	if f, seen := p.found[g.Kind]; seen {
		return f
	}
	switch g.Kind {
	case scenario.Breaker:
		states := slices.Sorted(maps.Keys(p.watch.breakers[g.Of]))
		return result.Finding{Met: slices.Contains(states, g.Want), Got: strings.Join(states, ", ")}
	case scenario.Restarts:
		return result.Finding{Met: p.watch.restarted(g.Of) > 0, Got: times(p.watch.restarted(g.Of))}
	case scenario.Steady:
		return result.Finding{Met: p.watch.restarted(g.Of) == 0, Got: times(p.watch.restarted(g.Of))}
	case scenario.FaultSeen:
		return result.Finding{Met: p.watch.sick[g.Of], Got: yesNo(p.watch.sick[g.Of])}
	case scenario.Degraded:
		n := p.cell.Measured.Features[scenario.Recs].Outcomes["degraded"]
		return result.Finding{Met: n > 0, Got: fmt.Sprintf("%d answers", n)}
	case scenario.Shows:
		return result.Finding{Met: p.watch.shows(g.Of, g.Want), Got: strings.Join(p.cell.Reasons[g.Of], ", ")}
	case scenario.Alone:
		return p.alone(g.Of)
	case scenario.Flawless, scenario.Flawed:
		return p.flawless(g)
	case scenario.AsFast:
		return p.asFast(scenario.Feature(g.Of))
	case scenario.Books:
		return p.clean()
	}
	return result.Finding{Got: "nobody looked"}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// alone finds the processes other than the one that were restarted.
func (p *play) alone(sick string) result.Finding {
	var others []string
	for _, name := range slices.Sorted(maps.Keys(p.cell.Restarts)) {
		if name != sick && p.cell.Restarts[name] > 0 {
			others = append(others, fmt.Sprintf("%s %s", name, times(p.cell.Restarts[name])))
		}
	}
	if len(others) == 0 {
		return result.Finding{Met: true, Got: "none"}
	}
	return result.Finding{Got: strings.Join(others, ", ")}
}

// failures are the requests of a feature that were not answered well; an answer without a part of it is none of them.
func failures(f result.Feature) int64 { return f.Requests - f.OK - f.Outcomes["degraded"] }

func (p *play) flawless(g scenario.Signal) result.Finding {
	var requests, failed int64
	outcomes := map[string]int64{}
	for name, f := range p.cell.Measured.Features {
		if g.Of != "" && string(name) != g.Of {
			continue
		}
		requests += f.Requests
		failed += failures(f)
		for outcome, n := range f.Outcomes {
			outcomes[outcome] += n
		}
	}
	got := fmt.Sprintf("%d of %d failed", failed, requests)
	var kinds []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", outcomes[outcome], outcome))
	}
	for _, o := range p.load.Operations {
		if g.Of == "" || string(o.Name) == g.Of {
			for _, code := range slices.Sorted(maps.Keys(o.Codes)) {
				kinds = append(kinds, fmt.Sprintf("%s: %s %d", o.Name, code, o.Codes[code]))
			}
		}
	}
	if len(kinds) > 0 {
		got += " (" + strings.Join(kinds, ", ") + ")"
	}
	if g.Kind == scenario.Flawed {
		return result.Finding{Met: failed > 0, Got: got}
	}
	return result.Finding{Met: requests > 0 && failed == 0, Got: got}
}

// How much slower than in the quiet time is still as fast, in p95, and how many seconds of each must be there to say so.
const (
	slowerShare = 0.1
	slowerMS    = 2.0
	fewSeconds  = 6
)

// edge is left out at the beginning of each window, and after its end: what was asked then belongs to neither.
const edge = 2 * time.Second

// asFast compares the p95 of seconds with the fault and of quiet ones: of each, the second in the middle, so that seconds in
// which the machine did something else do not count, however bad they were. Quiet and fault take turns for the same reason.
func (p *play) asFast(f scenario.Feature) result.Finding {
	var quiet, sick []float64
	for _, second := range p.cell.Series {
		s, asked := second.Features[f]
		if float64(second.T) < p.cell.WarmUp || !asked || s.Requests == 0 {
			continue
		}
		switch p.during(p.cell.Started.Add(time.Duration(second.T) * time.Second)) {
		case within:
			sick = append(sick, s.P95MS)
		case outside:
			quiet = append(quiet, s.P95MS)
		}
	}
	if len(quiet) < fewSeconds || len(sick) < fewSeconds {
		return result.Finding{Got: fmt.Sprintf("too few seconds: %d quiet, %d with the fault", len(quiet), len(sick))}
	}
	q, s := middle(quiet), middle(sick)
	return result.Finding{
		Met: s <= q*(1+slowerShare)+slowerMS,
		Got: fmt.Sprintf("p95 %.1f ms, quiet %.1f ms (medians of %d and %d seconds)", s, q, len(sick), len(quiet)),
	}
}

type phase int

const (
	between phase = iota
	within
	outside
)

// during says whether the second that begins then has the fault in it, is quiet, or neither for sure.
func (p *play) during(second time.Time) phase {
	end := second.Add(time.Second)
	for _, w := range p.windows {
		switch {
		case !second.Before(w.from.Add(edge)) && !end.After(w.to):
			return within
		case end.After(w.from) && second.Before(w.to.Add(edge)):
			return between
		}
	}
	return outside
}

func middle(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// clean says how the books are.
func (p *play) clean() result.Finding {
	r := p.books
	got := []string{fmt.Sprintf("%d acknowledged orders", r.Acknowledged)}
	for _, i := range r.Invariants {
		if i.Violations > 0 {
			got = append(got, fmt.Sprintf("%s broken %s: %s", i.Name, times(int(i.Violations)), strings.Join(i.Examples, "; ")))
		}
	}
	return result.Finding{Met: r.Clean && r.Acknowledged > 0, Got: strings.Join(got, "; ")}
}
