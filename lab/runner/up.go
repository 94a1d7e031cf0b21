//go:build unix

// Package runner runs the whole shop on one machine: database, broker and services as supervised processes. It starts
// them in order, ends them in the reverse order, and leaves nothing running, however it ends itself.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

// Options say how the shop runs.
type Options struct {
	Root string       // the project
	Dir  statedir.Dir // where everything is kept
	// Lab is a program that serves NATS when run with `nats-server --config FILE`; lab itself.
	Lab string
	// Programs is the folder of the services' programs; "" is that of the state folder.
	Programs     string
	Fresh        bool   // begin with empty data
	Seed         Seeder // nil: the shop stays as it is
	Verbose      bool   // show what the database and the broker log
	Backoff      supervise.Backoff
	ReadyTimeout time.Duration // how long all processes together may take to get ready
	Shop         shop.Options
	// UnlimitedDB leaves the services' database roles without limits, so that one service can use up the server of all.
	UnlimitedDB bool
	PGBin, Path string   // where to look for PostgreSQL
	Environ     []string // lab's own environment
	// Out gets everything; nil: the log file of the state folder.
	Out   io.Writer
	Color bool
	// Progress gets each of lab's own lines until the shop is ready; may be nil.
	Progress func(line string)
	// Ready is called once when the shop is ready; may be nil.
	Ready func()
	// Hurry, when it is closed, makes an end that is under way come at once.
	Hurry <-chan struct{}
}

// bin is where the services' programs are.
func (o Options) bin() string {
	if o.Programs != "" {
		return o.Programs
	}
	return o.Dir.Bin()
}

// A Seeder fills an empty shop. Its targets are the gRPC address of one replica of each service that runs. It returns what
// it filled the shop with, in a few words.
type Seeder func(ctx context.Context, targets map[string]string) (string, error)

// session is one run of Up.
type session struct {
	options Options
	console *console.Console
	starter *proc.Starter

	mu      sync.Mutex
	members []*member
	record  statedir.Instance
}

// nameColumn is as wide as the longest name with a replica's number.
const nameColumn = 12

