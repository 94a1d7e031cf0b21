// Package table holds what a run of the benchmarks found: rows that compare the project with a peer or a limit, round by
// round, each with a target for the ratio. It prints them for people and for machines. It measures nothing.
package table

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// slack is by how much a ratio may miss its target before it is an error: a shared machine cannot say more than that.
const slack = 2

// Target is what a row promises of its ratio.
type Target struct {
	Ratio float64 `json:"ratio"` // 0 promises nothing
	Most  bool    `json:"most"`  // the ratio is to be at most this, and not at least
	// Clock is set where the limit is a time, and not what something else did in the same run: a busy machine misses it
	// through no fault of the project's, so that it is shown and never an error.
	Clock bool `json:"clock"`
}

// None is the target of a row that promises nothing.
func None() Target { return Target{} }

// AtLeast promises a ratio of at least this.
func AtLeast(ratio float64) Target { return Target{Ratio: ratio} }

// AtMost promises a ratio of at most this.
func AtMost(ratio float64) Target { return Target{Ratio: ratio, Most: true} }

// Within promises at most the limit, which is a time.
func Within() Target { return Target{Ratio: 1, Most: true, Clock: true} }

// Row is one line: the figures of both sides, one of each per round.
type Row struct {
	Part    string    `json:"part"`
	What    string    `json:"what"`
	Against string    `json:"against"`
	Unit    string    `json:"unit"`
	Target  Target    `json:"target"`
	Ours    []float64 `json:"ours"`
	Theirs  []float64 `json:"theirs"`
	Ratio   float64   `json:"ratio"` // median of the rounds' ratios
	Low     float64   `json:"low"`
	High    float64   `json:"high"`
}

// Add adds the figures of a round.
func (r *Row) Add(ours, theirs float64) {
	r.Ours, r.Theirs = append(r.Ours, ours), append(r.Theirs, theirs)
	ratios := make([]float64, len(r.Ours))
	for i := range ratios {
		ratios[i] = r.Ours[i] / r.Theirs[i]
	}
	r.Ratio, r.Low, r.High = Median(ratios), slices.Min(ratios), slices.Max(ratios)
}

// Table is a run.
type Table struct {
	Started time.Time `json:"started"`
	System  string    `json:"system"`
	CPUs    int       `json:"cpus"`
	Load    string    `json:"load,omitempty"` // averages over 1, 5 and 15 minutes before the run, where the system tells
	Quick   bool      `json:"quick"`
	Rows    []*Row    `json:"rows"`
}

// New returns a table of this machine without rows.
func New(quick bool) *Table {
	load, _ := os.ReadFile("/proc/loadavg") // Linux only
	fields := strings.Fields(string(load))
	return &Table{
		Started: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Load: strings.Join(fields[:min(3, len(fields))], " "), Quick: quick,
	}
}

// Row adds a line that belongs to a part of the suite.
func (t *Table) Row(part, what, against, unit string, target Target) *Row {
	added := &Row{Part: part, What: what, Against: against, Unit: unit, Target: target}
	t.Rows = append(t.Rows, added)
	return added
}

// Print writes the table, or all of its figures as JSON.
func (t *Table) Print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(t)
	}
	fmt.Fprintf(out, "%s, %s, %d CPUs, load before %s; medians of the rounds, ratio with least and most\n\n",
		t.Started.Format(time.DateTime), t.System, t.CPUs, t.Load)
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "what\tours\tpeer or limit\t\tunit\tratio\tspread\ttarget\t")
	for _, row := range t.Rows {
		if len(row.Ours) == 0 {
			continue
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f–%.2f\t%s\t%s\n", row.What, Number(Median(row.Ours)), row.Against,
			Number(Median(row.Theirs)), row.Unit, row.Ratio, row.Low, row.High, row.Target, row.verdict())
	}
	return lines.Flush()
}

func (t Target) String() string {
	sign := "≥ "
	switch {
	case t.Ratio == 0:
		return ""
	case t.Most:
		sign = "≤ "
	}
	return sign + strconv.FormatFloat(t.Ratio, 'f', -1, 64)
}

func (r *Row) verdict() string {
	if r.Target.Ratio == 0 || len(r.Ours) == 0 {
		return ""
	}
	missed := r.Target.Ratio / r.Ratio
	if r.Target.Most {
		missed = r.Ratio / r.Target.Ratio
	}
	switch {
	case math.IsNaN(missed) || missed < 0: // one side measured nothing, or what cannot be
		return "FAILED"
	case missed <= 1:
		return "ok"
	case missed > slack && !r.Target.Clock:
		return "FAILED"
	}
	return "missed"
}

// Judge returns an error for each ratio that misses its target by far.
func (t *Table) Judge() error {
	var errs []error
	for _, row := range t.Rows {
		if row.verdict() == "FAILED" {
			errs = append(errs, fmt.Errorf("%s: %.2f × %s, and the target is %s", row.What, row.Ratio, row.Against, row.Target))
		}
	}
	return errors.Join(errs...)
}

// Median returns the middle of values, which are not changed; 0 when there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Number writes a figure with a comma at the thousands, and with three digits when it is small.
func Number(figure float64) string {
	if size := math.Abs(figure); size > 0 && size < 100 {
		return strconv.FormatFloat(figure, 'f', max(0, 2-int(math.Floor(math.Log10(size)))), 64)
	}
	digits := strconv.FormatFloat(figure, 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
