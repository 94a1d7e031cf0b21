package gameday

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/scenario"
)

// experiment is one scenario under way.
type experiment struct {
	Options
	Experiment
	target   Target
	scenario *scenario.Scenario
	gateway  load.Target
	products []load.Product
	before   View
}

func (x *experiment) sayf(format string, args ...any) {
	if x.Say != nil {
		x.Say(fmt.Sprintf(format, args...))
	}
}

// run goes through the phases. The fault is cleared whatever happens.
func (x *experiment) run(ctx context.Context) error {
	if err := x.steady(ctx); err != nil {
		return err
	}
	err := x.sicken(ctx)
	err = errors.Join(err, x.heal(ctx))
	if err != nil {
		return err
	}
	if err := x.recover(ctx); err != nil {
		return err
	}
	x.judge()
	return nil
}

// steadyErrors is the share of failed checkouts at which a shop is not well.
const steadyErrors = 0.01

// steady watches the shop before anything is done to it.
func (x *experiment) steady(ctx context.Context) (err error) {
	x.sayf("watching the steady state for %v", x.Options.Steady)
	if x.before, err = x.target.Look(ctx); err != nil {
		return err
	}
	for service, kind := range x.before.Faults {
		return fmt.Errorf("%w: %s has the fault %s already (lab fault clear --all)", ErrNotSteady, service, kind)
	}
	result, err := x.load(ctx, x.Options.Steady, 0, nil)
	if err != nil {
		return err
	}
	x.Experiment.Steady = phase(result)
	switch p := x.Experiment.Steady; {
	case p.Checkouts == 0:
		return fmt.Errorf("%w: no order was placed in %v; take a higher --rate or a longer --steady", ErrNotSteady, x.Options.Steady)
	case p.ErrorsPercent >= 100*steadyErrors:
		return fmt.Errorf("%w: %.1f %% of its orders fail already", ErrNotSteady, p.ErrorsPercent)
	case p.Degraded > 0:
		return fmt.Errorf("%w: %d answers came degraded already", ErrNotSteady, p.Degraded)
	}
	return nil
}

// load sends requests for so long. watch is told how it goes, and may be nil.
func (x *experiment) load(ctx context.Context, length time.Duration, retries int, watch func(load.Progress)) (load.Result, error) {
	c := load.Default()
	c.Target, c.Products, c.Rate, c.Duration, c.Warmup, c.Seed = x.gateway, x.products, x.Rate, length, 0, x.Seed
	c.ClientRetries, c.Progress = retries, watch
	return load.Run(ctx, c)
}

func phase(r load.Result) Phase {
	checkout := r.Operation(load.Checkout)
	return Phase{
		Requests: r.Total.Requests, Checkouts: checkout.Requests, ErrorsPercent: round(100 * checkout.ErrorRatio), Orders: round(checkout.Goodput),
		P50MS: round(checkout.Latency.P50), P95MS: round(checkout.Latency.P95), Degraded: r.Total.Outcomes.Degraded,
	}
}

func round(x float64) float64 { return math.Round(1000*x) / 1000 }

var errAborted = errors.New("checkout failed too often")

// sicken sets the fault, sends the load and watches for the signs, until the time is over or checkout fails too often.
func (x *experiment) sicken(ctx context.Context) error {
	if err := x.inject(ctx); err != nil {
		return err
	}
	began := time.Now()
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	signs := newWatcher(x.before, x.scenario.Signals)
	var watched sync.WaitGroup
	watched.Go(func() { signs.run(watching, x.target, began) })
	result, err := x.load(watching, x.Fault, x.scenario.Retries, func(p load.Progress) {
		if x.tooBad(p) {
			stop(errAborted)
		}
	})
	x.Aborted = errors.Is(err, errAborted)
	if x.Aborted {
		x.sayf("checkout fails more than %.0f %%: the fault is cleared now", 100*x.AbortAt)
		err = nil
	}
	stop(nil)
	watched.Wait()
	x.Sick = phase(result)
	x.Signs = signs.signs(x.Sick)
	return err
}

