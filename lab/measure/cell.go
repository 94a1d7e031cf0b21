//go:build unix

package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/natsserver"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/sim"
	"example.com/watertight/lab/supervise"
	"example.com/watertight/platform/fault"
)

// simulatedCell is what is known of a cell without running it.
type simulatedCell struct {
	figures   *result.Figures
	predicted *sim.Prediction
}

// simulate plays the cells that the simulation knows, under the run's seed.
func (r *run) simulate(ctx context.Context) (map[[2]string]simulatedCell, error) {
	known := scenario.Designs()
	var designs []scenario.Design
	for _, d := range r.Designs {
		if _, is := scenario.Find(known, d.Name, func(k scenario.Design) string { return k.Name }); is {
			designs = append(designs, d)
		}
	}
	cells, err := sim.Run(ctx, sim.Options{Inputs: r.Inputs, Scenarios: r.Scenarios, Designs: designs, Seed: r.Seed})
	if err != nil {
		return nil, err
	}
	out := map[[2]string]simulatedCell{}
	for i := range cells {
		out[[2]string{cells[i].Scenario, cells[i].Design}] = simulatedCell{result.OfSimulation(cells[i]), &cells[i].Predicted}
	}
	return out, nil
}

// firstStartUp is how long a process is taken to start before one has been seen to.
const firstStartUp = 300 * time.Millisecond

// cell measures one scenario in one design.
func (r *run) cell(ctx context.Context, stage *runner.Stage, s *scenario.Scenario, d *scenario.Design) (c result.Cell, err error) {
	c = r.blank(s, d)
	r.done++
	if why := r.skip(s, d); why != "" {
		c.Skipped = why
		return c, nil
	}
	label := fmt.Sprintf("[%d/%d] %s in %s", r.done, len(r.Scenarios)*len(r.Designs), s.Name, d.Name)
	for tries := 1; ; tries++ {
		c, err = r.try(ctx, stage, s, d, label)
		if err != nil || !c.Starved || tries == mostTries || r.skip(s, d) != "" {
			return c, err
		}
		r.sayf("%s: the machine was too busy to send the load in time; once more", label)
	}
}

// mostTries is how often a cell is measured when the machine has no time for it.
const mostTries = 2

// starvedFrom is the share of requests that start late from which the machine is too busy: the generator sleeps until a
// request is due, and starts late only when it gets no processor.
const starvedFrom = 0.2

// starved reports whether the machine had no time for the load. The scenario that takes its processors away is left out.
func starved(measured load.Result, s *scenario.Scenario) bool {
	return measured.Generator.LateShare >= starvedFrom && s.Fault.Kind != fault.CPU
}

// try measures a cell once, on a shop of its own.
func (r *run) try(ctx context.Context, stage *runner.Stage, s *scenario.Scenario, d *scenario.Design, label string) (c result.Cell, err error) {
	c = r.blank(s, d)
	r.show(label + ": starting")
	startUp, known := r.startUp[d.Name]
	if !known {
		startUp = firstStartUp
	}
	running, err := stage.Open(ctx, options(r.Runner.Shop, r.Inputs, s, d), restart(s, d, startUp))
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, running.End()) }()
	r.noteStartUp(running, d)
	err = r.play(ctx, running, s, d, &c, label)
	if err == nil {
		r.sayf("%s: %s", label, summary(&c))
	}
	return c, err
}

// blank is a cell of which nothing is measured yet.
func (r *run) blank(s *scenario.Scenario, d *scenario.Design) result.Cell {
	known := r.simulated[[2]string{s.Name, d.Name}]
	return result.Cell{
		Scenario: s.Name, Design: d.Name, About: s.About, Expected: s.ExpectedOf(d.Name), Simulated: known.figures, Predicted: known.predicted,
		Length: seconds(s.Length), WarmUp: seconds(s.WarmUp), Restarts: map[string]int{},
	}
}

