// Package sim plays every scenario in every design on a virtual clock: random arrivals, pools of workers with queues, processes
// that end, clients that give up. A seed repeats to the byte on every machine: time is whole nanoseconds, the generator and its
// distributions are integer arithmetic, and what is left of floating point is single operations that are rounded one by one.
//
// It is a model. It knows no scheduler, no memory, no kernel and no database; what it says is what queues and lost processes
// alone explain.
package sim

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"example.com/watertight/lab/scenario"
)

// Options say what to play.
type Options struct {
	Inputs    scenario.Inputs
	Scenarios []scenario.Scenario
	Designs   []scenario.Design
	Seed      uint64 // the first
	Seeds     int    // how many, one after the other
	Parallel  int    // seeds at a time; 0 means one for each processor
	Progress  func(done int)
}

// MaxSeeds is the most that one run takes.
const MaxSeeds = 100_000

// Validate returns what is wrong; errors start with the flag's name.
func (o *Options) Validate() error {
	if o.Seeds < 1 || o.Seeds > MaxSeeds {
		return fmt.Errorf("--seeds: must be between 1 and %d, got %d", MaxSeeds, o.Seeds)
	}
	if o.Parallel < 0 {
		return fmt.Errorf("--parallel: must not be negative, got %d", o.Parallel)
	}
	return o.Inputs.Validate()
}

// Run plays all cells under the first seed: by scenario and, within, by design. The queues' lengths over time are kept.
func Run(ctx context.Context, o Options) ([]Cell, error) {
	o.Seeds = 1
	var cells []Cell
	err := eachSeed(ctx, &o, func(_ int, of []Cell) { cells = of })
	return cells, err
}

// Summarize plays all cells under all seeds. The outcome does not depend on o.Parallel.
func Summarize(ctx context.Context, o Options) ([]Summary, error) {
	values := make([][]float64, max(min(o.Seeds, MaxSeeds), 0))
	err := eachSeed(ctx, &o, func(seed int, cells []Cell) { values[seed] = measure(cells) })
	if err != nil {
		return nil, err
	}
	return summarize(&o, values), nil
}

// eachSeed hands the cells of each seed to collect, which is called from several goroutines, once for each seed.
func eachSeed(ctx context.Context, o *Options, collect func(seed int, cells []Cell)) error {
	if err := o.Validate(); err != nil {
		return err
	}
	workers := o.Parallel
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var next, done atomic.Int64
	var players sync.WaitGroup
	for range min(workers, o.Seeds) {
		players.Go(func() {
			var p player
			for ctx.Err() == nil {
				seed := int(next.Add(1)) - 1
				if seed >= o.Seeds {
					return
				}
				collect(seed, p.play(o, o.Seed+uint64(seed)))
				if o.Progress != nil {
					o.Progress(int(done.Add(1)))
				}
			}
		})
	}
	players.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("simulation: %w", context.Cause(ctx))
	}
	return nil
}

// player plays seeds one at a time.
type player struct {
	engine  engine
	traffic traffic
	room    []int64
}

// play returns the cells of one seed. The normal day is played first, to tell slower from fine, and returned where it is asked
// for.
func (p *player) play(o *Options, seed uint64) []Cell {
	normal := scenario.Table(o.Inputs)[0]
	p.traffic.generate(o.Inputs, &normal, seed)
	day := p.row(o, &normal)
	cells := make([]Cell, 0, len(o.Scenarios)*len(o.Designs))
	before := &normal
	for i := range o.Scenarios {
		s := &o.Scenarios[i]
		if !sameTraffic(s, before) {
			p.traffic.generate(o.Inputs, s, seed)
		}
		before = s
		row := p.row(o, s)
		for j := range row {
			row[j].judge(&day[j])
		}
		cells = append(cells, row...)
	}
	return cells
}

// row plays one scenario in all designs.
func (p *player) row(o *Options, s *scenario.Scenario) []Cell {
	cells := make([]Cell, len(o.Designs))
	for i := range o.Designs {
		d := &o.Designs[i]
		p.engine.start(newPlan(o.Inputs, s, d), &p.traffic)
		p.engine.run()
		cells[i] = p.engine.collect(s, d, &p.room)
		if o.Seeds == 1 {
			cells[i].Predicted = Predict(o.Inputs, s, d)
			for j := range p.engine.pools {
				cells[i].Pools[j].Queue = slices.Clone(p.engine.pools[j].samples)
			}
		}
	}
	return cells
}
