// Package suite runs the parts of the benchmarks, one after the other, each in rounds in which both sides take turns, so that
// a load that comes and goes meets both. It knows nothing of what a part measures.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.com/watertight/test/bench/servers"
	"example.com/watertight/test/bench/table"
)

// Part is some rows of the table that are measured together.
type Part interface {
	// Round adds a figure of both sides to each row; n counts from 0.
	Round(ctx context.Context, n int) error
	Close() error
}

// Named is a part and the name that picks it.
type Named struct {
	Name string
	// Start prepares the part and adds its rows to the run's table.
	Start func(context.Context, *Run) (Part, error)
}

// Run is what the parts of a run share.
type Run struct {
	Table   *table.Table
	Quick   bool     // smaller and fewer, for a look
	Environ []string // settings of the sides that have some, such as RELAY_BATCH
	Notes   io.Writer
	servers *servers.Servers
}

// Rounds returns how often a part is measured when it has no reason for another number.
func (r *Run) Rounds() int {
	if r.Quick {
		return 4
	}
	return 5
}

// Row adds a line to the table.
func (r *Run) Row(part, what, against, unit string, target table.Target) *table.Row {
	return r.Table.Row(part, what, against, unit, target)
}

// Servers returns a PostgreSQL and a NATS server, which start when the first part asks for them.
func (r *Run) Servers(ctx context.Context) (_ *servers.Servers, err error) {
	if r.servers == nil {
		r.servers, err = servers.Start(ctx, r.Environ)
	}
	return r.servers, err
}

// Measure runs the parts that only names, or all of them when it names none.
func (r *Run) Measure(ctx context.Context, parts []Named, only []string) (err error) {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only: no part %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	defer func() {
		if r.servers != nil {
			err = errors.Join(err, r.servers.Stop())
		}
	}()
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.Name) {
			continue
		}
		if err := r.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

func (r *Run) measure(ctx context.Context, named Named) (err error) {
	fmt.Fprintln(r.Notes, "measuring:", named.Name)
	part, err := named.Start(ctx, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	for n := range r.Rounds() {
		if err := part.Round(ctx, n); err != nil {
			return fmt.Errorf("round %d: %w", n+1, err)
		}
	}
	return nil
}
