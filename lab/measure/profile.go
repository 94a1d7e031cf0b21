//go:build unix

package measure

import (
	"fmt"
	"strconv"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/shop"
	"example.com/watertight/lab/supervise"
	"example.com/watertight/platform/fault"
)

// The file says how a design is run: the lab profile. Service times are drawn as the simulation draws them; the pools are its
// pools. Raw designs get the limits of the experiment's published description, the others keep the shop's own.

// method is what a feature's requests call; only that takes the feature's service time.
func method(f scenario.Feature) string {
	return map[scenario.Feature]string{scenario.Checkout: "PlaceOrder", scenario.Search: "SearchProducts", scenario.Recs: "Recommend"}[f]
}

// played is the feature whose route plays another's: the shop has no exports, and recommendations stand for them, with the
// traffic, the service time and the pool that an export has.
func played(f scenario.Feature) scenario.Feature {
	if f == scenario.Export {
		return scenario.Recs
	}
	return f
}

// routes are those of the scenario that are really asked for: where exports are played, nothing else asks for recommendations.
func routes(s *scenario.Scenario) []scenario.Route {
	exports := false
	for _, r := range s.Routes {
		exports = exports || r.Feature == scenario.Export
	}
	var out []scenario.Route
	for _, r := range s.Routes {
		if !exports || r.Feature != scenario.Recs {
			out = append(out, r)
		}
	}
	return out
}

// options are the shop's for one cell, beside base.
func options(base shop.Options, in scenario.Inputs, s *scenario.Scenario, d *scenario.Design) shop.Options {
	o := base
	o.Design, o.Env = shopDesign(d), map[string]map[string]string{}
	for _, name := range o.Names() {
		o.Env[name] = common(in, s, d)
	}
	switch {
	case d.OnePool:
		o.Env[shop.Monolith]["POOL_SIZE"] = strconv.Itoa(s.Workers)
		if s.Queue > 0 {
			o.Env[shop.Monolith]["POOL_QUEUE"] = strconv.Itoa(s.Queue)
		}
	case d.OneProcess:
		pools(o.Env[shop.Monolith], s)
	case d.Name == scenario.Roles:
		for _, r := range routes(s) {
			pools(o.Env[string(played(r.Feature))], s)
		}
	default:
		for _, r := range routes(s) {
			o.Env[string(played(r.Feature))]["POOL_SIZE"] = strconv.Itoa(r.Workers)
		}
	}
	if d.CallsRecs {
		syncCall(o, in, d)
	}
	return o
}

func shopDesign(d *scenario.Design) string {
	if d.CallsRecs {
		return shop.Split
	}
	return d.Name
}

// common is what every process gets.
func common(in scenario.Inputs, s *scenario.Scenario, d *scenario.Design) map[string]string {
	env := map[string]string{
		"LOG_LEVEL": "warn", "DRAIN_TIMEOUT": "1s",
		"FAULT_SERVICE_SPREAD": number(in.Spread), "FAULT_SERVICE_TAIL_SHARE": number(in.TailShare), "FAULT_SERVICE_TAIL_FACTOR": number(in.TailFactor),
		"FAULT_OOM_BOUND": strconv.FormatInt(oomBound(in), 10),
		// The scenario is about locks; the server's connections are another matter (docs/decisions/0010-where-isolation-ends.md).
		"FAULT_DB_CONNECTIONS": "0",
	}
	times := ""
	for _, r := range routes(s) {
		if times != "" {
			times += ","
		}
		times += fmt.Sprintf("%s:%s", method(played(r.Feature)), r.Time)
	}
	env["FAULT_SERVICE_TIMES"] = times
	if d.Raw() {
		env["FAULT_IGNORE_CANCELLATION"] = "true"
	}
	return env
}

// oomBound is what the fault oom takes before it ends its process. It takes 400 MiB a second, and the inputs say after how
// many requests the memory is used up.
func oomBound(in scenario.Inputs) int64 {
	const perSecond, most = 400 << 20, 512 << 20
	seconds := float64(in.OOMCalls) / (in.Rate * in.RecsShare)
	return min(max(int64(seconds*perSecond), 8<<20), most)
}

