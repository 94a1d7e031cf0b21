package result

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"example.com/watertight/lab/scenario"
)

// WriteTable writes the result for people, and then, on a line of its own, RESULT and the result without what changes over
// time, for programs.
func (f *File) WriteTable(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, f.headline())
	fmt.Fprintln(&b)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, row("SCENARIO", "DESIGN", Heads()...))
	for i := range f.Cells {
		fmt.Fprintln(table, f.Cells[i].row())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	b.WriteString(legend)
	f.notes(&b)
	line, err := json.Marshal(f.brief())
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	fmt.Fprintf(&b, "RESULT %s\n", line)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

const legend = `
Measured figures stand in the columns in capitals; behind each are what the simulation and Little's law (pred) say of the same traffic. ERRORS,
ORDERS, P50 and P95 are checkout's; an answer without recommendations is an error of recs. The simulation knows queues and lost processes, and
neither breakers nor the machine.
`

// headline says where and when.
func (f *File) headline() string {
	how := ""
	if f.Quick {
		how = " quick: short runs and short outages;"
	}
	return fmt.Sprintf("measured on %s, %s;%s seed %d, %.0f s\n%s; load %.2f before; %s",
		f.Target, f.Started.Format("2006-01-02 15:04:05 MST"), how, f.Seed, f.Took,
		f.Machine, f.Machine.Load, f.VersionList())
}

// String is the machine in words: system, processors, memory in GiB.
func (m Machine) String() string {
	text := fmt.Sprintf("%s/%s, %d CPUs", m.OS, m.Arch, m.CPUs)
	if m.CPU != "" {
		text += " (" + m.CPU + ")"
	}
	if m.MemoryMB > 0 {
		text += fmt.Sprintf(", %.1f GiB", float64(m.MemoryMB)/1024)
	}
	return text
}

// VersionList is the programs with their versions, by name, with commas.
func (f *File) VersionList() string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(f.Versions)) {
		versions = append(versions, name+" "+f.Versions[name])
	}
	return strings.Join(versions, ", ")
}

// unknown stands for a figure that a cell does not have.
const unknown = "-"

func row(scenario, design string, columns ...string) string {
	const widestScenario, widestDesign = 11, 17
	return fmt.Sprintf("%-*s %-*s\t%s\t", widestScenario, scenario, widestDesign, design, strings.Join(columns, "\t"))
}

// Heads are the heads of Columns.
func Heads() []string {
	return []string{"ERRORS %", "sim", "pred", "ORDERS/s", "sim", "pred", "P50 ms", "sim", "P95 ms", "sim", "SEARCH ERR %", "sim", "RECS ERR %", "sim",
		"CHECKOUT", "RECS"}
}

func (c *Cell) row() string {
	if c.Skipped != "" {
		return row(c.Scenario, c.Design, slices.Repeat([]string{unknown}, len(Heads()))...)
	}
	return row(c.Scenario, c.Design, c.Columns()...)
}

// Columns are the cell's part of the table.
func (c *Cell) Columns() []string {
	checkout := c.Measured.Features[scenario.Checkout]
	predictedErrors, predictedOrders := c.predicted()
	columns := []string{number(checkout.ErrorsPercent), c.simulated(scenario.Checkout, errorsOf), predictedErrors}
	columns = append(columns, number(c.Measured.OrdersPerSecond), c.simulatedOrders(), predictedOrders)
	columns = append(columns, latency(checkout.P50MS), c.simulated(scenario.Checkout, p50Of), latency(checkout.P95MS), c.simulated(scenario.Checkout, p95Of))
	for _, feature := range []scenario.Feature{scenario.Search, scenario.Recs} {
		columns = append(columns, c.measured(feature), c.simulated(feature, errorsOf))
	}
	return append(columns, c.verdict(c.Became.Checkout, c.Expected.Checkout), c.verdict(c.Became.Recs, c.Expected.Recs))
}

func errorsOf(f Feature) string { return number(f.ErrorsPercent) }
func p50Of(f Feature) string    { return latency(f.P50MS) }
func p95Of(f Feature) string    { return latency(f.P95MS) }

func (c *Cell) measured(feature scenario.Feature) string {
	f, asked := c.Measured.Features[feature]
	if !asked {
		return unknown
	}
	return errorsOf(f)
}

