// Package poison looks for requests that kill the server they reach. It counts, per product, how often a replica of recs died
// with a request for it in flight, and how often one was answered: a popular product is often there when a replica dies of
// another, and far more often when none does, so its ratio stays low. It reports and does nothing about it: whether to keep a
// product from recs is a person's decision.
package poison

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Config says when a product is suspected.
type Config struct {
	Deaths int           `env:"DEATHS" envDefault:"2" help:"deaths of a recs replica with a product's request in flight that are worth a warning"`
	Ratio  float64       `env:"RATIO" envDefault:"0.3" help:"share of deaths among its requests from which a product is suspected"`
	Window time.Duration `env:"WINDOW" envDefault:"10m" help:"how far back requests count, at least; twice that at most"`
}

// Validate checks the limits.
func (c Config) Validate() error {
	var errs []error
	if c.Deaths < 1 {
		errs = append(errs, errors.New("DEATHS: must be at least 1"))
	}
	if !(c.Ratio > 0 && c.Ratio <= 1) { // NaN too
		errs = append(errs, errors.New("RATIO: must be more than 0 and at most 1"))
	}
	if c.Window <= 0 {
		errs = append(errs, errors.New("WINDOW: must be more than 0s"))
	}
	return errors.Join(errs...)
}

const (
	// maxProducts bounds the memory, per half of the window. The least suspicious of a few make room for a new one.
	maxProducts = 4096
	// maxID is the contract's limit for a product id; what is longer, recs refuses before it looks at it.
	maxID = 64
	// maxListed is how many suspects are shown, the most suspicious first.
	maxListed = 20
)

// Suspect is a product whose requests were in flight when replicas died, more often than its popularity explains.
type Suspect struct {
	ProductID string  `json:"product_id"` // in upper case: ids that differ only in case are one product
	Deaths    int     `json:"deaths"`     // requests whose replica died, or lost its connection, under them
	Served    int     `json:"served"`     // requests that were answered, with an error or without
	Ratio     float64 `json:"ratio"`      // deaths / (deaths + served)
}

// count is what became of a product's requests.
type count struct{ deaths, served int }

func (c count) ratio() float64 {
	return float64(c.deaths) / float64(max(1, c.deaths+c.served))
}

// Report watches the calls of a connection to recs, as a grpc stats handler (grpc.WithStatsHandler). It may be used from any
// goroutine.
type Report struct {
	cfg    Config
	method string

	mu         sync.Mutex
	log        *slog.Logger
	now, past  map[string]count // this half of the window and the one before
	turnedOver time.Time
	warned     map[string]bool // products that a warning was written for, and that are still suspected
}

var _ stats.Handler = (*Report)(nil)

// New returns a Report on calls of method (/package.Service/Method), whose requests name their product with GetProductId. It
// writes no log until LogTo.
func New(cfg Config, method string, reg prometheus.Registerer) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Report{cfg: cfg, method: method, log: slog.New(slog.DiscardHandler), now: map[string]count{}, turnedOver: time.Now(), warned: map[string]bool{}}
	err := reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "watertight_poison_suspects",
		Help: "Products that were in flight when recs replicas died, POISON_DEATHS times at least, more often than their popularity explains.",
	}, func() float64 { return float64(r.alarming()) }))
	if err != nil {
		return nil, err
	}
	return r, nil
}

// LogTo makes the warnings go to log: one for each product that reaches POISON_DEATHS and POISON_RATIO.
func (r *Report) LogTo(log *slog.Logger) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = log
}

// Suspects lists the products that a replica has died with, and whose ratio says more than that they are popular; the highest
// ratio first, 20 at most. A single death may be chance: look at the second.
func (r *Report) Suspects() []Suspect {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.suspects()
	return list[:min(len(list), maxListed)]
}

func (r *Report) alarming() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.suspects() {
		if s.Deaths >= r.cfg.Deaths {
			n++
		}
	}
	return n
}

// suspects is called with the lock held.
func (r *Report) suspects() []Suspect {
	r.turnOver()
	dead := map[string]bool{}
	for _, half := range []map[string]count{r.now, r.past} {
		for id, c := range half {
			if c.deaths > 0 {
				dead[id] = true
			}
		}
	}
	out := []Suspect{}
	for id := range dead {
		if s := r.suspect(id); s.Ratio >= r.cfg.Ratio {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(b.Deaths, a.Deaths), cmp.Compare(a.ProductID, b.ProductID))
	})
	return out
}

