// Command bench measures what the project promises of its speed: the relay, PlaceOrder and the bulkhead, each against a
// limit or a peer on the same machine, server and broker, in the same run. Rounds of both sides take turns, so that a load
// that comes and goes meets both. It prints one table, and fails only when a ratio is below half of its target: a shared
// machine cannot say more than that. docs/performance.md explains the rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
)

func main() { lifecycle.Main("bench", run) }

// effort is how much is measured.
type effort struct {
	Rounds      int `json:"rounds"`
	Backlog     int `json:"backlog"`      // rows that the relay and the bare loop drain each time
	Published   int `json:"published"`    // published rows in the way, in the rows of the table that say so
	PeerBacklog int `json:"peer_backlog"` // messages that Watermill's forwarder drains each time
	Clients     int `json:"clients"`      // that place orders at once
	Orders      int `json:"orders"`       // of each client, each time
	Calls       int `json:"calls"`        // of a bulkhead, each time
}

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(out)
	short := flags.Bool("quick", false, "a minute or so: smaller backlogs, fewer rounds")
	asJSON := flags.Bool("json", false, "print JSON instead of the table")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("bench takes flags only, not %q", flags.Arg(0))
	}
	relay, err := config.Load[outbox.Config](environ) // RELAY_BATCH and others, of both the relay and the bare loop
	if err != nil {
		return err
	}
	size := effort{Rounds: 5, Backlog: 100_000, Published: 1_000_000, PeerBacklog: 5000, Clients: 16, Orders: 500, Calls: 2_000_000}
	if *short {
		size = effort{Rounds: 4, Backlog: 20_000, Published: 200_000, PeerBacklog: 1000, Clients: 16, Orders: 100, Calls: 200_000}
	}
	r := newReport(size)
	if err := measure(ctx, r, size, relay, environ); err != nil {
		return err
	}
	if err := r.print(out, *asJSON); err != nil {
		return err
	}
	return r.judge()
}

// measure fills the report, one round after the other.
func measure(ctx context.Context, r *report, size effort, relay outbox.Config, environ []string) (err error) {
	s, err := startServers(ctx, environ)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	relays, err := newRelayRows(ctx, s, r, size, relay)
	if err != nil {
		return err
	}
	defer relays.close()
	orders, err := newOrderRows(ctx, s, r, size)
	if err != nil {
		return err
	}
	bulkheads := newBulkheadRows(r, size)
	for n := range size.Rounds {
		for _, part := range []func(context.Context, int) error{relays.round, orders.round, bulkheads.round} {
			if err := part(ctx, n); err != nil {
				return fmt.Errorf("round %d: %w", n+1, err)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", n+1, size.Rounds)
	}
	return nil
}
