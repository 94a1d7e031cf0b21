package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
)

type simCommand struct {
	Scenario []string `placeholder:"NAME" help:"Only these scenarios: normal, slow, crash, redeploy, oom, poison, retry-storm, export, shared-db, cpu."`
	Design   []string `placeholder:"NAME" help:"Only these designs: shared-pool, pool-per-feature, roles, split, sync-call."`
	Seed     uint64   `default:"19" help:"The (first) seed (${default}). The same seed gives the same bytes on every machine."`
	Seeds    int      `default:"1" help:"How many seeds to play; more than one prints means with 95 % intervals."`
	Parallel int      `default:"0" help:"Seeds played at a time; 0 is one for each processor. It changes nothing but the time it takes."`
	Pools    bool     `help:"Show the pools, too, with their queues over time; for a single seed."`
	Output   string   `short:"o" enum:"table,json" default:"table" help:"table or json."`

	scenario.Inputs
}

// Help is shown by lab sim --help.
func (*simCommand) Help() string {
	return `Plays every scenario in every design on a virtual clock, and prints what became of checkout beside what Little's law
predicts. The table ends with a line RESULT {json}; --output json has the queues over time as well.

Examples:
  lab sim
  lab sim --scenario slow --slow-delay 150ms
  lab sim --scenario slow --pools
  lab sim --seeds 1000 --scenario normal,slow,crash,redeploy --design shared-pool,pool-per-feature,split
  lab sim --scenario slow --design sync-call --sync-timeout 50ms --sync-fallback`
}

// Run simulates.
func (c *simCommand) Run(ctx context.Context, out io.Writer, p process) error {
	options := sim.Options{Inputs: c.Inputs, Seed: c.Seed, Seeds: c.Seeds, Parallel: c.Parallel}
	if err := options.Validate(); err != nil {
		return err
	}
	if c.Pools && c.Seeds > 1 {
		return errors.New("--pools: is for a single seed")
	}
	var err error
	options.Scenarios, err = chosen("--scenario", scenario.Table(c.Inputs), c.Scenario, func(s scenario.Scenario) string { return s.Name })
	if err != nil {
		return err
	}
	options.Designs, err = chosen("--design", scenario.Designs(), c.Design, func(d scenario.Design) string { return d.Name })
	if err != nil {
		return err
	}
	report := sim.Report{Seed: c.Seed, Seeds: c.Seeds, Inputs: c.Flags()}
	if c.Seeds == 1 {
		report.Cells, err = sim.Run(ctx, options)
	} else {
		bar := &seedBar{out: p.errOut, of: c.Seeds}
		if console.IsTerminal(p.errOut) {
			options.Progress = bar.show
		}
		report.Summaries, err = sim.Summarize(ctx, options)
		bar.clear()
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return report.WriteJSON(out)
	}
	if c.Pools {
		return report.WriteTables(out)
	}
	return report.WriteTable(out)
}

// chosen returns the elements of a table that are named, in the table's order; no names mean all.
func chosen[T any](flag string, table []T, names []string, nameOf func(T) string) ([]T, error) {
	if len(names) == 0 {
		return table, nil
	}
	wanted := map[string]bool{}
	for _, name := range names {
		if _, found := scenario.Find(table, name, nameOf); !found {
			return nil, fmt.Errorf("%s %s: there is none of that name", flag, name)
		}
		wanted[name] = true
	}
	var these []T
	for _, e := range table {
		if wanted[nameOf(e)] {
			these = append(these, e)
		}
	}
	return these, nil
}

// seedBar shows how far a run is, on a terminal.
type seedBar struct {
	out   io.Writer
	of    int
	shown atomic.Int64 // percent
}

// show may be called by several goroutines; each percent is written once.
func (b *seedBar) show(done int) {
	percent := int64(100 * done / b.of)
	if last := b.shown.Load(); percent > last && b.shown.CompareAndSwap(last, percent) {
		fmt.Fprintf(b.out, "\r%d of %d seeds (%d %%) ", done, b.of, percent)
	}
}

// clear leaves the line as it was.
func (b *seedBar) clear() {
	if b.shown.Load() > 0 {
		fmt.Fprintf(b.out, "\r%40s\r", "")
	}
}
