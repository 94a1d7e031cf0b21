//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/proc"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
)

// Stage is a database server and a broker on which shops run one after the other, each for as long as an experiment wants
// it. All of them work on the same data. One goroutine at a time may use it.
type Stage struct {
	session *session
	infra   *infrastructure
	ports   shop.Ports
	close   []func() error // in order
}

// Raise starts the database server and the broker for shops of the given designs, which must work on the same data
// (shop.Options.Data); their programs have been built (Build). What it returns must be closed.
func Raise(ctx context.Context, options Options, designs ...string) (_ *Stage, err error) {
	if err := errors.Join(options.Shop.Validate(), options.Dir.Create()); err != nil {
		return nil, err
	}
	s := &Stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.open(options); err != nil {
		return nil, err
	}
	if err := s.session.begin(ctx); err != nil {
		return nil, err
	}
	databases, processes, err := plan(options, designs)
	if err != nil {
		return nil, err
	}
	if s.ports, err = options.Shop.HoldPorts(processes); err != nil {
		return nil, err
	}
	s.infra, err = s.session.startInfrastructure(ctx, databases)
	return s, err
}

// Hold takes the ports of shops of all the designs, so that nothing else does between one stage and the next.
func Hold(options Options, designs ...string) (shop.Ports, error) {
	_, processes, err := plan(options, designs)
	if err != nil {
		return nil, err
	}
	return options.Shop.HoldPorts(processes)
}

// open takes the state folder and what goes with it.
func (s *Stage) open(options Options) error {
	lock, err := options.Dir.Lock()
	if err != nil {
		return err
	}
	log, err := console.CreateLogFile(options.Dir.Log(), logLimit)
	if err != nil {
		return errors.Join(err, lock.Unlock())
	}
	starter := proc.NewStarter()
	s.session = &session{options: options, console: console.New(log, false, nameColumn), starter: starter}
	s.close = []func() error{
		func() error { starter.Close(); return nil },
		func() error { s.session.closeLogs(); return options.Dir.RemoveInstance() },
		log.Close, lock.Unlock,
	}
	return nil
}

// plan unites what the designs need: the databases, with room for the greediest, and the addresses.
func plan(options Options, designs []string) (databases []shop.Database, processes []shop.Process, err error) {
	taken := map[string]bool{}
	for _, design := range designs {
		o := options.Shop
		o.Design = design
		services := o.Present(options.Root)
		if len(services) == 0 {
			return nil, nil, fmt.Errorf("no service has a program under %s yet: there is nothing to run", options.Root)
		}
		needed, err := o.Databases(services)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range needed {
			at := slices.IndexFunc(databases, func(other shop.Database) bool { return other.Name == d.Name })
			if at < 0 {
				databases = append(databases, d)
				continue
			}
			databases[at].Connections = max(databases[at].Connections, d.Connections)
			databases[at].OwnerConnections = max(databases[at].OwnerConnections, d.OwnerConnections)
		}
		for _, p := range o.Plan(services, "", nil, nil) {
			if key := p.Name; !taken[key] {
				taken[key] = true
				processes = append(processes, p)
			}
		}
	}
	return databases, processes, nil
}

// Close ends the broker and the database server, and gives the state folder back.
func (s *Stage) Close() error {
	if s.infra != nil {
		s.infra.end()
		s.infra = nil
	}
	s.ports.Release()
	s.ports = nil
	var errs []error
	for _, end := range s.close {
		errs = append(errs, end())
	}
	s.close = nil
	return errors.Join(errs...)
}

// Shop is a shop that plays on a stage.
type Shop struct {
	stage     *Stage
	apps      *group
	members   []*member
	processes []shop.Process
	hurry     chan struct{}
}

// Open starts a shop and returns when every process is ready. A process that dies is started again after restart, each
// time. The data are filled with options.Seed if they never were. What it returns must be ended.
func (s *Stage) Open(ctx context.Context, o shop.Options, restart supervise.Backoff) (_ *Shop, err error) {
	if err := errors.Join(o.Validate(), restart.Validate()); err != nil {
		return nil, err
	}
	run := &Shop{stage: s, apps: &group{}, hurry: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, run.End())
		}
	}()
	s.session.options.Shop, s.session.options.Backoff, s.session.options.Hurry = o, restart, run.hurry
	run.processes = o.Plan(o.Present(s.session.options.Root), s.session.options.bin(), s.infra.access, s.session.options.Environ)
	for _, p := range run.processes {
		m, err := s.session.startService(ctx, run.apps, p)
		if err != nil {
			return nil, err
		}
		run.members = append(run.members, m)
	}
	if err := waitReady(ctx, s.session.options.ReadyTimeout, run.members...); err != nil {
		return nil, err
	}
	return run, s.session.seed(ctx, run.processes)
}

// End kills every process of the shop: what was under way in it is of no interest any more.
func (r *Shop) End() error {
	close(r.hurry)
	r.apps.end()
	return r.stage.session.retire(r.members)
}

// retire forgets processes that have ended.
func (s *session) retire(members []*member) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(m *member) bool { return slices.Contains(members, m) })
	s.writeRecord()
	var errs []error
	for _, m := range members {
		errs = append(errs, m.log.Close())
	}
	return errors.Join(errs...)
}

// Gateway is the base URL of the shop.
func (r *Shop) Gateway() string {
	for _, p := range r.processes {
		if address, ok := p.Addresses["http"]; ok {
			return "http://" + address
		}
	}
	return ""
}

// NATS is the broker's URL, with the administrator's password.
func (r *Shop) NATS() string {
	r.stage.session.mu.Lock()
	defer r.stage.session.mu.Unlock()
	return r.stage.session.record.NATS
}

// Admin is where each process shows its metrics, by the process's name.
func (r *Shop) Admin() map[string]string {
	admin := map[string]string{}
	for _, p := range r.processes {
		admin[p.Name] = "http://" + p.Addresses["admin"]
	}
	return admin
}

// Statuses are what the processes are doing now.
func (r *Shop) Statuses() []supervise.Status {
	statuses := make([]supervise.Status, 0, len(r.members))
	for _, m := range r.members {
		statuses = append(statuses, m.process.Status())
	}
	return statuses
}

// Terminate asks a process to end, as an orchestrator does: it drains, and is started again.
func (r *Shop) Terminate(name string) error {
	for _, s := range r.Statuses() {
		if s.Name != name {
			continue
		}
		if s.Process == nil {
			return fmt.Errorf("%s does not run", name)
		}
		return s.Process.Signal(syscall.SIGTERM)
	}
	return fmt.Errorf("the shop has no process %s", name)
}

// Build builds the programs of the designs.
func Build(ctx context.Context, options Options, designs ...string) error {
	var services []shop.Service
	for _, design := range designs {
		o := options.Shop
		o.Design = design
		services = append(services, o.Present(options.Root)...)
	}
	return shop.Build(ctx, options.Root, options.bin(), services, options.Environ)
}

// PostgreSQL is the database server's major version.
func (s *Stage) PostgreSQL() int { return s.infra.major }
