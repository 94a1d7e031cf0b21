package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"example.com/watertight/lab/cluster"
	"example.com/watertight/lab/console"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

type clusterCommand struct {
	Scenarios  []string `arg:"" optional:"" name:"scenario" help:"Only these scenarios; without any, all but undrained."`
	Prove      bool     `help:"Those that show in five minutes that a fault stays where it is: crash, oom, slow, rollouts, kill."`
	Namespace  string   `short:"n" default:"watertight" help:"Where the shop is (${default})."`
	Context    string   `placeholder:"NAME" help:"The kubeconfig's context (default: the current one)."`
	Kubeconfig string   `placeholder:"FILE" type:"path" help:"The kubeconfig (default: KUBECONFIG, else ~/.kube/config)."`
	Image      string   `placeholder:"IMAGE" help:"Lab's image, for the pods of the load (default: that of the shop's import job)."`
	Rate       float64  `default:"60" help:"Requests per second (${default})."`
	Quick      bool     `help:"Shorter faults."`
	Seed       uint64   `default:"19" help:"Decides when requests start and what they ask for (${default})."`
	Save       string   `placeholder:"FILE" type:"path" help:"Write the whole result there, for lab report."`
	Output     string   `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Help is shown by lab cluster --help.
func (*clusterCommand) Help() string {
	return `Plays scenarios on a shop in Kubernetes: the faults of lab fault, and what only happens on a cluster. Meanwhile a pod beside the shop
sends it the load of lab load; restarts, reasons and rollouts are read from the API server, and the order books are held against
what was acknowledged. Nothing but access to the API server is needed. The shop must have been installed with faults.enabled.

The verdict is about what was seen: a fault that did not happen fails as one that spreads does. The exit code is not 0 then.
undrained expects a shop that was installed with drain.delay=0.

Examples:
  lab cluster crash oom slow
  lab cluster --prove
  lab cluster --context kind-watertight --save cluster.json && lab report cluster.json -o report.html`
}

// Run plays.
func (c *clusterCommand) Run(ctx context.Context, p process) (err error) {
	rows, err := c.rows()
	if err != nil {
		return err
	}
	shop, err := cluster.Open(cluster.Place{Kubeconfig: c.Kubeconfig, Context: c.Context, Namespace: c.Namespace})
	if err != nil {
		return err
	}
	line := &statusLine{out: p.errOut, terminal: console.IsTerminal(p.errOut)}
	run, err := cluster.Begin(ctx, shop, cluster.Options{Image: c.Image, Seed: c.Seed, Quick: c.Quick || c.Prove, Say: line.say})
	if err != nil {
		return err
	}
	played := run.All(ctx, rows)
	if len(run.Result().Cells) == 0 {
		return played
	}
	return errors.Join(c.report(p.out, run.Result()), played, verdict(run.Result()))
}

// rows are the scenarios that were asked for.
func (c *clusterCommand) rows() ([]scenario.Scenario, error) {
	in := scenario.ClusterInputs()
	in.Rate = c.Rate
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if c.Prove {
		if len(c.Scenarios) > 0 {
			return nil, errors.New("--prove: has its own scenarios; leave it out to name some")
		}
		return scenario.Proof(in), nil
	}
	names := c.Scenarios
	if len(names) == 0 {
		for _, s := range scenario.OnCluster(in, c.Quick) {
			if s.Name != scenario.Undrained {
				names = append(names, s.Name)
			}
		}
	}
	return chosen("scenario", scenario.OnCluster(in, c.Quick), names, func(s scenario.Scenario) string { return s.Name })
}

func (c *clusterCommand) report(out io.Writer, file *result.File) error {
	if c.Save != "" {
		if err := save(c.Save, file); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return file.WriteJSON(out)
	}
	if !c.Prove {
		if err := file.WriteTable(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	if err := file.WriteVerdicts(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d scenarios in %v\n", len(file.Cells), time.Duration(file.Took*float64(time.Second)).Round(time.Second))
	return err
}

// verdict is an error when a cell is not as it should be.
func verdict(file *result.File) error {
	failed := 0
	for i := range file.Cells {
		if file.Cells[i].Verdict() != "ok" {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d scenarios are not as they should be", failed, len(file.Cells))
	}
	return nil
}