// Up runs the shop until ctx ends, then ends it in order and returns nil. It returns an error when the shop cannot be
// started; nothing is left running then either.
func Up(ctx context.Context, options Options) (err error) {
	if err := errors.Join(options.Shop.Validate(), options.Backoff.Validate()); err != nil {
		return err
	}
	if err := options.Dir.Create(); err != nil {
		return err
	}
	lock, err := options.Dir.Lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	out := options.Out
	if out == nil {
		file, err := console.CreateLogFile(options.Dir.Log(), logLimit)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	s := &session{options: options, console: console.New(out, options.Color, nameColumn), starter: proc.NewStarter()}
	defer s.starter.Close()
	if err := s.run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil // an error that came from being told to end is none
}

// run is Up with the lock held. Groups end in the reverse of the order in which they were started.
func (s *session) run(ctx context.Context) (err error) {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer func() {
		s.closeLogs()
		err = errors.Join(err, s.options.Dir.RemoveInstance())
	}()

	services := s.options.Shop.Present(s.options.Root)
	if len(services) == 0 {
		return fmt.Errorf("no service has a program under %s yet: there is nothing to run", s.options.Root)
	}
	processes := s.options.Shop.Plan(services, "", nil, nil)
	ports, err := s.options.Shop.HoldPorts(processes)
	if err != nil {
		return err
	}
	defer ports.Release()
	building := s.build(ctx, services)
	defer building.stop()
	observers := &group{}
	defer observers.end() // last, so that the spans of the end arrive
	observing := start(ctx, func(ctx context.Context) error { return s.startJaeger(ctx, observers) })
	defer observing.stop()

	databases, err := s.options.Shop.Databases(services)
	if err != nil {
		return err
	}
	infrastructure, err := s.startInfrastructure(ctx, databases)
	defer infrastructure.end()
	if err != nil {
		return err
	}
	if err := errors.Join(building.wait(), observing.wait()); err != nil {
		return err
	}

	apps := &group{}
	defer func() {
		s.sayf("ending the shop (once more Ctrl-C: at once)")
		apps.end()
	}()
	processes = s.options.Shop.Plan(services, s.options.bin(), infrastructure.access, s.options.Environ)
	if err := s.startServices(ctx, apps, processes); err != nil {
		return err
	}
	if err := s.seed(ctx, processes); err != nil {
		return err
	}
	s.ready()
	<-ctx.Done()
	return nil
}

// begin ends what a killed lab left running, removes the data if they are not wanted, and announces this instance.
func (s *session) begin(ctx context.Context) error {
	if err := endLeftovers(ctx, s.options.Dir, s.sayf); err != nil {
		return err
	}
	if s.options.Fresh {
		if err := empty(s.options.Dir); err != nil {
			return err
		}
	}
	self, ok := proc.Identify(os.Getpid())
	if !ok {
		return errors.New("cannot tell when this process began: is /proc mounted?")
	}
	s.amend(func(i *statedir.Instance) {
		i.Supervisor, i.Started, i.Databases = self, time.Now(), map[string]string{}
	})
	return nil
}

// build compiles the services while the database starts.
func (s *session) build(ctx context.Context, services []shop.Service) *task {
	return start(ctx, func(ctx context.Context) error {
		began := time.Now()
		s.sayf("building the programs (the first time takes minutes)")
		if err := shop.Build(ctx, s.options.Root, s.options.bin(), services, s.options.Environ); err != nil {
			return err
		}
		s.sayf("built in %s", time.Since(began).Round(100*time.Millisecond))
		return nil
	})
}

// startServices starts all of them at once, as a cluster would, and waits for all.
func (s *session) startServices(ctx context.Context, g *group, processes []shop.Process) error {
	var members []*member
	for _, p := range processes {
		m, err := s.startService(ctx, g, p)
		if err != nil {
			return err
		}
		members = append(members, m)
	}
	return waitReady(ctx, s.options.ReadyTimeout, members...)
}

// seed fills a shop that was never filled.
func (s *session) seed(ctx context.Context, processes []shop.Process) error {
	done, err := s.options.Dir.Seeded(s.options.Shop.Data())
	if err != nil || done != "" || s.options.Seed == nil {
		return err
	}
	targets := map[string]string{}
	for _, p := range processes {
		if p.Name != p.Service { // one replica of each
			continue
		}
		for _, service := range p.Serves {
			targets[service] = p.Addresses["grpc"]
		}
	}
	with, err := s.options.Seed(ctx, targets)
	if err != nil {
		return fmt.Errorf("seed the shop: %w", err)
	}
	s.sayf("seeded with %s", with)
	return s.options.Dir.SetSeeded(s.options.Shop.Data(), with)
}

func (s *session) ready() {
	s.amend(func(i *statedir.Instance) { i.Ready = true })
	s.sayf("ready")
	for _, m := range s.members {
		s.sayf("  %-*s %s", nameColumn, m.process.Status().Name, list(m.addresses))
	}
	s.sayf("shop        %s", s.record.Gateway)
	s.sayf("next        lab ps shows the processes, lab down ends them; data and logs are in %s", s.options.Dir.Path())
	if s.options.Ready != nil {
		s.options.Ready()
	}
}

// sayf prints a line of lab's own.
func (s *session) sayf(format string, args ...any) {
	s.console.Printf(format, args...)
	if s.options.Progress != nil {
		s.options.Progress(fmt.Sprintf(format, args...))
	}
}

func (s *session) closeLogs() {
	for _, m := range s.members {
		if err := m.log.Close(); err != nil {
			s.console.Printf("close %s: %v", m.logPath, err)
		}
	}
}

// task is work that goes on beside the rest.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

func start(ctx context.Context, work func(ctx context.Context) error) *task {
	ctx, cancel := context.WithCancel(ctx)
	t := &task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		t.err = work(ctx)
	}()
	return t
}

func (t *task) wait() error {
	<-t.done
	return t.err
}

// stop ends the task and waits for it.
func (t *task) stop() {
	t.cancel()
	<-t.done
}