// skip says why a cell is not measured; "" when it is.
func (r *run) skip(s *scenario.Scenario, d *scenario.Design) string {
	switch {
	case s.Name == scenario.Exports && !d.OneProcess:
		return "an export route is one of a process that has several"
	case !r.until.IsZero() && time.Now().Add(s.Length).After(r.until):
		return "the time for the run was over"
	}
	return ""
}

func (r *run) show(line string) {
	if r.Show != nil {
		r.Show(line)
	}
}

// warm fills a new database and sends the first requests, which no cell shall pay for.
func (r *run) warm(ctx context.Context, stage *runner.Stage, d *scenario.Design) (err error) {
	normal := scenario.Table(r.Inputs)[0]
	r.show("warming up " + d.Name)
	running, err := stage.Open(ctx, options(r.Runner.Shop, r.Inputs, &normal, d), supervise.DefaultBackoff())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.End()) }()
	target, err := load.ParseTarget(running.Gateway())
	if err != nil {
		return err
	}
	if r.products, err = target.Products(ctx, load.Default().MaxProducts); err != nil {
		return err
	}
	config := traffic(r.Inputs, &normal, target, r.products, r.Seed)
	config.Duration, config.Warmup = time.Second, 0
	_, err = load.Run(ctx, config)
	return err
}

// victim is the process that a fault of recs ends.
func victim(d *scenario.Design) string {
	if d.OneProcess {
		return shop.Monolith
	}
	return string(scenario.Recs)
}

// noteStartUp remembers the shortest time that the victim took to start: what is longer was the machine.
func (r *run) noteStartUp(running *runner.Shop, d *scenario.Design) {
	for _, s := range running.Statuses() {
		if s.Name != victim(d) || s.Started == nil {
			continue
		}
		took := time.Since(*s.Started)
		if before, known := r.startUp[d.Name]; !known || took < before {
			r.startUp[d.Name] = took
		}
	}
}

// play sends the load, breaks the shop at the time, and fills the cell in.
func (r *run) play(ctx context.Context, running *runner.Shop, s *scenario.Scenario, d *scenario.Design, c *result.Cell, label string) error {
	target, err := load.ParseTarget(running.Gateway())
	if err != nil {
		return err
	}
	config := traffic(r.Inputs, s, target, r.products, r.Seed)
	config.Progress = func(p load.Progress) { r.show(label + ": " + p.String()) }

	eyes := newWatch(running)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watched sync.WaitGroup
	eyes.start = time.Now()
	c.Started = eyes.start
	watched.Go(func() { eyes.run(watching) })
	broken := make(chan error, 1)
	b := breaking{running: running, scenario: s, design: d, start: eyes.start, poisonous: config.Products[0].ID}
	go func() { broken <- b.run(watching) }()

	measured, err := load.Run(ctx, config)
	stopWatching()
	watched.Wait()
	err = errors.Join(err, <-broken)
	if err != nil {
		return err
	}
	c.FaultAt = b.at
	fill(c, measured, eyes, s)
	return nil
}

// breaking makes the shop sick at its time.
type breaking struct {
	running   *runner.Shop
	scenario  *scenario.Scenario
	design    *scenario.Design
	start     time.Time
	poisonous string
	at        *float64 // when it was done
}

