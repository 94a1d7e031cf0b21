package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Sending are the flags of every command that drives the shop.
type Sending struct {
	Target        string        `placeholder:"URL" help:"The shop's gateway (default: that of the running shop, else http://127.0.0.1:8080)."`
	Timeout       time.Duration `default:"1s" help:"When a client gives up (${default})."`
	ClientRetries int           `default:"0" placeholder:"N" help:"Play clients that try again at once, up to N times (${default})."`
	MaxInFlight   int           `default:"0" placeholder:"N" help:"Most requests that wait at once; more are lost (0: as many as the rate can make)."`
	LateAfter     time.Duration `default:"1ms" help:"Delay from which a start counts as late (${default})."`
	Acked         string        `placeholder:"FILE" type:"path" help:"Write the id of each acknowledged order to FILE, at once; - is the output."`
	RunID         string        `name:"run-id" placeholder:"ID" help:"Part of each idempotency key; the same again means the same orders (default: a new one)."`
	Output        string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// Options returns what the flags say, without the file of acknowledged orders.
func (s Sending) Options() Options {
	return Options{Timeout: s.Timeout, ClientRetries: s.ClientRetries, MaxInFlight: s.MaxInFlight, LateAfter: s.LateAfter}
}

// OpenAcked opens the file of acknowledged orders, and empties it; without one it returns nil, and out when it is -. done
// closes it.
func (s Sending) OpenAcked(out io.Writer) (acked io.Writer, done func() error, err error) {
	switch s.Acked {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return out, func() error { return nil }, nil
	}
	file, err := os.Create(s.Acked)
	if err != nil {
		return nil, nil, fmt.Errorf("--acked: %w", err)
	}
	return file, file.Close, nil
}

// Resolve returns the target that the flag names, or else the default one.
func (s Sending) Resolve(defaultTarget string) (Target, error) {
	if s.Target != "" {
		return ParseTarget(s.Target)
	}
	return ParseTarget(defaultTarget)
}

// Report writes the result as --output wants it. A run in which nothing was answered at all is an error.
func (s Sending) Report(out io.Writer, r Result) error {
	write := r.WriteTable
	if s.Output == "json" {
		write = r.WriteJSON
	}
	if err := write(out); err != nil {
		return err
	}
	return r.Answered()
}

// Flags are the flags of `lab load`.
type Flags struct {
	Rate         float64       `default:"200" help:"Requests per second, over all operations (${default})."`
	Arrivals     Pattern       `enum:"poisson,constant" default:"poisson" help:"poisson (at random) or constant (${default})."`
	ArrivalsFile string        `placeholder:"FILE" type:"existingfile" help:"Replay arrivals, in seconds since the start, one a line, instead of --rate."`
	Duration     time.Duration `default:"20s" help:"Length of the run, warm-up included (${default})."`
	Warmup       time.Duration `default:"2s" help:"What starts before this is sent and not counted (${default})."`
	Mix          mixFlag       `default:"checkout=20,search=40,recs=40" placeholder:"SHARES" help:"How often each operation is asked for (${default})."`
	Seed         uint64        `default:"19" help:"Decides when requests start and what they ask for (${default})."`
	Customers    int           `default:"1000" help:"How many customers there are (${default})."`
	Products     int           `default:"1000" help:"How many of the shop's products are asked for, at most (${default})."`
	Sending
}

// mixFlag lets the command line read a Mix as text, and JSON as an object.
type mixFlag struct{ Mix }

// UnmarshalText is for kong.
func (f *mixFlag) UnmarshalText(text []byte) (err error) {
	f.Mix, err = ParseMix(string(text))
	return err
}

// Help is shown by lab load --help.
func (*Flags) Help() string {
	return `Checkout is POST /api/v1/orders, search GET /api/v1/products, recs GET /api/v1/recommendations, page
GET /api/v1/products/{id}. Requests start when they are due, whatever has become of those before, and latency counts from that moment:
a pause of the shop shows in full. Each is sent once unless --client-retries says otherwise. ok/s is the goodput; a degraded answer is none. Ctrl-C
ends the run and reports what there is.

Examples:
  lab load
  lab load --rate 400 --duration 1m --mix checkout=100 --acked acked.txt
  lab load --client-retries 3 --output json > storm.json`
}

// Execute plays the run and reports on out; a terminal behind errOut shows how it goes. defaultTarget is where the shop is
// unless a flag says otherwise.
func (f *Flags) Execute(ctx context.Context, out, errOut io.Writer, defaultTarget string) error {
	config, err := f.config(defaultTarget)
	if err != nil {
		return err
	}
	acked, done, err := f.OpenAcked(out)
	if err != nil {
		return err
	}
	line := NewLine(errOut)
	config.Acked, config.Progress = acked, line.Show
	result, err := Run(ctx, config)
	line.Clear()
	err = errors.Join(err, done())
	if err != nil && !result.Interrupted {
		return err
	}
	return errors.Join(f.Report(out, result), err)
}

func (f *Flags) config(defaultTarget string) (c Config, err error) {
	c = Config{
		Arrivals: f.Arrivals, Rate: f.Rate, Duration: f.Duration, Mix: f.Mix.Mix, Seed: f.Seed, RunID: f.RunID,
		Customers: f.Customers, MaxProducts: f.Products, Options: f.Options(),
	}
	c.Warmup = f.Warmup
	if c.Target, err = f.Resolve(defaultTarget); err != nil {
		return c, err
	}
	if f.ArrivalsFile != "" {
		c.Arrivals = Replayed
		if c.Times, err = readTimes(f.ArrivalsFile); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

func readTimes(path string) ([]time.Duration, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--arrivals-file: %w", err)
	}
	times, err := ReadTimes(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("--arrivals-file %s: %w", path, err)
	}
	return times, nil
}
