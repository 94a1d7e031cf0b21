package upstream

import (
	"errors"
	"fmt"
	"time"

	"example.com/watertight/platform/bulkhead"
)

// Config holds what guards one upstream. The variable names lack the upstream's prefix ("RECS_"), which belongs to the
// process that reads them. Address, time-out and limits have no default here, because they differ from one upstream to
// the next: a struct of the same fields with defaults in its tags converts to a Config.
type Config struct {
	Addr        string        `env:"ADDR" help:"gRPC target, for example dns:///recs:50051"`
	Timeout     time.Duration `env:"TIMEOUT" help:"longest a call may take, time in the queue included"`
	MaxInFlight int           `env:"MAX_IN_FLIGHT" help:"most calls at once, for each replica of this process"`
	MaxQueue    int           `env:"MAX_QUEUE" help:"most calls waiting, for each replica of this process"`
	MaxStreams  int           `env:"MAX_STREAMS" envDefault:"256" help:"most open streams, apart from the calls"`
	Breaker     BreakerConfig `envPrefix:"BREAKER_"`
}

// BreakerConfig says when the circuit breaker opens and how it closes again.
type BreakerConfig struct {
	Window      time.Duration `env:"WINDOW" envDefault:"10s" help:"how far back the failure ratio looks"`
	MinCalls    uint32        `env:"MIN_CALLS" envDefault:"20" help:"fewest settled calls in the window for the ratio to count"`
	Ratio       float64       `env:"RATIO" envDefault:"0.5" help:"share of failures in the window that opens the breaker"`
	Consecutive uint32        `env:"CONSECUTIVE" envDefault:"5" help:"failures in a row that open it, however far apart"`
	Open        time.Duration `env:"OPEN" envDefault:"5s" help:"longest it stays open; each process takes 70 to 90 % of it, TIMEOUT at least"`
	Probes      uint32        `env:"PROBES" envDefault:"3" help:"calls let through when half-open; all must succeed to close it"`
}

// buckets is how finely the rolling window moves: it forgets a tenth of itself at a time.
const buckets = 10

// Validate returns what is wrong, joined; each error starts with the name of its variable, without the upstream's prefix.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const most = bulkhead.MaxLimit
	b := c.Breaker
	require(c.Addr != "", "ADDR: must not be empty")
	require(c.Timeout > 0, "TIMEOUT: must be more than 0, got %v", c.Timeout)
	require(c.MaxInFlight >= 1 && c.MaxInFlight <= most, "MAX_IN_FLIGHT: must be between 1 and %d, got %d", most, c.MaxInFlight)
	require(c.MaxQueue >= 0 && c.MaxQueue <= most, "MAX_QUEUE: must be between 0 and %d, got %d", most, c.MaxQueue)
	require(c.MaxStreams >= 1 && c.MaxStreams <= most, "MAX_STREAMS: must be between 1 and %d, got %d", most, c.MaxStreams)
	require(b.Window >= buckets*time.Millisecond, "BREAKER_WINDOW: must be at least %v, got %v", buckets*time.Millisecond, b.Window)
	require(b.MinCalls >= 1, "BREAKER_MIN_CALLS: must be at least 1, got %d", b.MinCalls)
	require(b.Ratio > 0 && b.Ratio <= 1, "BREAKER_RATIO: must be more than 0 and at most 1, got %v", b.Ratio)
	require(b.Consecutive >= 1, "BREAKER_CONSECUTIVE: must be at least 1, got %d", b.Consecutive)
	require(b.Probes >= 1, "BREAKER_PROBES: must be at least 1, got %d", b.Probes)
	// A probe must report before the breaker would be due to let the next ones through.
	require(b.Open > c.Timeout, "BREAKER_OPEN: must be longer than TIMEOUT (%v), got %v", c.Timeout, b.Open)
	return errors.Join(errs...)
}
