package result

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"example.com/watertight/lab/scenario"
)

// Failed lists the findings that are not as they should be.
func (c *Cell) Failed() []Finding {
	return slices.DeleteFunc(slices.Clone(c.Findings), func(f Finding) bool { return f.Met })
}

// Verdict is ok, or what is not as it should be.
func (c *Cell) Verdict() string {
	switch failed := c.Failed(); {
	case c.Skipped != "":
		return "not played: " + c.Skipped
	case len(failed) > 0:
		var all []string
		for _, f := range failed {
			all = append(all, fmt.Sprintf("not so: %s (%s)", f.Signal, f.Got))
		}
		return "FAILED: " + strings.Join(all, "; ")
	case !c.Met():
		return fmt.Sprintf("FAILED: checkout is %s, recs is %s", c.verdict(c.Became.Checkout, c.Expected.Checkout), c.verdict(c.Became.Recs, c.Expected.Recs))
	}
	return "ok"
}

// WriteVerdicts writes what happened to recs and to checkout in each cell, and the verdict.
func (f *File) WriteVerdicts(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SCENARIO\tRECS\tCHECKOUT\tVERDICT")
	for i := range f.Cells {
		c := &f.Cells[i]
		name := c.Scenario
		if c.Design != scenario.Split {
			name += " (" + c.Design + ")"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, c.fate(scenario.Recs), c.fate(scenario.Checkout), c.Verdict())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write verdicts: %w", err)
	}
	return nil
}

// fate is what became of a feature's requests and of its process.
func (c *Cell) fate(feature scenario.Feature) string {
	var parts []string
	if f, asked := c.Measured.Features[feature]; asked {
		requests := []string{fmt.Sprintf("%d of %d ok", f.OK, f.Requests)}
		for _, outcome := range slices.Sorted(maps.Keys(f.Outcomes)) {
			requests = append(requests, fmt.Sprintf("%d %s", f.Outcomes[outcome], strings.ReplaceAll(outcome, "_", " ")))
		}
		parts = append(parts, strings.Join(requests, ", "))
	}
	parts = append(parts, fmt.Sprintf("restarts %d", c.Restarts[string(feature)]))
	if reasons := c.Reasons[string(feature)]; len(reasons) > 0 {
		parts = append(parts, strings.Join(reasons, ", "))
	}
	return strings.Join(parts, "; ")
}
