//go:build unix

package runner

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/statedir"
	"example.com/watertight/lab/supervise"
)

const (
	// logLimit bounds the log file of one process.
	logLimit = 64 << 20
	// tailLines is how much of a log is shown when its process fails to start.
	tailLines = 15
)

// member is a supervised process together with where its output goes.
type member struct {
	process   *supervise.Process
	addresses map[string]string
	tail      *console.Tail
	log       *console.LogFile
	logPath   string
	reported  time.Time // the last exit that was told to the user
}

// group runs some processes and ends them together. The zero value is ready; one goroutine at a time may use it.
type group struct {
	stops []context.CancelFunc
	wait  sync.WaitGroup
}

// run supervises m until the group ends: the order in which groups end is the caller's, not ctx's.
func (g *group) run(ctx context.Context, m *member, hurry <-chan struct{}) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.stops = append(g.stops, stop)
	g.wait.Go(func() { m.process.Run(ctx, hurry) })
}

// end returns when every process of the group has ended.
func (g *group) end() {
	for _, stop := range g.stops {
		stop()
	}
	g.wait.Wait()
}

// program is what start needs to know to make a member.
type program struct {
	name, service string
	command       supervise.Command               // without Output
	prepare       func(ctx context.Context) error // runs before each start; may be nil
	ready         func(ctx context.Context) error
	stop          []supervise.StopStep
	addresses     map[string]string
	quiet         bool // its output goes to its log file only
}

// start begins to supervise a program in g.
func (s *session) start(ctx context.Context, g *group, p program) (*member, error) {
	path := filepath.Join(s.options.Dir.Logs(), p.name+".log")
	log, err := console.CreateLogFile(path, logLimit)
	if err != nil {
		return nil, err
	}
	m := &member{addresses: p.addresses, tail: console.NewTail(tailLines), log: log, logPath: path}
	outputs := []io.Writer{log, m.tail}
	if !p.quiet {
		outputs = append(outputs, s.console.Prefix(p.name))
	}
	p.command.Output = io.MultiWriter(outputs...)
	spec := supervise.Spec{Name: p.name, Service: p.service, Ready: p.ready, Stop: p.stop,
		Start: func() (supervise.Child, error) {
			if p.prepare != nil {
				if err := p.prepare(context.WithoutCancel(ctx)); err != nil {
					return nil, err
				}
			}
			return p.command.Start(s.starter)
		}}
	m.process = supervise.New(spec, s.options.Backoff, func() { s.changed(m) })
	s.add(m)
	g.run(ctx, m, s.options.Hurry)
	return m, nil
}

// waitReady waits until every member has been ready; the error of the first that fails carries the end of its log.
func waitReady(ctx context.Context, bound time.Duration, members ...*member) error {
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	all, waiting := errgroup.WithContext(bounded)
	for _, m := range members {
		all.Go(func() error {
			err := m.process.WaitReady(waiting)
			if err == nil || ctx.Err() != nil {
				return ctx.Err() // told to end: nothing is wrong with the process
			}
			return fmt.Errorf("%w; its last lines (all of them: %s):%s", err, m.logPath, m.tail.String("    "))
		})
	}
	return all.Wait()
}

// changed keeps the record up to date and tells the user about a process that died.
func (s *session) changed(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := m.process.Status()
	if exit := status.LastExit; exit != nil && exit.At.After(m.reported) {
		m.reported = exit.At
		if status.NextStart != nil {
			s.console.Printf("%s died (%s, %s); starts again in %s", status.Name, exit.Reason, exit,
				status.NextStart.Sub(exit.At).Round(time.Millisecond))
		}
	}
	s.writeRecord()
}

func (s *session) add(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.process.Status().Name == postgresName { // shown first, however the start of the broker and of the database interleave
		s.members = slices.Insert(s.members, 0, m)
		return
	}
	s.members = append(s.members, m)
}

// amend changes the record's own fields and writes it.
func (s *session) amend(change func(*statedir.Instance)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.record)
	s.writeRecord()
}

// writeRecord is called with mu held. A disk that is full must not stop the shop, so a failure is only told.
func (s *session) writeRecord() {
	s.record.Processes = nil
	for _, m := range s.members {
		s.record.Processes = append(s.record.Processes,
			statedir.Process{Status: m.process.Status(), Addresses: m.addresses, Log: m.logPath})
	}
	if err := s.options.Dir.WriteInstance(s.record); err != nil {
		s.console.Printf("cannot record the state of the shop: %v", err)
	}
}

// Signals that end each kind of process, and how long each may take. A service drains for up to DRAIN_TIMEOUT (15 s) and
// then closes its pools.
func serviceStop() []supervise.StopStep {
	return []supervise.StopStep{{Signal: syscall.SIGTERM, Wait: 20 * time.Second}}
}

func natsStop() []supervise.StopStep {
	return []supervise.StopStep{{Signal: syscall.SIGTERM, Wait: 10 * time.Second}}
}

// postgresStop is PostgreSQL's fast shutdown, then its immediate one.
func postgresStop() []supervise.StopStep {
	return []supervise.StopStep{{Signal: syscall.SIGINT, Wait: 30 * time.Second}, {Signal: syscall.SIGQUIT, Wait: 10 * time.Second}}
}