// pools are each feature's own, in a process that has several or could have.
func pools(env map[string]string, s *scenario.Scenario) {
	total := 0
	for _, r := range routes(s) {
		name := map[scenario.Feature]string{scenario.Checkout: "CHECKOUT", scenario.Search: "SEARCH", scenario.Recs: "RECS"}[played(r.Feature)]
		env[name+"_POOL_SIZE"] = strconv.Itoa(r.Workers)
		if r.Queue > 0 {
			env[name+"_POOL_QUEUE"] = strconv.Itoa(r.Queue)
		}
		total += r.Workers
	}
	env["POOL_SIZE"] = strconv.Itoa(total)
}

// syncCall has checkout wait for recs. Raw, the whole shop has the limits of a shop that never thought of any.
func syncCall(o shop.Options, in scenario.Inputs, d *scenario.Design) {
	checkout := o.Env[string(scenario.Checkout)]
	if d.Guarded {
		checkout["RECS_IN_CHECKOUT"] = "guarded"
		return
	}
	checkout["RECS_IN_CHECKOUT"], checkout["RECS_RAW_TIMEOUT"] = "raw", in.SyncTimeout.String()
	const endless, never = "100000", "1000000"
	for _, name := range []string{"CHECKOUT", "SEARCH", "RECS"} {
		o.Env["gateway"][name+"_TIMEOUT"] = in.Patience.String()
		o.Env["gateway"][name+"_MAX_IN_FLIGHT"], o.Env["gateway"][name+"_MAX_QUEUE"] = endless, endless
		o.Env["gateway"][name+"_BREAKER_CONSECUTIVE"], o.Env["gateway"][name+"_BREAKER_MIN_CALLS"] = never, never
		if in.Patience >= 5*time.Second { // the breaker's own rule, though it never opens here
			o.Env["gateway"][name+"_BREAKER_OPEN"] = (2 * in.Patience).String()
		}
	}
	for _, name := range []scenario.Feature{scenario.Checkout, scenario.Search, scenario.Recs} {
		o.Env[string(name)]["POOL_QUEUE"] = endless
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// away is how long a process that the scenario ends is to be away.
func away(s *scenario.Scenario, d *scenario.Design) time.Duration {
	if d.OneBuild {
		return s.Fault.RestartWhole
	}
	return s.Fault.RestartOne
}

// restart is the delay before a process is started again, so that with its start-up it is away as long as it is to be. The
// start-up was seen beside that of all the others, and by itself a process may be quicker: so half of the time at least.
func restart(s *scenario.Scenario, d *scenario.Design, startUp time.Duration) supervise.Backoff {
	const least = 10 * time.Millisecond
	delay := max(away(s, d)-startUp, away(s, d)/2, least)
	return supervise.Backoff{First: delay, Max: delay, Quiet: time.Hour}
}

// traffic is the load of one cell.
func traffic(in scenario.Inputs, s *scenario.Scenario, target load.Target, products []load.Product, seed uint64) load.Config {
	c := load.Default()
	c.Target, c.Products, c.Seed, c.Rate, c.Mix = target, products, seed, 0, load.Mix{}
	c.Duration, c.Warmup, c.Timeout, c.ClientRetries = s.Length, s.WarmUp, in.Patience, s.Retries
	c.LateAfter = 5 * time.Millisecond
	for _, r := range routes(s) {
		c.Rate += r.Rate
		share := map[scenario.Feature]*float64{scenario.Checkout: &c.Mix.Checkout, scenario.Search: &c.Mix.Search, scenario.Recs: &c.Mix.Recs}
		*share[played(r.Feature)] += r.Rate
	}
	if s.Fault.Kind == fault.Poison && len(products) > 0 { // so that one product has the share that poison is to have
		c.Products = products[:min(max(int(1/max(s.Fault.Share, 1e-6)+0.5), 1), len(products))]
	}
	return c
}
