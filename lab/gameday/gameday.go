// Package gameday tries a hypothesis on a running shop: it looks whether the shop is well, makes it sick as a scenario says,
// watches for the signs that it should show, and makes it well again. It stops at once when checkout fails more than is
// agreed, and it never leaves a fault behind. It runs no shop: whatever implements Target is one.
package gameday

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

// Target is a shop that can be made sick. Its methods may be called by any goroutine.
type Target interface {
	// Gateway is the shop's base URL.
	Gateway() string
	// Set gives a service a fault, Clear ends it; to clear a well service is no error.
	Set(ctx context.Context, service string, request fault.Request) error
	Clear(ctx context.Context, service string) error
	// Restart ships a service anew: its processes end and are started again.
	Restart(ctx context.Context, service string) error
	// Look is how the shop is at the moment.
	Look(ctx context.Context) (View, error)
}

// View is what a shop shows of itself.
type View struct {
	Breakers map[string]string // state by upstream
	Restarts map[string]int    // by service, since some beginning
	Faults   map[string]string // kind by service
	// OldestPending is the age of the oldest order that is on its way; 0 when there is none, or nobody says.
	OldestPending time.Duration
}

// Options are how a game day goes.
type Options struct {
	Rate     float64       // requests a second
	Steady   time.Duration // how long the shop is watched before the fault
	Fault    time.Duration // how long the fault lasts
	Recovery time.Duration // how long it may take until everything is well again
	// AbortAt is the share of failed checkouts, 0 to 1, at which the fault is cleared at once.
	AbortAt float64
	Seed    uint64
	// Say gets a line for each step; may be nil.
	Say func(line string)
}

// Validate names every option that cannot be.
func (o Options) Validate() error {
	var errs []error
	if !(o.Rate >= 1) || o.Rate > 10_000 {
		errs = append(errs, fmt.Errorf("--rate: must be between 1 and 10000 a second, got %v", o.Rate))
	}
	if !(o.AbortAt > 0 && o.AbortAt <= 1) {
		errs = append(errs, fmt.Errorf("--abort-at: must be more than 0 and at most 1, got %v", o.AbortAt))
	}
	for name, d := range map[string]time.Duration{"--steady": o.Steady, "--fault": o.Fault, "--recovery": o.Recovery} {
		if d < time.Second || d > time.Hour {
			errs = append(errs, fmt.Errorf("%s: must be between 1s and 1h, got %v", name, d))
		}
	}
	return errors.Join(errs...)
}

// Phase is what became of the requests in one part of an experiment.
type Phase struct {
	Requests      int64   `json:"requests"`
	Checkouts     int64   `json:"checkouts"`
	ErrorsPercent float64 `json:"checkout_errors_percent"`
	Orders        float64 `json:"orders_per_second"`
	P50MS         float64 `json:"checkout_p50_ms"`
	P95MS         float64 `json:"checkout_p95_ms"`
	Degraded      int64   `json:"degraded"`
}

// Sign is a signal, and whether and when it was seen.
type Sign struct {
	Signal string   `json:"signal"`
	Seen   bool     `json:"seen"`
	After  *float64 `json:"after_s,omitempty"` // from the beginning of the fault, or of the recovery
}

// Experiment is one scenario's outcome.
type Experiment struct {
	Scenario   string        `json:"scenario"`
	Hypothesis string        `json:"hypothesis"`
	Expected   scenario.Word `json:"expected"` // of checkout
	Steady     Phase         `json:"steady"`
	Injected   string        `json:"injected"`
	Sick       Phase         `json:"sick"`
	Became     scenario.Word `json:"became"`
	Aborted    bool          `json:"aborted"` // checkout failed too often, and the fault was cleared before its time
	Recovered  *float64      `json:"recovered_after_s,omitempty"`
	Signs      []Sign        `json:"signs"`
	Held       bool          `json:"held"`
	Why        []string      `json:"why"` // what speaks against the hypothesis
}

// ErrNotSteady says that the shop was not well before anything was done to it, so nothing was.
var ErrNotSteady = errors.New("the shop is not in its steady state")

// Possible says whether the scenario can be played on a shop that runs: there is no export route to slow down.
func Possible(s *scenario.Scenario) bool { return s.Name != scenario.Exports }

// Run plays one scenario. The error is ErrNotSteady, or that the target could not be reached; a hypothesis that does not
// hold is none. When ctx ends, the faults are cleared before Run returns.
func Run(ctx context.Context, t Target, s *scenario.Scenario, o Options) (Experiment, error) {
	e := Experiment{Scenario: s.Name, Hypothesis: s.Hypothesis, Expected: s.ExpectedOf(scenario.Split).Checkout, Signs: []Sign{}, Why: []string{}}
	if err := o.Validate(); err != nil {
		return e, err
	}
	target, err := load.ParseTarget(t.Gateway())
	if err != nil {
		return e, err
	}
	products, err := target.Products(ctx, load.Default().MaxProducts)
	if err != nil {
		return e, err
	}
	if len(products) == 0 {
		return e, fmt.Errorf("%s sells no products: import some first (lab import)", target)
	}
	x := &experiment{Options: o, Experiment: e, target: t, scenario: s, gateway: target, products: share(s, products)}
	err = x.run(ctx)
	return x.Experiment, err
}

// share narrows the products of poison, so that one has the share that is to be poisonous.
func share(s *scenario.Scenario, products []load.Product) []load.Product {
	if s.Fault.Kind != fault.Poison {
		return products
	}
	return products[:min(max(int(1/max(s.Fault.Share, 1e-6)+0.5), 1), len(products))]
}
