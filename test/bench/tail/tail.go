// Package tail looks at what a sick recommendation service does to everybody else at the gateway: how long the slowest orders take
// while it hangs, and what requests cost while its calls fail. In the gateway that is measured the circuit breaker of recs is kept
// from opening. With it, the fault would reach the gateway for a quarter of a second and then be over; without it, calls hang and
// fail for as long as it lasts, and what protects the orders is the bulkhead, which is small enough to be full, and the deadline.
package tail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/watertight/test/bench/client"
	"example.com/watertight/test/bench/stage"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// The load while recs hangs, in requests a second: little, for a machine's own queues would hide the gateway's.
const (
	orderRate = 300
	pageRate  = 100
)

// settled is longer than a hanging call lasts, which is RECS_TIMEOUT.
const settled = 300 * time.Millisecond

// turns are well, sick, well, ... and well in the end: short, so that what else the machine does meets both alike.
const turns = 7

type part struct {
	stage         *stage.Stage
	gateway       *stage.Gateway
	orders, pages *client.Client // apart, so that pages that wait keep no order from being sent
	phase, busy   time.Duration  // how long to look at orders and at costs, each time

	slow, half, all *table.Row
}

// Start prepares the part.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	p := &part{
		phase: 2 * time.Second, busy: 2 * time.Second,
		slow: r.Row("tail", "order, p99 while recs hangs", "p99 while it is well", "ms", table.AtMost(1.1)),
		half: r.Row("tail", "product page, half of recs' calls failing", "recs knowing nothing", "µs of CPU", table.AtMost(1.1)),
		all:  r.Row("tail", "product page, all of recs' calls failing", "recs knowing nothing", "µs of CPU", table.AtMost(1.1)),
	}
	if r.Quick {
		p.phase, p.busy = time.Second, 500*time.Millisecond
	}
	if p.stage, err = stage.Open(ctx); err != nil {
		return nil, err
	}
	// A pause of the machine is to show as time, and not as a refusal: the queues of the others are long.
	p.gateway, err = p.stage.Ours(ctx, "gateway", "RECS_BREAKER_CONSECUTIVE=1000000000", "RECS_BREAKER_MIN_CALLS=1000000000",
		"RECS_MAX_IN_FLIGHT="+strconv.Itoa(stage.Connections), "RECS_MAX_QUEUE=0",
		"CHECKOUT_MAX_QUEUE=4096", "CHECKOUT_TIMEOUT=4s", "SEARCH_MAX_QUEUE=4096", "SEARCH_TIMEOUT=4s")
	if err != nil {
		return nil, errors.Join(err, p.stage.Close())
	}
	const plenty = 256
	p.orders, p.pages = client.New(p.gateway.Addr, plenty), client.New(p.gateway.Addr, plenty)
	if _, err := p.gateway.Spent(ctx, p.busy, p.page); err != nil { // to warm up
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close ends the gateway and the services.
func (p *part) Close() error {
	p.orders.Close()
	p.pages.Close()
	return p.stage.Close()
}

// page is content with a page that goes without recommendations.
func (p *part) page(ctx context.Context) error {
	_, err := p.pages.Page(ctx)
	return err
}

// Round looks at the tail of orders while recs is well, hangs, and is well again, and then at the cost of pages.
func (p *part) Round(ctx context.Context, _ int) error {
	if err := p.tail(ctx); err != nil {
		return err
	}
	// An answer without recommendations costs the page as many calls as a failure: with them it would look up eight products as well.
	p.stage.Services.EmptyRecs(true)
	defer p.stage.Services.EmptyRecs(false)
	var spent [3]float64
	for i, failing := range []int{0, 50, 100} {
		p.stage.Services.FailRecs(failing)
		each, err := p.gateway.Spent(ctx, p.busy, p.page)
		if err != nil {
			return err
		}
		spent[i] = float64(each) / float64(time.Microsecond)
	}
	p.stage.Services.FailRecs(0)
	p.half.Add(spent[1], spent[0])
	p.all.Add(spent[2], spent[0])
	return nil
}

func (p *part) tail(ctx context.Context) error {
	var well, sick []time.Duration
	before := p.stage.Services.Hung()
	for turn := range turns {
		hangs := turn%2 == 1
		p.stage.Services.HangRecs(hangs)
		took, err := p.watch(ctx)
		if err != nil {
			return err
		}
		if hangs {
			sick = append(sick, took...)
		} else {
			well = append(well, took...)
		}
	}
	// Eight slots of 150 ms let 53 calls a second pass of the 100: more would mean that the bulkhead was never full.
	asked := int64(turns / 2 * p.phase.Seconds() * pageRate)
	if hung := p.stage.Services.Hung() - before; hung < asked/4 || hung > asked*4/5 {
		return fmt.Errorf("%d calls of recs have hung while %d pages were asked for: want a quarter to four fifths", hung, asked)
	}
	p.slow.Add(p99(sick), p99(well))
	return nil
}

// watch asks for pages and places orders at their rates, whether the answers come or not, and returns how long the orders took from
// the moment at which they were due.
func (p *part) watch(ctx context.Context) ([]time.Duration, error) {
	var (
		mu   sync.Mutex
		took []time.Duration
	)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return every(ctx, p.phase, time.Second/pageRate, func(time.Time) error { return p.page(ctx) })
	})
	group.Go(func() error {
		if err := wait(ctx, settled); err != nil { // by now the first pages hang, or the last have been let go
			return err
		}
		return every(ctx, p.phase-settled, time.Second/orderRate, func(due time.Time) error {
			err := p.orders.Order(ctx)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(due))
			return err
		})
	})
	return took, group.Wait()
}

// every calls do once in each interval, from goroutines of their own, and waits for the last.
func every(ctx context.Context, length, interval time.Duration, do func(due time.Time) error) error {
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for at := time.Duration(0); at < length; at += interval {
		due := start.Add(at)
		if err := wait(ctx, time.Until(due)); err != nil {
			break // the group knows why
		}
		group.Go(func() error { return do(due) })
	}
	return group.Wait()
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// p99 is in milliseconds.
func p99(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[min(len(took)-1, len(took)*99/100)]) / float64(time.Millisecond)
}
