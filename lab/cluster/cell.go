package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/watertight/lab/check"
	"example.com/watertight/lab/load"
	"example.com/watertight/lab/measure"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

// window is a time in which the fault was there.
type window struct{ from, to time.Time }

// play is one scenario while it plays.
type play struct {
	*Run
	scenario *scenario.Scenario
	cell     *result.Cell
	watch    *watch
	found    found
	windows  []window
	load     load.Result
	books    check.Report
	product  product
}

// product is one that the shop sells.
type product struct {
	ID    string `json:"id"`
	Price struct {
		Currency string `json:"currency"`
	} `json:"price"`
}

const (
	// settle is how long the load goes on when all is over, so that the end of the story is in the numbers.
	settle = 3 * time.Second
	// recovery bounds the time until the shop is whole again.
	recovery = time.Minute
	// inARow is how many good answers in a row make a shop whole.
	inARow = 3
)

// play plays one scenario, and returns what became of it; the error is for what kept it from being played.
func (r *Run) play(ctx context.Context, s *scenario.Scenario) (c result.Cell, err error) {
	c = result.Cell{Scenario: s.Name, Design: r.design, About: s.About, Expected: s.Expect[r.design], WarmUp: seconds(s.WarmUp)}
	p := &play{Run: r, scenario: s, cell: &c, found: found{}}
	if p.product, err = r.Shop.anyProduct(ctx); err != nil {
		return c, err
	}
	if p.watch, err = newWatch(ctx, r.Shop); err != nil {
		return c, err
	}
	traffic, err := r.Shop.startTraffic(ctx, r.image, r.request(s))
	if err != nil {
		return c, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watched sync.WaitGroup
	watched.Go(func() { p.watch.run(watching) })
	failed := p.story(ctx)
	stop()
	watched.Wait()
	if failed != nil {
		return c, errors.Join(failed, traffic.remove(ctx))
	}
	measured, acknowledged, err := traffic.stop(ctx)
	if err != nil {
		return c, err
	}
	p.write(measured)
	if p.books, err = r.Shop.books(ctx, r.image, acknowledged); err != nil {
		return c, err
	}
	p.judge()
	return c, nil
}

// request is the scenario's load.
func (r *Run) request(s *scenario.Scenario) request {
	q := request{seed: r.seed, retries: s.Retries, warmUp: s.WarmUp}
	for _, route := range s.Routes {
		q.rate += route.Rate
		q.patience = max(q.patience, route.Patience)
		share := map[scenario.Feature]*float64{scenario.Checkout: &q.mix.Checkout, scenario.Search: &q.mix.Search, scenario.Recs: &q.mix.Recs}
		*share[route.Feature] += route.Rate
	}
	if s.Fault.Kind == fault.Poison { // so that one product has the share that poison is to have
		q.products = max(int(math.Round(1/s.Fault.Share)), 1)
	}
	return q
}

// story is what happens while the load runs.
func (p *play) story(ctx context.Context) error {
	f := p.scenario.Fault
	at := f.At
	if f.Kind == scenario.None {
		at += f.For
	}
	if err := sleep(ctx, at); err != nil {
		return err
	}
	if f.Kind != scenario.None {
		if err := p.act(ctx); err != nil {
			return err
		}
		if err := p.recover(ctx); err != nil {
			return err
		}
	}
	return sleep(ctx, settle)
}

func (p *play) act(ctx context.Context) error {
	f := p.scenario.Fault
	if f.Bites() {
		return p.sicken(ctx)
	}
	began := time.Now()
	defer func() { p.windows = append(p.windows, window{began, time.Now()}) }()
	switch f.Kind {
	case scenario.Rollout, scenario.DrainOff:
		return p.Shop.rollOut(ctx, f.On, p.found)
	case scenario.Unstartable:
		return p.Shop.releaseBroken(ctx, p.releaser, f.On, f.For, p.found)
	case scenario.Kill:
		return p.Shop.kill(ctx, p.found)
	case scenario.Evict:
		return p.Shop.evict(ctx, f.On, p.found)
	case scenario.Absent:
		return p.Shop.absent(ctx, f.On[0], f.For, p.found)
	case scenario.Grow:
		return p.Shop.grow(ctx, f.On, p.found)
	}
	return fmt.Errorf("%s: a cluster cannot play %q", p.scenario.Name, f.Kind)
}

// ttl is how much longer than wanted a fault lasts when nobody is left to end it.
const ttl = time.Minute

// switchTime bounds the setting and the clearing of a fault: a gateway may be busy.
const switchTime = 30 * time.Second

// sicken sets the fault, as often as the scenario says, and ends it each time.
func (p *play) sicken(ctx context.Context) error {
	faults, err := p.Shop.faults()
	if err != nil {
		return err
	}
	f := p.scenario.Fault
	for n := range max(f.Times, 1) {
		if n > 0 {
			if err := sleep(ctx, f.Pause); err != nil {
				return err
			}
		}
		wanted, _ := f.Request(f.For+ttl, p.product.ID)
		began := time.Now()
		err := eachService(f.On, func(service string) error {
			return await(ctx, switchTime, "the fault is set", func(ctx context.Context) (bool, error) {
				err := faults.Set(ctx, service, wanted)
				return err == nil, err
			})
		})
		if err == nil {
			err = sleep(ctx, f.For)
		}
		p.windows = append(p.windows, window{began, time.Now()})
		if err = errors.Join(err, p.well(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// well ends the fault, whether ctx has ended or not. A pod that waits for its next start is deleted, which is how somebody
// heals a crash loop at once.
func (p *play) well(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), switchTime)
	defer cancel()
	faults, err := p.Shop.faults()
	if err != nil {
		return err
	}
	return eachService(p.scenario.Fault.On, func(service string) error {
		err := await(ctx, switchTime, "the fault is cleared", func(ctx context.Context) (bool, error) {
			err := faults.Clear(ctx, service)
			return err == nil, err
		})
		return errors.Join(err, p.Shop.deleteWaiting(ctx, service))
	})
}

func eachService(services []string, do func(string) error) error {
	var errs []error
	for _, service := range services {
		errs = append(errs, do(service))
	}
	return errors.Join(errs...)
}

// deleteWaiting deletes the pods of a process that are in CrashLoopBackOff.
func (s *Shop) deleteWaiting(ctx context.Context, service string) error {
	processes, err := s.processes(ctx, []string{service})
	if err != nil {
		return err
	}
	pods, err := s.podsOf(ctx, processes[0].Name)
	if err != nil {
		return err
	}
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == crashLoop {
				if err := s.client.CoreV1().Pods(s.Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{}); err != nil {
					return fmt.Errorf("delete pod %s: %w", pods[i].Name, err)
				}
			}
		}
	}
	return nil
}

const crashLoop = "CrashLoopBackOff"

// recover waits until the shop is whole: recommendations are there, and orders are taken, a few times in a row.
func (p *play) recover(ctx context.Context) error {
	began := time.Now()
	good := 0
	err := await(ctx, recovery, "the shop is whole again", func(ctx context.Context) (bool, error) {
		if err := p.Shop.whole(ctx, p.product); err != nil {
			good = 0
			return false, err
		}
		good++
		return good == inARow, nil
	})
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		p.found.notef(scenario.Recovers, false, "%v", err)
		return nil
	}
	p.found.notef(scenario.Recovers, true, "within %.0f s", time.Since(began).Seconds())
	return nil
}

