//go:build unix

package curve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/measure"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
)

// Options say what to measure, and on what.
type Options struct {
	// Load and Services are the curves: over the load, and over the replicas of each service (recs, checkout).
	Load     bool
	Services []string
	Shares   []float64 // of the capacity, in the order of the steps
	Most     int       // replicas
	StepTime time.Duration
	Mix      load.Mix // of the curve over the load
	Deadline time.Duration
	Seed     uint64

	Runner runner.Options // its shop is the split, and its port offset the run's
	// Say gets a line for each step that is over, Show what is under way, over and over.
	Say, Show func(line string)
}

// Validate names what cannot be.
func (o Options) Validate() error {
	var errs []error
	refuse := func(when bool, format string, args ...any) {
		if when {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, name := range o.Services {
		_, known := bottlenecks()[name]
		refuse(!known, "service %q: there are curves for recs and checkout", name)
	}
	refuse(len(o.Shares) == 0, "shares: there are none")
	for _, s := range o.Shares {
		refuse(!(s > 0) || s > 10, "share %g: must be more than 0 and at most 10", s)
	}
	refuse(o.Most < 1 || o.Most > 8, "replicas %d: must be 1 to 8", o.Most)
	refuse(o.StepTime < 200*time.Millisecond || o.StepTime > time.Hour, "step %v: must be 200ms to %v", o.StepTime, time.Hour)
	refuse(o.Deadline <= 0, "deadline %v: must be more than 0", o.Deadline)
	return errors.Join(errs...)
}

// Replicas are the most that there will be of each service at once.
func (o Options) Replicas() map[string]int {
	most := map[string]int{}
	for _, name := range o.Services {
		most[name] = o.Most
	}
	return most
}

// Run measures the curves on shops of their own, one after the other. When ctx ends early it returns ctx's error; nothing is
// left running either way.
func Run(ctx context.Context, o Options) (_ *File, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	r := &run{Options: o, file: &File{
		Kind: Kind, Started: began.Truncate(time.Second), Machine: measure.Machine(), Versions: measure.Versions(), Seed: o.Seed,
		StepTime: o.StepTime.Seconds(), Warnings: []string{},
	}}
	r.Say("building the programs (the first time takes minutes)")
	if err := runner.Build(ctx, o.Runner, shop.Split); err != nil {
		return nil, err
	}
	o.Runner.Shop.Replicas = o.Replicas() // the databases are made for the most
	stage, err := runner.Raise(ctx, o.Runner, shop.Split)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	r.stage, r.file.Versions["postgresql"] = stage, strconv.Itoa(stage.PostgreSQL())
	if o.Load {
		if err := r.overLoad(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Services {
		if err := r.overReplicas(ctx, name); err != nil {
			return nil, err
		}
	}
	r.doubt()
	r.file.Took = time.Since(began).Seconds()
	return r.file, nil
}

// run is one run under way.
type run struct {
	Options
	file  *File
	stage *runner.Stage
}

// within has a shop with those replicas and environment while the work is done, with the traffic's target filled in.
func (r *run) within(ctx context.Context, replicas map[string]int, env map[string]map[string]string, work func(traffic) error) (err error) {
	o := shop.Options{Design: shop.Split, PortOffset: r.Runner.Shop.PortOffset, Replicas: replicas, Env: env}
	running, err := r.stage.Open(ctx, o, supervise.DefaultBackoff())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.End()) }()
	target, err := load.ParseTarget(running.Gateway())
	if err != nil {
		return err
	}
	products, err := target.Products(ctx, load.Default().MaxProducts)
	if err != nil {
		return err
	}
	return work(traffic{target: target, products: products, checkout: running.Admin()["checkout"]})
}

// traffic is the load of one step.
type traffic struct {
	target   load.Target
	products []load.Product
	checkout string // its admin address
	mix      load.Mix
	rate     float64
	share    float64 // of the capacity
	length   time.Duration
	label    string
}

// step holds a rate, and waits until the shop has nothing left to do.
func (r *run) step(ctx context.Context, t traffic) (Step, error) {
	c := load.Default()
	c.Target, c.Products, c.Mix, c.Rate, c.Seed = t.target, t.products, t.mix, t.rate, r.Seed
	c.Warmup = t.length / 4
	c.Duration, c.Timeout = t.length+c.Warmup, r.Deadline
	c.Progress = func(p load.Progress) { r.Show(t.label + ": " + p.String()) }
	measured, err := load.Run(ctx, c)
	if err != nil {
		return Step{}, err
	}
	s := stepOf(measured, t.share)
	if s.Settle, err = r.settle(ctx, t); err != nil {
		return s, err
	}
	r.Say(fmt.Sprintf("%s: offered %.0f/s, goodput %.0f/s, shed %.0f/s, late %.0f/s, failed %.0f/s, p50 %.1f ms, p99 %.1f ms", t.label, s.Offered, s.Goodput,
		s.Shed, s.Late, s.Failed, s.P50, s.P99))
	return s, nil
}

// settleBound is how long the orders of a step may take to be confirmed or cancelled, and lookEvery how often checkout looks.
const (
	settleBound = 2 * time.Minute
	lookEvery   = 200 * time.Millisecond
)

// settle waits until checkout has no order that is pending, and returns how long that took, to a look or two.
func (r *run) settle(ctx context.Context, t traffic) (float64, error) {
	began := time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for time.Since(began) < settleBound {
		select { // what checkout says before its next look is older than the last order
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-ticker.C:
		}
		oldest, err := oldestPending(ctx, t.checkout)
		if err != nil {
			return 0, err
		}
		if oldest == 0 {
			break
		}
		r.Show(fmt.Sprintf("%s: waiting for the orders that are under way, the oldest for %.0f s", t.label, oldest))
	}
	return time.Since(began).Seconds(), nil
}

// oldestPending is the age of the oldest order that is not settled, in seconds, as checkout's metrics have it.
func oldestPending(ctx context.Context, admin string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if value, is := strings.CutPrefix(lines.Text(), "watertight_order_oldest_pending_seconds "); is {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(errors.New("checkout does not say how old its oldest pending order is"), lines.Err())
}

// The search for the capacity starts with this rate and goes on in these steps, until the goodput has not grown twice: once may be the
// machine's fault. The best rate is then held some times more.
const (
	searchFrom   = 200.0
	searchFactor = 1.5
	searchGrowth = 1.05
	searchAgain  = 3
)

// overLoad finds the capacity, and measures at each share of it.
func (r *run) overLoad(ctx context.Context) error {
	return r.within(ctx, nil, quiet(), func(t traffic) error {
		l := &Load{Mix: r.Mix.String(), Deadline: float64(r.Deadline.Milliseconds())}
		r.file.Load = l
		t.mix, t.length = r.Mix, r.StepTime/2
		if err := r.search(ctx, t, l); err != nil {
			return err
		}
		t.length = r.StepTime
		for _, share := range r.Shares {
			t.rate, t.share, t.label = share*l.Capacity, share, fmt.Sprintf("load, %.0f %% of the capacity", 100*share)
			s, err := r.step(ctx, t)
			if err != nil {
				return err
			}
			l.Steps = append(l.Steps, s)
		}
		l.judge()
		return nil
	})
}

// search finds the capacity.
func (r *run) search(ctx context.Context, t traffic, l *Load) error {
	hold := func(rate float64) (Step, error) {
		t.rate, t.label = rate, fmt.Sprintf("search for the capacity, %.0f/s", rate)
		return r.step(ctx, t)
	}
	best, bestRate := 0.0, 0.0
	for rate, flat := searchFrom, 0; flat < 2; rate *= searchFactor {
		s, err := hold(rate)
		if err != nil {
			return err
		}
		l.Search = append(l.Search, s)
		if s.Goodput < best*searchGrowth {
			flat++
		} else {
			flat = 0
		}
		if s.Goodput > best {
			best, bestRate = s.Goodput, rate
		}
	}
	again := make([]Step, searchAgain)
	for i := range again {
		var err error
		if again[i], err = hold(bestRate); err != nil {
			return err
		}
	}
	l.settle(again)
	return nil
}

// quiet has every process log warnings only, and checkout look often at what is pending.
func quiet() map[string]map[string]string {
	env := map[string]map[string]string{}
	for _, name := range (shop.Options{Design: shop.Split}).Names() {
		env[name] = map[string]string{"LOG_LEVEL": "warn"}
	}
	env["checkout"]["METRICS_POLL"] = (lookEvery / 2).String()
	return env
}

// bottleneck is a service whose few workers take a fixed time for each call, so that they are used up long before the machine is.
type bottleneck struct {
	method  string
	mix     load.Mix
	workers int
	time    time.Duration
}

func bottlenecks() map[string]bottleneck {
	return map[string]bottleneck{
		"recs":     {method: "Recommend", mix: load.Mix{Recs: 1}, workers: 4, time: 40 * time.Millisecond},
		"checkout": {method: "PlaceOrder", mix: load.Mix{Checkout: 1}, workers: 4, time: 80 * time.Millisecond},
	}
}

// gatewayLimit is above what eight replicas hold.
const gatewayLimit = "128"

// What a number of replicas is asked for, as a share of what it can take.
const (
	under = 0.7
	over  = 1.5
)

// waiting is how many calls wait for each worker: so few that a call too many is turned away by the service, and does not time out.
const waiting = 2

// overReplicas measures a service with one replica, with two, and so on. The gateway waits longer for recommendations than it does by
// default, so that a busy machine does not open the breaker; it lets through what all replicas hold.
func (r *run) overReplicas(ctx context.Context, service string) error {
	b := bottlenecks()[service]
	curve := Replicas{Service: service, Workers: b.workers, ServiceTime: float64(b.time.Milliseconds()), PerReplica: float64(b.workers) / b.time.Seconds()}
	for n := 1; n <= r.Most; n++ {
		env := quiet()
		env[service]["FAULT_SERVICE_TIMES"] = b.method + ":" + b.time.String()
		env[service]["FAULT_SERVICE_SPREAD"], env[service]["FAULT_SERVICE_TAIL_SHARE"] = "0", "0"
		env[service]["POOL_SIZE"], env[service]["POOL_QUEUE"] = strconv.Itoa(b.workers), strconv.Itoa(waiting*b.workers)
		env["gateway"]["RECS_TIMEOUT"] = "700ms"
		env["gateway"]["RECS_MAX_IN_FLIGHT"], env["gateway"]["CHECKOUT_MAX_IN_FLIGHT"] = gatewayLimit, gatewayLimit
		step := ReplicasStep{Replicas: n}
		err := r.within(ctx, map[string]int{service: n}, env, func(t traffic) (err error) {
			t.mix, t.length = b.mix, r.StepTime
			ask := func(share float64) (Step, error) {
				t.share, t.rate = share, share*float64(n)*curve.PerReplica
				t.label = fmt.Sprintf("%d of %s, %.0f %% of what they can take", n, service, 100*share)
				return r.step(ctx, t)
			}
			if step.Under, err = ask(under); err != nil {
				return err
			}
			step.Over, err = ask(over)
			return err
		})
		if err != nil {
			return err
		}
		curve.Steps = append(curve.Steps, step)
	}
	r.file.Replicas = append(r.file.Replicas, curve)
	return nil
}

// lateFrom is the share of late starts from which a step is worth a warning: the generator shares the machine with the shop.
const lateFrom = 0.05

// doubt says what makes the numbers mean less than they seem to.
func (r *run) doubt() {
	add := func(format string, args ...any) {
		r.file.Warnings = append(r.file.Warnings, fmt.Sprintf(format, args...))
	}
	if m := r.file.Machine; m.Load > float64(m.CPUs)/2 {
		add("the machine was busy before the run (load %.1f on %d CPUs)", m.Load, m.CPUs)
	}
	late := 0
	if l := r.file.Load; l != nil {
		for _, s := range l.Steps {
			if s.Share <= 1 && s.LateStarts > lateFrom {
				late++
			}
		}
	}
	if late > 0 {
		add("in %d steps below the capacity the generator, on the shop's machine, sent more than %.0f %% of the requests over a millisecond late",
			late, 100*lateFrom)
	}
}
