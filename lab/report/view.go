package report

import (
	"fmt"
	"html/template"
	"slices"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/sim"
)

// view is what the page shows.
type view struct {
	Style       template.CSS
	Heads       []string // of the table of all figures
	Runs        []runView
	Simulations []simView
	Curves      []curvesView
	Benches     []benchView
}

// runView is a measured run.
type runView struct {
	File      string
	Day       string
	Headlines []headline
	Facts     []fact
	Designs   []string
	Rows      []matrixRow
	Met       int
	Measured  int
	Orders    []chart
	Latency   []chart
	Queues    []chart
	Timelines []chart
	Table     []tableRow
	Cost      *result.Cost
	Hops      []hopsView
	Notes     []string
}

type fact struct{ Name, Value string }

// headline is one number beside another, for those who read nothing else.
type headline struct {
	Scenario, About string
	From, To        side
}

type side struct {
	Design, Errors, Orders string
	Mark                   mark
}

// mark is a word with its symbol, so that nothing hangs on a colour.
type mark struct{ Word, Symbol string }

func markOf(w scenario.Word) mark {
	symbol := map[scenario.Word]string{scenario.Fine: "●", scenario.Slower: "◐", scenario.Hurt: "▲", scenario.Down: "✕"}[w]
	return mark{string(w), symbol}
}

type matrixRow struct {
	Scenario, About string
	Cells           []matrixCell
}

type matrixCell struct {
	Skipped   string
	Mark      mark
	Errors    string
	Simulated string
	Unmet     string // what was expected instead, or why that does not count; "" when it came as expected
}

type tableRow struct {
	Scenario, Design string
	Numbers          []string
	Checkout, Recs   string
}

type hopsView struct {
	Design string
	Traces int
	Hops   []result.Hop
	Bar    chart
}

func newRun(name string, f *result.File) runView {
	v := runView{
		File: name, Day: f.Started.Format("2 January 2006"), Facts: facts(f), Designs: designsOf(f), Cost: f.Cost, Notes: f.Warnings,
		Headlines: headlines(f), Rows: matrix(f), Table: table(f), Hops: hops(f),
	}
	v.Met, v.Measured = f.Expected()
	for _, s := range scenariosOf(f) {
		cells := cellsOf(f, s)
		if len(cells) == 0 {
			continue
		}
		v.Orders = append(v.Orders, ordersChart(s, cells, mostOrders(f)))
		if c, drawn := latencyChart(s, cells); drawn {
			v.Latency = append(v.Latency, c)
		}
		if c, drawn := queueChart(s, cells); drawn {
			v.Queues = append(v.Queues, c)
		}
		if c, drawn := timeline(s, cells); drawn {
			v.Timelines = append(v.Timelines, c)
		}
	}
	return v
}

func facts(f *result.File) []fact {
	form := "full"
	if f.Quick {
		form = "quick: short runs with short outages"
	}
	return []fact{
		{"Measured on", f.Target}, {"When", f.Started.Format("2006-01-02 15:04 MST")}, {"Machine", f.Machine.String()},
		{"Load before", fmt.Sprintf("%.2f", f.Machine.Load)}, {"Versions", f.VersionList()}, {"Seed", fmt.Sprint(f.Seed)},
		{"Form", form}, {"Took", fmt.Sprintf("%.0f s", f.Took)},
	}
}

// designsOf and scenariosOf keep the order of the table.
func designsOf(f *result.File) []string {
	var names []string
	for _, c := range f.Cells {
		if !slices.Contains(names, c.Design) {
			names = append(names, c.Design)
		}
	}
	return names
}

func scenariosOf(f *result.File) []string {
	var names []string
	for _, c := range f.Cells {
		if !slices.Contains(names, c.Scenario) {
			names = append(names, c.Scenario)
		}
	}
	return names
}

// cellsOf are the cells of a scenario that were measured.
func cellsOf(f *result.File, name string) []result.Cell {
	var cells []result.Cell
	for _, c := range f.Cells {
		if c.Scenario == name && c.Skipped == "" {
			cells = append(cells, c)
		}
	}
	return cells
}

// headlines are the scenarios in which the designs at the ends differ most: everything shared, and everything apart.
func headlines(f *result.File) []headline {
	var out []headline
	for _, name := range []string{scenario.Slow, scenario.Crash, scenario.Redeployed} {
		from, to := f.Cell(name, scenario.SharedPool), f.Cell(name, scenario.Split)
		if from == nil || to == nil || from.Skipped+to.Skipped != "" || from.Starved || to.Starved {
			continue
		}
		out = append(out, headline{name, from.About, sideOf(from), sideOf(to)})
	}
	return out
}

func sideOf(c *result.Cell) side {
	return side{
		Design: c.Design, Errors: percent(c.Measured.Features[scenario.Checkout].ErrorsPercent),
		Orders: fmt.Sprintf("%.1f", c.Measured.OrdersPerSecond), Mark: markOf(c.Became.Checkout),
	}
}

// percent keeps the sign with its number.
func percent(v float64) string { return fmt.Sprintf("%.1f\u00a0%%", v) }

