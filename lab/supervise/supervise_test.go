package supervise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/proc"
)

// fakeProgram is a program whose runs a test ends by hand. All of it happens in virtual time.
type fakeProgram struct {
	mu      sync.Mutex
	runs    []*fakeRun
	starts  []time.Time
	failing error // what Start answers
	ready   error // what the probe answers
	obeys   syscall.Signal
}

type fakeRun struct {
	program *fakeProgram
	exited  chan Exit
	signals []syscall.Signal
}

func (f *fakeProgram) start() (Child, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, time.Now())
	if f.failing != nil {
		return nil, f.failing
	}
	run := &fakeRun{program: f, exited: make(chan Exit, 1)}
	f.runs = append(f.runs, run)
	return run, nil
}

func (f *fakeProgram) probe(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ready
}

func (f *fakeProgram) setReady(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready = err
}

// die ends the run that is under way.
func (f *fakeProgram) die(exit Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs[len(f.runs)-1].exited <- exit
}

func (r *fakeRun) ID() proc.ID         { return proc.ID{PID: 4711, Start: "fake"} }
func (r *fakeRun) Exited() <-chan Exit { return r.exited }
func (r *fakeRun) Signal(sig syscall.Signal) {
	r.program.mu.Lock()
	defer r.program.mu.Unlock()
	r.signals = append(r.signals, sig)
	if sig == r.program.obeys || sig == syscall.SIGKILL {
		r.exited <- Signalled(sig)
	}
}

// supervised runs a process in the bubble until the test ends, and collects the phases it goes through.
type supervised struct {
	*Process
	program *fakeProgram
	stop    func() // ends it and waits
	hurry   chan struct{}

	mu     sync.Mutex
	phases []Phase
}

func superviseFake(t *testing.T, program *fakeProgram) *supervised {
	t.Helper()
	s := &supervised{program: program, hurry: make(chan struct{})}
	spec := Spec{Name: "recs", Service: "recs", Start: program.start, Ready: program.probe,
		Stop: []StopStep{{Signal: syscall.SIGTERM, Wait: 20 * time.Second}}}
	s.Process = New(spec, DefaultBackoff(), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if phase := s.Status().Phase; len(s.phases) == 0 || s.phases[len(s.phases)-1] != phase {
			s.phases = append(s.phases, phase)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { s.Run(ctx, s.hurry) })
	s.stop = func() { cancel(); wait.Wait() }
	t.Cleanup(s.stop)
	return s
}

func (s *supervised) seen() []Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.phases)
}

func TestProcess_DelaysDoubleFromTenSecondsToFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM}
		s := superviseFake(t, program)
		var got []time.Duration
		for range 8 {
			synctest.Wait()
			program.die(Exited(1))
			died := time.Now()
			synctest.Wait()
			next := s.Status().NextStart.Sub(died)
			time.Sleep(next)
			synctest.Wait()
			got = append(got, program.starts[len(program.starts)-1].Sub(died))
		}
		var want []time.Duration
		for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300, 300} {
			want = append(want, time.Duration(seconds)*time.Second)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("delays before each restart (-want +got):\n%s", diff)
		}
		if got := s.Status().Restarts; got != 8 {
			t.Errorf("restarts: got %d, want 8", got)
		}
	})
}

func TestProcess_TenQuietMinutesResetTheDelay(t *testing.T) {
	for _, tc := range []struct {
		name string
		ran  time.Duration
		want time.Duration
	}{
		{"quiet", 10*time.Minute + time.Second, 10 * time.Second},
		{"not quiet for long enough", 10*time.Minute - time.Second, 40 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &fakeProgram{obeys: syscall.SIGTERM}
				s := superviseFake(t, program)
				for _, ran := range []time.Duration{time.Second, time.Second, tc.ran} {
					synctest.Wait()
					time.Sleep(ran)
					program.die(Exited(1))
					synctest.Wait()
					if next := s.Status().NextStart; next != nil && ran != tc.ran {
						time.Sleep(time.Until(*next))
					}
				}
				status := s.Status()
				if got := status.NextStart.Sub(status.LastExit.At); got != tc.want {
					t.Errorf("delay after %v: got %v, want %v", tc.ran, got, tc.want)
				}
			})
		})
	}
}

