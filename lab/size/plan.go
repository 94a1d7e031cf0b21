package size

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/alecthomas/kong"
)

// Inputs are the shop that is to be sized. The tags hold the defaults.
type Inputs struct {
	Route []string `sep:"none" placeholder:"NAME=RATE,TIME,WORKERS" help:"A feature: requests a second, mean time, own workers. May be repeated."`

	Workers     int           `default:"16" help:"Workers, where all features share them."`
	Slow        string        `default:"recs" placeholder:"NAME" help:"The feature that turns slow (${default})."`
	SlowTime    time.Duration `default:"2s" help:"What it takes then."`
	Timeout     time.Duration `default:"0" help:"The time-out that you have on calls to it, to be checked; 0 is not known."`
	Utilisation float64       `default:"0.75" help:"How busy workers may be in the mean."`

	Replicas int           `default:"1" help:"Replicas of the callers, which divide what the slow feature can take."`
	Tries    int           `default:"1" help:"Tries of a call, the first included, to be checked."`
	PerTry   time.Duration `default:"0" help:"Time-out of each try, to be checked; 0 is not known."`
	Deadline time.Duration `default:"1s" help:"The caller's deadline, for all tries together."`

	DBConnections int      `name:"db-connections" default:"100" help:"max_connections of the database."`
	DBPool        []string `name:"db-pool" sep:"none" placeholder:"NAME=REPLICAS,CONNECTIONS" help:"A pool of its connections, to be checked. May be repeated."`

	Availability float64       `default:"0.999" help:"Availability of each part of a chain of synchronous calls."`
	Chain        int           `default:"5" help:"How many parts the chain has."`
	Redeploy     time.Duration `default:"4s" help:"How long a redeploy without a drain is away."`
	Critical     string        `default:"checkout" placeholder:"NAME" help:"The feature whose losses count (${default})."`
	CrashAfter   time.Duration `default:"50ms" help:"How long after its start a slow feature's request ends its process, in a crash loop."`
	Restart      time.Duration `default:"2s" help:"How long a crashed process is away."`
	GatewayTime  time.Duration `default:"200us" help:"The gateway's own work on a request."`
	Hop          time.Duration `default:"1200us" help:"Mean way from process to process."`

	Waits     bool    `help:"Also how long requests wait for a worker, in a pool of their own and in a shared one."`
	Shards    []int   `placeholder:"N,K" help:"Also what shuffle sharding comes to: K of N replicas for each customer."`
	FanOut    int     `default:"0" placeholder:"N" help:"Also what a request meets that waits for the slowest of N parts."`
	SlowShare float64 `default:"0.01" help:"How often each part of those is slow."`
	Cells     int     `default:"0" placeholder:"N" help:"Also what it means to have N cells."`
}

// Default returns the inputs that the tags give.
func Default() Inputs {
	var in Inputs
	if err := kong.ApplyDefaults(&in); err != nil {
		panic("size: a default in a tag is malformed: " + err.Error()) // the tags are constants, and a test reads them
	}
	return in
}

// Route is a feature's traffic, and the workers of its own.
type Route struct {
	Name    string
	Rate    float64 // requests a second
	Time    time.Duration
	Workers int
}

// Pool is a service's connections to a database.
type Pool struct {
	Name        string
	Replicas    int
	Connections int // of each replica
}

