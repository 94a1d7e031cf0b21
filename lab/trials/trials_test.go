package trials

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"example.com/watertight/platform/bulkhead"
)

func TestExpect_GivesThePublishedCounts(t *testing.T) {
	s := Default()
	want := map[string][2]int{"A": {10, 10}, "B": {20, 0}, "C": {8, 12}, "D": {20, 0}}
	for _, trial := range s.Trials() {
		o := s.Expect(trial)
		if got := [2]int{o.Checkout.OK, o.Checkout.Failed}; got != want[trial.Name] {
			t.Errorf("%s (%s): checkout %d ok, %d failed; want %v", trial.Name, trial.About, got[0], got[1], want[trial.Name])
		}
		if got := [2]int{o.Recs.OK, o.Recs.Failed}; got != [2]int{0, 40} {
			t.Errorf("%s (%s): recs %d ok, %d failed; want 0 and 40", trial.Name, trial.About, got[0], got[1])
		}
	}
}

// A time-out of 300 ms wants 40 slots of 16.
func TestExpect_ATimeoutThatIsNotShortEnoughFailsCheckouts(t *testing.T) {
	s := Default()
	s.ShortTimeout = 300 * time.Millisecond
	if o := s.Expect(s.Trials()[1]); o.Checkout.Failed == 0 {
		t.Errorf("B with 300 ms: got %+v, want failed checkouts", o)
	}
}

// really plays calls on the bulkhead of the shop, with the clock of the test.
func really(t *testing.T, configs []bulkhead.Config, calls []call) []answer {
	t.Helper()
	answers := make([]answer, len(calls))
	synctest.Test(t, func(t *testing.T) {
		pools, err := newPools(configs)
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		if _, err := onTime(t.Context(), time.Now(), calls, func(i int) {
			callers.Go(func() { answers[i] = send(t.Context(), pools[calls[i].pool], calls[i]) })
			synctest.Wait()
		}); err != nil {
			t.Fatal(err)
		}
		callers.Wait()
		if err := settle(t.Context(), pools); err != nil {
			t.Fatal(err)
		}
	})
	return answers
}

func TestExpect_AgreesWithTheBulkheadOnTheTrials(t *testing.T) {
	for _, s := range []Setup{Default(), func() Setup { s := Default(); s.ShortTimeout = 300 * time.Millisecond; return s }()} {
		for _, trial := range s.Trials() {
			calls := s.calls(trial)
			// A checkout that ends just when the next call comes may be a moment before it or after it.
			for i := range calls {
				calls[i].at += time.Duration(i) * time.Nanosecond
			}
			want := expect(s.pools(trial), calls)
			for i, got := range really(t, s.pools(trial), calls) {
				if got != want[i] {
					t.Errorf("%s, call %d: the bulkhead gave %+v, expected %+v", trial.Name, i, got, want[i])
				}
			}
		}
	}
}

func TestExpect_AgreesWithTheBulkheadOnAnySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nudges := rand.New(rand.NewPCG(5, rapid.Uint64().Draw(rt, "nudges")))
		// Each time gets nanoseconds of its own: when two things happen at once, either order is right.
		ms := func(name string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(rt, name))*time.Millisecond + time.Duration(1+nudges.IntN(400_000))
		}
		configs := []bulkhead.Config{
			{Size: rapid.IntRange(1, 5).Draw(rt, "size"), Queue: rapid.IntRange(0, 5).Draw(rt, "queue")},
			{Size: rapid.IntRange(1, 5).Draw(rt, "size"), Queue: rapid.IntRange(0, 5).Draw(rt, "queue")},
		}
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
			return call{
				at: ms("at", 0, 200), deadline: ms("deadline", 1, 120), timeout: ms("timeout", 1, 60), takes: ms("takes", 0, 150),
				deaf: rapid.Bool().Draw(rt, "deaf"), pool: rapid.IntRange(0, 1).Draw(rt, "pool"),
			}
		}), 1, 40).Draw(rt, "calls")
		slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })
		want := expect(configs, calls)
		for i, got := range really(t, configs, calls) {
			if got != want[i] {
				rt.Errorf("call %d %+v on %+v: the bulkhead gave %+v, expected %+v", i, calls[i], configs, got, want[i])
			}
		}
	})
}

