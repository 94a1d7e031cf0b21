package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/trace"
)

const defaultJaeger = "http://localhost:16686"

type traceCommand struct {
	stateFlags
	ID         string        `arg:"" optional:"" help:"A trace id, or a traceparent; without it, the newest traces are listed."`
	Jaeger     string        `placeholder:"URL" help:"Jaeger's address (default: that of the running shop, else http://localhost:16686)."`
	Service    string        `default:"gateway" help:"List traces that this service takes part in (${default})."`
	Limit      int           `default:"20" help:"List this many (${default})."`
	Statements bool          `help:"Show each database statement in a line of its own."`
	Wait       time.Duration `default:"0s" placeholder:"10s" help:"How long to wait for a trace that is not there yet: services send their spans every second."`
	Timeout    time.Duration `default:"30s" help:"Give up after this long (${default})."`
	Output     string        `short:"o" enum:"text,json" default:"text" help:"text or json."`
}

// Help is shown by lab trace --help.
func (*traceCommand) Help() string {
	return `Shows a request with all that came of it as a tree: when each part began and how long it took, in milliseconds, whose it was,
and how it ended. ~ marks the sending of an event, a trace of its own that links to the span in which the event came about; ! is
something that happened during a span. lab up --traces runs a Jaeger; docs/traces.md shows how to read what it says.

Examples:
  lab trace
  lab trace 4bf92f3577b34da6a3ce929d0e0e4736
  lab trace 4bf92f3577b34da6a3ce929d0e0e4736 --statements --wait 10s
  lab trace 4bf92f3577b34da6a3ce929d0e0e4736 --jaeger http://localhost:16686 --output json`
}

// Run shows one trace, or lists the newest.
func (c *traceCommand) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout: no answer after %v", c.Timeout))
	defer cancel()
	jaeger := trace.Jaeger{URL: c.address(), Client: &http.Client{}}
	if c.ID == "" {
		return c.list(ctx, jaeger, out)
	}
	id, err := trace.ParseID(c.ID)
	if err != nil {
		return err
	}
	found, err := c.get(ctx, jaeger, id)
	if errors.Is(err, trace.ErrNotFound) {
		return fmt.Errorf("%w as %s at %s: it may not have arrived yet (--wait 10s), or be gone again: it keeps the newest few thousand", err, id, jaeger.URL)
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return encode(out, found)
	}
	return found.Tree(out, c.Statements)
}

// get asks until the trace is there, for as long as --wait says.
func (c *traceCommand) get(ctx context.Context, jaeger trace.Jaeger, id string) (trace.Trace, error) {
	deadline := time.Now().Add(c.Wait)
	for {
		found, err := jaeger.Get(ctx, id)
		if !errors.Is(err, trace.ErrNotFound) || time.Now().After(deadline) {
			return found, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return found, context.Cause(ctx)
		}
	}
}

// address is where --jaeger says, else where the running shop has one.
func (c *traceCommand) address() string {
	if c.Jaeger != "" {
		return c.Jaeger
	}
	if _, dir, err := c.open(); err == nil {
		if instance, err := dir.ReadInstance(); err == nil {
			for _, p := range instance.Processes {
				if p.Name == runner.Jaeger {
					return "http://" + p.Addresses["ui"]
				}
			}
		}
	}
	return defaultJaeger
}

func (c *traceCommand) list(ctx context.Context, jaeger trace.Jaeger, out io.Writer) error {
	traces, err := jaeger.Latest(ctx, c.Service, c.Limit)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return encode(out, traces)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "TRACE\tSTARTED\tTOOK\tSPANS\tWHAT\tOUTCOME")
	for _, t := range traces {
		first := t.Spans[0]
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s %s\t%s\n", t.ID, t.Start.Local().Format(time.TimeOnly), t.Duration.Round(100*time.Microsecond),
			len(t.Spans), first.Service, first.Name, t.Outcome())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func encode(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
