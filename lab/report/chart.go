package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
)

// chart is a drawing, in units of which the page shows about one for each pixel. Everything in it has its place already.
type chart struct {
	ID            string // unique in the page
	Title, About  string // for those who cannot see it, and as its heading
	Width, Height float64
	Rects         []rect
	Lines         []line
	Paths         []path
	Dots          []dot
	Texts         []text
	Legend        []legend
}

type rect struct {
	X, Y, W, H float64
	Class      string
	Tip        string
}

type line struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type path struct {
	Points string
	Class  string
}

type dot struct {
	X, Y  float64
	Class string
	Tip   string
}

type text struct {
	X, Y   float64
	Anchor string // start, middle or end
	Class  string
	Text   string
}

// legend is a line of the drawing and what it stands for.
type legend struct{ Class, Name string }

const (
	chartWidth = 340.0
	nameWidth  = 118.0 // of the names of designs, before bars
	plotLeft   = 40.0  // before the plot of a chart over time
	plotRight  = 332.0
	plotTop    = 16.0
	plotBottom = 132.0
	rowHeight  = 20.0
)

// series is the class of a design's colour and dash, the same in all drawings.
func series(design string) string {
	at := slices.IndexFunc(scenario.Running(), func(d scenario.Design) bool { return d.Name == design })
	return fmt.Sprintf("s%d", at+1)
}

// barf draws a bar of a design in the row that begins at y; one of no length is still seen.
func (c *chart) barf(x, y, length float64, design, tip string, args ...any) {
	const least = 0.75
	c.Rects = append(c.Rects, rect{x, y + 4, max(length, least), rowHeight - 7, series(design), fmt.Sprintf(tip, args...)})
}

func id(kind string, parts ...string) string {
	return kind + "-" + strings.Join(parts, "-")
}

// mostOrders is the end of the scale for orders per second, the same for all scenarios.
func mostOrders(f *result.File) float64 {
	most := 1.0
	for _, c := range f.Cells {
		most = max(most, c.Measured.OrdersPerSecond)
		if c.Simulated != nil {
			most = max(most, c.Simulated.OrdersPerSecond)
		}
	}
	return most
}

// ordersChart has a bar for each design, and a tick where the simulation is.
func ordersChart(name string, cells []result.Cell, most float64) chart {
	c := chart{ID: id("orders", name), Title: name + ": orders per second", Width: chartWidth, Height: rowHeight*float64(len(cells)) + 6}
	scale := (chartWidth - nameWidth - 40) / most
	var said []string
	for i, cell := range cells {
		y := rowHeight * float64(i)
		v := cell.Measured.OrdersPerSecond
		c.Texts = append(c.Texts, text{nameWidth - 6, y + 15, "end", "label", cell.Design})
		c.barf(nameWidth, y, v*scale, cell.Design, "%s: %.1f orders/s", cell.Design, v)
		end := nameWidth + v*scale
		if cell.Simulated != nil {
			x := nameWidth + cell.Simulated.OrdersPerSecond*scale
			c.Lines = append(c.Lines, line{x, y + 1, x, y + rowHeight - 1, "tick"})
			end = max(end, x)
		}
		c.Texts = append(c.Texts, text{end + 5, y + 15, "start", "value", fmt.Sprintf("%.1f", v)})
		said = append(said, fmt.Sprintf("%s %.1f", cell.Design, v))
	}
	c.About = "Orders per second by design, measured: " + strings.Join(said, ", ") + ". A tick shows what the simulation says."
	return c
}

// axes are the scales of a chart over time.
type axes struct {
	from, to  float64 // seconds
	low, high float64
	log       bool
}

func (a axes) x(t float64) float64 {
	return plotLeft + (plotRight-plotLeft)*(t-a.from)/max(a.to-a.from, 1e-9)
}

func (a axes) y(v float64) float64 {
	if a.log {
		v = min(max(v, a.low), a.high)
		return plotBottom - (plotBottom-plotTop)*(math.Log(v)-math.Log(a.low))/(math.Log(a.high)-math.Log(a.low))
	}
	return plotBottom - (plotBottom-plotTop)*(v-a.low)/max(a.high-a.low, 1e-9)
}

// frame draws the axes, with the moment of the fault.
func (a axes) frame(c *chart, ticks []float64, unit string, fault *float64) {
	for _, v := range ticks {
		y := a.y(v)
		c.Lines = append(c.Lines, line{plotLeft, y, plotRight, y, "grid"})
		c.Texts = append(c.Texts, text{plotLeft - 4, y + 4, "end", "axis", trimmed(v)})
	}
	c.Texts = append(c.Texts, text{plotLeft - 4, plotTop - 6, "end", "axis", unit})
	for _, t := range secondTicks(a.from, a.to) {
		c.Texts = append(c.Texts, text{a.x(t), plotBottom + 14, "middle", "axis", trimmed(t) + " s"})
	}
	if fault != nil {
		x := a.x(*fault)
		c.Lines = append(c.Lines, line{x, plotTop - 6, x, plotBottom, "fault"})
		c.Texts = append(c.Texts, text{x + 3, plotTop - 1, "start", "faultname", "fault"})
	}
}