// run returns when ctx ends, and the faults with it. Nothing is wrong when ctx ends before its time.
func (b *breaking) run(ctx context.Context) error {
	f := b.scenario.Fault
	if f.Kind == scenario.None {
		return nil
	}
	timer := time.NewTimer(time.Until(b.start.Add(f.At)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	at := seconds(time.Since(b.start))
	b.at = &at
	if f.Kind == scenario.Redeploy {
		return b.running.Terminate(victim(b.design))
	}
	return b.sicken(ctx)
}

// clearTimeout bounds the end of the faults.
const clearTimeout = 5 * time.Second

// sicken sets the faults by the broker, which is there whatever becomes of the gateway, and clears them when ctx ends.
func (b *breaking) sicken(ctx context.Context) (err error) {
	conn, err := natsserver.Connect(b.running.NATS(), natsserver.Admin)
	if err != nil {
		return err
	}
	defer conn.Close()
	store := fault.NewStore(conn, slog.New(slog.DiscardHandler))
	request, set := b.scenario.Fault.Request(b.scenario.Length+time.Minute, b.poisonous)
	if !set {
		return nil
	}
	wanted, err := request.Fault(time.Now())
	if err != nil {
		return fmt.Errorf("the fault of %s: %w", b.scenario.Name, err)
	}
	defer func() {
		clearing, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
		defer cancel()
		for _, service := range b.scenario.Fault.On {
			err = errors.Join(err, store.Clear(clearing, service))
		}
	}()
	for _, service := range b.scenario.Fault.On {
		if err := store.Put(ctx, service, wanted); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// fill writes down what was measured.
func fill(c *result.Cell, measured load.Result, eyes *watch, s *scenario.Scenario) {
	c.Measured = Figures(measured, s)
	c.Series, c.Samples, c.Outages = Series(measured, s), eyes.samples, eyes.outages
	c.Warnings, c.Starved = measured.Warnings, starved(measured, s)
	for _, status := range eyes.shop.Statuses() {
		if status.Restarts > 0 {
			c.Restarts[status.Name] = status.Restarts
		}
	}
}

// operation is what the load calls the feature.
func operation(f scenario.Feature) load.Operation { return load.Operation(played(f)) }

// Figures are what the load found, by feature.
func Figures(measured load.Result, s *scenario.Scenario) result.Figures {
	f := result.Figures{Features: map[scenario.Feature]result.Feature{}}
	for _, r := range routes(s) {
		o := measured.Operation(operation(r.Feature))
		n := o.Outcomes
		out := result.Feature{Requests: o.Requests, OK: n.OK, Outcomes: map[string]int64{}, P50MS: rounded(o.Latency.P50), P95MS: rounded(o.Latency.P95)}
		for name, count := range map[string]int64{"degraded": n.Degraded, "rejected": n.Rejected, "timed_out": n.TimedOut, "error": n.Error, "lost": n.Lost} {
			if count > 0 {
				out.Outcomes[name] = count
			}
		}
		out.ErrorsPercent = rounded(100 * out.Errors())
		f.Features[r.Feature] = out
		if r.Feature == scenario.Checkout {
			f.OrdersPerSecond = rounded(o.Goodput)
		}
	}
	return f
}

// Series is what the load found, second by second.
func Series(measured load.Result, s *scenario.Scenario) []result.Second {
	var out []result.Second
	for _, second := range measured.Series {
		point := result.Second{T: second.T, Features: map[scenario.Feature]result.SecondFeature{}}
		for _, r := range routes(s) {
			o, has := second.Operations[operation(r.Feature)]
			if !has {
				continue
			}
			point.Features[r.Feature] = result.SecondFeature{Requests: o.Requests, OK: o.Outcomes.OK, P50MS: rounded(o.P50), P95MS: rounded(o.P95)}
		}
		out = append(out, point)
	}
	return out
}

// rounded keeps three decimals.
func rounded(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// summary is a cell in a few words.
func summary(c *result.Cell) string {
	checkout := c.Measured.Features[scenario.Checkout]
	words := []string{fmt.Sprintf("checkout errors %.1f %%, %.1f orders/s", checkout.ErrorsPercent, c.Measured.OrdersPerSecond)}
	if checkout.P50MS > 0 {
		words = append(words, fmt.Sprintf("p50 %.1f ms, p95 %.1f ms", checkout.P50MS, checkout.P95MS))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Restarts)) {
		words = append(words, fmt.Sprintf("%s started again (%d)", name, c.Restarts[name]))
	}
	return strings.Join(words, ", ")
}
