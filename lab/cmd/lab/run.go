package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/measure"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/statedir"
)

type runCommand struct {
	Scenarios []string `arg:"" optional:"" name:"scenario" help:"Only these: normal, slow, crash, redeploy, oom, poison, retry-storm, export, shared-db, cpu."`
	Designs   []string `placeholder:"NAME,…" help:"Only these designs: shared-pool, pool-per-feature, roles, split, sync-call, sync-call-guarded."`
	Quick     bool     `help:"Everything in three minutes: short runs with short outages. Inputs that are given stay as they are."`
	Trace     bool     `negatable:"" default:"true" help:"Trace a normal day, to see where an order's time goes; --no-trace leaves it out."`
	Seed      uint64   `default:"19" help:"Decides when requests start and what they ask for (${default})."`
	Save      string   `placeholder:"FILE" type:"path" help:"Write the whole result there, for lab report."`
	Output    string   `short:"o" enum:"table,json" default:"table" help:"table or json."`

	PortOffset int `default:"0" placeholder:"N" help:"Add N to every port of the shop's; 0 finds ports that are free."`

	scenario.Inputs
}

// Help is shown by lab run --help.
func (*runCommand) Help() string {
	return `Runs every scenario in every design with real processes of this machine: PostgreSQL, NATS and the services, with the load of lab load and
the faults of lab fault, and prints what was measured beside what lab sim says of the same traffic, and beside what Little's law
predicts. Service times are drawn as the simulation draws them. shared-pool and sync-call run with the limits of a shop that never
thought of any: one second for everything, endless queues, no breaker, work that goes on when its caller has left; the others run
with ours. Everything runs in a folder of its own, which is removed; a shop that runs already is left alone, and takes part in
the machine's noise. The first run builds the programs.

Examples:
  lab run --quick
  lab run --quick --save run.json && lab report run.json -o report.html
  lab run slow crash --designs shared-pool,split
  lab run slow --designs shared-pool --slow-delay 150ms --duration 10s --output json`
}

// quickTime is what --quick promises, less the time that the end of a cell and of the shop may take.
const quickTime = 3*time.Minute - 8*time.Second

// Run measures.
func (c *runCommand) Run(ctx context.Context, p process) (err error) {
	options, err := c.options()
	if err != nil {
		return err
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if options.Runner, err = stageIn(dir, shop.Options{PortOffset: c.PortOffset}, p); err != nil {
		return err
	}
	line := &statusLine{out: p.errOut, terminal: console.IsTerminal(p.errOut)}
	options.Say, options.Show = line.say, line.show
	file, err := measure.Run(ctx, options)
	line.clear()
	if ctx.Err() != nil {
		return errors.New("interrupted: everything has ended, and nothing was written")
	}
	if err != nil {
		return err
	}
	return c.report(p.out, file)
}

func (c *runCommand) options() (measure.Options, error) {
	o := measure.Options{Inputs: c.Inputs, Seed: c.Seed, Quick: c.Quick, Trace: c.Trace}
	if c.Quick {
		o.Inputs, o.Within = c.Inputs.Quick(), quickTime
	}
	if err := o.Inputs.Validate(); err != nil {
		return o, err
	}
	var err error
	o.Scenarios, err = chosen("scenario", scenario.Table(o.Inputs), c.Scenarios, func(s scenario.Scenario) string { return s.Name })
	if err != nil {
		return o, err
	}
	o.Designs, err = chosen("--designs", scenario.Running(), c.Designs, func(d scenario.Design) string { return d.Name })
	return o, err
}

// scratch is a state folder that lasts as long as the run. PostgreSQL may run as another user, who must be able to enter it.
func scratch() (dir statedir.Dir, remove func() error, err error) {
	path, err := os.MkdirTemp("", "watertight-run-")
	if err != nil {
		return dir, nil, fmt.Errorf("folder for the run: %w", err)
	}
	remove = func() error { return runner.Remove(statedir.At(path)) }
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // see above
		return dir, nil, errors.Join(fmt.Errorf("folder for the run: %w", err), remove())
	}
	return statedir.At(path), remove, nil
}

// stageIn is where shops of the experiment play: everything of theirs is in dir, and the programs are kept in the project. Without an
// offset, free ports are found.
func stageIn(dir statedir.Dir, of shop.Options, p process) (runner.Options, error) {
	here, err := os.Getwd()
	if err != nil {
		return runner.Options{}, fmt.Errorf("working folder: %w", err)
	}
	root, err := statedir.FindRoot(here)
	if err != nil {
		return runner.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return runner.Options{}, fmt.Errorf("find lab's own program: %w", err)
	}
	programs := statedir.At(filepath.Join(root, statedir.DefaultName))
	if err := programs.Create(); err != nil {
		return runner.Options{}, err
	}
	o := runner.Options{
		Root: root, Dir: dir, Lab: self, Programs: programs.Bin(), Seed: seedAuthored, ReadyTimeout: time.Minute,
		PGBin: lookup(p.environ, "PG_BIN"), Path: lookup(p.environ, "PATH"), Environ: p.environ, Shop: of,
	}
	if of.PortOffset == 0 {
		o.Shop.PortOffset, err = freePorts(o)
	}
	return o, errors.Join(err, o.Shop.Validate())
}

// freePorts finds an offset at which every port of the shop is free.
func freePorts(o runner.Options) (int, error) {
	var last error
	for range 50 {
		try := o.Shop
		try.PortOffset = 1000 + rand.IntN(13_000)
		ports, err := try.HoldPorts(try.Plan(try.Present(o.Root), "", nil, nil))
		if err == nil {
			ports.Release()
			return try.PortOffset, nil
		}
		last = err
	}
	return 0, fmt.Errorf("no free ports were found for the shop; the last try: %w", last)
}

func (c *runCommand) report(out io.Writer, file *result.File) error {
	if c.Save != "" {
		if err := save(c.Save, file); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return file.WriteJSON(out)
	}
	return file.WriteTable(out)
}

func save(path string, file *result.File) (err error) {
	to, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	if err = errors.Join(file.WriteCompact(to), to.Close()); err != nil {
		return fmt.Errorf("--save %s: %w", path, err)
	}
	return nil
}

// statusLine shows what a long command does: on a terminal a line that is written over, elsewhere only what is over.
type statusLine struct {
	out      io.Writer
	terminal bool
	drawn    bool
}

// statusWidth keeps the line on one row of a narrow terminal.
const statusWidth = 110

func (l *statusLine) show(line string) {
	if !l.terminal {
		return
	}
	l.drawn = true
	fmt.Fprintf(l.out, "\r\x1b[K%.*s", statusWidth, line)
}

func (l *statusLine) clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.drawn = false
	}
}

func (l *statusLine) say(line string) {
	l.clear()
	fmt.Fprintln(l.out, line)
}
