package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/size"
)

type sizeCommand struct {
	Prometheus string        `placeholder:"URL" help:"Take rates, times, limits and the number of gateways from this server."`
	Window     time.Duration `default:"5m" help:"Over how long the server is asked for means (${default})."`
	WaitFor    time.Duration `default:"10s" help:"How long the server may take (${default})."`
	Output     string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
	size.Inputs
}

// Help is shown by lab size --help.
func (*sizeCommand) Help() string {
	return `Works out, from rates and service times, the workers that are busy, where time-outs must lie, how large pools have to be and what
failures cost, each with its formula, and warns about settings that are not safe. They are means: leave room for bursts.
Without --route and --prometheus, the routes are checkout=40,21.2ms,4 search=80,10.6ms,6 recs=80,15.9ms,6.

Examples:
  lab size
  lab size --timeout 300ms --per-try 400ms --tries 3
  lab size --route checkout=40,21.2ms,4 --route recs=120,15.9ms,6 --workers 32
  lab size --db-pool checkout=3,22 --db-pool recs=3,16 --db-connections 100
  lab size --prometheus http://localhost:9090 --output json`
}

// sizeAnswer is what lab size --output json prints.
type sizeAnswer struct {
	Routes []sizeRoute `json:"routes"`
	size.Plan
}

type sizeRoute struct {
	Name    string  `json:"name"`
	Rate    float64 `json:"rate_per_second"`
	TimeMS  float64 `json:"time_ms"`
	Workers int     `json:"workers"`
}

// Run works everything out.
func (c *sizeCommand) Run(ctx context.Context, out io.Writer) error {
	routes, err := c.routes(ctx)
	if err != nil {
		return err
	}
	pools, err := c.Pools()
	if err != nil {
		return err
	}
	plan, err := size.Calculate(c.Inputs, routes, pools)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		answer := sizeAnswer{Plan: plan}
		for _, r := range routes {
			answer.Routes = append(answer.Routes, sizeRoute{r.Name, r.Rate, float64(r.Time) / float64(time.Millisecond), r.Workers})
		}
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	}
	return writePlan(out, plan)
}

// routes come from the flags, or are measured.
func (c *sizeCommand) routes(ctx context.Context) ([]size.Route, error) {
	if c.Prometheus == "" {
		return c.Routes()
	}
	if len(c.Route) > 0 {
		return nil, fmt.Errorf("--route, --prometheus: give one of them")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.WaitFor, fmt.Errorf("--wait-for: no answer after %v", c.WaitFor))
	defer cancel()
	routes, replicas, err := size.Measured(ctx, c.Prometheus, c.Window)
	if err != nil {
		return nil, err
	}
	c.Replicas = max(replicas, 1)
	return routes, nil
}

func writePlan(out io.Writer, plan size.Plan) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "FIGURE\tVALUE\tFORMULA")
	for _, l := range plan.Lines {
		fmt.Fprintf(table, "%s\t%s\t%s\n", l.Name, l.Text, l.Formula)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for i, w := range plan.Warnings {
		if i == 0 {
			fmt.Fprintln(out)
		}
		if _, err := fmt.Fprintln(out, "WARNING:", w); err != nil {
			return fmt.Errorf("write warnings: %w", err)
		}
	}
	return nil
}
