package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"example.com/watertight/lab/scenario"
)

// Report is what a run printed: cells of one seed, or summaries of many.
type Report struct {
	Seed      uint64            `json:"seed"`
	Seeds     int               `json:"seeds"`
	Inputs    map[string]string `json:"inputs"` // by flag
	Cells     []Cell            `json:"cells,omitempty"`
	Summaries []Summary         `json:"summaries,omitempty"`
}

// WriteJSON writes the whole report, with the queues over time.
func (r *Report) WriteJSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteTable writes the report for people, and then, on a line of its own, RESULT and the report without the queues over
// time for programs.
func (r *Report) WriteTable(out io.Writer) error { return r.write(out, false) }

// WriteTables is WriteTable with a second table, of the pools, which only a single seed has.
func (r *Report) WriteTables(out io.Writer) error { return r.write(out, true) }

func (r *Report) write(out io.Writer, pools bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "simulated, not measured: seed %d", r.Seed)
	if r.Seeds > 1 {
		fmt.Fprintf(&b, " to %d; mean ± half of its 95 %% interval", r.Seed+uint64(r.Seeds)-1)
	}
	b.WriteString("\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if r.Seeds > 1 {
		r.summaryRows(table)
	} else {
		r.cellRows(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	b.WriteString(legend)
	if pools {
		if err := r.poolTable(&b); err != nil {
			return err
		}
	}
	line, err := json.Marshal(r.withoutQueues())
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
P50, P95, ERRORS, FAILED and ORDERS are checkout's. QUEUE is the longest of any pool; EXPIRED work was discarded at the head of its
queue. BUSY are the mean busy workers of checkout's pool; NEEDS is what Little's law says it would take (arrivals a second x seconds
held), of as many as it HAS. What is PREDicted from that is the least errors and the most orders where a pool is overrun.
`

// unknown stands for a figure that a cell does not have.
const unknown = "-"

func (r *Report) cellRows(table io.Writer) {
	all := metrics()
	row(table, append(heads(all, false), "NEEDS", "HAS", "PRED ERR %", "PRED ORD/s", "CHECKOUT", "RECS"))
	for i := range r.Cells {
		c := &r.Cells[i]
		columns := []string{c.Scenario, c.Design}
		for _, m := range all {
			text := unknown
			if v, has := m.of(c); has {
				text = number(v, m.digits)
			}
			columns = append(columns, text)
		}
		columns = append(columns, c.Predicted.columns()...)
		row(table, append(columns, verdictOf(c.Became.Checkout, c.Expected.Checkout), verdictOf(c.Became.Recs, c.Expected.Recs)))
	}
}

func (r *Report) summaryRows(table io.Writer) {
	all := metrics()
	row(table, append(heads(all, true), "MIN..MAX ERR", "NEEDS", "HAS", "PRED ERR %", "PRED ORD/s", "AS EXPECTED"))
	for i := range r.Summaries {
		s := &r.Summaries[i]
		columns := []string{s.Scenario, s.Design}
		for _, m := range all {
			if !m.many {
				continue
			}
			text := unknown
			if v, has := s.Metrics[m.key]; has {
				text = number(v.Mean, m.digits) + " ±" + number((v.High-v.Low)/2, m.digits)
			}
			columns = append(columns, text)
		}
		extremes := unknown
		if v, has := s.Metrics["checkout_errors_percent"]; has {
			extremes = number(v.Min, 1) + ".." + number(v.Max, 1)
		}
		columns = append(append(columns, extremes), s.Predicted.columns()...)
		row(table, append(columns, fmt.Sprintf("%d/%d", s.Met, r.Seeds)))
	}
}

func heads(all []metric, many bool) []string {
	columns := []string{"SCENARIO", "DESIGN"}
	for _, m := range all {
		if m.many || !many {
			columns = append(columns, m.head)
		}
	}
	return columns
}

func (p Prediction) columns() []string {
	return []string{number(p.BusyWorkers, 2), strconv.Itoa(p.Workers), number(p.ErrorsPercent, 1), number(p.OrdersPerSecond, 1)}
}

func verdictOf(became, expected scenario.Word) string {
	if became.Meets(expected) {
		return string(became)
	}
	return fmt.Sprintf("%s (expected %s)", became, expected)
}

// poolTable shows what became of the work in each pool, and its queue over time.
func (r *Report) poolTable(b io.Writer) error {
	fmt.Fprintln(b)
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row(table, []string{
		"SCENARIO", "DESIGN", "POOL", "WORKERS", "BUSY", "ARRIVED", "REFUSED", "REJECTED", "EXPIRED", "KILLED", "ADMITTED", "COMPLETED",
		"QUEUE MAX", "QUEUE OVER TIME",
	})
	for i := range r.Cells {
		for j := range r.Cells[i].Pools {
			p := &r.Cells[i].Pools[j]
			columns := []string{r.Cells[i].Scenario, r.Cells[i].Design, p.Name, strconv.Itoa(p.Workers), number(p.BusyMean, 2)}
			for _, n := range []int64{p.Arrived, p.Refused, p.Rejected, p.Expired, p.Killed, p.Admitted, p.Completed, int64(p.QueueMax)} {
				columns = append(columns, strconv.FormatInt(n, 10))
			}
			row(table, append(columns, sparkline(p.Queue)))
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	fmt.Fprintln(b)
	return nil
}

// sparkline draws values in forty characters, each the greatest of its part of the time; the tallest is the greatest of all.
func sparkline(values []int32) string {
	const width = 40
	heights := []rune("▁▂▃▄▅▆▇█")
	top := slices.Max(append([]int32{1}, values...))
	var b strings.Builder
	for i := range width {
		from, to := i*len(values)/width, (i+1)*len(values)/width
		if from == to {
			continue
		}
		b.WriteRune(heights[int(slices.Max(values[from:to]))*(len(heights)-1)/int(top)])
	}
	return b.String()
}

// row writes one line; the first two columns are left-aligned by hand, as a tab writer aligns all columns alike.
func row(table io.Writer, columns []string) {
	const widestScenario, widestDesign = 11, 16
	fmt.Fprintf(table, "%-*s %-*s\t", widestScenario, columns[0], widestDesign, columns[1])
	fmt.Fprintln(table, strings.Join(columns[2:], "\t")+"\t")
}

// number writes v with so many digits after the point.
func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// withoutQueues leaves out the lengths over time, which would make a very long line.
func (r *Report) withoutQueues() *Report {
	brief := *r
	brief.Cells = make([]Cell, len(r.Cells))
	for i := range r.Cells {
		brief.Cells[i] = r.Cells[i]
		brief.Cells[i].Pools = make([]PoolResult, len(r.Cells[i].Pools))
		for j, p := range r.Cells[i].Pools {
			p.Queue = nil
			brief.Cells[i].Pools[j] = p
		}
	}
	return &brief
}
