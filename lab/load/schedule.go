package load

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"iter"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pattern is how arrivals are spread over time.
type Pattern string

// The patterns.
const (
	Poisson  Pattern = "poisson"  // independent arrivals: gaps are exponential with mean 1/rate
	Constant Pattern = "constant" // one every 1/rate
	Replayed Pattern = "replayed" // at given times
)

func patterns() map[Pattern]func(Config) iter.Seq[time.Duration] {
	return map[Pattern]func(Config) iter.Seq[time.Duration]{
		Poisson:  func(c Config) iter.Seq[time.Duration] { return poisson(c.Rate, stream(c.Seed, streamArrivals)) },
		Constant: func(c Config) iter.Seq[time.Duration] { return constant(c.Rate) },
		Replayed: func(c Config) iter.Seq[time.Duration] { return slices.Values(c.Times) },
	}
}

func (c Config) times() iter.Seq[time.Duration] { return patterns()[c.Arrivals](c) }

// Each use of the seed draws from a stream of its own: changing the mix does not move the arrivals.
const (
	streamArrivals = 1
	streamRequests = 2
)

func stream(seed, which uint64) *mathrand.Rand { return mathrand.New(mathrand.NewPCG(seed, which)) }

// poisson never ends. Sums are kept in seconds as a float: 53 bits are exact to a nanosecond for 100 days.
func poisson(rate float64, draw *mathrand.Rand) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for at := 0.0; ; {
			at += draw.ExpFloat64() / rate
			if !yield(offset(at)) {
				return
			}
		}
	}
}

// constant never ends. Each time is computed from its number, so that no rounding adds up.
func constant(rate float64) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for i := 0.0; ; i++ {
			if !yield(offset(i / rate)) {
				return
			}
		}
	}
}

// offset saturates instead of wrapping around, for rates close to nothing.
func offset(seconds float64) time.Duration {
	if seconds >= maxRun.Seconds() {
		return maxRun
	}
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// ReadTimes reads arrivals to replay: one a line, in seconds since the start, in any order; blank lines and lines that
// begin with # are passed over.
func ReadTimes(r io.Reader) ([]time.Duration, error) {
	var times []time.Duration
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0) || seconds > maxRun.Seconds() {
			return nil, fmt.Errorf("line %d: %.40q: must be seconds since the start, 0 to %.0f", number, text, maxRun.Seconds())
		}
		times = append(times, offset(seconds))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read arrivals: %w", err)
	}
	slices.SortStableFunc(times, cmp.Compare[time.Duration])
	return times, nil
}

// NewRunID returns a name that no other run has, for idempotency keys.
func NewRunID() string { return strings.ToLower(rand.Text()[:10]) }
