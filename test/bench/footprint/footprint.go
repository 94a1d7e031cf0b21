// Package footprint measures what the shop costs before anybody buys: how long each process takes from its start until it is ready, and
// the memory of all of them at rest, with the data of a mid-size wholesaler in them. It builds no images; it weighs those that were built.
package footprint

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// The limits. Memory is in MiB, an image in MB, as registries count.
const (
	startLimit  = 150 // ms
	memoryLimit = 25
	searchLimit = 80 // with its index
	shopLimit   = 400
	imageLimit  = 20
)

const mib = 1 << 20

// part is the shop's rows.
type part struct {
	stage  *stage
	rest   time.Duration // how long the shop has been idle when its memory is read
	looks  int           // in how many rounds: memory differs less from one shop to the next than the time of a start
	notes  io.Writer
	starts map[string]*table.Row // by process
	memory map[string]*table.Row
	shop   *table.Row
	seen   []running // the last time
}

// Start prepares the part: it builds the programs, and starts the shop's database and broker on free ports.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	p := &part{rest: 6 * time.Second, looks: 2, notes: r.Notes, starts: map[string]*table.Row{}, memory: map[string]*table.Row{}}
	if runtime.GOOS != "linux" {
		fmt.Fprintln(r.Notes, "footprint: skipped, because only Linux tells the memory of a process in /proc")
		return p, nil
	}
	if r.Quick {
		p.rest, p.looks = 3*time.Second, 1
	}
	if p.stage, err = raise(ctx, r.Environ); err != nil {
		return nil, err
	}
	names := p.stage.names()
	for _, name := range names {
		target := table.Within()
		if name == "search" { // which makes its index first; the limit is for those that read what they need
			target = table.None()
		}
		p.starts[name] = r.Row("footprint", name+", start to ready", "limit", "ms", target)
	}
	for _, name := range names {
		p.memory[name] = r.Row("footprint", name+" at rest, resident", "limit", "MiB", table.AtMost(1))
	}
	p.shop = r.Row("footprint", "the shop with PostgreSQL and NATS at rest", "limit", "MiB", table.AtMost(1))
	if heaviest, bytes := heaviestImage(p.stage.images(), append(names, "monolith")); heaviest != "" {
		r.Row("footprint", "images, compressed; the largest: "+heaviest, "limit", "MB", table.AtMost(1)).Add(bytes/1e6, imageLimit)
	} else {
		fmt.Fprintln(r.Notes, "footprint: no images are weighed, because none are built (make images)")
	}
	return p, nil
}

// Close ends everything and removes its data.
func (p *part) Close() error {
	if p.stage == nil {
		return nil
	}
	for _, r := range p.seen {
		fmt.Fprintf(p.notes, "  %s\n", r.describe())
	}
	return p.stage.close()
}

// Round starts the shop, lets it rest, and reads the memory; then it ends the shop and starts each of its processes alone.
func (p *part) Round(ctx context.Context, n int) error {
	if p.stage == nil {
		return nil
	}
	if n < p.looks {
		if err := p.look(ctx); err != nil {
			return err
		}
	}
	for i, process := range p.seen {
		row := p.starts[process.name]
		if row == nil { // the servers, which the shop's processes need
			continue
		}
		took, cpu, err := p.stage.startAlone(ctx, process)
		if err != nil {
			return fmt.Errorf("%s: %w", process.name, err)
		}
		p.seen[i].start = cpu
		row.Add(took.Seconds()*1000, startLimit)
	}
	return nil
}

// look reads the memory of a shop at rest.
func (p *part) look(ctx context.Context) (err error) {
	if p.seen, err = p.stage.play(ctx, p.rest); err != nil {
		return err
	}
	var whole float64
	for _, process := range p.seen {
		whole += process.memory.share
		if row := p.memory[process.name]; row != nil {
			row.Add(process.memory.all/mib, limitOf(process.name))
		}
	}
	p.shop.Add(whole/mib, shopLimit)
	return nil
}

func limitOf(process string) float64 {
	if process == "search" {
		return searchLimit
	}
	return memoryLimit
}

// describe says in a line what the process's memory is, and what its start took.
func (r running) describe() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-10s %5.1f MiB, its share of it %5.1f", r.name, r.memory.all/mib, r.memory.share/mib)
	if r.memory.own > 0 {
		fmt.Fprintf(&out, "; written by itself %5.1f, read from its program's file %5.1f", r.memory.own/mib, r.memory.file/mib)
	}
	if r.start > 0 {
		fmt.Fprintf(&out, "; a start takes %s of a core", r.start.Round(time.Millisecond))
	}
	return out.String()
}
