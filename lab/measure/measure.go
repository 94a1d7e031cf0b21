//go:build unix

// Package measure runs scenarios in designs on real processes of this machine: it starts the shop in a design, sends it the
// load, makes it sick, and writes down what became of the requests, beside what the simulation says of the same traffic. It
// judges no code: what it says holds for this machine and this run.
package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/shop"
)

// Options say what to run, and on what.
type Options struct {
	Inputs    scenario.Inputs
	Scenarios []scenario.Scenario
	Designs   []scenario.Design
	Seed      uint64
	Quick     bool
	// Within bounds the run from the moment when the programs have been built; what there is no time for is skipped and said
	// to be. 0 is no bound.
	Within time.Duration
	// Trace measures where an order's time goes, hop by hop, on a normal day.
	Trace bool

	Runner runner.Options // Shop's port offset is the run's
	// Say gets a line for each step that is over, Show what is under way, over and over. Both may be nil.
	Say  func(line string)
	Show func(line string)
}

// Run measures every cell, design by design, and returns the result in the order of the table: by scenario and, within, by
// design. When ctx ends early it returns ctx's error, and nothing is left running either way.
func Run(ctx context.Context, o Options) (*result.File, error) {
	if err := o.Inputs.Validate(); err != nil {
		return nil, err
	}
	file := &result.File{
		Kind: result.Kind, Target: result.Processes, Started: time.Now().Truncate(time.Second), Quick: o.Quick, Machine: Machine(),
		Versions: Versions(), Seed: o.Seed, Inputs: o.Inputs.Flags(), Warnings: []string{},
	}
	if m := file.Machine; m.Load > float64(m.CPUs) {
		file.Warnings = append(file.Warnings, fmt.Sprintf(
			"the machine was busy before the run (load %.1f on %d CPUs): latencies say as much of that as of the designs", m.Load, m.CPUs))
	}
	r := &run{Options: o, file: file, startUp: map[string]time.Duration{}}
	ports, err := runner.Hold(o.Runner, r.shopDesigns(o.Designs)...)
	if err != nil {
		return nil, err
	}
	defer ports.Release()
	r.sayf("building the programs (the first time takes minutes)")
	if err := runner.Build(ctx, o.Runner, r.shopDesigns(o.Designs)...); err != nil {
		return nil, err
	}
	began := time.Now()
	if o.Within > 0 {
		r.until = began.Add(o.Within)
	}
	simulated, err := r.simulate(ctx)
	if err != nil {
		return nil, err
	}
	r.simulated = simulated
	for _, group := range r.groups() {
		if err := r.onStage(ctx, group); err != nil {
			return nil, err
		}
	}
	r.sort()
	file.Judge()
	file.NormalDay(o.Inputs.GatewayTime + o.Inputs.HopMin + o.Inputs.HopMax)
	file.Took = seconds(time.Since(began))
	return file, nil
}

// run is one run under way.
type run struct {
	Options
	file      *result.File
	simulated map[[2]string]simulatedCell
	until     time.Time                // zero: no bound
	startUp   map[string]time.Duration // of the process that the fault ends, by design
	products  []load.Product
	done      int
}

func (r *run) sayf(format string, args ...any) {
	if r.Say != nil {
		r.Say(fmt.Sprintf(format, args...))
	}
}

// groups are the designs that work on the same data, and so can share a stage.
func (r *run) groups() [][]scenario.Design {
	var groups [][]scenario.Design
	at := map[string]int{}
	for _, d := range r.Designs {
		data := shop.Options{Design: shopDesign(&d)}.Data()
		i, known := at[data]
		if !known {
			i = len(groups)
			at[data] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	return groups
}

// shopDesigns are the shop's shapes for the designs, each once.
func (r *run) shopDesigns(designs []scenario.Design) []string {
	var names []string
	for i := range designs {
		if name := shopDesign(&designs[i]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// onStage runs the designs of one group.
func (r *run) onStage(ctx context.Context, designs []scenario.Design) (err error) {
	o := r.Runner
	o.Shop.Design = shopDesign(&designs[0])
	r.widest(&o, designs)
	r.sayf("starting PostgreSQL and NATS for %s", names(designs))
	stage, err := runner.Raise(ctx, o, r.shopDesigns(designs)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	r.file.Versions["postgresql"] = fmt.Sprint(stage.PostgreSQL())
	r.products = nil
	if err := r.warm(ctx, stage, &designs[0]); err != nil {
		return err
	}
	for i := range designs {
		if r.traced(&designs[i]) {
			if err := r.trace(ctx, stage, &designs[i]); err != nil {
				return fmt.Errorf("trace %s: %w", designs[i].Name, err)
			}
		}
		for j := range r.Scenarios {
			cell, err := r.cell(ctx, stage, &r.Scenarios[j], &designs[i])
			if err != nil {
				return fmt.Errorf("%s in %s: %w", r.Scenarios[j].Name, designs[i].Name, err)
			}
			r.file.Cells = append(r.file.Cells, cell)
		}
	}
	return nil
}

// widest has the databases made for the cell with most workers: what a role may hold follows from them.
func (r *run) widest(o *runner.Options, designs []scenario.Design) {
	o.Shop.Env = map[string]map[string]string{}
	if !designs[0].OneProcess {
		return
	}
	most := 0
	for i := range r.Scenarios {
		total := 0
		for _, route := range routes(&r.Scenarios[i]) {
			total += route.Workers
		}
		most = max(most, r.Scenarios[i].Workers, total)
	}
	o.Shop.Env[shop.Monolith] = map[string]string{"POOL_SIZE": fmt.Sprint(most)}
}

func names(designs []scenario.Design) string {
	var all []string
	for _, d := range designs {
		all = append(all, d.Name)
	}
	return strings.Join(all, ", ")
}

// sort puts the cells in the order of the table.
func (r *run) sort() {
	place := func(c result.Cell) int {
		s := slices.IndexFunc(r.Scenarios, func(s scenario.Scenario) bool { return s.Name == c.Scenario })
		d := slices.IndexFunc(r.Designs, func(d scenario.Design) bool { return d.Name == c.Design })
		return s*len(r.Designs) + d
	}
	slices.SortStableFunc(r.file.Cells, func(a, b result.Cell) int { return place(a) - place(b) })
}
