package payment

import (
	"errors"
	"fmt"
	"time"
)

// Config is how the provider is asked.
type Config struct {
	Timeout    time.Duration `env:"PROVIDER_TIMEOUT" envDefault:"3s" help:"bound on one call to the payment provider, which is asked again after it"`
	InFlight   int           `env:"PROVIDER_IN_FLIGHT" envDefault:"64" help:"payments for which the provider is asked at once"`
	Lease      time.Duration `env:"PROVIDER_LEASE" envDefault:"8s" help:"when another replica takes over a claimed payment; PROVIDER_TIMEOUT and 2s, or more"`
	Poll       time.Duration `env:"PROVIDER_POLL" envDefault:"100ms" help:"pause between looks for payments that nobody announced in this process"`
	Backoff    time.Duration `env:"PROVIDER_BACKOFF" envDefault:"200ms" help:"pause before the provider is asked a second time; it doubles with each"`
	MaxBackoff time.Duration `env:"PROVIDER_MAX_BACKOFF" envDefault:"5s" help:"longest pause before the provider is asked again"`
}

// Validate reports every setting that cannot work, each by the name of its variable.
func (c Config) Validate() error {
	var errs []error
	if c.InFlight < 1 {
		errs = append(errs, fmt.Errorf("PROVIDER_IN_FLIGHT: must be at least 1, is %d", c.InFlight))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"PROVIDER_TIMEOUT", c.Timeout}, {"PROVIDER_POLL", c.Poll}, {"PROVIDER_BACKOFF", c.Backoff}, {"PROVIDER_MAX_BACKOFF", c.MaxBackoff},
	} {
		if d.value < time.Millisecond {
			errs = append(errs, fmt.Errorf("%s: must be at least 1ms, is %s", d.name, d.value))
		}
	}
	// Two at a time would do no harm, because the provider knows the key, and no good.
	if c.Lease < c.Timeout+2*noteBound {
		errs = append(errs, fmt.Errorf("PROVIDER_LEASE: must be at least PROVIDER_TIMEOUT and %s, is %s", 2*noteBound, c.Lease))
	}
	return errors.Join(errs...)
}
