// Package bulkhead bounds how much of a process one kind of work may take: at most Size pieces of work run at once, at
// most Queue callers wait, and everybody else is turned away at once.
//
// It keeps four rules:
//
//  1. The caller's deadline runs from the moment it asks. A waiter that reaches it leaves the queue and never gets a
//     slot; the caller of running work that reaches it is freed at once (Do).
//  2. The execution timeout runs from slot grant, capped by what is left of the deadline, and only signals the work.
//  3. A slot stays taken until its work has settled, even when the work ignores its context, panics or ends its
//     goroutine.
//  4. When the queue is full the caller is rejected at once and nothing is held. Work whose deadline is already past is
//     never started.
//
// The package does not retry, does not judge whether work succeeded and stops nothing by force: it cannot, in Go.
package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config holds a bulkhead's two limits.
type Config struct {
	Size  int `env:"SIZE" envDefault:"64" help:"most requests worked on at once"`
	Queue int `env:"QUEUE" envDefault:"64" help:"most requests waiting for a worker; 0 turns the queue off"`
}

// MaxLimit is the highest value either limit may have: far above any use, and safe to add up.
const MaxLimit = 1_000_000

// Validate returns what is wrong, joined; each error starts with the name of its variable, without a prefix.
func (c Config) Validate() error {
	var errs []error
	if c.Size < 1 || c.Size > MaxLimit {
		errs = append(errs, fmt.Errorf("SIZE: must be between 1 and %d, got %d", MaxLimit, c.Size))
	}
	if c.Queue < 0 || c.Queue > MaxLimit {
		errs = append(errs, fmt.Errorf("QUEUE: must be between 0 and %d, got %d", MaxLimit, c.Queue))
	}
	return errors.Join(errs...)
}

// Bulkhead is a pool of slots with a bounded first-in-first-out queue in front. It is safe for concurrent use.
type Bulkhead struct {
	name    string
	cfg     Config
	metrics *metrics // nil when nobody measures
	born    time.Time

	// present is how many callers are inside: Size of them hold slots, what is above Size stands in the queue. It is the
	// whole state. A grant travels to the queue through grants, whose receivers the runtime serves in the order in which
	// they came and not at all once they have left. Each unreceived grant is a taken slot, so sending never blocks.
	present atomic.Int64
	grants  chan struct{}

	rejected    [reasons]atomic.Uint64
	abandoned   atomic.Int64
	lateSettles atomic.Uint64
	panics      atomic.Uint64
}

// New returns a bulkhead whose metrics carry the label pool=name. With a nil reg nothing is measured and the clock is
// not read on the uncontended path.
func New(name string, cfg Config, reg prometheus.Registerer) (*Bulkhead, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("bulkhead %s: %w", name, err)
	}
	b := &Bulkhead{name: name, cfg: cfg, born: time.Now(), grants: make(chan struct{}, cfg.Size)}
	if reg == nil {
		return b, nil
	}
	b.metrics = newMetrics(b)
	if err := reg.Register(b.metrics); err != nil {
		return nil, fmt.Errorf("bulkhead %s: register metrics: %w", name, err)
	}
	return b, nil
}

// Acquire takes a slot, waiting in turn while all are taken. Use it for work that honours ctx; the caller must Release
// the slot once the work has settled, on every path. It allocates nothing.
//
// The error is ErrFull when the queue is full, ErrExpired when ctx's deadline is past or passes while waiting, and
// ErrCancelled when ctx is cancelled; the slot is then the zero Slot, which is safe to release.
func (b *Bulkhead) Acquire(ctx context.Context) (Slot, error) {
	now := b.arrival(ctx)
	if r := b.ended(ctx, now); r != alive {
		return Slot{}, b.reject(r)
	}
	size, most := int64(b.cfg.Size), int64(b.cfg.Size+b.cfg.Queue)
	for {
		n := b.present.Load()
		if n >= most {
			return Slot{}, b.reject(full)
		}
		if !b.present.CompareAndSwap(n, n+1) {
			continue
		}
		if n >= size {
			return b.wait(ctx, now)
		}
		return b.grant(now, 0), nil
	}
}

// wait stands in the queue until a slot is granted or ctx ends.
func (b *Bulkhead) wait(ctx context.Context, arrived time.Duration) (Slot, error) {
	if arrived == 0 {
		arrived = b.now()
	}
	held := true
	select {
	case <-b.grants:
	case <-ctx.Done():
		held = !b.leave()
	}
	now := b.now()
	// Winning a slot and reaching the deadline may coincide: ask again before any work starts.
	if r := b.ended(ctx, now); r != alive {
		if held {
			b.release()
		}
		b.observeWait(now - arrived)
		return Slot{}, b.reject(r)
	}
	return b.grant(now, now-arrived), nil
}

