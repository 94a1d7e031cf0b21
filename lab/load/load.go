// Package load sends the shop more or less what its customers would, on a schedule that never waits for an answer, and
// measures what becomes of it. Latency counts from the moment a request was meant to start, so that a pause of the shop
// shows in full. It sends each request once unless it is told to play clients that try again, and it judges nothing: what
// the numbers mean is for whoever reads them.
package load

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config is one run. Start from Default.
type Config struct {
	Target   Target
	Arrivals Pattern
	Times    []time.Duration // the arrivals, since the start, when Arrivals is Replayed
	Rate     float64         // requests per second, over all operations
	Duration time.Duration   // warm-up included
	Mix      Mix
	// Seed decides when requests arrive and what they ask for. Idempotency keys come from RunID instead, so that a seed can be
	// used again on the same shop.
	Seed      uint64
	RunID     string
	Customers int
	// Products are what customers ask for; when empty, they are read from the target, at most MaxProducts.
	Products    []Product
	MaxProducts int
	Options
}

// Default returns the lab's usual traffic: 200 requests per second at random for 20 s, as the experiment has it.
func Default() Config {
	return Config{
		Arrivals: Poisson, Rate: 200, Duration: 20 * time.Second, Seed: 19, Customers: 1000, MaxProducts: 1000,
		Mix:     Mix{Checkout: 20, Search: 40, Recs: 40},
		Options: Options{Warmup: 2 * time.Second, Timeout: time.Second, LateAfter: time.Millisecond},
	}
}

// Limits keep a slip of the pen from becoming an attack, and sums of durations from overflowing.
const (
	maxRate     = 1e6
	maxRun      = 7 * 24 * time.Hour
	maxRetries  = 100
	maxInFlight = 60_000 // a machine has about so many local ports
)

// Validate names every field that cannot be.
func (c Config) Validate() error {
	var errs []error
	refuse := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, known := patterns()[c.Arrivals]
	refuse(!known, "arrivals %q: must be poisson, constant or replayed", c.Arrivals)
	refuse(c.Arrivals == Replayed && len(c.Times) == 0, "arrivals: none are given to replay")
	refuse(c.Arrivals != Replayed && (!(c.Rate > 0) || c.Rate > maxRate), "rate %g: must be more than 0 and at most %g per second", c.Rate, float64(maxRate))
	refuse(c.Duration <= 0 || c.Duration > maxRun, "duration %v: must be more than 0 and at most %v", c.Duration, maxRun)
	refuse(c.Warmup >= c.Duration, "warmup %v: must be shorter than the duration, %v", c.Warmup, c.Duration)
	refuse(c.Customers < 1, "customers %d: must be at least 1", c.Customers)
	refuse(c.MaxProducts < 1, "products %d: must be at least 1", c.MaxProducts)
	return errors.Join(append(errs, c.Mix.validate(), c.Options.Validate())...)
}

// Run plays one run. When ctx ends early, Run waits for what is in flight and returns the result so far with ctx's cause.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	if len(c.Products) == 0 {
		products, err := c.Target.Products(ctx, c.MaxProducts)
		if err != nil {
			return Result{}, err
		}
		if len(products) == 0 {
			return Result{}, fmt.Errorf("%s sells no products: import some first (lab import)", c.Target)
		}
		c.Products = products
	}
	if c.RunID == "" {
		c.RunID = NewRunID()
	}
	if c.Arrivals == Replayed {
		c.Rate = 0 // the times have their own
	} else if c.MaxInFlight == 0 {
		c.MaxInFlight = inFlightFor(c.Rate, c.Options)
	}
	c.End = c.Duration
	result, err := Drive(ctx, c.Target, arrivals(c), c.Options)
	result.Config = c.describe()
	return result, err
}

// arrivals pairs the times with what happens at each.
func arrivals(c Config) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		next := newShopper(c)
		for at := range c.times() {
			if at >= c.Duration || !yield(Arrival{At: at, Request: next.request()}) {
				return
			}
		}
	}
}

// Mix says how often each operation is asked for, as weights: their sum need not be 100.
type Mix struct {
	Checkout float64 `json:"checkout"`
	Search   float64 `json:"search"`
	Recs     float64 `json:"recs"`
	Page     float64 `json:"page,omitempty"`
}

func (m Mix) validate() error {
	for _, share := range []float64{m.Checkout, m.Search, m.Recs, m.Page} {
		if !(share >= 0) || math.IsInf(share, 0) {
			return fmt.Errorf("mix %s: a share must be 0 or more", m)
		}
	}
	if sum := m.sum(); !(sum > 0) || math.IsInf(sum, 0) {
		return fmt.Errorf("mix %s: one share at least must be more than 0", m)
	}
	return nil
}

func (m Mix) sum() float64 { return m.Checkout + m.Search + m.Recs + m.Page }

// String is the form that ParseMix reads.
func (m Mix) String() string {
	var parts []string
	for _, share := range []struct {
		of    Operation
		value float64
	}{{Checkout, m.Checkout}, {Search, m.Search}, {Recs, m.Recs}, {Page, m.Page}} {
		if share.value != 0 {
			parts = append(parts, fmt.Sprintf("%s=%g", share.of, share.value))
		}
	}
	return strings.Join(parts, ",")
}

// ParseMix reads checkout=20,search=40,recs=40. What is not named is not asked for.
func ParseMix(text string) (Mix, error) {
	var m Mix
	share := map[string]*float64{string(Checkout): &m.Checkout, string(Search): &m.Search, string(Recs): &m.Recs, string(Page): &m.Page}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		field, known := share[name]
		if !known {
			return m, fmt.Errorf("%q: must be checkout, search, recs or page, each once, with a share, as in checkout=20,search=40,recs=40", part)
		}
		parsed, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return m, fmt.Errorf("%q: the share must be a number", part)
		}
		*field = parsed
		delete(share, name)
	}
	return m, m.validate()
}