// suspect is called with the lock held.
func (r *Report) suspect(id string) Suspect {
	c := count{r.now[id].deaths + r.past[id].deaths, r.now[id].served + r.past[id].served}
	return Suspect{ProductID: id, Deaths: c.deaths, Served: c.served, Ratio: c.ratio()}
}

// add counts one request.
func (r *Report) add(ctx context.Context, product string, c count) {
	id := strings.ToUpper(product)
	r.mu.Lock()
	r.turnOver()
	r.makeRoom(id)
	sum := r.now[id]
	r.now[id] = count{sum.deaths + c.deaths, sum.served + c.served}
	suspect := r.suspect(id)
	alarm := c.deaths > 0 && suspect.Deaths >= r.cfg.Deaths && suspect.Ratio >= r.cfg.Ratio && !r.warned[id]
	if alarm {
		r.warned[id] = true
	}
	log := r.log
	r.mu.Unlock()
	if alarm {
		log.WarnContext(ctx, "replicas of recs die with this product's requests in flight; a fault, or a request that kills its server",
			"product_id", id, "deaths", suspect.Deaths, "served", suspect.Served, "ratio", suspect.Ratio)
	}
}

// turnOver moves the window on by half when it is time. It is called with the lock held.
func (r *Report) turnOver() {
	age := time.Since(r.turnedOver)
	if age < r.cfg.Window {
		return
	}
	r.past, r.now, r.turnedOver = r.now, map[string]count{}, time.Now()
	if age >= 2*r.cfg.Window { // nothing has come for a whole half
		r.past = nil
	}
	for id := range r.warned {
		if r.past[id].deaths == 0 {
			delete(r.warned, id)
		}
	}
}

// makeRoom keeps the count of products bounded, however many ids a client makes up: of a few, the one goes that tells least.
// Popular products and those with deaths stay. It is called with the lock held.
func (r *Report) makeRoom(id string) {
	if _, known := r.now[id]; known || len(r.now) < maxProducts {
		return
	}
	const few = 16
	least, seen := "", 0
	for other := range r.now { // in random order
		if a, b := r.now[other], r.now[least]; least == "" || cmp.Or(cmp.Compare(a.deaths, b.deaths), cmp.Compare(a.served, b.served)) < 0 {
			least = other
		}
		if seen++; seen == few {
			break
		}
	}
	delete(r.now, least)
	delete(r.warned, least)
}

// flight is one try of a call.
type flight struct {
	product  atomic.Pointer[string]
	sent     atomic.Bool // it has reached a connection
	answered atomic.Bool // the server has sent something, if only an error
}

type flightKey struct{}

// TagRPC begins a try.
func (r *Report) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if info.FullMethodName != r.method {
		return ctx
	}
	return context.WithValue(ctx, flightKey{}, &flight{})
}

// HandleRPC follows a try to its end. A try that neither was answered nor died (a time-out, a caller that left) counts neither
// way: nobody knows what it did.
func (r *Report) HandleRPC(ctx context.Context, event stats.RPCStats) {
	f, ok := ctx.Value(flightKey{}).(*flight)
	if !ok {
		return
	}
	switch e := event.(type) {
	case *stats.OutHeader:
		f.sent.Store(true)
	case *stats.OutPayload:
		if request, ok := e.Payload.(interface{ GetProductId() string }); ok {
			id := request.GetProductId()
			f.product.Store(&id)
		}
	case *stats.InHeader, *stats.InTrailer:
		f.answered.Store(true)
	case *stats.End:
		r.landed(ctx, f, e.Error)
	}
}

func (r *Report) landed(ctx context.Context, f *flight, err error) {
	product := f.product.Load()
	if product == nil || *product == "" || len(*product) > maxID {
		return
	}
	switch {
	case f.answered.Load():
		r.add(ctx, *product, count{served: 1})
	case f.sent.Load() && status.Code(err) == codes.Unavailable:
		r.add(ctx, *product, count{deaths: 1})
	}
}

// TagConn is nothing to a Report: what matters about a connection shows in its calls.
func (*Report) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (*Report) HandleConn(context.Context, stats.ConnStats) {}
