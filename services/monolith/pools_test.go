package monolith

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/bulkhead"
)

// onePool returns a compartment of its own with so many slots and no queue.
func onePool(t *testing.T, size int) (*pools, *compartment) {
	t.Helper()
	p, err := newPools(PoolsConfig{Mode: Shared, Size: size}, allFeatures(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return p, p.of[shop.Search]
}

func TestHold_KeepsTheSlotUntilTheLastCallHasSettled(t *testing.T) {
	p, c := onePool(t, 1)
	h, err := c.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stubborn, err := p.begin(h.context(t.Context()), c)
	if err != nil {
		t.Fatal(err)
	}
	if !stubborn.start() {
		t.Fatal("the handler may not begin")
	}
	stubborn.abandon() // its caller has had enough
	h.leave()          // and the request is answered
	if _, err := c.enter(t.Context()); !errors.Is(err, bulkhead.ErrFull) {
		t.Errorf("a second request: %v, want ErrFull while the handler runs", err)
	}
	stubborn.settle()
	if next, err := c.enter(t.Context()); err != nil {
		t.Errorf("a request after that: %v", err)
	} else {
		next.leave()
	}
}

func TestCall_AHandlerThatCameTooLateNeverBegins(t *testing.T) {
	p, c := onePool(t, 1)
	h, err := c.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late, err := p.begin(h.context(t.Context()), c)
	if err != nil {
		t.Fatal(err)
	}
	late.abandon()
	if late.start() {
		t.Error("the handler begins although its caller has left")
	}
	h.leave()
	if got := c.pool.Stats().InFlight; got != 0 {
		t.Errorf("%d slots are held, want none", got)
	}
	if _, err := p.begin(h.context(t.Context()), c); !errors.Is(err, bulkhead.ErrCancelled) {
		t.Errorf("a call after the request: %v, want ErrCancelled", err)
	}
}

// Callers leave while their handlers begin: each slot comes back exactly once (a second time would panic).
func TestCall_CallerAndHandlerRaceForOneSlot(t *testing.T) {
	p, c := onePool(t, 4)
	var all sync.WaitGroup
	for range 2000 {
		h, err := c.enter(context.Background())
		if errors.Is(err, bulkhead.ErrFull) {
			all.Wait()
			if h, err = c.enter(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			work, err := p.begin(h.context(context.Background()), c)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if work.start() {
					work.settle()
				}
			})
			all.Go(work.abandon)
		}
		all.Go(h.leave)
	}
	all.Wait()
	if s := c.pool.Stats(); s.InFlight != 0 || c.inFlight.Load() != 0 || c.queued.Load() != 0 {
		t.Errorf("%d slots held, %d and %d counted; want none", s.InFlight, c.inFlight.Load(), c.queued.Load())
	}
}

func TestShare_DividesEverythingAndGivesEachFeatureSome(t *testing.T) {
	for total := range 500 {
		sum := 0
		for _, feature := range allFeatures() {
			part := share(feature, total)
			sum += part
			if part < 0 || total >= 3 && part < 1 {
				t.Errorf("%s gets %d of %d", feature, part, total)
			}
		}
		if sum != total {
			t.Errorf("the parts of %d are %d together", total, sum)
		}
	}
}
