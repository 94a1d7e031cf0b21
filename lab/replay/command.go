package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/retail"
)

// Flags are the flags of `lab replay`.
type Flags struct {
	File  string  `arg:"" name:"file" type:"existingfile" help:"Sales in the Online Retail CSV layout, plain or gzipped."`
	Day   string  `placeholder:"YYYY-MM-DD" help:"Which day (default: the one with most invoices)."`
	Speed float64 `default:"600" help:"How many times faster than it was; at 600 ten minutes take a second (${default})."`
	load.Sending
}

// Help is shown by lab replay --help.
func (*Flags) Help() string {
	return `Each invoice is an order of the same customer, with the same products and quantities; its idempotency key is the invoice
number with the run's id. The orders start in their real order, whatever becomes of those before; invoices of one minute are
spread over it. Lines whose product the shop does not sell are left out and counted: lab import FILE brings the products.

Examples:
  lab replay online-retail.csv.gz
  lab replay online-retail.csv.gz --day 2011-12-05 --speed 1200 --acked acked.txt
  lab replay online-retail.csv.gz --run-id lesson --output json`
}

// Outcome is what `lab replay --output json` prints: a run's result, and what of the day was sent.
type Outcome struct {
	Replay Summary `json:"replay"`
	load.Result
}

// Execute replays the day and reports on out; a terminal behind errOut shows how it goes. defaultTarget is where the shop
// is unless a flag says otherwise.
func (f *Flags) Execute(ctx context.Context, out, errOut io.Writer, defaultTarget string) error {
	target, plan, err := f.plan(ctx, defaultTarget)
	if err != nil {
		return err
	}
	acked, done, err := f.OpenAcked(out)
	if err != nil {
		return err
	}
	line := load.NewLine(errOut)
	options := f.Options()
	options.Acked, options.Progress = acked, line.Show
	result, err := load.Drive(ctx, target, plan.Arrivals(target), options)
	line.Clear()
	err = errors.Join(err, done())
	if err != nil && !result.Interrupted {
		return err
	}
	result.Config = load.Description{
		Target: target.String(), Arrivals: load.Replayed, Timeout: float64(f.Timeout.Microseconds()) / 1000,
		RunID: plan.Summary.RunID, ClientRetries: f.ClientRetries, Mix: load.Mix{Checkout: 100},
	}
	result.Warnings = append(result.Warnings, plan.Summary.hints(f.File)...)
	return errors.Join(f.report(out, Outcome{plan.Summary, result}), err)
}

func (f *Flags) plan(ctx context.Context, defaultTarget string) (load.Target, Plan, error) {
	target, err := f.Resolve(defaultTarget)
	if err != nil {
		return target, Plan{}, err
	}
	date, err := f.date()
	if err = errors.Join(err, f.Options().Validate()); err != nil {
		return target, Plan{}, err
	}
	data, err := retail.ReadFile(ctx, f.File, retail.Options{})
	if err != nil {
		return target, Plan{}, err
	}
	day, err := Pick(data.Invoices, date)
	if err != nil {
		return target, Plan{}, fmt.Errorf("--day: %w", err)
	}
	sold, err := target.Products(ctx, 0)
	if err != nil {
		return target, Plan{}, err
	}
	known := make(map[string]bool, len(sold))
	for _, p := range sold {
		known[p.ID] = p.Currency == retail.Currency
	}
	replay := Replay{Speed: f.Speed, RunID: f.RunID}
	if replay.RunID == "" {
		replay.RunID = load.NewRunID()
	}
	plan := replay.Plan(day, func(p int32) string { return data.Catalog.Products[p].ID }, known)
	if len(plan.Orders) == 0 {
		return target, plan, fmt.Errorf("the shop sells none of the %d products of %s: run `lab import %s` first", plan.Summary.UnknownProducts,
			plan.Summary.Day, f.File)
	}
	return target, plan, nil
}

// slowest keeps a day within a year.
const slowest = 1.0 / 365

func (f *Flags) date() (time.Time, error) {
	if !(f.Speed >= slowest) || math.IsInf(f.Speed, 0) {
		return time.Time{}, fmt.Errorf("--speed %g: must be at least %.3f", f.Speed, slowest)
	}
	if f.Day == "" {
		return time.Time{}, nil
	}
	date, err := time.Parse(time.DateOnly, f.Day)
	if err != nil {
		return date, fmt.Errorf("--day %s: must be a date such as 2011-12-05", f.Day)
	}
	return date, nil
}

func (f *Flags) report(out io.Writer, o Outcome) error {
	if f.Output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(o); err != nil {
			return err
		}
		return o.Answered()
	}
	s := o.Replay
	fmt.Fprintf(out, "%s at %g times its speed: %d of %d invoices, %d lines\n", s.Day, s.Speed, s.Orders, s.Invoices, s.Lines)
	if err := o.WriteTable(out); err != nil {
		return err
	}
	return o.Answered()
}

// hints say what was left out, and what to do about it.
func (s Summary) hints(file string) []string {
	var out []string
	if s.UnknownLines > 0 {
		out = append(out, fmt.Sprintf("left out: %d lines with %d products that the shop does not sell, and with them %d invoices: run `lab import %s` first",
			s.UnknownLines, s.UnknownProducts, s.UnknownInvoices, file))
	}
	if s.OversizeInvoices+s.OversizeLines > 0 {
		out = append(out, fmt.Sprintf("%d invoices of more than %d products and %d lines of more than %d pieces were left out: the shop takes none",
			s.OversizeInvoices, maxLines, s.OversizeLines, maxQuantity))
	}
	return out
}