func (c *Cell) simulated(feature scenario.Feature, of func(Feature) string) string {
	if c.Simulated == nil {
		return unknown
	}
	f, has := c.Simulated.Features[feature]
	if !has {
		return unknown
	}
	return of(f)
}

func (c *Cell) simulatedOrders() string {
	if c.Simulated == nil {
		return unknown
	}
	return number(c.Simulated.OrdersPerSecond)
}

func (c *Cell) predicted() (errors, orders string) {
	if c.Predicted == nil {
		return unknown, unknown
	}
	return number(c.Predicted.ErrorsPercent), number(c.Predicted.OrdersPerSecond)
}

func (c *Cell) verdict(became, expected scenario.Word) string {
	switch {
	case became == "":
		return unknown
	case c.Starved:
		return string(became) + "*"
	}
	if became.Meets(expected) {
		return string(became)
	}
	return fmt.Sprintf("%s (expected %s)", became, expected)
}

func latency(ms float64) string {
	if ms == 0 {
		return unknown
	}
	return number(ms)
}

func number(v float64) string { return fmt.Sprintf("%.1f", v) }

// notes are the lines below the table: the price of the split, what was left out, and doubts.
func (f *File) notes(b *strings.Builder) {
	if c := f.Cost; c != nil {
		fmt.Fprintf(b, "\nA normal day: %s costs checkout %+.2f ms at the median and %+.2f ms at p95 against %s", c.To, c.P50MS, c.P95MS, c.From)
		fmt.Fprintf(b, " (simulated %+.2f and %+.2f; gateway and two hops\nassumed at %.1f ms).\n", c.SimulatedP50MS, c.SimulatedP95MS, c.AssumedMeanHops)
	}
	design := ""
	for _, h := range f.Hops {
		if h.Design != design {
			design = h.Design
			fmt.Fprintf(b, "Where an order's time goes in %s, medians of %d traces:\n", design, h.Traces)
		}
		fmt.Fprintf(b, "  %8.2f ms  %s\n", h.P50MS, h.Name)
	}
	f.exports(b)
	f.skipped(b)
	met, measured := f.Expected()
	fmt.Fprintf(b, "As expected: %d of %d cells.\n", met, measured)
	if n := f.starved(); n > 0 {
		fmt.Fprintf(b, "* In %d cells the machine was too busy to send the load in time; they count neither way.\n", n)
	}
	for _, w := range f.Warnings {
		fmt.Fprintf(b, "warning: %s\n", w)
	}
}

// exports are the errors of the export route, which has no column.
func (f *File) exports(b *strings.Builder) {
	for i := range f.Cells {
		c := &f.Cells[i]
		if route, asked := c.Measured.Features[scenario.Export]; asked {
			fmt.Fprintf(b, "Exports in %s, played by recommendations: %s %% errors (simulated %s).\n",
				c.Design, errorsOf(route), c.simulated(scenario.Export, errorsOf))
		}
	}
}

// skipped says what was not measured, in a line for each reason.
func (f *File) skipped(b *strings.Builder) {
	var reasons []string
	cells := map[string][]string{}
	for i := range f.Cells {
		c := &f.Cells[i]
		if c.Skipped == "" {
			continue
		}
		if cells[c.Skipped] == nil {
			reasons = append(reasons, c.Skipped)
		}
		cells[c.Skipped] = append(cells[c.Skipped], c.Scenario+" in "+c.Design)
	}
	for _, why := range reasons {
		fmt.Fprintf(b, "Not measured, because %s: %s.\n", why, strings.Join(cells[why], ", "))
	}
}

// starved counts the cells in which the machine was too busy.
func (f *File) starved() int {
	n := 0
	for i := range f.Cells {
		if f.Cells[i].Starved {
			n++
		}
	}
	return n
}

// Expected counts the cells that became what was expected, of those that were measured on a machine with time for it.
func (f *File) Expected() (met, measured int) {
	for i := range f.Cells {
		if f.Cells[i].Skipped != "" || f.Cells[i].Starved {
			continue
		}
		measured++
		if f.Cells[i].Met() {
			met++
		}
	}
	return met, measured
}