// anyProduct is one of the shop's products.
func (s *Shop) anyProduct(ctx context.Context) (product, error) {
	at := s.gateway().JoinPath("api", "v1", "products")
	at.RawQuery = "page_size=1"
	var page struct {
		Products []product `json:"products"`
	}
	content, err := s.get(ctx, at)
	if err == nil {
		err = json.Unmarshal(content, &page)
	}
	if err != nil {
		return product{}, fmt.Errorf("ask the shop for a product: %w", err)
	}
	if len(page.Products) == 0 {
		return product{}, errors.New("the shop sells no products")
	}
	return page.Products[0], nil
}

// whole asks for recommendations and places an order; the error says what is not as it should be.
func (s *Shop) whole(ctx context.Context, p product) error {
	ctx, cancel := context.WithTimeout(ctx, 2*lookTimeout)
	defer cancel()
	at := s.gateway().JoinPath("api", "v1", "recommendations")
	at.RawQuery = "product_id=" + p.ID
	header, _, err := s.do(ctx, http.MethodGet, at, nil, "")
	if err != nil {
		return err
	}
	if degraded := header.Get("Watertight-Degraded"); degraded != "" {
		return fmt.Errorf("answers come without %s", degraded)
	}
	order, err := json.Marshal(load.Order{
		CustomerID: "lab", Currency: p.Price.Currency, PaymentToken: load.GoodToken, Lines: []load.OrderLine{{ProductID: p.ID, Quantity: 1}},
	})
	if err != nil {
		return fmt.Errorf("write an order: %w", err)
	}
	_, _, err = s.do(ctx, http.MethodPost, s.gateway().JoinPath("api", "v1", "orders"), http.Header{
		"Content-Type": {"application/json"}, "Idempotency-Key": {load.NewRunID()},
	}, string(order))
	return err
}

// write fills in what the load and the watch have seen.
func (p *play) write(measured load.Result) {
	c := p.cell
	p.load = measured
	c.Measured, c.Series = measure.Figures(measured, p.scenario), measure.Series(measured, p.scenario)
	c.Started, c.Length, c.Warnings = measured.Started, measured.Measured+c.WarmUp, slices.DeleteFunc(measured.Warnings, interrupted)
	if len(p.windows) > 0 && p.scenario.Fault.Kind != scenario.None {
		at := seconds(p.windows[0].from.Sub(measured.Started))
		c.FaultAt = &at
	}
	p.watch.finish(c, measured.Started)
}

// interrupted is the load's warning that it ended early: it was asked to.
func interrupted(warning string) bool { return strings.HasPrefix(warning, "the run ended early") }
