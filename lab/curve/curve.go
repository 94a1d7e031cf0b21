// Package curve measures how the shop's figures move when one thing grows: the load, from little to more than it can take, and
// the replicas of a service. It says what was measured and whether the shop kept its best under too much; why, it does not know.
package curve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/result"
)

// Kind tells a file of curves from other JSON.
const Kind = "watertight-lab-curve"

// File is what one run measured. Times and lengths are in the units that their names in JSON end in, everything else is per second.
type File struct {
	Kind     string            `json:"kind"` // Kind
	Started  time.Time         `json:"started_at"`
	Took     float64           `json:"took_s"`
	Machine  result.Machine    `json:"machine"`
	Versions map[string]string `json:"versions"`
	Seed     uint64            `json:"seed"`
	StepTime float64           `json:"step_s"` // how long each step is counted
	Load     *Load             `json:"load,omitempty"`
	Replicas []Replicas        `json:"replicas,omitempty"` // by service
	Warnings []string          `json:"warnings"`           // why the numbers may not mean what they seem to
}

// Load is the curve over the load, with the whole mix.
type Load struct {
	Mix      string  `json:"mix"`
	Deadline float64 `json:"deadline_ms"` // when a client gives up
	Capacity float64 `json:"capacity"`    // the goodput at the rate that had the best of the search, held again: the best alone may be a lucky moment
	Search   []Step  `json:"search"`
	Steps    []Step  `json:"steps"` // as they came; a share that was held several times is there as often
	Best     float64 `json:"best_goodput"`
	// Kept is the goodput at the greatest share, as a share of the best.
	Kept float64 `json:"kept"`
}

// Step is one rate of arrivals, held for some time. What was offered is what became of it: Offered = Goodput + Shed + Late + Failed.
type Step struct {
	Share   float64 `json:"share"` // of the capacity
	Offered float64 `json:"offered"`
	// Goodput is what was answered within the deadline, also without a part that the shop can do without; Degraded is how much of it
	// was that.
	Goodput  float64 `json:"goodput"`
	Degraded float64 `json:"degraded"`
	// Answered is the goodput by operation. Under too much load its parts change: an order costs many times what a page does, and
	// each has limits of its own.
	Answered map[string]float64 `json:"answered,omitempty"`
	Shed     float64            `json:"shed"`   // turned away at once: 429 or 503
	Late     float64            `json:"late"`   // the client gave up, or a 504 told it to
	Failed   float64            `json:"failed"` // any other answer, or none
	// Codes say why what is not goodput is not, by the problem's code or the client's.
	Codes      map[string]float64 `json:"codes,omitempty"`
	P50        float64            `json:"p50_ms"` // of goodput
	P99        float64            `json:"p99_ms"`
	LateStarts float64            `json:"late_starts"` // share of the requests that the generator sent more than a millisecond late
	// Settle is how long after the step the last order was settled: what the saga had yet to do.
	Settle float64 `json:"settle_s"`
}

// Replicas is the curve over the replicas of one service, which is made the bottleneck.
type Replicas struct {
	Service     string         `json:"service"`
	Workers     int            `json:"workers"` // of each replica
	ServiceTime float64        `json:"service_time_ms"`
	PerReplica  float64        `json:"per_replica"` // workers / service time: what one can take
	Steps       []ReplicasStep `json:"steps"`
}

// Full is what was answered in full, and within the deadline.
func (s Step) Full() float64 { return s.Goodput - s.Degraded }

// ReplicasStep is a number of replicas under less than it can take, and under more.
type ReplicasStep struct {
	Replicas int  `json:"replicas"`
	Under    Step `json:"under"`
	Over     Step `json:"over"`
}

// ErrOther says that a document is not a file of curves.
var ErrOther = errors.New("not a result of lab curve")

// Read reads a file of curves. The error is ErrOther when it is JSON of another kind.
func Read(r io.Reader) (*File, error) {
	var f File
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("read curves: %w", err)
	}
	if f.Kind != Kind {
		return nil, ErrOther
	}
	return &f, nil
}

// WriteJSON writes everything.
func (f *File) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	return encoder.Encode(f)
}

