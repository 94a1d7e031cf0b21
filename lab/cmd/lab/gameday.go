package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"example.com/watertight/lab/cluster"
	"example.com/watertight/lab/console"
	"example.com/watertight/lab/gameday"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/statedir"
)

type gamedayCommand struct {
	stateFlags
	Target    string        `placeholder:"URL" help:"The gateway of a shop in Kubernetes, as this machine reaches it, instead of the shop that runs here."`
	Namespace string        `short:"n" default:"watertight" help:"Where that shop is, in the current kube context (${default})."`
	Scenarios []string      `arg:"" optional:"" name:"scenario" help:"Only these: normal, slow, crash, redeploy, oom, poison, retry-storm, shared-db, cpu."`
	Rate      float64       `default:"60" help:"Requests per second (${default})."`
	Steady    time.Duration `default:"5s" help:"How long the shop is watched before the fault (${default})."`
	Fault     time.Duration `default:"15s" help:"How long each fault lasts (${default})."`
	Recovery  time.Duration `default:"1m" help:"How long it may take until everything is well again (${default})."`
	AbortAt   float64       `default:"0.1" placeholder:"SHARE" help:"Clear the fault at once when this share of the checkouts has failed (${default})."`
	Seed      uint64        `default:"19" help:"Decides when requests start and what they ask for (${default})."`
	Output    string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Help is shown by lab gameday --help.
func (*gamedayCommand) Help() string {
	return `Tries hypotheses on the shop that lab up runs, or with --target on one in Kubernetes, one scenario after the other: looks whether
it is well, makes it sick, watches for the signs that it should show, makes it well again, and says whether the hypothesis held.
The fault is cleared at once when too many checkouts fail, and also when you press Ctrl-C. Exit code 1 when a hypothesis did not
hold. docs/game-day.md is the worksheet.

Examples:
  lab gameday
  lab gameday slow crash
  lab gameday --target http://localhost:8080 slow crash
  lab gameday slow --fault 1m --rate 200 --abort-at 0.02 --output json`
}

// Run holds the game day.
func (c *gamedayCommand) Run(ctx context.Context, p process) error {
	table := scenario.Table(scenario.Default())
	chosenOnes, err := chosen("scenario", table, c.Scenarios, func(s scenario.Scenario) string { return s.Name })
	if err != nil {
		return err
	}
	options := gameday.Options{Rate: c.Rate, Steady: c.Steady, Fault: c.Fault, Recovery: c.Recovery, AbortAt: c.AbortAt, Seed: c.Seed}
	if err := options.Validate(); err != nil {
		return err
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	line := &statusLine{out: p.errOut, terminal: console.IsTerminal(p.errOut)}
	experiments := []gameday.Experiment{}
	for i := range chosenOnes {
		s := &chosenOnes[i]
		if !gameday.Possible(s) {
			if len(c.Scenarios) > 0 {
				return fmt.Errorf("scenario %s: the shop has no export route to slow down; lab run and lab sim play it", s.Name)
			}
			continue
		}
		options.Say = func(text string) { line.show(s.Name + ": " + text) }
		e, err := gameday.Run(ctx, target, s, options)
		line.clear()
		if ctx.Err() != nil {
			return errors.New("interrupted: the faults have been cleared")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		experiments = append(experiments, e)
		if c.Output == "table" {
			if err := e.WriteText(p.out); err != nil {
				return err
			}
		}
	}
	return c.conclude(p.out, experiments)
}

func (c *gamedayCommand) conclude(out io.Writer, experiments []gameday.Experiment) error {
	var refuted []string
	for _, e := range experiments {
		if !e.Held {
			refuted = append(refuted, e.Scenario)
		}
	}
	if c.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(experiments); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(out, "\n%d of %d hypotheses held\n", len(experiments)-len(refuted), len(experiments)); err != nil {
		return err
	}
	if len(refuted) > 0 {
		return fmt.Errorf("%d of %d hypotheses did not hold: %s", len(refuted), len(experiments), strings.Join(refuted, ", "))
	}
	return nil
}

// target is the shop that runs here, or the one that was named.
func (c *gamedayCommand) target() (gameday.Target, error) {
	if c.Target != "" {
		shop, err := cluster.Open(cluster.Place{Namespace: c.Namespace})
		if err != nil {
			return nil, err
		}
		return gameday.NewShop(c.Target, shop.Keeper())
	}
	_, dir, err := c.open()
	if err != nil {
		return nil, err
	}
	instance, err := dir.ReadInstance()
	if err != nil {
		return nil, err
	}
	return gameday.NewShop(instance.Gateway, machine{dir})
}

// machine keeps the processes of the shop that lab up runs.
type machine struct{ dir statedir.Dir }

// Restart tells the service's processes to end; lab up starts them again.
func (m machine) Restart(_ context.Context, service string) error {
	instance, err := m.dir.ReadInstance()
	if err != nil {
		return err
	}
	var errs []error
	found := false
	for _, p := range instance.Processes {
		if p.Service == service && p.Process != nil {
			found = true
			errs = append(errs, p.Process.Signal(syscall.SIGTERM))
		}
	}
	if !found {
		return fmt.Errorf("no process of %s runs here", service)
	}
	return errors.Join(errs...)
}

// Restarts counts by service. One that waits for its next start counts as started again: it surely will be.
func (m machine) Restarts(context.Context) (map[string]int, error) {
	instance, err := m.dir.ReadInstance()
	if err != nil {
		return nil, err
	}
	restarts := map[string]int{}
	for _, p := range instance.Processes {
		restarts[p.Service] += p.Restarts
		if p.NextStart != nil {
			restarts[p.Service]++
		}
	}
	return restarts, nil
}
