package report

import (
	"fmt"

	"example.com/watertight/lab/curve"
)

// curvesView is what lab curve measured.
type curvesView struct {
	File     string
	Day      string
	Facts    []fact
	Load     *curve.Load
	Kept     string
	OverLoad []chart
	Services []chart
	Rows     []stepRow
	Notes    []string
}

// stepRow is a step in the table of all figures.
type stepRow struct {
	Curve, At string
	Numbers   []string
}

// StepHeads are the columns of that table.
func (curvesView) StepHeads() []string {
	return []string{"offered/s", "goodput/s", "degraded/s", "shed/s", "late/s", "failed/s", "p50 ms", "p99 ms", "late starts %", "settled after s"}
}

func stepNumbers(s curve.Step) []string {
	var out []string
	for _, v := range []float64{s.Offered, s.Goodput, s.Degraded, s.Shed, s.Late, s.Failed, s.P50, s.P99, 100 * s.LateStarts, s.Settle} {
		out = append(out, fmt.Sprintf("%.1f", v))
	}
	return out
}

func newCurves(name string, f *curve.File) curvesView {
	v := curvesView{File: name, Day: f.Started.Format("2 January 2006"), Load: f.Load, Notes: f.Warnings, Facts: []fact{
		{"When", f.Started.Format("2006-01-02 15:04 MST")}, {"Machine", f.Machine.String()}, {"Load before", fmt.Sprintf("%.2f", f.Machine.Load)},
		{"Each step", fmt.Sprintf("%g s", f.StepTime)}, {"Seed", fmt.Sprint(f.Seed)},
	}}
	if f.Load != nil {
		v.Kept = percent(100 * f.Load.Kept)
		steps := f.Load.ByShare()
		v.OverLoad = []chart{goodputChart(steps), loadLatencyChart(steps)}
		for _, s := range steps {
			v.Rows = append(v.Rows, stepRow{"load", fmt.Sprintf("%.0f\u00a0%%", 100*s.Share), stepNumbers(s)})
		}
	}
	for _, r := range f.Replicas {
		v.Services = append(v.Services, replicasChart(r), replicasLatencyChart(r))
		for _, s := range r.Steps {
			v.Rows = append(v.Rows, stepRow{r.Service, fmt.Sprintf("%d, under", s.Replicas), stepNumbers(s.Under)},
				stepRow{r.Service, fmt.Sprintf("%d, over", s.Replicas), stepNumbers(s.Over)})
		}
	}
	return v
}

// byLoad is a series over the load.
func byLoad(n int, name string, steps []curve.Step, of func(curve.Step) float64) plotted {
	l := plotted{name: name, class: plotClass(n)}
	for _, s := range steps {
		l.points = append(l.points, point{100 * s.Share, of(s)})
	}
	return l
}

func loadTicks(steps []curve.Step) []tick {
	var ticks []tick
	for i, s := range steps {
		last := steps[len(steps)-1].Share
		if i == 0 || i == len(steps)-1 || s.Share-ticks[len(ticks)-1].at/100 > last/8 && last-s.Share > last/8 {
			ticks = append(ticks, tick{100 * s.Share, fmt.Sprintf("%.0f %%", 100*s.Share)})
		}
	}
	return ticks
}

func goodputChart(steps []curve.Step) chart {
	return plot{
		id: id("curve", "load"), title: "What becomes of the load", about: "Requests per second by load, as a share of the capacity.",
		x: "load, of the capacity", unit: "requests/s", ticks: loadTicks(steps), lines: []plotted{
			byLoad(0, "goodput", steps, func(s curve.Step) float64 { return s.Goodput }),
			byLoad(1, "shed", steps, func(s curve.Step) float64 { return s.Shed }),
			byLoad(2, "offered", steps, func(s curve.Step) float64 { return s.Offered }),
			byLoad(3, "late or failed", steps, func(s curve.Step) float64 { return s.Late + s.Failed }),
			byLoad(4, "goodput without recommendations", steps, func(s curve.Step) float64 { return s.Degraded }),
		},
	}.draw()
}

func loadLatencyChart(steps []curve.Step) chart {
	return plot{
		id: id("curve", "latency"), title: "Latency of what is answered", about: "Milliseconds by load, as a share of the capacity, on a logarithmic scale.",
		x: "load, of the capacity", unit: "ms", log: true, ticks: loadTicks(steps), lines: []plotted{
			byLoad(0, "p50", steps, func(s curve.Step) float64 { return s.P50 }),
			byLoad(1, "p99", steps, func(s curve.Step) float64 { return s.P99 }),
		},
	}.draw()
}

// byReplicas is a series over the replicas.
func byReplicas(n int, name string, r curve.Replicas, of func(curve.ReplicasStep) float64) plotted {
	l := plotted{name: name, class: plotClass(n)}
	for _, s := range r.Steps {
		l.points = append(l.points, point{float64(s.Replicas), of(s)})
	}
	return l
}

func replicaTicks(r curve.Replicas) []tick {
	var ticks []tick
	for _, s := range r.Steps {
		ticks = append(ticks, tick{float64(s.Replicas), fmt.Sprint(s.Replicas)})
	}
	return ticks
}

func replicasChart(r curve.Replicas) chart {
	return plot{
		id: id("curve", "replicas", r.Service), title: r.Service + ": what replicas add",
		about: fmt.Sprintf("Full answers per second by the number of replicas, each with %d workers of %.0f ms.", r.Workers, r.ServiceTime),
		x:     "replicas", unit: "full answers/s", ticks: replicaTicks(r), lines: []plotted{
			byReplicas(0, "asked for 150 %", r, func(s curve.ReplicasStep) float64 { return s.Over.Full() }),
			byReplicas(1, "asked for 70 %", r, func(s curve.ReplicasStep) float64 { return s.Under.Full() }),
			byReplicas(2, "workers ÷ time", r, func(s curve.ReplicasStep) float64 { return float64(s.Replicas) * r.PerReplica }),
		},
	}.draw()
}

func replicasLatencyChart(r curve.Replicas) chart {
	return plot{
		id: id("curve", "replicas-latency", r.Service), title: r.Service + ": latency by replicas",
		about: "Milliseconds by the number of replicas when they are asked for 70 % of what they can take.", x: "replicas", unit: "ms",
		ticks: replicaTicks(r), lines: []plotted{
			byReplicas(0, "p50", r, func(s curve.ReplicasStep) float64 { return s.Under.P50 }),
			byReplicas(1, "p99", r, func(s curve.ReplicasStep) float64 { return s.Under.P99 }),
		},
	}.draw()
}
