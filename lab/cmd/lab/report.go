package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	page "example.com/watertight/lab/report"
)

type reportCommand struct {
	Files  []string `arg:"" name:"file" type:"existingfile" help:"What lab run, cluster, curve, sim or make bench wrote: JSON, or a table with its RESULT."`
	Output string   `short:"o" placeholder:"FILE" type:"path" help:"Write the page there instead of on standard output."`
}

// Help is shown by lab report --help.
func (*reportCommand) Help() string {
	return `Makes one HTML page of measured runs, simulations, curves and benchmarks, with tables and drawings. It needs no network and no script,
is light or dark as its reader's system is, and prints.

Examples:
  lab report run.json -o report.html
  lab run --quick --save run.json && lab sim --seeds 200 --output json > sim.json && lab report run.json sim.json -o report.html`
}

// Run makes the page.
func (c *reportCommand) Run(out io.Writer) (err error) {
	var sources []page.Source
	for _, path := range c.Files {
		source, err := page.ReadFile(path)
		if err != nil {
			return err
		}
		sources = append(sources, source)
	}
	if c.Output == "" {
		return page.Write(out, sources)
	}
	file, err := os.Create(c.Output)
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if err := errors.Join(page.Write(file, sources), file.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "wrote", c.Output)
	return err
}
