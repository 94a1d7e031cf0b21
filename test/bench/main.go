// Command bench measures what the project promises of its speed, each promise against a limit or a peer on the same machine
// and in the same run. It prints one table, and fails only when a ratio misses its target by more than twice: a shared machine
// cannot say more than that. docs/performance.md explains the rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/test/bench/bulkheads"
	"example.com/watertight/test/bench/catalogue"
	"example.com/watertight/test/bench/curves"
	"example.com/watertight/test/bench/edge"
	"example.com/watertight/test/bench/footprint"
	"example.com/watertight/test/bench/lab"
	"example.com/watertight/test/bench/orders"
	"example.com/watertight/test/bench/relay"
	"example.com/watertight/test/bench/saga"
	"example.com/watertight/test/bench/stage"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
	"example.com/watertight/test/bench/tail"
)

func main() { lifecycle.Main("bench", run) }

// parts are the suite, in the order in which it runs.
func parts() []suite.Named {
	return []suite.Named{
		{Name: "bulkhead", Start: bulkheads.Start},
		{Name: "relay", Start: relay.Start},
		{Name: "orders", Start: orders.Start},
		{Name: "saga", Start: saga.Start},
		{Name: "edge", Start: edge.Start},
		{Name: "split", Start: edge.StartSplit},
		{Name: "tail", Start: tail.Start},
		{Name: "catalogue", Start: catalogue.Start},
		{Name: "lab", Start: lab.Start},
		{Name: "curves", Start: curves.Start},
		{Name: "footprint", Start: footprint.Start},
	}
}

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	if len(args) > 0 && args[0] == stage.Aside {
		return edge.RunAside(ctx, args[1:], environ, out)
	}
	if len(args) > 0 && args[0] == lab.Aside {
		return lab.Serve(ctx, environ)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	short := flags.Bool("quick", false, "smaller and fewer rounds, for a look")
	asJSON := flags.Bool("json", false, "print every round's figures as JSON instead of the table")
	names := make([]string, 0, len(parts()))
	for _, p := range parts() {
		names = append(names, p.Name)
	}
	only := flags.String("only", "", "measure these `parts` alone, as in --only relay,orders: "+strings.Join(names, ", "))
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("bench takes flags only, not %q", flags.Arg(0))
	}
	found := table.New(*short)
	r := &suite.Run{Table: found, Quick: *short, Environ: environ, Notes: os.Stderr}
	picked := strings.FieldsFunc(*only, func(c rune) bool { return c == ',' })
	if err := r.Measure(ctx, parts(), picked); err != nil {
		return err
	}
	if err := found.Print(out, *asJSON); err != nil {
		return err
	}
	return found.Judge()
}