// Validate returns what is wrong, joined; each error starts with the flag's name.
func (in Inputs) Validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const most = 1_000_000
	add(in.Workers < 1 || in.Workers > most, "--workers: must be between 1 and %d, got %d", most, in.Workers)
	add(!(in.Utilisation > 0 && in.Utilisation < 1), "--utilisation: must be between 0 and 1, got %v", in.Utilisation)
	add(!(in.Availability > 0 && in.Availability <= 1), "--availability: must be more than 0 and at most 1, got %v", in.Availability)
	add(in.Chain < 1 || in.Chain > 1000, "--chain: must be between 1 and 1000, got %d", in.Chain)
	add(in.Replicas < 1 || in.Replicas > most, "--replicas: must be between 1 and %d, got %d", most, in.Replicas)
	add(in.Tries < 1 || in.Tries > 100, "--tries: must be between 1 and 100, got %d", in.Tries)
	add(in.DBConnections < 1 || in.DBConnections > most, "--db-connections: must be between 1 and %d, got %d", most, in.DBConnections)
	add(in.Shards != nil && (len(in.Shards) != 2 || in.Shards[1] < 1 || in.Shards[0] < in.Shards[1] || in.Shards[0] > 1000),
		"--shards: must be N,K with 1 ≤ K ≤ N ≤ 1000, got %v", in.Shards)
	add(in.FanOut < 0 || in.FanOut > most, "--fan-out: must be between 0 and %d, got %d", most, in.FanOut)
	add(!(in.SlowShare >= 0 && in.SlowShare <= 1), "--slow-share: must be between 0 and 1, got %v", in.SlowShare)
	add(in.Cells < 0 || in.Cells == 1 || in.Cells > most, "--cells: must be 0 (none), or between 2 and %d, got %d", most, in.Cells)
	for _, d := range []struct {
		flag string
		d    time.Duration
		zero bool
	}{
		{"slow-time", in.SlowTime, false}, {"timeout", in.Timeout, true}, {"per-try", in.PerTry, true}, {"deadline", in.Deadline, false},
		{"redeploy", in.Redeploy, true}, {"crash-after", in.CrashAfter, true}, {"restart", in.Restart, false},
		{"gateway-time", in.GatewayTime, true}, {"hop", in.Hop, true},
	} {
		least := time.Duration(1)
		if d.zero {
			least = 0
		}
		add(d.d < least || d.d > 24*time.Hour, "--%s: must be between %v and 24h, got %v", d.flag, least, d.d)
	}
	return errors.Join(errs...)
}

// Line is one figure, with where it comes from.
type Line struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"` // s, workers, percent, requests, connections or empty
	Text    string  `json:"text"` // the value as people write it
	Formula string  `json:"formula"`
}

// Plan is what the inputs come to.
type Plan struct {
	Lines    []Line   `json:"figures"`
	Warnings []string `json:"warnings"` // settings that are not safe
}

// Calculate works everything out. The slow and the critical feature must be among the routes.
func Calculate(in Inputs, routes []Route, pools []Pool) (Plan, error) {
	if err := in.Validate(); err != nil {
		return Plan{}, err
	}
	slow, err := named(routes, "--slow", in.Slow)
	if err != nil {
		return Plan{}, err
	}
	critical, err := named(routes, "--critical", in.Critical)
	if err != nil {
		return Plan{}, err
	}
	p := sums{Plan: Plan{Warnings: []string{}}, in: in, slow: slow}
	p.busy(routes)
	p.timeouts()
	p.pools(routes)
	p.costs(critical)
	p.connections(pools, routes)
	p.tries()
	p.waits(routes)
	p.fleet()
	return p.Plan, nil
}

func named(routes []Route, flag, name string) (Route, error) {
	for _, r := range routes {
		if r.Name == name {
			return r, nil
		}
	}
	return Route{}, fmt.Errorf("%s %s: no route has that name", flag, name)
}

// sums adds up a plan.
type sums struct {
	Plan
	in     Inputs
	slow   Route
	others float64 // workers that all but the slow feature keep busy
}

func (p *sums) linef(name string, value float64, unit, text, format string, args ...any) {
	p.Lines = append(p.Lines, Line{Name: name, Value: value, Unit: unit, Text: text, Formula: fmt.Sprintf(format, args...)})
}

