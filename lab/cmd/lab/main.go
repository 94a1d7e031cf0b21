// Command lab runs the shop on this machine and the experiments on it. This file wires the commands; each is in a file of
// its own, and what they do is in the packages they call.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"example.com/watertight/lab/fault"
)

func main() {
	ctx, hurry, stop := interrupts()
	err := run(ctx, os.Args[1:], process{environ: os.Environ(), out: os.Stdout, errOut: os.Stderr, hurry: hurry})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

// cli lists the commands.
type cli struct {
	Up       upCommand       `cmd:"" help:"Run the whole shop on this machine."`
	Down     downCommand     `cmd:"" help:"End the shop that runs."`
	Ps       psCommand       `cmd:"" help:"Show the shop's processes."`
	Import   importCommand   `cmd:"" help:"Import sales data into the running shop."`
	Fault    fault.Command   `cmd:"" help:"Make services of the running shop sick, and well again."`
	Check    checkCommand    `cmd:"" help:"Hold what the databases say against the shop's invariants."`
	Outbox   outboxCommand   `cmd:"" help:"See to a service's dead letters: events that were given up."`
	Trace    traceCommand    `cmd:"" help:"Show what became of one request, across every service."`
	Load     loadCommand     `cmd:"" help:"Send the shop its customers' requests, and measure."`
	Replay   replayCommand   `cmd:"" help:"Send the shop a day of real sales as orders."`
	Sim      simCommand      `cmd:"" help:"Simulate every scenario in every design."`
	Measure  runCommand      `cmd:"" name:"run" help:"Measure every scenario in every design, with real processes."`
	Curve    curveCommand    `cmd:"" help:"Measure how the shop holds more and more load, and what replicas add."`
	Cluster  clusterCommand  `cmd:"" help:"Measure scenarios on a shop in Kubernetes."`
	Report   reportCommand   `cmd:"" help:"Make an HTML page of what was measured and simulated."`
	Gameday  gamedayCommand  `cmd:"" help:"Try hypotheses on the running shop: break it, watch, make it well again."`
	Bulkhead bulkheadCommand `cmd:"" help:"Send calls through bulkheads in four ways, and count."`
	Size     sizeCommand     `cmd:"" help:"Work out pools and time-outs from rates and service times."`

	Certs certsCommand `cmd:"" help:"Print certificates for mutual TLS between the shop's pods, as Kubernetes Secrets."`

	Seed       seedCommand       `cmd:"" hidden:"" help:"Declare the broker's buckets and fill an empty shop; a cluster's import job."`
	NATSServer natsServerCommand `cmd:"" name:"nats-server" hidden:"" help:"Serve as the shop's broker; lab up starts it."`
}

// process is what a command gets from the process it runs in.
type process struct {
	environ     []string
	out, errOut io.Writer
	hurry       <-chan struct{} // closed by a second interrupt
}

// run parses args and runs the command they name.
func run(ctx context.Context, args []string, p process) error {
	var commands cli
	exited := false
	parser, err := kong.New(&commands,
		kong.Name("lab"),
		kong.Description("Watertight's lab: run the shop, break it, watch and measure."),
		kong.Writers(p.out, p.errOut),
		kong.Exit(func(int) { exited = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.BindTo(p.out, (*io.Writer)(nil)),
		kong.Bind(p),
	)
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited { // --help was printed
		return nil
	}
	if wrong := new(kong.ParseError); errors.As(err, &wrong) {
		return fmt.Errorf("%w (see lab --help)", err)
	}
	if err != nil {
		return err
	}
	return command.Run()
}
