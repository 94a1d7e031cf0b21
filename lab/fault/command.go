// Package fault is `lab fault`: it sets, lists and clears the faults of the running shop over the gateway's HTTP API. It
// decides nothing by itself: what a fault may be, and which services there are, is the gateway's to say.
package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.com/watertight/platform/fault"
)

// Command holds the three commands.
type Command struct {
	Set   setCommand   `cmd:"" help:"Make a service sick."`
	List  listCommand  `cmd:"" help:"Show the faults that are set."`
	Clear clearCommand `cmd:"" help:"Make a service, or all, well again."`
}

// common is what the three have in common.
type common struct {
	Gateway string        `default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where the shop's gateway listens (${default})."`
	Timeout time.Duration `default:"10s" help:"Give up after this long (${default})."`
	Output  string        `short:"o" enum:"table,json" default:"table" help:"table or json."`
}

// connect returns the API and a context that ends with the time-out.
func (c common) connect(ctx context.Context) (*api, context.Context, context.CancelFunc, error) {
	a, err := newAPI(c.Gateway)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("--timeout: no answer after %v", c.Timeout))
	return a, ctx, cancel, nil
}

type setCommand struct {
	Service string            `arg:"" help:"checkout, search, recs, inventory or payment."`
	Kind    string            `arg:"" help:"slow, error, hang, crash, crash-on-start, oom, cpu, db-lock or poison."`
	Delay   *time.Duration    `placeholder:"2s" help:"How long a request waits before the fault bites; for slow that is all, for cpu the time of spinning."`
	Rate    *float64          `placeholder:"1" help:"Share of the requests that it bites, 0 to 1."`
	TTL     *time.Duration    `name:"ttl" placeholder:"10m" help:"When the fault ends by itself."`
	Code    string            `placeholder:"UNAVAILABLE" help:"gRPC status code that error answers with."`
	Match   map[string]string `mapsep:"none" placeholder:"FIELD=VALUE" help:"Only requests with this field and value, at any depth; several all have to match."`
	common
}

// Help is shown by lab fault set --help.
func (setCommand) Help() string {
	return `A service has one fault at a time: setting another replaces it. It reaches every replica, and outlives a crash, until it is
cleared or its time is over.

Examples:
  lab fault set recs slow --delay 2s --rate 1 --ttl 60s
  lab fault set recs error --code INTERNAL --rate 0.3
  lab fault set recs poison --match product_id=85123A
  lab fault set search poison --match ids=85123A --output json`
}

// Run sets the fault.
func (c *setCommand) Run(ctx context.Context, out io.Writer) error {
	request := fault.Request{Kind: fault.Kind(c.Kind), Rate: c.Rate, Code: c.Code, Match: c.Match}
	var err error
	if request.DelayMS, err = in("--delay", c.Delay, time.Millisecond); err != nil {
		return err
	}
	if request.TTLS, err = in("--ttl", c.TTL, time.Second); err != nil {
		return err
	}
	api, ctx, cancel, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	set, err := api.set(ctx, c.Service, request)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(out, set)
	}
	return writeTable(out, []serviceFault{set}, time.Now())
}

// in counts a duration in whole units; nil stays nil.
func in(flag string, d *time.Duration, unit time.Duration) (*int64, error) {
	if d == nil {
		return nil, nil
	}
	if *d%unit != 0 {
		return nil, fmt.Errorf("%s %s: must be a multiple of %s", flag, *d, unit)
	}
	n := int64(*d / unit)
	return &n, nil
}

type listCommand struct{ common }

// Help is shown by lab fault list --help.
func (listCommand) Help() string {
	return `Examples:
  lab fault list
  lab fault list --output json`
}

// Run shows the faults.
func (c *listCommand) Run(ctx context.Context, out io.Writer) error {
	api, ctx, cancel, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	faults, err := api.list(ctx)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return writeJSON(out, faultList{faults})
	}
	if len(faults) == 0 {
		_, err := fmt.Fprintln(out, "no faults are set")
		return err
	}
	return writeTable(out, faults, time.Now())
}

type clearCommand struct {
	Service string `arg:"" optional:"" help:"The service to make well."`
	All     bool   `help:"Make all services well."`
	common
}

// Help is shown by lab fault clear --help.
func (clearCommand) Help() string {
	return `Requests that wait in a fault go on at once. It is no error when there is nothing to clear.

Examples:
  lab fault clear recs
  lab fault clear --all`
}

// Run clears.
func (c *clearCommand) Run(ctx context.Context, out io.Writer) error {
	if (c.Service == "") != c.All {
		return errors.New("name either a service or --all")
	}
	api, ctx, cancel, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	services := []string{c.Service}
	if c.All {
		faults, err := api.list(ctx)
		if err != nil {
			return err
		}
		services = []string{}
		for _, f := range faults {
			services = append(services, f.Service)
		}
	}
	for _, service := range services {
		if err := api.clear(ctx, service); err != nil {
			return err
		}
	}
	if c.Output == "json" {
		return writeJSON(out, struct {
			Cleared []string `json:"cleared"`
		}{services})
	}
	text := "no faults are set"
	if len(services) > 0 {
		text = "cleared: " + strings.Join(services, ", ")
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func writeTable(out io.Writer, faults []serviceFault, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SERVICE\tKIND\tRATE\tDELAY\tCODE\tMATCH\tENDS IN")
	for _, f := range faults {
		var match []string
		for _, field := range slices.Sorted(maps.Keys(f.Match)) {
			match = append(match, field+"="+f.Match[field])
		}
		fmt.Fprintf(table, "%s\t%s\t%g\t%s\t%s\t%s\t%s\n", f.Service, f.Kind, f.Rate, time.Duration(f.DelayMS)*time.Millisecond,
			dash(f.Code), dash(strings.Join(match, " ")), max(0, f.ExpiresAt.Sub(now)).Round(time.Second))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
