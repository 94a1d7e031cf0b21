// Package supervise keeps processes running, as a kubelet keeps containers: it probes them, and starts one that dies again
// on CrashLoopBackOff's schedule. It knows no shop, judges no liveness and never gives up on a process.
//
//	          ready           died
//	Starting ──────▶ Running ──────▶ Error │ OOMKilled │ Completed
//	  ▲  │                                       │ soon
//	  │  └────── died ──────────────▶ (the same) ▼
//	  └────────── delay is over ───────── CrashLoopBackOff
//
// Being told to end leads from everywhere to Terminating (while it runs) and Stopped.
package supervise

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"example.com/watertight/lab/proc"
)

// Child is one run of a process.
type Child interface {
	ID() proc.ID
	// Exited delivers how the child ended, once.
	Exited() <-chan Exit
	// Signal sends a signal; one to a child that has ended is ignored.
	Signal(sig syscall.Signal)
}

// Spec says how a process is started, probed and ended.
type Spec struct {
	Name    string // unique, shown in ps and before each line of the log
	Service string // what it is a replica of
	Start   func() (Child, error)
	// Ready returns nil when the process can do its work. It is called every ProbeInterval with a context that ends after
	// ProbeTimeout.
	Ready func(ctx context.Context) error
	// Stop lists the signals that end the process, in turn; SIGKILL follows by itself.
	Stop []StopStep
}

// StopStep is a signal and how long to wait for its effect.
type StopStep struct {
	Signal syscall.Signal
	Wait   time.Duration
}

const (
	// startingInterval paces the probes of a process that has not been ready yet; ProbeInterval paces them afterwards.
	startingInterval = 100 * time.Millisecond
	// ProbeInterval is how often a running process is probed.
	ProbeInterval = time.Second
	// ProbeTimeout is how long a probe may take.
	ProbeTimeout = time.Second
)

// Process supervises one process. Its methods may be called by any goroutine.
type Process struct {
	spec    Spec
	backoff Backoff
	changed func()

	mu     sync.Mutex
	status Status

	readyOnce sync.Once
	ready     chan struct{} // closed when it is ready for the first time
	diedOnce  sync.Once
	died      chan Exit // gets the exit that came before the first ready
}

// New returns a Process; Run starts it. changed is called after each change of its Status, by the goroutine of Run, and
// must not block for long.
func New(spec Spec, backoff Backoff, changed func()) *Process {
	return &Process{
		spec: spec, backoff: backoff, changed: changed,
		status: Status{Name: spec.Name, Service: spec.Service, Phase: Starting, Created: time.Now()},
		ready:  make(chan struct{}),
		died:   make(chan Exit, 1),
	}
}

// Status returns what the process is doing now.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// WaitReady returns nil once the process has been ready, an error when it ended before that, or ctx's error.
func (p *Process) WaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case exit := <-p.died:
		p.died <- exit // for the next caller
		return fmt.Errorf("%s ended before it was ready (%s)", p.spec.Name, exit)
	case <-ctx.Done():
		return fmt.Errorf("%s is not ready: %w", p.spec.Name, ctx.Err())
	}
}

// Run starts the process and starts it again whenever it dies, until ctx ends; then it ends the process and returns.
// Closing hurry makes that end come at once.
func (p *Process) Run(ctx context.Context, hurry <-chan struct{}) {
	var delay time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		exit := p.once(ctx, hurry)
		if ctx.Err() != nil {
			break
		}
		exit.At = time.Now()
		delay = p.backoff.next(delay, exit.At.Sub(began))
		p.dead(exit, delay)
		p.waitForRestart(ctx, delay)
	}
	p.update(func(s *Status) {
		s.Phase, s.Ready, s.Process, s.NextStart = Stopped, false, nil, nil
	})
}

// once runs the process until it ends, by itself or because ctx did.
func (p *Process) once(ctx context.Context, hurry <-chan struct{}) Exit {
	child, err := p.spec.Start()
	if err != nil {
		return NotStarted(err)
	}
	id, now := child.ID(), time.Now()
	p.update(func(s *Status) {
		s.Phase, s.Process, s.Started, s.NextStart = Starting, &id, &now, nil
	})

	probing, stopProbes := context.WithCancel(ctx)
	results := make(chan bool)
	var prober sync.WaitGroup
	prober.Go(func() { p.probe(probing, results) })
	defer prober.Wait()
	defer stopProbes()

	for {
		select {
		case exit := <-child.Exited():
			return exit
		case ok := <-results:
			p.probed(ok)
		case <-ctx.Done():
			p.update(func(s *Status) { s.Phase, s.Ready = Terminating, false })
			return p.end(child, hurry)
		}
	}
}

// probe reports whether the process is ready, again and again, until ctx ends.
func (p *Process) probe(ctx context.Context, results chan<- bool) {
	pause := startingInterval
	for {
		attempt, cancel := context.WithTimeout(ctx, ProbeTimeout)
		ok := p.spec.Ready(attempt) == nil
		cancel()
		select {
		case results <- ok:
		case <-ctx.Done():
			return
		}
		if ok {
			pause = ProbeInterval
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

func (p *Process) probed(ok bool) {
	if now := p.Status(); now.Ready == ok {
		return
	}
	p.update(func(s *Status) {
		s.Ready = ok
		if ok {
			s.Phase = Running
		}
	})
	if ok {
		p.readyOnce.Do(func() { close(p.ready) })
	}
}

func (p *Process) dead(exit Exit, delay time.Duration) {
	next := exit.At.Add(delay)
	p.update(func(s *Status) {
		s.Phase, s.Ready, s.Process, s.LastExit, s.NextStart = exit.Reason, false, nil, &exit, &next
	})
	select {
	case <-p.ready:
	default:
		p.diedOnce.Do(func() { p.died <- exit })
	}
}

// waitForRestart shows the reason of the exit for a moment, then CrashLoopBackOff, for delay in all.
func (p *Process) waitForRestart(ctx context.Context, delay time.Duration) {
	shown := p.backoff.shown(delay)
	if !sleep(ctx, shown) {
		return
	}
	p.update(func(s *Status) { s.Phase = CrashLoopBackOff })
	if !sleep(ctx, delay-shown) {
		return
	}
	p.update(func(s *Status) { s.Restarts++ })
}

// end sends the signals of the spec and returns when the child has ended. SIGCONT goes with each, because a process that
// was stopped (SIGSTOP) would never act on the others.
func (p *Process) end(child Child, hurry <-chan struct{}) Exit {
	for _, step := range p.spec.Stop {
		child.Signal(step.Signal)
		child.Signal(syscall.SIGCONT)
		select {
		case exit := <-child.Exited():
			return exit
		case <-hurry:
		case <-time.After(step.Wait):
		}
	}
	child.Signal(syscall.SIGKILL)
	return <-child.Exited()
}

func (p *Process) update(change func(*Status)) {
	p.mu.Lock()
	change(&p.status)
	p.mu.Unlock()
	p.changed()
}

// sleep reports whether d passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