// inject makes the shop sick.
func (x *experiment) inject(ctx context.Context) error {
	f := x.scenario.Fault
	// The fault outlives a game day that is killed by a moment only.
	request, set := f.Request(x.Fault+10*time.Second, x.products[0].ID)
	switch {
	case f.Kind == scenario.Redeploy:
		x.Injected = "restart of recs"
	case !set:
		x.Injected = "nothing"
		return nil
	default:
		x.Injected = fmt.Sprintf("%s on %v: %s", f.Kind, f.On, x.scenario.About)
	}
	x.sayf("injecting %s", x.Injected)
	for _, service := range f.On {
		if f.Kind == scenario.Redeploy {
			if err := x.target.Restart(ctx, service); err != nil {
				return err
			}
			continue
		}
		if err := x.target.Set(ctx, service, request); err != nil {
			return err
		}
	}
	return nil
}

// leastToJudge is how many checkouts the abort condition wants to have seen.
const leastToJudge = 10

func (x *experiment) tooBad(p load.Progress) bool {
	for _, op := range p.Operations {
		if op.Name == load.Checkout && op.Requests >= leastToJudge {
			return 1-float64(op.Good)/float64(op.Requests) > x.AbortAt
		}
	}
	return false
}

// clearTimeout bounds the end of the faults, which comes also when the game day was interrupted.
const clearTimeout = 10 * time.Second

func (x *experiment) heal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	var errs []error
	if x.scenario.Fault.Kind != scenario.Redeploy {
		for _, service := range x.scenario.Fault.On {
			errs = append(errs, x.target.Clear(ctx, service))
		}
	}
	return errors.Join(errs...)
}

// recoveryStep is how long the shop is watched before it is called well.
const recoveryStep = time.Second

// recover waits until answers are whole and no order is left on its way.
func (x *experiment) recover(ctx context.Context) error {
	x.sayf("waiting until everything is well again")
	began := time.Now()
	whole, settled := &Sign{Signal: scenario.Signal{Kind: scenario.Recovers}.String()}, &Sign{Signal: scenario.Signal{Kind: scenario.Bookkept}.String()}
	for time.Since(began) < x.Recovery && (!whole.Seen || !settled.Seen) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !whole.Seen {
			result, err := x.load(ctx, recoveryStep, 0, nil)
			if err != nil {
				return err
			}
			if t := result.Total; t.Requests > 0 && t.Outcomes.OK == t.Requests {
				whole.see(time.Since(began))
			}
			continue
		}
		view, err := x.target.Look(ctx)
		if err == nil && view.OldestPending == 0 {
			settled.see(time.Since(began))
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
	if whole.Seen {
		x.Recovered = whole.After
	}
	for _, s := range x.scenario.Signals {
		switch s.Kind {
		case scenario.Recovers:
			x.Signs = append(x.Signs, *whole)
		case scenario.Bookkept:
			x.Signs = append(x.Signs, *settled)
		}
	}
	return nil
}

// fastEnough is the latency below which nobody calls a checkout slower, whatever it was before: a shop without the lab's
// service times answers in a few milliseconds.
const fastEnough = 20 * time.Millisecond

// judge compares what was seen with the hypothesis.
func (x *experiment) judge() {
	normal := max(time.Duration(x.Experiment.Steady.P50MS*float64(time.Millisecond)), fastEnough)
	failed := x.Sick.ErrorsPercent / 100
	if x.Sick.Checkouts > 0 && failed*float64(x.Sick.Checkouts) <= 1 {
		failed = 0 // a single one, which chance may take
	}
	x.Became = scenario.Judge(failed, time.Duration(x.Sick.P50MS*float64(time.Millisecond)), normal)
	x.Why = append(x.Why, against(x.Experiment)...)
	x.Held = len(x.Why) == 0
}

// against is what speaks against the hypothesis. A shop that fares better than it need does not, unless it was to be shown
// where isolation ends.
func against(e Experiment) []string {
	var why []string
	better := e.Became == scenario.Fine && e.Expected == scenario.Slower
	if !e.Became.Meets(e.Expected) && !better {
		why = append(why, fmt.Sprintf("checkout became %s, expected %s", e.Became, e.Expected))
	}
	if e.Aborted && (e.Expected == scenario.Fine || e.Expected == scenario.Slower) {
		why = append(why, "checkout failed too often, and the experiment was stopped")
	}
	for _, s := range e.Signs {
		if !s.Seen {
			why = append(why, "not seen: "+s.Signal)
		}
	}
	return why
}
