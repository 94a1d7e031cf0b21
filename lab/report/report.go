// Package report makes one HTML page of what the lab has measured and simulated. The page needs no network, no script and no
// font: tables and small drawings, in light and dark, on a slide and on paper. It judges nothing that is not in the files.
package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"

	"example.com/watertight/lab/curve"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/sim"
)

//go:embed page.html
var pageTemplate string

//go:embed style.css
var style string

// Source is what one file holds: a measured run, a simulation, curves or the benchmarks.
type Source struct {
	Name      string // of the file
	Measured  *result.File
	Simulated *sim.Report
	Curves    *curve.File
	bench     *bench
}

// ReadFile reads what lab run, lab cluster, lab curve, lab sim or the benchmarks have written: its JSON, or a table whose last line is RESULT {json}.
func ReadFile(path string) (Source, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return Source{}, fmt.Errorf("read result: %w", err)
	}
	s, err := read(content)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	s.Name = filepath.Base(path)
	return s, nil
}

var errNothing = errors.New("not a result of lab run, lab cluster, lab curve, lab sim or make bench")

func read(content []byte) (Source, error) {
	if at := bytes.LastIndex(content, []byte("\nRESULT {")); at >= 0 {
		content = content[at+len("\nRESULT "):]
	}
	measured, err := result.Read(bytes.NewReader(content))
	if err == nil {
		return Source{Measured: measured}, nil
	}
	if !errors.Is(err, result.ErrOther) {
		return Source{}, fmt.Errorf("%w: %w", errNothing, err)
	}
	if curves, err := curve.Read(bytes.NewReader(content)); err == nil {
		return Source{Curves: curves}, nil
	}
	if benchmarks := readBench(content); benchmarks != nil {
		return Source{bench: benchmarks}, nil
	}
	var simulated sim.Report
	if err := json.Unmarshal(content, &simulated); err != nil || len(simulated.Cells)+len(simulated.Summaries) == 0 {
		return Source{}, errNothing
	}
	return Source{Simulated: &simulated}, nil
}

// Write makes the page of the sources, in their order.
func Write(out io.Writer, sources []Source) error {
	page, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("the report's template: %w", err)
	}
	view := view{Style: template.CSS(style), Heads: result.Heads()} //nolint:gosec // our own file
	for _, s := range sources {
		if s.Measured != nil {
			view.Runs = append(view.Runs, newRun(s.Name, s.Measured))
		}
		if s.Simulated != nil {
			view.Simulations = append(view.Simulations, newSimulation(s.Name, s.Simulated))
		}
		if s.Curves != nil {
			view.Curves = append(view.Curves, newCurves(s.Name, s.Curves))
		}
		if s.bench != nil {
			view.Benches = append(view.Benches, newBench(s.Name, s.bench))
		}
	}
	// Into memory first: a page that ends in the middle is worse than none.
	var b bytes.Buffer
	if err := page.Execute(&b, view); err != nil {
		return fmt.Errorf("make the report: %w", err)
	}
	if _, err := out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
