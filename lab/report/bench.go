package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is what is read of the benchmarks' JSON (make bench ARGS=--json).
type bench struct {
	Started time.Time  `json:"started"`
	System  string     `json:"system"`
	CPUs    int        `json:"cpus"`
	Load    string     `json:"load"`
	Rows    []benchRow `json:"rows"`
}

type benchRow struct {
	Part    string    `json:"part"`
	What    string    `json:"what"`
	Against string    `json:"against"`
	Unit    string    `json:"unit"`
	Ours    []float64 `json:"ours"`
	Theirs  []float64 `json:"theirs"`
	Ratio   float64   `json:"ratio"`
	Low     float64   `json:"low"`
	High    float64   `json:"high"`
}

// readBench returns nil when the content is something else.
func readBench(content []byte) *bench {
	var b bench
	if json.NewDecoder(bytes.NewReader(content)).Decode(&b) != nil {
		return nil
	}
	b.Rows = slices.DeleteFunc(b.Rows, func(r benchRow) bool { return r.Part == "" || len(r.Ours) == 0 })
	if len(b.Rows) == 0 {
		return nil
	}
	return &b
}

// benchView is the benchmarks, and curves of the rows that differ in one number.
type benchView struct {
	File   string
	Day    string
	Facts  []fact
	Curves []chart
	Rows   []benchLine
}

type benchLine struct{ What, Ours, Against, Theirs, Unit, Ratio string }

func newBench(name string, b *bench) benchView {
	v := benchView{File: name, Day: b.Started.Format("2 January 2006"), Facts: []fact{
		{"When", b.Started.Format("2006-01-02 15:04 MST")}, {"Machine", fmt.Sprintf("%s, %d CPUs", b.System, b.CPUs)}, {"Load before", b.Load},
	}}
	for _, r := range b.Rows {
		v.Rows = append(v.Rows, benchLine{r.What, short(median(r.Ours)), r.Against, short(median(r.Theirs)), r.Unit,
			fmt.Sprintf("%.2f (%.2f–%.2f)", r.Ratio, r.Low, r.High)})
	}
	for _, c := range sizeCurves(b.Rows) {
		if chart, drawn := c.chart(len(v.Curves)); drawn {
			v.Curves = append(v.Curves, chart)
		}
	}
	return v
}

// sizeCurve is rows of a part that say the same of different numbers of something: "relay, 1,000,000 rows", "relay, 100,000 rows".
type sizeCurve struct {
	part, before, of, unit string
	rows                   map[int64]benchRow // by the number
}

// sizeCurves groups the rows whose names have a number, the last one where there are several, in the order of the table. Of several rows
// with the same number the first counts.
func sizeCurves(rows []benchRow) []sizeCurve {
	var curves []sizeCurve
	number := regexp.MustCompile(`(\d[\d,]*) ([[:alpha:]][^\d]*)$`)
	for _, r := range rows {
		at := number.FindStringSubmatchIndex(r.What)
		if at == nil {
			continue
		}
		size, err := strconv.ParseInt(strings.ReplaceAll(r.What[at[2]:at[3]], ",", ""), 10, 64)
		if err != nil {
			continue
		}
		before, of := strings.TrimRight(r.What[:at[0]], ", "), r.What[at[4]:at[5]]
		i := slices.IndexFunc(curves, func(c sizeCurve) bool {
			return c.part == r.Part && c.before == before && c.of == of && c.unit == r.Unit
		})
		if i < 0 {
			curves, i = append(curves, sizeCurve{r.Part, before, of, r.Unit, map[int64]benchRow{}}), len(curves)
		}
		if _, there := curves[i].rows[size]; !there {
			curves[i].rows[size] = r
		}
	}
	return curves
}

// chart draws ours by the number, and the peer's or the limit's where all rows have the same one. The numbers are spread evenly: they
// are apart by powers of ten, and 0 may be one of them. One number is no curve.
func (c sizeCurve) chart(n int) (chart, bool) {
	if len(c.rows) < 2 {
		return chart{}, false
	}
	sizes := slices.Sorted(maps.Keys(c.rows))
	ours, theirs := plotted{name: "ours", class: plotClass(0)}, plotted{name: c.rows[sizes[0]].Against, class: plotClass(1)}
	p := plot{
		id: id("sizes", strconv.Itoa(n)), title: c.before + ", by " + c.of, x: c.of, unit: c.unit,
		about: "Medians in " + c.unit + " by the number of " + c.of + ", which is not to scale.",
	}
	same := true
	for i, size := range sizes {
		r := c.rows[size]
		same = same && r.Against == theirs.name
		p.ticks = append(p.ticks, tick{float64(i), short(float64(size))})
		ours.points = append(ours.points, point{float64(i), median(r.Ours)})
		theirs.points = append(theirs.points, point{float64(i), median(r.Theirs)})
	}
	p.lines = []plotted{ours}
	if same {
		p.lines = append(p.lines, theirs)
	}
	return p.draw(), true
}

// median returns 0 when there are no values.
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
