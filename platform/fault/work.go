package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// WorkConfig has calls take as long as those of a shop with more to do, so that an experiment's service times are its own to
// choose. A call that waits here holds its worker, as real work would.
type WorkConfig struct {
	Times      map[string]time.Duration `env:"FAULT_SERVICE_TIMES" help:"base of what calls take besides, by method: PlaceOrder:20ms,Recommend:15ms"`
	Spread     float64                  `env:"FAULT_SERVICE_SPREAD" envDefault:"0.5" help:"drawn evenly from base x (1 - spread) to base x (1 + spread)"`
	TailShare  float64                  `env:"FAULT_SERVICE_TAIL_SHARE" envDefault:"0.03" help:"share of the calls that take longer"`
	TailFactor float64                  `env:"FAULT_SERVICE_TAIL_FACTOR" envDefault:"3" help:"how many times longer those take"`
	// Deaf is what a blocking thread is: it finds out that its caller has left when it is done.
	Deaf bool `env:"FAULT_IGNORE_CANCELLATION" envDefault:"false" help:"service times and the delays of faults go on when the caller has left"`
}

func (c WorkConfig) validate() error {
	var errs []error
	for method, d := range c.Times {
		if d < 0 || d > MaxDelay {
			errs = append(errs, fmt.Errorf("FAULT_SERVICE_TIMES: %s must be between 0 and %v, got %v", method, MaxDelay, d))
		}
	}
	if !(c.Spread >= 0 && c.Spread <= 1) {
		errs = append(errs, fmt.Errorf("FAULT_SERVICE_SPREAD: must be between 0 and 1, got %v", c.Spread))
	}
	if !(c.TailShare >= 0 && c.TailShare <= 1) {
		errs = append(errs, fmt.Errorf("FAULT_SERVICE_TAIL_SHARE: must be between 0 and 1, got %v", c.TailShare))
	}
	if !(c.TailFactor >= 1 && c.TailFactor <= 1000) {
		errs = append(errs, fmt.Errorf("FAULT_SERVICE_TAIL_FACTOR: must be between 1 and 1000, got %v", c.TailFactor))
	}
	return errors.Join(errs...)
}

// draw is how long a call of the method takes; 0 for a method without a time.
func (c WorkConfig) draw(fullMethod string) time.Duration {
	base := c.Times[fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]]
	if base <= 0 {
		return 0
	}
	took := float64(base) * (1 - c.Spread + 2*c.Spread*rand.Float64())
	if rand.Float64() < c.TailShare {
		took *= c.TailFactor
	}
	return time.Duration(took)
}

// heard is the context that waits listen to.
func (c WorkConfig) heard(ctx context.Context) context.Context {
	if c.Deaf {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// work waits for as long as the method takes. It returns the error of ctx when that ends first.
func (c WorkConfig) work(ctx context.Context, fullMethod string) error {
	took := c.draw(fullMethod)
	if took == 0 {
		return nil
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