func TestProcess_PhasesAreThoseOfKubectl(t *testing.T) {
	for _, tc := range []struct {
		name string
		exit Exit
		want Phase
	}{
		{"exit code 0", Exited(0), Completed},
		{"exit code 1", Exited(1), Error},
		{"exit code 137", Exited(137), OOMKilled},
		{"kill -9", Signalled(syscall.SIGKILL), Error},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &fakeProgram{obeys: syscall.SIGTERM}
				s := superviseFake(t, program)
				synctest.Wait()
				program.die(tc.exit)
				time.Sleep(11 * time.Second)
				synctest.Wait()
				s.stop()
				want := []Phase{Starting, Running, tc.want, CrashLoopBackOff, Starting, Running, Terminating, Stopped}
				if diff := cmp.Diff(want, s.seen()); diff != "" {
					t.Errorf("phases (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestProcess_CrashLoopBackOffShowsSoonAfterTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM}
		s := superviseFake(t, program)
		synctest.Wait()
		program.die(Exited(137))
		for _, want := range []struct {
			after time.Duration
			phase Phase
		}{{1900 * time.Millisecond, OOMKilled}, {2100 * time.Millisecond, CrashLoopBackOff}, {9900 * time.Millisecond, CrashLoopBackOff}, {10100 * time.Millisecond, Running}} {
			time.Sleep(want.after - time.Since(begin(s)))
			synctest.Wait()
			if got := s.Status().Phase; got != want.phase {
				t.Errorf("%v after the exit: got %s, want %s", want.after, got, want.phase)
			}
		}
	})
}

// begin is when the process died; now, when it has not been noticed yet.
func begin(s *supervised) time.Time {
	if exit := s.Status().LastExit; exit != nil {
		return exit.At
	}
	return time.Now()
}

func TestProcess_IsReadyOnlyWhileItsProbeSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM, ready: errors.New("index is being built")}
		s := superviseFake(t, program)
		check := func(when string, ready bool, phase Phase) {
			t.Helper()
			time.Sleep(2 * ProbeInterval)
			synctest.Wait()
			if got := s.Status(); got.Ready != ready || got.Phase != phase {
				t.Errorf("%s: got ready %v, %s, want ready %v, %s", when, got.Ready, got.Phase, ready, phase)
			}
		}
		check("before the first ready", false, Starting)
		program.setReady(nil)
		check("once ready", true, Running)
		program.setReady(errors.New("draining"))
		check("no longer ready", false, Running)
		program.setReady(nil)
		check("ready again", true, Running)
	})
}

func TestProcess_WaitReadyTellsHowItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM, ready: errors.New("not yet")}
		s := superviseFake(t, program)
		synctest.Wait()
		program.die(Exited(3))
		for range 2 { // every caller is told
			if err := s.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "exit code 3") {
				t.Errorf("WaitReady: got %v, want an error that says exit code 3", err)
			}
		}
	})
}

func TestProcess_WaitReadyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := superviseFake(t, &fakeProgram{obeys: syscall.SIGTERM, ready: errors.New("never")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.WaitReady(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitReady: got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestProcess_ThatCannotBeStartedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM, failing: errors.New("no such program")}
		s := superviseFake(t, program)
		synctest.Wait()
		if got := s.Status(); got.Phase != Error || got.LastExit.Failure != "no such program" {
			t.Fatalf("got %s, %v, want Error with the reason", got.Phase, got.LastExit)
		}
		program.mu.Lock()
		program.failing = nil
		program.mu.Unlock()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := s.Status(); got.Phase != Running || got.Restarts != 1 {
			t.Errorf("got %s with %d restarts, want Running with 1", got.Phase, got.Restarts)
		}
	})
}

func TestProcess_EndsByItsSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM}
		s := superviseFake(t, program)
		synctest.Wait()
		s.stop()
		if diff := cmp.Diff([]syscall.Signal{syscall.SIGTERM, syscall.SIGCONT}, program.runs[0].signals); diff != "" {
			t.Errorf("signals (-want +got):\n%s", diff)
		}
	})
}

func TestProcess_ThatIgnoresItsSignalIsKilledInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{}
		s := superviseFake(t, program)
		synctest.Wait()
		told := time.Now()
		s.stop()
		if got, want := time.Since(told), 20*time.Second; got != want {
			t.Errorf("ended after %v, want %v", got, want)
		}
		if got := program.runs[0].signals; got[len(got)-1] != syscall.SIGKILL {
			t.Errorf("last signal: got %v, want SIGKILL", got)
		}
	})
}

func TestProcess_EndsAtOnceInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{}
		s := superviseFake(t, program)
		synctest.Wait()
		told := time.Now()
		close(s.hurry)
		s.stop()
		if got := time.Since(told); got != 0 {
			t.Errorf("ended after %v, want at once", got)
		}
	})
}

func TestProcess_EndsWhileItWaitsForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &fakeProgram{obeys: syscall.SIGTERM}
		s := superviseFake(t, program)
		synctest.Wait()
		program.die(Exited(1))
		time.Sleep(5 * time.Second)
		s.stop()
		if got := s.Status(); got.Phase != Stopped || got.Restarts != 0 || len(program.runs) != 1 {
			t.Errorf("got %s, %d restarts, %d runs, want Stopped, 0, 1", got.Phase, got.Restarts, len(program.runs))
		}
	})
}

func TestBackoff_RefusesASchedule(t *testing.T) {
	for name, b := range map[string]Backoff{
		"no first delay":   {Max: time.Minute, Quiet: time.Minute},
		"negative":         {First: -1, Max: time.Minute, Quiet: time.Minute},
		"first above most": {First: time.Hour, Max: time.Minute, Quiet: time.Minute},
		"never quiet":      {First: time.Second, Max: time.Minute},
	} {
		if b.Validate() == nil {
			t.Errorf("%s: %+v was accepted", name, b)
		}
	}
	if err := DefaultBackoff().Validate(); err != nil {
		t.Errorf("the default schedule: %v", err)
	}
}