func matrix(f *result.File) []matrixRow {
	var rows []matrixRow
	for _, name := range scenariosOf(f) {
		row := matrixRow{Scenario: name}
		for _, design := range designsOf(f) {
			c := f.Cell(name, design)
			if c == nil {
				row.Cells = append(row.Cells, matrixCell{Skipped: "not asked for"})
				continue
			}
			row.About = c.About
			row.Cells = append(row.Cells, matrixCellOf(c))
		}
		rows = append(rows, row)
	}
	return rows
}

func matrixCellOf(c *result.Cell) matrixCell {
	if c.Skipped != "" {
		return matrixCell{Skipped: c.Skipped}
	}
	m := matrixCell{Mark: markOf(c.Became.Checkout), Errors: percent(c.Measured.Features[scenario.Checkout].ErrorsPercent)}
	if c.Simulated != nil {
		m.Simulated = percent(c.Simulated.Features[scenario.Checkout].ErrorsPercent)
	}
	switch {
	case c.Starved:
		m.Unmet = "machine too busy"
	case !c.Became.Checkout.Meets(c.Expected.Checkout):
		m.Unmet = "expected " + string(c.Expected.Checkout)
	}
	return m
}

func table(f *result.File) []tableRow {
	var rows []tableRow
	for i := range f.Cells {
		c := &f.Cells[i]
		if c.Skipped != "" {
			continue
		}
		columns := c.Columns()
		rows = append(rows, tableRow{c.Scenario, c.Design, columns[:len(columns)-2], columns[len(columns)-2], columns[len(columns)-1]})
	}
	return rows
}

func hops(f *result.File) []hopsView {
	var out []hopsView
	for _, h := range f.Hops {
		if len(out) == 0 || out[len(out)-1].Design != h.Design {
			out = append(out, hopsView{Design: h.Design, Traces: h.Traces})
		}
		last := &out[len(out)-1]
		last.Hops = append(last.Hops, h)
	}
	for i := range out {
		out[i].Bar = hopsChart(out[i])
	}
	return out
}

// simView is a simulation: of one seed, or of many with their spread.
type simView struct {
	File   string
	Seeds  string
	Errors []chart // by scenario, with bars for the spread
	Orders []chart
	Rows   []simRow
	Many   bool
}

type simRow struct{ Scenario, Design, Errors, Orders, P50, P95, Met string }

func newSimulation(name string, r *sim.Report) simView {
	v := simView{File: name, Seeds: fmt.Sprintf("seed %d", r.Seed), Many: r.Seeds > 1}
	if v.Many {
		v.Seeds = fmt.Sprintf("seeds %d to %d", r.Seed, r.Seed+uint64(r.Seeds)-1)
	}
	spreads := spreadsOf(r)
	for _, s := range spreads {
		v.Rows = append(v.Rows, simRow{s.scenario, s.design, s.text("checkout_errors_percent", 1), s.text("orders_per_second", 1),
			s.text("checkout_p50_ms", 2), s.text("checkout_p95_ms", 2), s.met})
	}
	for _, group := range byScenario(spreads) {
		v.Errors = append(v.Errors, spreadChart(group, "checkout_errors_percent", "checkout errors, %", 100))
		v.Orders = append(v.Orders, spreadChart(group, "orders_per_second", "orders per second", 0))
	}
	return v
}

// spreads are the figures of a cell, each with its spread; that of one seed is a point.
type spreads struct {
	scenario, design string
	of               map[string]sim.Spread
	met              string
}

func (s spreads) text(metric string, digits int) string {
	v, has := s.of[metric]
	if !has {
		return "–"
	}
	if v.Seeds < 2 {
		return fmt.Sprintf("%.*f", digits, v.Mean)
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, v.Mean, digits, (v.High-v.Low)/2)
}

func spreadsOf(r *sim.Report) []spreads {
	var out []spreads
	for _, s := range r.Summaries {
		out = append(out, spreads{s.Scenario, s.Design, s.Metrics, fmt.Sprintf("%d of %d", s.Met, r.Seeds)})
	}
	point := func(v float64) sim.Spread { return sim.Spread{Seeds: 1, Mean: v, Low: v, High: v, Min: v, Max: v} }
	for _, c := range r.Cells {
		checkout := c.Features[scenario.Checkout]
		of := map[string]sim.Spread{"checkout_errors_percent": point(checkout.ErrorsPercent), "orders_per_second": point(c.OrdersPerSecond)}
		if checkout.OK > 0 {
			of["checkout_p50_ms"], of["checkout_p95_ms"] = point(checkout.P50MS), point(checkout.P95MS)
		}
		met := "no"
		if c.Became.Checkout.Meets(c.Expected.Checkout) && c.Became.Recs.Meets(c.Expected.Recs) {
			met = "yes"
		}
		out = append(out, spreads{c.Scenario, c.Design, of, met})
	}
	return out
}

func byScenario(all []spreads) [][]spreads {
	var groups [][]spreads
	for _, s := range all {
		if len(groups) == 0 || groups[len(groups)-1][0].scenario != s.scenario {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], s)
	}
	return groups
}