func (p *sums) warnf(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

func (p *sums) busy(routes []Route) {
	total := 0.0
	for _, r := range routes {
		busy := Busy(r.Rate, r.Time)
		total += busy
		if r.Name != p.slow.Name {
			p.others += busy
		}
		p.linef("busy "+r.Name, busy, "workers", decimal(busy, 3), "L = λW = %s/s x %v", plain(r.Rate), r.Time)
		if busy > float64(r.Workers) {
			p.warnf("%s needs %s workers on a normal day and has %d of its own: its queue grows without bound", r.Name, decimal(busy, 2), r.Workers)
		}
	}
	p.linef("busy in all", total, "workers", fmt.Sprintf("%s of %d (%s %%)", decimal(total, 3), p.in.Workers, decimal(100*total/float64(p.in.Workers), 1)),
		"the sum of the above, where all share %d", p.in.Workers)
	need := Busy(p.slow.Rate, p.in.SlowTime)
	p.linef("busy "+p.slow.Name+", slow", need, "workers", decimal(need, 3), "L = λW = %s/s x %v", plain(p.slow.Rate), p.in.SlowTime)
	fill := FillTime(p.in.Workers, p.slow.Rate)
	p.linef("fill time", fill.Seconds(), "s", seconds3(fill), "workers ÷ λ = %d ÷ %s/s", p.in.Workers, plain(p.slow.Rate))
}

func (p *sums) timeouts() {
	boundary := TimeoutBoundary(p.in.Workers, p.others, p.slow.Rate)
	p.linef("time-out boundary", boundary.Seconds(), "s", milliseconds(boundary), "(workers − others) ÷ λ = (%d − %s) ÷ %s/s; full in the mean, not safe",
		p.in.Workers, decimal(p.others, 3), plain(p.slow.Rate))
	safe := SafeTimeout(p.in.Workers, p.others, p.slow.Rate, p.in.Utilisation)
	p.linef("recommended time-out", safe.Seconds(), "s", milliseconds(safe), "(workers x %s − others) ÷ λ = (%s − %s) ÷ %s/s",
		plain(p.in.Utilisation), plain(float64(p.in.Workers)*p.in.Utilisation), decimal(p.others, 3), plain(p.slow.Rate))
	if safe == 0 {
		p.warnf("the other features alone keep the %d workers busier than %s: no time-out makes the pool safe", p.in.Workers, plain(p.in.Utilisation))
	}
	switch t := p.in.Timeout; {
	case t == 0:
	case t >= boundary:
		p.warnf("--timeout %v is not below the boundary of %s: with %s slow, the shared pool of %d is full and its queue grows without bound",
			t, milliseconds(boundary), p.slow.Name, p.in.Workers)
	case t > safe:
		p.warnf("--timeout %v is above the recommended %s: bursts will queue", t, milliseconds(safe))
	}
	if p.in.Timeout >= p.in.Deadline {
		p.warnf("--timeout %v leaves nothing of the caller's deadline of %v for a fallback", p.in.Timeout, p.in.Deadline)
	}
}

func (p *sums) pools(routes []Route) {
	for _, r := range routes {
		busy := Busy(r.Rate, r.Time)
		n := PoolSize(busy, p.in.Utilisation)
		p.linef("pool "+r.Name, float64(n), "workers", fmt.Sprintf("%d, has %d", n, r.Workers),
			"⌈L ÷ %s⌉ = ⌈%s ÷ %[1]s⌉, the least that the mean load wants", plain(p.in.Utilisation), decimal(busy, 3))
		if have := float64(r.Workers) * p.in.Utilisation; busy > have && busy <= float64(r.Workers) {
			p.warnf("%s keeps its %d workers %s %% busy, more than %s %%", r.Name, r.Workers,
				decimal(100*busy/float64(r.Workers), 0), decimal(100*p.in.Utilisation, 0))
		}
	}
	limit := PerReplica(p.slow.Workers, p.in.Replicas)
	p.linef("limit per replica", float64(limit), "requests", fmt.Sprint(limit), "⌊%s can take ÷ callers⌋ = ⌊%d ÷ %d⌋",
		p.slow.Name, p.slow.Workers, p.in.Replicas)
	if limit*p.in.Replicas > p.slow.Workers {
		p.warnf("--replicas %d: even with one request each they send %s more than its %d workers take", p.in.Replicas, p.slow.Name, p.slow.Workers)
	}
}

func (p *sums) costs(critical Route) {
	chain := Series(p.in.Availability, p.in.Chain)
	p.linef("series availability", 100*chain, "percent", decimal(100*chain, 3)+" %", "A^n = %s^%d, if failures are independent",
		plain(p.in.Availability), p.in.Chain)
	lost := RedeployLoss(critical.Rate, p.in.Redeploy)
	p.linef("redeploy loss", lost, "requests", decimal(lost, 0), "λ x time away = %s/s x %v of %s", plain(critical.Rate), p.in.Redeploy, critical.Name)
	toCrash := TimeToCrash(p.slow.Rate, p.in.CrashAfter)
	up := UpFraction(toCrash, p.in.Restart)
	p.linef("crash-loop up-fraction", 100*up, "percent", decimal(100*up, 2)+" %", "t ÷ (t + restart) = %s ÷ %s, t = 1 ÷ λ + %v",
		milliseconds(toCrash), milliseconds(toCrash+p.in.Restart), p.in.CrashAfter)
	hop := HopCost(p.in.GatewayTime, p.in.Hop)
	p.linef("hop cost", hop.Seconds(), "s", milliseconds(hop), "gateway + there + back = %s + %s + %[2]s",
		milliseconds(p.in.GatewayTime), milliseconds(p.in.Hop))
}

func (p *sums) connections(pools []Pool, routes []Route) {
	if len(pools) == 0 {
		return
	}
	sum := 0
	for _, pool := range pools {
		sum += pool.Replicas * pool.Connections
		route, err := named(routes, "--db-pool", pool.Name)
		if err == nil && route.Workers > pool.Replicas*pool.Connections {
			p.warnf("%s has %d workers and %d connections: the other workers only wait for one", pool.Name, route.Workers, pool.Replicas*pool.Connections)
		}
	}
	p.linef("database connections", float64(sum), "connections", fmt.Sprintf("%d of %d", sum, p.in.DBConnections), "Σ replicas x connections")
	if sum > p.in.DBConnections {
		p.warnf("the pools may open %d connections, and the database takes %d (--db-connections): the last ones will be refused", sum, p.in.DBConnections)
	}
}

func (p *sums) tries() {
	if p.in.PerTry > 0 {
		total := time.Duration(p.in.Tries) * p.in.PerTry
		p.linef("time for all tries", total.Seconds(), "s", total.String(), "tries x per try = %d x %v", p.in.Tries, p.in.PerTry)
		if total > p.in.Deadline {
			p.warnf("%d tries of %v take %v, more than the caller's deadline of %v: the last ones are work for nobody",
				p.in.Tries, p.in.PerTry, total, p.in.Deadline)
		}
	}
	if p.in.Tries > 1 {
		p.linef("load while it fails", float64(p.in.Tries), "", fmt.Sprintf("x %d", p.in.Tries), "tries, without a retry budget")
	}
}

func (p *sums) waits(routes []Route) {
	if !p.in.Waits {
		return
	}
	const formula = "Erlang C of %d workers with L = %s: chance to wait, and mean wait = chance x W ÷ (workers − L)"
	line := func(name string, workers int, rate float64, hold time.Duration) {
		chance, mean := Waits(workers, rate, hold)
		text := fmt.Sprintf("%s %%, %s", decimal(100*chance, 2), milliseconds(mean))
		if mean == math.MaxInt64 {
			text = "always, without end"
		}
		p.linef("waits in "+name, mean.Seconds(), "s", text, formula, workers, decimal(Busy(rate, hold), 3))
	}
	rate, busy := 0.0, 0.0
	for _, r := range routes {
		line(r.Name, r.Workers, r.Rate, r.Time)
		rate, busy = rate+r.Rate, busy+Busy(r.Rate, r.Time)
	}
	line("one pool", p.in.Workers, rate, seconds(busy/rate))
}

func (p *sums) fleet() {
	if s := p.in.Shards; s != nil {
		n, k := s[0], s[1]
		f := ShuffleShards(n, k)
		p.linef("subsets", f.Subsets, "", plain(f.Subsets), "n choose k, %d of %d", k, n)
		p.linef("share no replica", 100*f.Disjoint, "percent", significant(100*f.Disjoint)+" %", "(n−k choose k) ÷ (n choose k), of two customers")
		p.linef("share all of them", 100*f.Same, "percent", significant(100*f.Same)+" %", "1 ÷ (n choose k): goes down with a poisonous customer")
		p.linef("replicas a customer can take", 100*float64(k)/float64(n), "percent", significant(100*float64(k)/float64(n))+" %", "k ÷ n = %d ÷ %d", k, n)
	}
	if n := p.in.FanOut; n > 0 {
		chance := 100 * FanOut(p.in.SlowShare, n)
		p.linef("meets a slow part", chance, "percent", significant(chance)+" %", "1 − (1 − p)^n = 1 − %s^%d", plain(1-p.in.SlowShare), n)
	}
	if c := p.in.Cells; c > 0 {
		p.linef("customers that a cell's loss hits", 100/float64(c), "percent", significant(100/float64(c))+" %", "1 ÷ cells = 1 ÷ %d", c)
		p.linef("load of a cell, at most", 100*CellLoad(c), "percent", significant(100*CellLoad(c))+" %", "(c − 1) ÷ c, so that the others can take one over")
	}
}

// significant writes four digits that count.
func significant(x float64) string { return fmt.Sprintf("%.4g", x) }

func plain(x float64) string { return fmt.Sprintf("%.6g", x) }

func decimal(x float64, digits int) string { return fmt.Sprintf("%.*f", digits, x) }

func seconds3(d time.Duration) string {
	return fmt.Sprintf("%.4g s", d.Seconds())
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.6g ms", math.Round(float64(d)/1e3)/1e3)
}
