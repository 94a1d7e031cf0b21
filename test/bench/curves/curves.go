// Package curves measures what becomes of the shop's figures when there is more of something: more load than it can take, and more rows
// in its tables. Curves over the load and the replicas with all their steps are lab curve's.
package curves

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"example.com/watertight/lab/curve"
	"example.com/watertight/test/bench/lab"
	"example.com/watertight/test/bench/orders"
	"example.com/watertight/test/bench/relay"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

type rows struct {
	parts []suite.Part
	loads []load
}

// load is one kind of requests, or a mix, of which a plain sum would count answers that cost a millisecond and others that cost a tenth.
type load struct {
	goodput *table.Row
	steps   []curve.Step       // two for each round: at the capacity and far above it, or the other way round
	worth   map[string]float64 // of an answer, by operation; nil: all the same
}

func (l load) of(s curve.Step) (goodput float64) {
	if l.worth == nil {
		return s.Goodput
	}
	for operation, answered := range s.Answered {
		goodput += answered * l.worth[operation]
	}
	return goodput
}

// The shares of the capacity that are compared.
const (
	most    = 1.5
	allItIs = 1.0
)

// Start prepares the tables and has lab curve measure the load, for all rounds at once: the search for the capacity takes
// longer than they do.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	c := &rows{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	dir, err := os.MkdirTemp("", "watertight-bench-curves-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program, err := lab.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	worth := map[string]float64{} // of an answer, in pages: as many as the shop can give in its place
	var pages float64
	for _, k := range []struct{ what, mix, alone string }{
		{"product pages", "page=100", "page"}, {"orders", "checkout=100", "checkout"}, {"both, in pages' worth,", "checkout=20,page=80", ""},
	} {
		row := r.Row("curves", "goodput of "+k.what+" at 150 % of the shop's capacity", "at 100 %", "a second", table.AtLeast(0.9))
		found, err := measure(ctx, r, program, k.mix)
		if err != nil {
			return nil, err
		}
		l := load{goodput: row, steps: found.Steps}
		if k.alone == "" {
			l.worth = worth
		} else {
			pages = cmp.Or(pages, found.Capacity)
			worth[k.alone] = pages / found.Capacity
		}
		c.loads = append(c.loads, l)
	}
	for _, start := range []func(context.Context, *suite.Run) (suite.Part, error){relay.StartTables, orders.StartTables} {
		part, err := start(ctx, r)
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

// measure measures all rounds of one kind of requests on one shop.
func measure(ctx context.Context, r *suite.Run, program, mix string) (*curve.Load, error) {
	step := "2s"
	if r.Quick {
		step = "500ms"
	}
	var shares []string
	for n := range r.Rounds() {
		pair := []float64{allItIs, most}
		if n%2 == 1 {
			pair = []float64{most, allItIs}
		}
		for _, share := range pair {
			shares = append(shares, fmt.Sprint(share))
		}
	}
	command := exec.CommandContext(ctx, program, "curve", "load", "--mix", mix, "--shares", strings.Join(shares, ","), "--step", step, "--output", "json")
	command.Stderr = r.Notes
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("lab curve: %w", err)
	}
	var found curve.File
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, fmt.Errorf("lab curve: %w", err)
	}
	return found.Load, nil
}

// Close ends what the parts started.
func (c *rows) Close() error {
	var errs []error
	for _, part := range c.parts {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}

// Round adds the load's figures and measures the tables.
func (c *rows) Round(ctx context.Context, n int) error {
	for _, l := range c.loads {
		figures := map[float64]float64{}
		for _, s := range l.steps[2*n : 2*n+2] {
			figures[s.Share] = l.of(s)
		}
		l.goodput.Add(figures[most], figures[allItIs])
	}
	for _, part := range c.parts {
		if err := part.Round(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
