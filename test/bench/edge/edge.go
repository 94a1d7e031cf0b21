// Package edge compares the project's gateway with one that grpc-gateway makes of the same contracts, in front of the same
// services: requests per second of one core, which are what a gateway is paid for. The services are canned and run in this process,
// with the clients; of the gateways, which have processes of their own, the processor time is read.
package edge

import (
	"context"
	"errors"
	"strconv"
	"time"

	"example.com/watertight/platform/config"
	"example.com/watertight/test/bench/stage"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// guardLimit is the most of the gateway's processor time that its guards may take, in percent.
const guardLimit = 3

// settings are the part's variables.
type settings struct {
	Profiles string `env:"BENCH_PROFILES" help:"folder for CPU profiles of the gateway; empty keeps none"`
}

// pair is one thing that both gateways are asked for.
type pair struct {
	row          *table.Row
	ours, theirs *stage.Gateway
	ask          func(*stage.Gateway) func(context.Context) error
}

type part struct {
	stage    *stage.Stage
	length   time.Duration // of each measurement
	watched  time.Duration // of each profile, which has a hundred samples a second
	pairs    []pair
	profiled *stage.Gateway
	profiles string // folder that they are kept in; empty for none
	guard    *table.Row
}

// Start prepares the part.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	cfg, err := config.Load[settings](r.Environ)
	if err != nil {
		return nil, err
	}
	p := &part{length: 1200 * time.Millisecond, watched: 5 * time.Second, profiles: cfg.Profiles}
	if r.Quick {
		p.length, p.watched = 200*time.Millisecond, 2*time.Second
	}
	if p.stage, err = stage.Open(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stage.Close())
		}
	}()
	// The peer writes no access log.
	const peer, silent = "grpc-gateway, gobreaker, otelhttp", "LOG_LEVEL=warn"
	for _, c := range []contest{
		{"", peer, table.AtLeast(1.3), []string{silent}, nil},
		{", with its access log", peer, table.None(), nil, nil},
		{"", "the same with GOGC=400", table.None(), []string{silent}, []string{"GOGC=400"}},
		{", traced", peer, table.AtLeast(1), append(p.stage.Traced(), silent), p.stage.Traced()},
	} {
		if err := p.open(ctx, r, c); err != nil {
			return nil, err
		}
	}
	p.guard = r.Row("edge", "gateway, the guards' part of its CPU", "limit", "%", table.AtMost(1))
	if p.profiled, err = p.stage.Ours(ctx, "profiled", append(stage.Patient(), "PPROF_ENABLED=true")...); err != nil {
		return nil, err
	}
	return p, p.warm(ctx)
}

// contest is a gateway of each side with its settings.
type contest struct {
	how, against string
	target       table.Target
	ours, theirs []string
}

// open starts the gateways of a contest and adds the rows of what both are asked for.
func (p *part) open(ctx context.Context, r *suite.Run, c contest) error {
	name := strconv.Itoa(len(p.pairs))
	ours, err := p.stage.Ours(ctx, "gateway-"+name, append(stage.Patient(), c.ours...)...)
	if err != nil {
		return err
	}
	theirs, err := p.stage.Beside(ctx, "peer-"+name, "peer", append(stage.Patient(), c.theirs...)...)
	if err != nil {
		return err
	}
	theirs.KeyInBody = true
	const unit = "requests/s of a core"
	p.pairs = append(p.pairs,
		pair{r.Row("edge", "gateway, product page"+c.how, c.against, unit, c.target), ours, theirs,
			func(g *stage.Gateway) func(context.Context) error { return g.WholePage }},
		pair{r.Row("edge", "gateway, order"+c.how, c.against, unit, c.target), ours, theirs,
			func(g *stage.Gateway) func(context.Context) error { return g.Order }},
	)
	return nil
}

func (p *part) Close() error { return p.stage.Close() }

// warm lets heaps and connections grow to what they are under load.
func (p *part) warm(ctx context.Context) error {
	for _, one := range p.pairs {
		for _, g := range []*stage.Gateway{one.ours, one.theirs} {
			if _, err := g.Spent(ctx, p.length/2, one.ask(g)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Round measures every pair, one side after the other.
func (p *part) Round(ctx context.Context, _ int) error {
	for _, one := range p.pairs {
		ours, err := one.ours.Spent(ctx, p.length, one.ask(one.ours))
		if err != nil {
			return err
		}
		theirs, err := one.theirs.Spent(ctx, p.length, one.ask(one.theirs))
		if err != nil {
			return err
		}
		one.row.Add(float64(time.Second)/float64(ours), float64(time.Second)/float64(theirs))
	}
	profile, err := profiled(ctx, p.profiled, p.watched, p.profiles)
	if err != nil {
		return err
	}
	p.guard.Add(guardShare(profile), guardLimit)
	return nil
}
