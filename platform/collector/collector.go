// Package collector sets how often a process collects its garbage. It is for processes that hold little and leave much behind with
// every request; one that holds a catalog or a model is better off with Go's own setting.
package collector

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

// Config is how the process collects its garbage. GOMEMLIMIT, which Go reads by itself, bounds the whole.
type Config struct {
	Garbage Percentage `env:"GOGC" envDefault:"400" help:"garbage that may gather before a collection, in percent of what is in use; off: GOMEMLIMIT alone"`
}

// Percentage is a value of GOGC; less than 0 is off.
type Percentage int

// UnmarshalText reads what Go itself would take for GOGC.
func (p *Percentage) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*p = -1
		return nil
	}
	percent, err := strconv.Atoi(string(text))
	if err != nil || percent < 0 {
		return fmt.Errorf("%q is neither a percentage nor off", text)
	}
	*p = Percentage(percent)
	return nil
}

// Apply sets the collector and returns what undoes it. A process that holds 4 MB and leaves tens of kB behind with every request collects at
// about every hundredth with Go's 100 %, and that takes up to a fifth of its time (docs/performance.md); with 400 % it takes some
// 20 MB instead.
func (c Config) Apply() (undo func()) {
	before := debug.SetGCPercent(int(c.Garbage))
	return func() { debug.SetGCPercent(before) }
}
