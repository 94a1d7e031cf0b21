// Package trials sends sixty calls through bulkheads in four ways, to show what a time-out, a bulkhead and cancellation each do for
// checkout while recommendations hang: the counts differ by design, not by luck.
//
// Run plays a trial in real time on the bulkhead that the shop itself uses. Expect works the same trial out in virtual time,
// from the bulkhead's four rules and without running it: package testing/synctest, which bends the clock for real goroutines,
// works in tests only. So a test holds Expect against the real bulkhead there, call by call, on these trials and on random ones.
package trials

import (
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"example.com/watertight/platform/bulkhead"
)

// Setup is what the trials have in common. The tags hold the defaults.
type Setup struct {
	Calls         int           `default:"60" help:"Calls in each trial: one checkout, then two recommendations, and so on."`
	Every         time.Duration `default:"5ms" help:"Time from call to call."`
	Slots         int           `default:"16" help:"Slots of the shared bulkhead."`
	CheckoutSlots int           `default:"4" help:"Slots of checkout's own bulkhead; recs gets the rest."`
	Queue         int           `default:"4" help:"Places in each queue."`
	Deadline      time.Duration `default:"1s" help:"How long each caller waits in all."`
	LongTimeout   time.Duration `default:"1s" help:"Execution time-out of trials A and D."`
	ShortTimeout  time.Duration `default:"100ms" help:"Execution time-out of trials B and C."`
	CheckoutTime  time.Duration `default:"20ms" help:"What a checkout takes."`
	RecsTime      time.Duration `default:"2s" help:"What a recommendation takes."`
}

// Default returns the setup that the tags give.
func Default() Setup {
	var s Setup
	if err := kong.ApplyDefaults(&s); err != nil {
		panic("trials: a default in a tag is malformed: " + err.Error()) // the tags are constants, and a test reads them
	}
	return s
}

// Validate returns what is wrong, joined; each error starts with the flag's name.
func (s Setup) Validate() error {
	const longest = time.Minute
	var errs []error
	if s.Calls < 1 || s.Calls > 10_000 {
		errs = append(errs, fmt.Errorf("--calls: must be between 1 and 10000, got %d", s.Calls))
	}
	for _, d := range []struct {
		flag string
		d    time.Duration
	}{
		{"every", s.Every}, {"deadline", s.Deadline}, {"long-timeout", s.LongTimeout}, {"short-timeout", s.ShortTimeout},
		{"checkout-time", s.CheckoutTime}, {"recs-time", s.RecsTime},
	} {
		if d.d <= 0 || d.d > longest {
			errs = append(errs, fmt.Errorf("--%s: must be more than 0 and at most %v, got %v", d.flag, longest, d.d))
		}
	}
	if s.Slots < 2 || s.Slots > bulkhead.MaxLimit {
		errs = append(errs, fmt.Errorf("--slots: must be between 2 and %d, got %d", bulkhead.MaxLimit, s.Slots))
	}
	if s.CheckoutSlots < 1 || s.CheckoutSlots >= s.Slots {
		errs = append(errs, fmt.Errorf("--checkout-slots: must be at least 1 and leave some of --slots for recs, got %d", s.CheckoutSlots))
	}
	if s.Queue < 0 || s.Queue > bulkhead.MaxLimit {
		errs = append(errs, fmt.Errorf("--queue: must be between 0 and %d, got %d", bulkhead.MaxLimit, s.Queue))
	}
	return errors.Join(errs...)
}

// Trial is one way to send the calls.
type Trial struct {
	Name    string
	About   string
	Timeout time.Duration // of the execution
	Shared  bool          // one bulkhead for both features
	Deaf    bool          // recommendations do not hear the signal of the time-out
}

// Trials lists the four.
func (s Setup) Trials() []Trial {
	shared := fmt.Sprintf("shared %d", s.Slots)
	return []Trial{
		{Name: "A", About: fmt.Sprintf("%s, %v time-out", shared, s.LongTimeout), Timeout: s.LongTimeout, Shared: true},
		{Name: "B", About: fmt.Sprintf("%s, %v time-out", shared, s.ShortTimeout), Timeout: s.ShortTimeout, Shared: true},
		{Name: "C", About: "as B, but recs ignores the signal", Timeout: s.ShortTimeout, Shared: true, Deaf: true},
		{
			Name: "D", About: fmt.Sprintf("own %d and %d, %v time-out", s.CheckoutSlots, s.Slots-s.CheckoutSlots, s.LongTimeout),
			Timeout: s.LongTimeout,
		},
	}
}

// Tally counts how a feature's calls ended.
type Tally struct {
	OK     int `json:"ok"`
	Failed int `json:"failed"`
	Full   int `json:"rejected_full"` // of the failed: turned away at once
}

// Outcome is how a trial ended.
type Outcome struct {
	Checkout  Tally         `json:"checkout"`
	Recs      Tally         `json:"recs"`
	FirstFull int           `json:"first_full"` // the first call that was turned away at once, from 1; 0 is none
	LateBy    time.Duration `json:"-"`          // the most that a call was sent after its time
}

// Near reports whether two outcomes are the same, give or take one call: a machine that is busy shifts the calls.
func (o Outcome) Near(other Outcome) bool {
	near := func(a, b int) bool { return a-b <= 1 && b-a <= 1 }
	return near(o.Checkout.OK, other.Checkout.OK) && near(o.Checkout.Failed, other.Checkout.Failed) &&
		near(o.Recs.OK, other.Recs.OK) && near(o.Recs.Failed, other.Recs.Failed)
}

// call is one caller; times are from the trial's start, or from its arrival.
type call struct {
	at       time.Duration
	deadline time.Duration // from its arrival
	timeout  time.Duration // of the execution; from when it has a slot
	takes    time.Duration
	deaf     bool
	pool     int // 0 is checkout's, and the shared one
}

// calls are those of a trial.
func (s Setup) calls(t Trial) []call {
	calls := make([]call, s.Calls)
	for i := range calls {
		calls[i] = call{at: time.Duration(i) * s.Every, deadline: s.Deadline, timeout: t.Timeout, takes: s.CheckoutTime}
		if !checkout(i) {
			calls[i].takes, calls[i].deaf = s.RecsTime, t.Deaf
			if !t.Shared {
				calls[i].pool = 1
			}
		}
	}
	return calls
}

// checkout reports whether call i is one.
func checkout(i int) bool { return i%3 == 0 }

// pools are the bulkheads of a trial.
func (s Setup) pools(t Trial) []bulkhead.Config {
	if t.Shared {
		return []bulkhead.Config{{Size: s.Slots, Queue: s.Queue}}
	}
	return []bulkhead.Config{{Size: s.CheckoutSlots, Queue: s.Queue}, {Size: s.Slots - s.CheckoutSlots, Queue: s.Queue}}
}

// ending is how a call ended.
type ending int

const (
	unanswered ending = iota
	ok
	full   // turned away at once
	failed // signalled, or left at its deadline
)

// tally counts the endings of a trial's calls.
func tally(endings []ending) Outcome {
	var o Outcome
	for i, e := range endings {
		of := &o.Recs
		if checkout(i) {
			of = &o.Checkout
		}
		switch e {
		case ok:
			of.OK++
		case full:
			of.Full++
			of.Failed++
			if o.FirstFull == 0 {
				o.FirstFull = i + 1
			}
		default:
			of.Failed++
		}
	}
	return o
}