// WriteTable writes the curves for people.
func (f *File) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if l := f.Load; l != nil {
		fmt.Fprintf(table, "capacity %.0f/s of %s, answered within %.0f ms\n", l.Capacity, l.Mix, l.Deadline)
		fmt.Fprintf(table, "load\t%s\n", heads)
		for _, s := range l.ByShare() {
			fmt.Fprintf(table, "%.0f %%\t%s\n", 100*s.Share, s.columns())
		}
		fmt.Fprintf(table, "at the most load, %.0f %% of the best goodput, %.0f/s\n", 100*l.Kept, l.Best)
	}
	for _, r := range f.Replicas {
		fmt.Fprintf(table, "\n%s: %d workers of %.0f ms, %.0f/s for each replica\n", r.Service, r.Workers, r.ServiceTime, r.PerReplica)
		fmt.Fprintf(table, "replicas\t%s\n", heads)
		for _, s := range r.Steps {
			fmt.Fprintf(table, "%d, under\t%s\n%d, over\t%s\n", s.Replicas, s.Under.columns(), s.Replicas, s.Over.columns())
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write curves: %w", err)
	}
	for _, w := range f.Warnings {
		if _, err := fmt.Fprintln(out, "warning:", w); err != nil {
			return fmt.Errorf("write warnings: %w", err)
		}
	}
	return nil
}

const heads = "offered/s\tgoodput/s\tdegraded/s\tshed/s\tlate/s\tfailed/s\tp50 ms\tp99 ms\tlate starts\tsettled after\tgoodput of\t"

func (s Step) columns() string {
	return fmt.Sprintf("%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\t%.1f %%\t%.1f s\t%s\t", s.Offered, s.Goodput, s.Degraded, s.Shed, s.Late, s.Failed,
		s.P50, s.P99, 100*s.LateStarts, s.Settle, s.answered())
}

// answered is the goodput by operation, for people.
func (s Step) answered() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Answered)) {
		parts = append(parts, fmt.Sprintf("%s %.0f", name, s.Answered[name]))
	}
	return strings.Join(parts, ", ")
}

// stepOf is what the load found, at that share of the capacity.
func stepOf(r load.Result, share float64) Step {
	n, per := r.Total.Outcomes, func(count int64) float64 { return float64(count) / max(r.Measured, 1e-9) }
	s := Step{
		Share: share, Offered: r.Total.Offered, Goodput: per(n.OK + n.Degraded), Degraded: per(n.Degraded), Shed: per(n.Rejected), Late: per(n.TimedOut),
		Failed: per(n.Error + n.Lost), P50: r.Total.Latency.P50, P99: r.Total.Latency.P99, LateStarts: r.Generator.LateShare,
	}
	for _, op := range r.Operations {
		if s.Answered == nil {
			s.Answered = map[string]float64{}
		}
		s.Answered[string(op.Name)] = per(op.Outcomes.OK + op.Outcomes.Degraded)
		for code, count := range op.Codes {
			if s.Codes == nil {
				s.Codes = map[string]float64{}
			}
			s.Codes[string(op.Name)+" "+code] += per(count)
		}
	}
	return s
}

// settle takes the median goodput of the confirming steps for the capacity.
func (l *Load) settle(confirmed []Step) {
	slices.SortFunc(confirmed, func(a, b Step) int { return cmp.Compare(a.Goodput, b.Goodput) })
	l.Capacity = confirmed[len(confirmed)/2].Goodput
	l.Search = append(l.Search, confirmed...)
	for i := range l.Search {
		l.Search[i].Share = l.Search[i].Offered / l.Capacity
	}
}

// ByShare returns one step for each share, the least first: of those that were held several times the one with the median goodput.
func (l *Load) ByShare() []Step {
	sorted := slices.SortedStableFunc(slices.Values(l.Steps), func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Share, b.Share), cmp.Compare(a.Goodput, b.Goodput))
	})
	var steps []Step
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && sorted[to].Share == sorted[from].Share {
			to++
		}
		steps = append(steps, sorted[(from+to-1)/2])
		from = to
	}
	return steps
}

// judge works out Best and Kept from the steps.
func (l *Load) judge() {
	l.Best, l.Kept = 0, 0
	steps := l.ByShare()
	for _, s := range steps {
		l.Best = max(l.Best, s.Goodput)
	}
	if l.Best > 0 {
		l.Kept = steps[len(steps)-1].Goodput / l.Best
	}
}