func trimmed(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// secondTicks are about five round moments.
func secondTicks(from, to float64) []float64 {
	step := 0.5
	for _, s := range []float64{0.5, 1, 2, 5, 10, 20, 60, 300} {
		if step = s; (to-from)/s <= 6 {
			break
		}
	}
	var ticks []float64
	for t := math.Ceil(from/step) * step; t <= to+1e-9; t += step {
		ticks = append(ticks, t)
	}
	return ticks
}

// longest is the length of the longest cell, in seconds.
func longest(cells []result.Cell) float64 {
	end := 0.0
	for _, c := range cells {
		end = max(end, c.Length)
	}
	return end
}

func faultOf(cells []result.Cell) *float64 {
	for _, c := range cells {
		if c.FaultAt != nil {
			return c.FaultAt
		}
	}
	return nil
}

// latencyChart is checkout's p95 of each second, those that were given up included.
func latencyChart(name string, cells []result.Cell) (chart, bool) {
	a := axes{from: 0, to: longest(cells), low: 10, high: 4000, log: true}
	c := chart{ID: id("latency", name), Title: name + ": checkout's p95 over time", Width: chartWidth, Height: plotBottom + 20}
	a.frame(&c, []float64{10, 30, 100, 300, 1000}, "ms", faultOf(cells))
	drawn := false
	for _, cell := range cells {
		var points []string
		for _, s := range cell.Series {
			f, has := s.Features[scenario.Checkout]
			if !has || f.P95MS == 0 {
				continue
			}
			x, y := a.x(min(float64(s.T)+0.5, a.to)), a.y(f.P95MS)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
			tip := fmt.Sprintf("%s, second %d: p95 %.0f ms, %d of %d orders taken", cell.Design, s.T, f.P95MS, f.OK, f.Requests)
			c.Dots = append(c.Dots, dot{x, y, series(cell.Design), tip})
		}
		if len(points) == 0 {
			continue
		}
		drawn = true
		c.Paths = append(c.Paths, path{strings.Join(points, " "), series(cell.Design)})
		c.Legend = append(c.Legend, legend{series(cell.Design), cell.Design})
	}
	c.About = "The 95th percentile of checkout's latency in each second of the run, in milliseconds on a logarithmic scale, a line for each design."
	return c, drawn
}

// queueChart is how many requests wait, in all pools of a design.
func queueChart(name string, cells []result.Cell) (chart, bool) {
	most := 0
	for _, cell := range cells {
		for _, s := range cell.Samples {
			most = max(most, queued(s))
		}
	}
	if most < 2 {
		return chart{}, false
	}
	a := axes{from: 0, to: longest(cells), low: 0, high: float64(most)}
	c := chart{ID: id("queue", name), Title: name + ": requests waiting", Width: chartWidth, Height: plotBottom + 20}
	a.frame(&c, []float64{0, math.Round(float64(most) / 2), float64(most)}, "", faultOf(cells))
	for _, cell := range cells {
		var points []string
		for _, s := range cell.Samples {
			if s.T <= a.to { // what comes later belongs to the end of the load
				points = append(points, fmt.Sprintf("%.1f,%.1f", a.x(s.T), a.y(float64(queued(s)))))
			}
		}
		if len(points) == 0 {
			continue
		}
		c.Paths = append(c.Paths, path{strings.Join(points, " "), series(cell.Design)})
		c.Legend = append(c.Legend, legend{series(cell.Design), cell.Design})
	}
	c.About = fmt.Sprintf("Requests that wait for a worker or a place in any pool, over the run, a line for each design; the most is %d.", most)
	return c, true
}

func queued(s result.Sample) int {
	sum := 0
	for _, n := range s.Queued {
		sum += n
	}
	return sum
}

// stretch is a time in which something was so.
type stretch struct {
	from, to float64
	state    string // away, open or half-open
}

// timeline shows, in a row for each, which breakers were open and which processes away.
func timeline(name string, cells []result.Cell) (chart, bool) {
	const left = 168.0
	end := longest(cells)
	x := func(t float64) float64 { return left + (plotRight-left)*min(max(t, 0), end)/max(end, 1e-9) }
	c := chart{ID: id("timeline", name), Title: name + ": breakers and processes", Width: chartWidth}
	var said []string
	y := 8.0
	row := func(label string, stretches []stretch) {
		c.Texts = append(c.Texts, text{left - 6, y + 12, "end", "label small", label})
		c.Lines = append(c.Lines, line{left, y + 16, plotRight, y + 16, "grid"})
		for _, s := range stretches {
			tip := fmt.Sprintf("%s: %s from %.1f to %.1f s", label, s.state, s.from, s.to)
			c.Rects = append(c.Rects, rect{x(s.from), y + 2, max(x(s.to)-x(s.from), 1.5), 13, s.state, tip})
		}
		said = append(said, fmt.Sprintf("%s %s", label, stretches[0].state))
		y += rowHeight
	}
	for _, cell := range cells {
		for _, who := range breakersOf(cell) {
			row(cell.Design+" "+who, breakerStretches(cell, who, end))
		}
		for _, who := range awayOf(cell) {
			row(cell.Design+" "+who, outages(cell, who))
		}
	}
	if len(said) == 0 {
		return c, false
	}
	for _, t := range secondTicks(0, end) {
		c.Texts = append(c.Texts, text{x(t), y + 12, "middle", "axis", trimmed(t) + " s"})
	}
	if fault := faultOf(cells); fault != nil {
		c.Lines = append(c.Lines, line{x(*fault), 0, x(*fault), y, "fault"})
	}
	c.Height = y + 18
	c.About = "When breakers were open or half-open, and when processes were away: " + strings.Join(said, ", ") + "."
	return c, true
}

// breakersOf are the breakers of the cell that were not closed all the time, as process/upstream.
func breakersOf(cell result.Cell) []string {
	var names []string
	for _, s := range cell.Samples {
		for name := range s.Breakers {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// breakerStretches joins the samples in which the breaker was in the same state.
func breakerStretches(cell result.Cell, who string, end float64) []stretch {
	var out []stretch
	for i, s := range cell.Samples {
		state := s.Breakers[who]
		if state == "" {
			continue
		}
		until := end
		if i+1 < len(cell.Samples) {
			until = cell.Samples[i+1].T
		}
		if last := len(out) - 1; last >= 0 && out[last].state == state && out[last].to >= s.T {
			out[last].to = until
			continue
		}
		out = append(out, stretch{s.T, until, state})
	}
	return out
}

func awayOf(cell result.Cell) []string {
	var names []string
	for _, o := range cell.Outages {
		if !slices.Contains(names, o.Process) {
			names = append(names, o.Process)
		}
	}
	return names
}

func outages(cell result.Cell, who string) []stretch {
	var out []stretch
	for _, o := range cell.Outages {
		if o.Process == who {
			out = append(out, stretch{o.At, o.At + o.Length, "away"})
		}
	}
	return out
}

// hopsChart is where an order's time goes, one bar for each part.
func hopsChart(v hopsView) chart {
	most := 0.1
	for _, h := range v.Hops {
		most = max(most, h.P50MS)
	}
	const left = 178.0
	c := chart{ID: id("hops", v.Design), Title: "Where an order's time goes in " + v.Design, Width: chartWidth, Height: rowHeight*float64(len(v.Hops)) + 6}
	var said []string
	for i, h := range v.Hops {
		y, w := rowHeight*float64(i), (chartWidth-left-44)*h.P50MS/most
		c.Texts = append(c.Texts, text{left - 6, y + 15, "end", "label small", h.Name},
			text{left + w + 5, y + 15, "start", "value", fmt.Sprintf("%.2f", h.P50MS)})
		c.barf(left, y, w, v.Design, "%s: %.2f ms", h.Name, h.P50MS)
		said = append(said, fmt.Sprintf("%s %.2f ms", h.Name, h.P50MS))
	}
	c.About = "Medians: " + strings.Join(said, ", ") + "."
	return c
}

// spreadChart is a figure of a scenario under many seeds: the mean, the whole range, and the mean's 95 % interval. most is the
// end of the scale; 0 is the greatest value.
func spreadChart(group []spreads, metric, what string, most float64) chart {
	for _, s := range group {
		most = max(most, s.of[metric].Max)
	}
	name := group[0].scenario
	c := chart{ID: id("spread", metric, name), Title: name + ": " + what, Width: chartWidth, Height: rowHeight*float64(len(group)) + 6}
	scale := (chartWidth - nameWidth - 46) / max(most, 1e-9)
	var said []string
	for i, s := range group {
		y := rowHeight * float64(i)
		middle := y + rowHeight/2 + 0.5
		c.Texts = append(c.Texts, text{nameWidth - 6, y + 15, "end", "label", s.design})
		v, has := s.of[metric]
		if !has {
			continue
		}
		c.barf(nameWidth, y, v.Mean*scale, s.design, "%s: mean %.1f, from %.1f to %.1f", s.design, v.Mean, v.Min, v.Max)
		if v.Seeds > 1 {
			low, high := nameWidth+v.Min*scale, nameWidth+v.Max*scale
			c.Lines = append(c.Lines, line{low, middle, high, middle, "range"}, line{low, middle - 4, low, middle + 4, "range"},
				line{high, middle - 4, high, middle + 4, "range"})
			tip := fmt.Sprintf("95 %% interval of the mean: %.2f to %.2f", v.Low, v.High)
			c.Rects = append(c.Rects, rect{nameWidth + v.Low*scale, middle - 3, max((v.High-v.Low)*scale, 1), 6, "interval", tip})
		}
		c.Texts = append(c.Texts, text{nameWidth + v.Max*scale + 6, y + 15, "start", "value", fmt.Sprintf("%.1f", v.Mean)})
		said = append(said, fmt.Sprintf("%s %.1f (%.1f to %.1f)", s.design, v.Mean, v.Min, v.Max))
	}
	c.About = "By design, mean and range over the seeds: " + strings.Join(said, ", ") + "."
	return c
}
