package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"example.com/watertight/lab/console"
	"example.com/watertight/lab/curve"
	"example.com/watertight/lab/load"
	"example.com/watertight/lab/shop"
)

type curveCommand struct {
	Curves   []string      `arg:"" optional:"" name:"curve" enum:"load,recs,checkout" help:"Only these: load, recs, checkout (both over replicas)."`
	Shares   []float64     `default:"0.1,0.25,0.5,0.75,0.9,1,1.1,1.25,1.5" placeholder:"SHARE,…" help:"Of the capacity, in this order (${default})."`
	Replicas int           `default:"4" help:"From one replica to this many (${default})."`
	Step     time.Duration `default:"4s" help:"How long each step is counted (${default})."`
	Mix      string        `default:"checkout=20,page=80" placeholder:"SHARES" help:"What is asked for, as for lab load (${default})."`
	Deadline time.Duration `default:"1s" help:"When a client gives up; a later answer is no good (${default})."`
	Seed     uint64        `default:"19" help:"Decides when requests start and what they ask for (${default})."`
	Save     string        `placeholder:"FILE" type:"path" help:"Write the whole result there, for lab report."`
	Output   string        `short:"o" enum:"table,json" default:"table" help:"table or json."`

	PortOffset int `default:"0" placeholder:"N" help:"Add N to every port of the shop's; 0 finds ports that are free."`
}

// Help is shown by lab curve --help.
func (*curveCommand) Help() string {
	return `Measures curves instead of points, with real processes of this machine in a folder of their own, which is removed.

load: the whole shop under a mix of orders and product pages. The capacity is found first: more and more, until the goodput grows no
more, and the best rate three times again. Then each share of it is held for a while. Goodput is what is answered before the client gives up, a page without its
recommendations included; shed is what is turned away at once. A shop that sheds keeps its best goodput under too much load, and
one that does not collapses: it is busy with what nobody waits for any more. Of a mix, look at the goodput of each kind, too: an order
costs many times what a page does, and each has limits of its own.

recs, checkout: that service is made the bottleneck, with a few workers that each take a fixed time, and asked for 70 % and for
150 % of what one replica can take, then two, and so on.

The load and the shop share the machine. What takes both processors shows as late starts, which are told beside each step.

Examples:
  lab curve
  lab curve load --step 10s --save curve.json && lab report curve.json -o curve.html
  lab curve recs --replicas 2 --step 1s`
}

// Run measures.
func (c *curveCommand) Run(ctx context.Context, p process) (err error) {
	mix, err := load.ParseMix(c.Mix)
	if err != nil {
		return fmt.Errorf("--mix: %w", err)
	}
	line := &statusLine{out: p.errOut, terminal: console.IsTerminal(p.errOut)}
	o := curve.Options{
		Load: c.asked("load"), Shares: c.Shares, Most: c.Replicas, StepTime: c.Step, Mix: mix, Deadline: c.Deadline, Seed: c.Seed,
		Say: line.say, Show: line.show,
	}
	for _, service := range []string{"recs", "checkout"} {
		if c.asked(service) {
			o.Services = append(o.Services, service)
		}
	}
	if err := o.Validate(); err != nil {
		return err
	}
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if o.Runner, err = stageIn(dir, shop.Options{PortOffset: c.PortOffset, Replicas: o.Replicas()}, p); err != nil {
		return err
	}
	file, err := curve.Run(ctx, o)
	line.clear()
	if ctx.Err() != nil {
		return errors.New("interrupted: everything has ended, and nothing was written")
	}
	if err != nil {
		return err
	}
	if c.Save != "" {
		if err := c.save(file); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return file.WriteJSON(p.out)
	}
	return file.WriteTable(p.out)
}

// asked reports whether that curve is wanted.
func (c *curveCommand) asked(name string) bool {
	return len(c.Curves) == 0 || slices.Contains(c.Curves, name)
}

func (c *curveCommand) save(file *curve.File) error {
	to, err := os.Create(c.Save)
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	if err = errors.Join(file.WriteJSON(to), to.Close()); err != nil {
		return fmt.Errorf("--save %s: %w", c.Save, err)
	}
	return nil
}