func TestRun_EndsWithTheCountsThatItsBulkheadGives(t *testing.T) {
	s := Default()
	for _, trial := range s.Trials() {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			got, err := s.Run(t.Context(), trial)
			if err != nil {
				t.Fatal(err)
			}
			if want := s.Expect(trial); !got.Near(want) || got.LateBy != 0 {
				t.Errorf("%s: got %+v, want %+v give or take one, and on time", trial.Name, got, want)
			}
			if took := time.Since(began); took > s.Deadline+s.RecsTime+time.Duration(s.Calls)*s.Every+10*time.Millisecond {
				t.Errorf("%s: took %v, longer than its last call's work can", trial.Name, took)
			}
		})
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
		s := Default()
		began := time.Now()
		if _, err := s.Run(ctx, s.Trials()[2]); !errors.Is(err, why) {
			t.Errorf("got %v, want %v", err, why)
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("took %v, want to end when it was told", took)
		}
		time.Sleep(s.RecsTime) // in the bubble: the deaf work has to end before the test may
	})
}

func TestOutcome_IsNearWithinOneCall(t *testing.T) {
	a := Outcome{Checkout: Tally{OK: 10, Failed: 10}, Recs: Tally{Failed: 40}}
	for shift, want := range map[int]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		b := Outcome{Checkout: Tally{OK: 10 + shift, Failed: 10 - shift}, Recs: Tally{Failed: 40}}
		if got := a.Near(b); got != want {
			t.Errorf("shifted by %d: near is %v, want %v", shift, got, want)
		}
	}
}

func TestWhy_SaysHowManySlotsAreWanted(t *testing.T) {
	s := Default()
	want := map[string][]string{
		"A": {"133/s x 1s = 133.3 of 16 slots", "10 checkouts are turned away at once"},
		"B": {"133/s x 100ms = 13.3 of 16 slots: checkout always finds one"},
		"C": {"only signals", "133/s x 2s = 266.7 of 16 slots"},
		"D": {"of 12 slots, but these are its own: checkout wants 1.3 of 4 others"},
	}
	for _, trial := range s.Trials() {
		why := s.Why(trial, s.Expect(trial))
		for _, part := range want[trial.Name] {
			if !strings.Contains(why, part) {
				t.Errorf("%s: %q does not say %q", trial.Name, why, part)
			}
		}
	}
}

func TestSetup_NamesTheFlagThatIsWrong(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Setup){
		"--calls: ":          func(s *Setup) { s.Calls = 0 },
		"--every: ":          func(s *Setup) { s.Every = 0 },
		"--slots: ":          func(s *Setup) { s.Slots = 1 },
		"--checkout-slots: ": func(s *Setup) { s.CheckoutSlots = 16 },
		"--queue: ":          func(s *Setup) { s.Queue = -1 },
		"--recs-time: ":      func(s *Setup) { s.RecsTime = time.Hour },
	} {
		s := Default()
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func Example() {
	s := Default()
	for _, trial := range s.Trials() {
		o := s.Expect(trial)
		fmt.Printf("%s: %s: checkout %d ok, %d failed\n", trial.Name, trial.About, o.Checkout.OK, o.Checkout.Failed)
	}
	// Output:
	// A: shared 16, 1s time-out: checkout 10 ok, 10 failed
	// B: shared 16, 100ms time-out: checkout 20 ok, 0 failed
	// C: as B, but recs ignores the signal: checkout 8 ok, 12 failed
	// D: own 4 and 12, 1s time-out: checkout 20 ok, 0 failed
}
