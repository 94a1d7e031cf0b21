package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// slack is the share of its target below which a ratio is an error.
const slack = 0.5

// row is one line of the table: the rates of both sides, one of each per round.
type row struct {
	What    string    `json:"what"`
	Against string    `json:"against"`
	Unit    string    `json:"unit"`
	Target  float64   `json:"target"` // least ratio; 0 is a line that promises nothing
	Ours    []float64 `json:"ours"`
	Theirs  []float64 `json:"theirs"`
	Ratio   float64   `json:"ratio"` // median of the rounds' ratios
	Low     float64   `json:"low"`
	High    float64   `json:"high"`
}

func (r *row) add(ours, theirs float64) {
	r.Ours, r.Theirs = append(r.Ours, ours), append(r.Theirs, theirs)
	ratios := make([]float64, len(r.Ours))
	for i := range ratios {
		ratios[i] = r.Ours[i] / r.Theirs[i]
	}
	r.Ratio, r.Low, r.High = median(ratios), slices.Min(ratios), slices.Max(ratios)
}

// report is a run.
type report struct {
	Started time.Time `json:"started"`
	System  string    `json:"system"`
	CPUs    int       `json:"cpus"`
	Load    string    `json:"load,omitempty"` // averages over 1, 5 and 15 minutes before the run, where the system tells
	Effort  effort    `json:"effort"`
	Rows    []*row    `json:"rows"`
}

func newReport(size effort) *report {
	load, _ := os.ReadFile("/proc/loadavg") // Linux only
	fields := strings.Fields(string(load))
	return &report{
		Started: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(),
		Load: strings.Join(fields[:min(3, len(fields))], " "), Effort: size,
	}
}

// row adds a line to the table.
func (r *report) row(what, against, unit string, target float64) *row {
	added := &row{What: what, Against: against, Unit: unit, Target: target}
	r.Rows = append(r.Rows, added)
	return added
}

func (r *report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	fmt.Fprintf(out, "%s, %s, %d CPUs, load before %s; %d rounds, medians, ratio with least and most\n\n",
		r.Started.Format(time.DateTime), r.System, r.CPUs, r.Load, r.Effort.Rounds)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "what\tours\tpeer or limit\t\tunit\tratio\tspread\ttarget\t")
	for _, row := range r.Rows {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f–%.2f\t%s\t%s\n", row.What, number(median(row.Ours)), row.Against,
			number(median(row.Theirs)), row.Unit, row.Ratio, row.Low, row.High, row.goal(), row.verdict())
	}
	return table.Flush()
}

func (r *row) goal() string {
	if r.Target == 0 {
		return ""
	}
	return "≥ " + strconv.FormatFloat(r.Target, 'f', -1, 64)
}

func (r *row) verdict() string {
	switch {
	case r.Target == 0:
		return ""
	case r.Ratio < slack*r.Target:
		return "FAILED"
	case r.Ratio < r.Target:
		return "below"
	}
	return "ok"
}

// judge returns an error for each ratio that is far below its target.
func (r *report) judge() error {
	var errs []error
	for _, row := range r.Rows {
		if row.verdict() == "FAILED" {
			errs = append(errs, fmt.Errorf("%s: %.2f of %s, and the target is %.2f", row.What, row.Ratio, row.Against, row.Target))
		}
	}
	return errors.Join(errs...)
}

// median returns the middle of values, which are not changed; 0 when there are none.
func median(values []float64) float64 {
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

// number writes a rate with a comma at the thousands.
func number(rate float64) string {
	digits := strconv.FormatFloat(rate, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
