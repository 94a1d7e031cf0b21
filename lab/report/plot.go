package report

import (
	"fmt"
	"math"
	"strings"
)

// plot is a drawing of figures over a figure, a line for each series.
type plot struct {
	id, title, about string
	x, unit          string // what lies along the axes
	ticks            []tick
	lines            []plotted
	log              bool // the upright axis
}

// tick is a place on the axis and what stands below it.
type tick struct {
	at   float64
	text string
}

// plotted is a series. Its class gives it its colour and its dash.
type plotted struct {
	name, class string
	points      []point
}

type point struct{ x, y float64 }

// plotClass is the class of the nth series of a plot, counted from 0.
func plotClass(n int) string { return fmt.Sprintf("s%d", []int{4, 1, 3, 5, 2, 6}[n%6]) }

// draw places everything. Points that a logarithmic scale cannot show lie at its lower end.
func (p plot) draw() chart {
	c := chart{ID: p.id, Title: p.title, Width: chartWidth, Height: plotBottom + 30}
	a := p.axes()
	upright := []float64{0, a.high / 2, a.high}
	if a.log {
		upright = decades(a.low, a.high)
	}
	for _, v := range upright {
		y := a.y(v)
		c.Lines = append(c.Lines, line{plotLeft, y, plotRight, y, "grid"})
		c.Texts = append(c.Texts, text{plotLeft - 4, y + 4, "end", "axis", short(v)})
	}
	c.Texts = append(c.Texts, text{plotLeft + 2, plotTop - 5, "start", "axis", p.unit}, text{plotRight, plotBottom + 26, "end", "axis", p.x})
	for i, t := range p.ticks {
		anchor := "middle"
		if i == len(p.ticks)-1 {
			anchor = "end"
		}
		c.Texts = append(c.Texts, text{a.x(t.at), plotBottom + 14, anchor, "axis", t.text})
	}
	var said []string
	for _, l := range p.lines {
		said = append(said, p.add(&c, a, l))
	}
	c.About = p.about + " " + strings.Join(said, "; ") + "."
	return c
}

// add draws one series, and says it in words.
func (p plot) add(c *chart, a axes, l plotted) string {
	var points, words []string
	for _, at := range l.points {
		x, y := a.x(at.x), a.y(at.y)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		c.Dots = append(c.Dots, dot{x, y, l.class, fmt.Sprintf("%s at %s: %s %s", l.name, p.name(at.x), short(at.y), p.unit)})
		words = append(words, p.name(at.x)+" "+short(at.y))
	}
	c.Paths = append(c.Paths, path{strings.Join(points, " "), l.class})
	c.Legend = append(c.Legend, legend{l.class, l.name})
	return l.name + ": " + strings.Join(words, ", ")
}

// name is what stands below a place on the axis.
func (p plot) name(x float64) string {
	for _, t := range p.ticks {
		if t.at == x {
			return t.text
		}
	}
	return short(x)
}

func (p plot) axes() axes {
	a := axes{from: math.Inf(1), to: math.Inf(-1), low: math.Inf(1), log: p.log}
	for _, l := range p.lines {
		for _, at := range l.points {
			a.from, a.to, a.high = min(a.from, at.x), max(a.to, at.x), max(a.high, at.y)
			if at.y > 0 {
				a.low = min(a.low, at.y)
			}
		}
	}
	if !p.log {
		a.low, a.high = 0, roundUp(a.high)
		return a
	}
	if math.IsInf(a.low, 1) {
		a.low, a.high = 1, 10
	}
	a.low, a.high = math.Pow(10, math.Floor(math.Log10(a.low))), math.Pow(10, math.Ceil(math.Log10(a.high)))
	if a.low == a.high {
		a.high = 10 * a.low
	}
	return a
}

// roundUp is the next figure of one digit, or of 1.5 or 2.5, times a power of ten: half of it is round as well.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if step*power >= v {
			return step * power
		}
	}
	return 10 * power
}

func decades(low, high float64) []float64 {
	var all []float64
	for v := low; v <= high*1.01; v *= 10 {
		all = append(all, v)
	}
	return all
}

// short writes a figure in as few characters as an axis has room for.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return trimZero(v/1e6) + "M"
	case v >= 1e3:
		return trimZero(v/1e3) + "k"
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 1:
		return trimZero(v)
	}
	return fmt.Sprintf("%.2g", v)
}

func trimZero(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