// leave gives up a place in the queue; it reports false when a release was quicker and the caller holds a slot instead.
func (b *Bulkhead) leave() bool {
	for {
		if n := b.present.Load(); n > int64(b.cfg.Size) {
			if b.present.CompareAndSwap(n, n-1) {
				return true
			}
			continue
		}
		// Every place in the queue has its grant, in the channel or about to be sent. A newcomer may take this caller's,
		// and has then brought a place to give up in exchange.
		select {
		case <-b.grants:
			return false
		default:
			runtime.Gosched()
		}
	}
}

// release frees a slot, or grants it to the queue.
func (b *Bulkhead) release() {
	for {
		n := b.present.Load()
		if n == 0 {
			panic("bulkhead " + b.name + ": a slot was released twice, through a copy")
		}
		if !b.present.CompareAndSwap(n, n-1) {
			continue
		}
		if n > int64(b.cfg.Size) {
			b.grants <- struct{}{}
		}
		return
	}
}

func (b *Bulkhead) grant(now, waited time.Duration) Slot {
	b.observeWait(waited)
	return Slot{pool: b, granted: now, waited: waited}
}

func (b *Bulkhead) observeWait(waited time.Duration) {
	if b.metrics != nil {
		b.metrics.queueWait.Observe(waited.Seconds())
	}
}

func (b *Bulkhead) reject(r reason) error {
	b.rejected[r].Add(1)
	return r.err()
}

// A Slot is the right to run one piece of work. It may be moved but not shared: releasing one copy does not tell the
// others.
type Slot struct {
	pool    *Bulkhead
	granted time.Duration // since the pool's birth; only a histogram needs it
	waited  time.Duration
}

// Release gives the slot back, or on to the next waiter. Further calls do nothing.
func (s *Slot) Release() {
	b := s.pool
	if b == nil {
		return
	}
	s.pool = nil
	if b.metrics != nil {
		b.metrics.hold.Observe((b.now() - s.granted).Seconds())
	}
	b.release()
}

// Waited is how long the slot's caller stood in the queue; 0 when a slot was free.
func (s *Slot) Waited() time.Duration { return s.waited }

// Stats is a bulkhead at one moment. Counts run from the start of the process.
type Stats struct {
	InFlight    int // slots taken
	Queued      int // callers waiting
	Size, Queue int // the limits of the two above
	Abandoned   int // slots held by work whose caller has left

	RejectedFull      uint64 // found the queue full
	RejectedExpired   uint64 // reached their deadline before they had a slot
	RejectedCancelled uint64 // went away before they had a slot
	LateSettles       uint64 // pieces of work that settled after their caller had left
	Panics            uint64 // pieces of work that panicked inside Do
}

// Stats returns the present state. It takes no lock.
func (b *Bulkhead) Stats() Stats {
	present := int(b.present.Load())
	inFlight := min(present, b.cfg.Size)
	return Stats{
		InFlight: inFlight, Queued: present - inFlight, Size: b.cfg.Size, Queue: b.cfg.Queue,
		Abandoned:         int(b.abandoned.Load()),
		RejectedFull:      b.rejected[full].Load(),
		RejectedExpired:   b.rejected[expired].Load(),
		RejectedCancelled: b.rejected[cancelled].Load(),
		LateSettles:       b.lateSettles.Load(),
		Panics:            b.panics.Load(),
	}
}

// now is the time since the pool's birth: reading that costs half of time.Now.
func (b *Bulkhead) now() time.Duration { return time.Since(b.born) }

// arrival is now, or 0 when neither a deadline nor a histogram asks for it.
func (b *Bulkhead) arrival(ctx context.Context) time.Duration {
	if _, bounded := ctx.Deadline(); !bounded && b.metrics == nil {
		return 0
	}
	return b.now()
}

// ended says whether ctx allows work to start. The deadline is compared with the clock as well, because on a busy
// machine a context's timer fires late, which is just when expired work must not be started.
func (b *Bulkhead) ended(ctx context.Context, now time.Duration) reason {
	if err := ctx.Err(); err != nil {
		return why(err)
	}
	if deadline, ok := ctx.Deadline(); ok && now >= deadline.Sub(b.born) {
		return expired
	}
	return alive
}
