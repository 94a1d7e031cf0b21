// Package result is what an experiment on a real shop found: cells of scenario and design, measured on processes or on a
// cluster, beside what the simulation and arithmetic say of the same cell. Every runner writes this type and every reader
// (tables, reports, tests) reads it. It measures nothing.
package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
)

// Kind tells a result file from other JSON.
const Kind = "watertight-lab-run"

// What a shop ran on.
const (
	Processes = "processes" // of one machine
	Cluster   = "cluster"   // Kubernetes
)

// File is one run. Times and lengths are in the units that their names in JSON end in.
type File struct {
	Kind     string            `json:"kind"`   // Kind
	Target   string            `json:"target"` // Processes or Cluster
	Started  time.Time         `json:"started_at"`
	Took     float64           `json:"took_s"`
	Quick    bool              `json:"quick"` // the shortened form of the run
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // go, watertight, postgresql, …
	Seed     uint64            `json:"seed"`     // of the traffic, measured and simulated
	Inputs   map[string]string `json:"inputs"`   // by flag
	Cells    []Cell            `json:"cells"`
	Cost     *Cost             `json:"normal_day_cost,omitempty"`
	Hops     []Hop             `json:"hops,omitempty"`
	Warnings []string          `json:"warnings"` // why the numbers may not mean what they seem to
}

// Machine is where the run took place.
type Machine struct {
	OS       string  `json:"os"`
	Arch     string  `json:"arch"`
	CPU      string  `json:"cpu,omitempty"`
	CPUs     int     `json:"cpus"`
	MemoryMB int64   `json:"memory_mb,omitempty"`
	Load     float64 `json:"load_1m"`         // before the run, without the shop
	Nodes    int     `json:"nodes,omitempty"` // of a cluster
}

// Cell is one scenario in one design.
type Cell struct {
	Scenario string `json:"scenario"`
	Design   string `json:"design"`
	About    string `json:"about"` // what goes wrong
	// Skipped says why the cell was not measured; the fields below are empty then.
	Skipped string `json:"skipped,omitempty"`
	// Starved: the load generator, which does next to nothing, could not send in time, so the machine was too busy for the
	// figures to mean anything. Such a cell is judged, and neither held for nor against a design.
	Starved bool `json:"starved,omitempty"`

	Measured  Figures         `json:"measured"`
	Simulated *Figures        `json:"simulated,omitempty"` // nil: the simulation does not know the design
	Predicted *sim.Prediction `json:"predicted,omitempty"` // from means, by Little's law

	Became   scenario.Expectation `json:"became"` // measured
	Expected scenario.Expectation `json:"expected"`

	Started  time.Time      `json:"started_at"`
	Length   float64        `json:"length_s"`
	WarmUp   float64        `json:"warm_up_s"`
	FaultAt  *float64       `json:"fault_at_s,omitempty"` // when the fault was set, from the start; nil: never
	Outages  []Outage       `json:"outages,omitempty"`
	Restarts map[string]int `json:"restarts,omitempty"` // by process, 0 left out
	Series   []Second       `json:"series,omitempty"`
	Samples  []Sample       `json:"samples,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`

	Reasons  map[string][]string `json:"reasons,omitempty"`  // by process, what its pods gave as a reason: CrashLoopBackOff, OOMKilled
	Findings []Finding           `json:"findings,omitempty"` // of the signals that the scenario has
}

// Finding is whether a signal was there.
type Finding struct {
	Signal string `json:"signal"`
	Met    bool   `json:"met"`
	Got    string `json:"got"`
}

// Figures are what became of the requests, and of the orders.
type Figures struct {
	OrdersPerSecond float64                      `json:"orders_per_second"` // acknowledged
	Features        map[scenario.Feature]Feature `json:"features"`
}

// Feature is what became of one feature's requests, counted by arrival after the warm-up. An answer without a part of it
// (degraded) is a failure. The latencies are those of answered requests, from the moment when each was meant to start; they
// are left out when there was none.
type Feature struct {
	Requests      int64            `json:"requests"`
	OK            int64            `json:"ok"`
	Outcomes      map[string]int64 `json:"outcomes,omitempty"` // of those that are not ok
	ErrorsPercent float64          `json:"errors_percent"`
	P50MS         float64          `json:"p50_ms,omitempty"`
	P95MS         float64          `json:"p95_ms,omitempty"`
}

// Outage is a time in which a process was away: from its end to when it was ready again.
type Outage struct {
	Process string  `json:"process"`
	At      float64 `json:"at_s"`
	Length  float64 `json:"length_s"` // to the end of the run when it did not come back
	Reason  string  `json:"reason"`
}

// Second is one second of the run: what became of the requests that were meant to start in it.
type Second struct {
	T        int64                              `json:"t_s"`
	Features map[scenario.Feature]SecondFeature `json:"features"`
}

// SecondFeature is a second of one feature; latencies are of all requests that were sent, those that were given up included.
type SecondFeature struct {
	Requests int64   `json:"requests"`
	OK       int64   `json:"ok"`
	P50MS    float64 `json:"p50_ms"`
	P95MS    float64 `json:"p95_ms"`
}

