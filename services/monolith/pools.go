package monolith

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/bulkhead"
)

// pools are the process's workers. A request takes one slot, at its route, from the pool of the route's feature, and all
// that it calls in the process runs in it: slots taken one inside another from the same pool would starve each other. Only
// recommendations, which a page asks for on the side, run in a slot of their own pool, if that is another one.
type pools struct {
	of map[string]*compartment // by service; those that run in this process
}

// compartment is the part of the workers that one feature has, or shares with the others.
type compartment struct {
	name     string
	pool     *bulkhead.Bulkhead
	poolName string
	// aside: a page does without this feature rather than lend it its own slot.
	aside bool

	inFlight, queued atomic.Int64 // of this feature, in a pool that may be shared
	outcomes         outcomeCounts
}

func newPools(cfg PoolsConfig, features Features, reg prometheus.Registerer) (*pools, error) {
	p := &pools{of: map[string]*compartment{}}
	byName := map[string]*bulkhead.Bulkhead{}
	for _, feature := range features {
		name := feature
		if cfg.Mode == Shared {
			name = Shared
		}
		if byName[name] == nil {
			pool, err := bulkhead.New(name, cfg.limits(feature), reg)
			if err != nil {
				return nil, err
			}
			byName[name] = pool
		}
		c := &compartment{name: feature, pool: byName[name], poolName: name, aside: feature == shop.Recs}
		for _, service := range services(feature) {
			p.of[service] = c
		}
	}
	return p, nil
}

// enter takes a slot, in turn and not past the deadline of ctx.
func (c *compartment) enter(ctx context.Context) (*hold, error) {
	c.queued.Add(1)
	slot, err := c.pool.Acquire(ctx)
	c.queued.Add(-1)
	if err != nil {
		return nil, err
	}
	c.inFlight.Add(1)
	h := &hold{compartment: c, slot: slot}
	h.users.Store(1)
	return h, nil
}

// hold is a slot that is kept until its request has been answered and every call that it made has settled, those that
// outlive it because they ignore its end included.
type hold struct {
	compartment *compartment
	slot        bulkhead.Slot
	users       atomic.Int64
	refusal     error // why there is no slot; every call then ends with it
}

// join adds a user, unless the last one has left: the slot is somebody else's then.
func (h *hold) join() bool {
	for {
		n := h.users.Load()
		if n == 0 {
			return false
		}
		if h.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave gives the slot back when nobody is left.
func (h *hold) leave() {
	if h.users.Add(-1) == 0 {
		h.compartment.inFlight.Add(-1)
		h.slot.Release()
	}
}

type holdKey struct{}

func (h *hold) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, holdKey{}, h)
}

// call is one call in the process. The handler may still run when its caller has left, so the two agree on who leaves the
// hold: the first to claim the call.
type call struct {
	hold    *hold
	own     bool // the slot was taken for this call alone
	claimed atomic.Bool
}

// begin finds the slot that a call into a feature runs in, or takes one. Its caller must abandon the call when it leaves.
func (p *pools) begin(ctx context.Context, to *compartment) (*call, error) {
	h, inRequest := ctx.Value(holdKey{}).(*hold)
	switch {
	case inRequest && h.refusal != nil:
		return nil, h.refusal
	case !inRequest, to.aside && h.compartment.pool != to.pool:
		h, err := to.enter(ctx)
		if err != nil {
			return nil, err
		}
		return &call{hold: h, own: true}, nil
	case !h.join():
		return nil, bulkhead.ErrCancelled
	}
	return &call{hold: h}, nil
}

// start says whether the handler may begin; it must settle the call then.
func (c *call) start() bool { return c.claimed.CompareAndSwap(false, true) }

func (c *call) settle() { c.hold.leave() }

// abandon is for the caller: a handler that has not begun never will.
func (c *call) abandon() {
	if c.claimed.CompareAndSwap(false, true) {
		c.hold.leave()
	}
}

// unary takes a slot for a call that came over gRPC.
func (p *pools) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	c := p.of[serviceOf(info.FullMethod)]
	if c == nil { // health and reflection
		return handler(ctx, req)
	}
	defer func() { c.outcomes.count(err) }()
	h, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer h.leave()
	return handler(ctx, req)
}
