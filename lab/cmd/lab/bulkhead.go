package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/trials"
)

type bulkheadCommand struct {
	Virtual bool   `help:"Do not run anything: work the counts out in virtual time, from the bulkhead's rules."`
	Output  string `short:"o" enum:"table,json" default:"table" help:"table or json."`
	trials.Setup
}

// Help is shown by lab bulkhead --help.
func (*bulkheadCommand) Help() string {
	return `Sends 60 calls, every third a checkout and the others recommendations that hang, through the shop's own bulkhead in four ways,
and counts what becomes of them. In real time this takes about 10 s; a busy machine may shift a count by one, and more than that is an
error. --virtual gives the exact counts; it is a model of the same rules that is tested against the real bulkhead, call by call.

Examples:
  lab bulkhead
  lab bulkhead --virtual
  lab bulkhead --short-timeout 300ms`
}

// bulkheadAnswer is what lab bulkhead --output json prints.
type bulkheadAnswer struct {
	Time   string          `json:"time"` // real or virtual
	Trials []bulkheadTrial `json:"trials"`
}

type bulkheadTrial struct {
	Trial string `json:"trial"`
	About string `json:"about"`
	trials.Outcome
	LateByMS float64        `json:"late_by_ms"` // the most that a call was sent after its time
	Expected trials.Outcome `json:"expected"`
	Why      string         `json:"why"`
}

// Run plays the trials.
func (c *bulkheadCommand) Run(ctx context.Context, out io.Writer) error {
	if err := c.Validate(); err != nil {
		return err
	}
	answer := bulkheadAnswer{Time: "real"}
	if c.Virtual {
		answer.Time = "virtual"
	}
	var unexpected []error
	for _, t := range c.Trials() {
		shown := bulkheadTrial{Trial: t.Name, About: t.About, Expected: c.Expect(t)}
		shown.Outcome = shown.Expected
		if !c.Virtual {
			var err error
			if shown.Outcome, err = c.Setup.Run(ctx, t); err != nil {
				return err
			}
		}
		shown.LateByMS = float64(shown.LateBy.Microseconds()) / 1000
		shown.Why = c.Why(t, shown.Outcome)
		answer.Trials = append(answer.Trials, shown)
		if !shown.Near(shown.Expected) {
			unexpected = append(unexpected, fmt.Errorf("trial %s: not the expected counts; calls were sent up to %v late, which a busy machine may explain",
				t.Name, shown.LateBy.Round(time.Millisecond)))
		}
	}
	if err := c.write(out, answer); err != nil {
		return err
	}
	return errors.Join(unexpected...)
}

func (c *bulkheadCommand) write(out io.Writer, a bulkheadAnswer) error {
	if c.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(a)
	}
	head := "real time, on the shop's own bulkhead"
	if c.Virtual {
		head = "virtual time, worked out from the bulkhead's rules: nothing ran"
	}
	fmt.Fprintf(out, "%s; %d calls, one every %v\n\n", head, c.Calls, c.Every)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TRIAL\t\tCHECKOUT OK\tFAILED\tEXPECTED\tRECS OK\tFAILED")
	for _, t := range a.Trials {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d, %d\t%d\t%d\n", t.Trial, t.About, t.Checkout.OK, t.Checkout.Failed,
			t.Expected.Checkout.OK, t.Expected.Checkout.Failed, t.Recs.OK, t.Recs.Failed)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	fmt.Fprintln(out)
	for _, t := range a.Trials {
		if _, err := fmt.Fprintf(out, "%s: %s\n", t.Trial, t.Why); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}
