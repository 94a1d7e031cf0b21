package sim

import (
	"slices"
	"time"

	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/size"
	"example.com/watertight/platform/fault"
)

// Prediction is what arithmetic on means says of a cell, without a simulation. The errors are a lower bound where a pool or
// a process is overrun: they count who is not served at all, not who is served too late.
type Prediction struct {
	BusyWorkers     float64 `json:"busy_workers"` // that checkout's pool would need, L = λW
	Workers         int     `json:"workers"`      // that it has
	ErrorsPercent   float64 `json:"errors_percent"`
	OrdersPerSecond float64 `json:"orders_per_second"`
}

// forecast is one cell's arithmetic.
type forecast struct {
	in scenario.Inputs
	s  *scenario.Scenario
	d  *scenario.Design
}

// Predict works out a cell from means.
func Predict(in scenario.Inputs, s *scenario.Scenario, d *scenario.Design) Prediction {
	f := forecast{in, s, d}
	checkout, found := f.route(scenario.Checkout)
	if !found {
		return Prediction{}
	}
	load, workers := f.pool(checkout)
	failed := f.failed(checkout, load, workers)
	if f.restarts() && f.hit() {
		load *= f.up()
	}
	return Prediction{
		BusyWorkers: rounded(load), Workers: workers, ErrorsPercent: rounded(100 * failed),
		OrdersPerSecond: rounded(checkout.Rate * (1 - failed)),
	}
}

func (f forecast) route(feature scenario.Feature) (scenario.Route, bool) {
	return scenario.Find(f.s.Routes, string(feature), func(r scenario.Route) string { return string(r.Feature) })
}

// hold is how long a request keeps its worker once the fault has begun.
func (f forecast) hold(r scenario.Route) time.Duration {
	hold := size.MeanTime(r.Time, f.in.TailShare, f.in.TailFactor)
	if slices.Contains(f.s.Fault.Features, r.Feature) {
		switch f.s.Fault.Kind {
		case fault.Slow, fault.DBLock:
			hold = f.s.Fault.Delay
		case fault.CPU:
			hold = time.Duration(scaled(int64(hold), f.s.Fault.Factor))
		default:
		}
	}
	if f.d.CallsRecs && r.Feature == scenario.Checkout {
		hold += f.call()
	}
	return hold
}

// call is how long a checkout waits for recs.
func (f forecast) call() time.Duration {
	recs, found := f.route(scenario.Recs)
	if !found {
		return 0
	}
	if load, workers := f.pool(recs); load > float64(workers) {
		return f.in.SyncTimeout
	}
	return min(f.in.HopMin+f.in.HopMax+f.hold(recs), f.in.SyncTimeout)
}

// pool is what the pool of a route would need, and what it has. Clients whose requests fail anyhow send them again and again.
func (f forecast) pool(of scenario.Route) (load float64, workers int) {
	if !f.d.OnePool {
		load, workers = size.Busy(f.rate(of), f.hold(of)), of.Workers
	} else {
		workers = f.s.Workers
		for _, r := range f.s.Routes {
			load += size.Busy(f.rate(r), f.hold(r))
		}
	}
	if load > float64(workers) {
		load *= float64(1 + f.s.Retries)
	}
	return load, workers
}

// rate is how many requests reach a feature in a second.
func (f forecast) rate(r scenario.Route) float64 {
	if f.d.CallsRecs && r.Feature == scenario.Recs {
		if checkout, found := f.route(scenario.Checkout); found {
			return r.Rate + checkout.Rate
		}
	}
	return r.Rate
}

// failed is the share of the counted checkouts that fail.
func (f forecast) failed(checkout scenario.Route, load float64, workers int) float64 {
	counted := f.s.Length - f.s.WarmUp
	after := max(f.s.Length-max(f.s.Fault.At, f.s.WarmUp), 0)
	if f.s.Fault.Kind == scenario.Redeploy {
		if !f.hit() {
			return 0
		}
		return float64(min(f.away(), after)) / float64(counted)
	}
	failed := 0.0
	if load > float64(workers) {
		failed = 1 - float64(float64(workers)/load*float64(1+f.s.Retries))
	}
	if f.restarts() && f.hit() {
		failed = max(failed, 1-f.up())
	}
	if f.hold(checkout) > checkout.Patience || f.callFails() {
		failed = 1
	}
	return failed * float64(after) / float64(counted)
}

// restarts reports whether the fault ends processes over and over.
func (f forecast) restarts() bool {
	switch f.s.Fault.Kind {
	case fault.Crash, fault.OOM, fault.Poison:
		return true
	default:
		return false
	}
}

// hit reports whether checkout needs the process that the fault ends.
func (f forecast) hit() bool { return f.d.OneProcess || (f.d.CallsRecs && !f.in.SyncFallback) }

// callFails reports whether checkouts wait for an answer that does not come in time, and cannot do without.
func (f forecast) callFails() bool {
	recs, found := f.route(scenario.Recs)
	return found && f.d.CallsRecs && !f.in.SyncFallback && f.hold(recs) > f.in.SyncTimeout
}

func (f forecast) away() time.Duration {
	if f.d.OneBuild {
		return f.s.Fault.RestartWhole
	}
	return f.s.Fault.RestartOne
}

// up is the share of the time that the process is there.
func (f forecast) up() float64 {
	recs, _ := f.route(scenario.Recs)
	rate := f.rate(recs)
	if f.s.Fault.Kind == fault.OOM {
		return size.UpFraction(size.FillTime(f.s.Fault.Calls, rate), f.away())
	}
	return size.UpFraction(size.TimeToCrash(rate*f.s.Fault.Share, f.s.Fault.Delay), f.away())
}
