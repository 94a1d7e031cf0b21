package load

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteJSON writes the whole result as one document.
func (r Result) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteTable writes the result for people.
func (r Result) WriteTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\trequests\tok\tdegraded\trejected\ttimed out\terror\tlost\tok/s\tp50 ms\tp95 ms\tp99 ms\tmax ms\t")
	for _, o := range append(slices.Clone(r.Operations), r.Total) {
		n, l := o.Outcomes, o.Latency
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t%s\t%s\t%s\t%s\t\n", o.Name, o.Requests, n.OK, n.Degraded, n.Rejected,
			n.TimedOut, n.Error, n.Lost, o.Goodput, ms(l, l.P50), ms(l, l.P95), ms(l, l.P99), ms(l, l.Max))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	var notes strings.Builder
	for _, o := range r.Operations {
		if len(o.Codes) > 0 {
			fmt.Fprintf(&notes, "%s: %s\n", o.Name, counts(o.Codes))
		}
		if o.Replayed > 0 {
			fmt.Fprintf(&notes, "%s: %d had been placed by an earlier try\n", o.Name, o.Replayed)
		}
	}
	if r.Total.Tries > r.Total.Requests {
		fmt.Fprintf(&notes, "tries: %d, %.2f for each request\n", r.Total.Tries, float64(r.Total.Tries)/float64(max(r.Total.Requests, 1)))
	}
	g := r.Generator
	fmt.Fprintf(&notes, "generator: %.1f s counted, %.2f %% started late, start delay p99 %.2f ms, at most %d in flight, %d connections\n",
		r.Measured, 100*g.LateShare, g.StartDelay.P99, g.MaxInFlight, g.Connections)
	for _, w := range r.Warnings {
		fmt.Fprintf(&notes, "warning: %s\n", w)
	}
	_, err := io.WriteString(out, notes.String())
	return err
}

func ms(d Distribution, value float64) string {
	if d.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", value)
}

// counts writes the most frequent first.
func counts(of map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		if of[a] != of[b] {
			return int(of[b] - of[a])
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, 0, len(names))
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}