// Sample is how the shop looked at a moment.
type Sample struct {
	T        float64           `json:"t_s"`
	Queued   map[string]int    `json:"queued,omitempty"`   // requests that wait for a worker or a place, by pool; 0 left out
	Breakers map[string]string `json:"breakers,omitempty"` // by upstream; closed ones are left out
	Orders   *float64          `json:"orders_per_second,omitempty"`
	Away     []string          `json:"away,omitempty"` // processes that are not ready
}

// Cost is what the split costs on a normal day, in checkout's latency.
type Cost struct {
	From            string  `json:"from"` // design
	To              string  `json:"to"`
	P50MS           float64 `json:"p50_ms"`
	P95MS           float64 `json:"p95_ms"`
	SimulatedP50MS  float64 `json:"simulated_p50_ms"`
	SimulatedP95MS  float64 `json:"simulated_p95_ms"`
	AssumedMeanHops float64 `json:"assumed_mean_ms"` // gateway + there + back
}

// Hop is where the time of an order goes on a normal day: the median over traced orders.
type Hop struct {
	Design string  `json:"design"`
	Name   string  `json:"name"`
	P50MS  float64 `json:"p50_ms"`
	Traces int     `json:"traces"`
}

// Errors returns the share of failed requests of a feature, 0 to 1.
func (f Feature) Errors() float64 {
	if f.Requests == 0 {
		return 0
	}
	return 1 - float64(f.OK)/float64(f.Requests)
}

// systematic is Errors without one request, which chance may take: in a short run a single one is more than a per cent.
func (f Feature) systematic() float64 {
	if f.Requests-f.OK <= 1 {
		return 0
	}
	return f.Errors()
}

// Cell returns the cell of that name; nil when there is none.
func (f *File) Cell(scenario, design string) *Cell {
	for i := range f.Cells {
		if f.Cells[i].Scenario == scenario && f.Cells[i].Design == design {
			return &f.Cells[i]
		}
	}
	return nil
}

// Met reports whether the cell became what was expected; a feature that nobody asked for is left out.
func (c *Cell) Met() bool {
	return c.Became.Checkout.Meets(c.Expected.Checkout) && (c.Became.Recs == "" || c.Became.Recs.Meets(c.Expected.Recs))
}

// Judge fills in what each cell became, beside the normal day of the same design where that was measured.
func (f *File) Judge() {
	for i := range f.Cells {
		c := &f.Cells[i]
		if c.Skipped != "" {
			continue
		}
		word := func(feature scenario.Feature) scenario.Word {
			now, asked := c.Measured.Features[feature]
			if !asked {
				return ""
			}
			normal := time.Duration(0)
			if day := f.Cell(scenario.Normal, c.Design); day != nil {
				normal = millis(day.Measured.Features[feature].P50MS)
			}
			return scenario.Judge(now.systematic(), millis(now.P50MS), normal)
		}
		c.Became = scenario.Expectation{Checkout: word(scenario.Checkout), Recs: word(scenario.Recs)}
	}
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// NormalDay works out Cost from the cells of the normal day; it stays nil when one is missing.
func (f *File) NormalDay(assumed time.Duration) {
	from, to := f.Cell(scenario.Normal, scenario.SharedPool), f.Cell(scenario.Normal, scenario.Split)
	if from == nil || to == nil || from.Skipped+to.Skipped != "" || from.Starved || to.Starved || from.Simulated == nil || to.Simulated == nil {
		return
	}
	checkout := func(f Figures) Feature { return f.Features[scenario.Checkout] }
	f.Cost = &Cost{
		From: from.Design, To: to.Design, AssumedMeanHops: float64(assumed.Microseconds()) / 1000,
		P50MS:          checkout(to.Measured).P50MS - checkout(from.Measured).P50MS,
		P95MS:          checkout(to.Measured).P95MS - checkout(from.Measured).P95MS,
		SimulatedP50MS: checkout(*to.Simulated).P50MS - checkout(*from.Simulated).P50MS,
		SimulatedP95MS: checkout(*to.Simulated).P95MS - checkout(*from.Simulated).P95MS,
	}
}

// OfSimulation are a simulated cell's figures.
func OfSimulation(c sim.Cell) *Figures {
	f := Figures{OrdersPerSecond: c.OrdersPerSecond, Features: map[scenario.Feature]Feature{}}
	for name, r := range c.Features {
		f.Features[name] = Feature{
			Requests: int64(r.Arrived), OK: int64(r.OK), ErrorsPercent: r.ErrorsPercent, P50MS: r.P50MS, P95MS: r.P95MS,
		}
	}
	return &f
}

// ErrOther says that a document is not a result file.
var ErrOther = errors.New("not a result of lab run or lab cluster")

// Read reads a result file. The error is ErrOther when it is JSON of another kind.
func Read(r io.Reader) (*File, error) {
	var f File
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	if f.Kind != Kind {
		return nil, ErrOther
	}
	return &f, nil
}

// WriteJSON writes the whole result.
func (f *File) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", " ")
	return encoder.Encode(f)
}

// WriteCompact writes the whole result without spaces, as a file that is kept.
func (f *File) WriteCompact(out io.Writer) error { return json.NewEncoder(out).Encode(f) }

// brief leaves out what changes over time, which would make a very long line.
func (f *File) brief() *File {
	short := *f
	short.Cells = make([]Cell, len(f.Cells))
	for i, c := range f.Cells {
		c.Series, c.Samples, c.Outages = nil, nil, nil
		short.Cells[i] = c
	}
	return &short
}
