package fault

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/rpcerr"
)

// Unary is the interceptor that applies the fault, and the service times that an experiment has set. It belongs next to the
// handler, inside the server's pool: a request that is held up here holds a worker, as real work would.
func (i *Injector) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if exempt(info.FullMethod) {
		return handler(ctx, req)
	}
	heard := i.cfg.Work.heard(ctx)
	if a := i.current.Load(); a != nil && a.hits(req) {
		if err := i.bite(heard, a, info.FullMethod); err != nil {
			return nil, err
		}
	}
	if err := i.cfg.Work.work(heard, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// exempt methods stay well: whoever breaks a service must be able to see it.
func exempt(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}

// hits throws the dice after the request was looked at, so that rate is a share of those that match.
func (a *active) hits(req any) bool {
	if len(a.Match) > 0 {
		message, ok := req.(proto.Message)
		if !ok || !matches(message.ProtoReflect(), a.Match) {
			return false
		}
	}
	return a.dice()
}

// dice are the process's own: replicas do not fail in step.
func (a *active) dice() bool { return rand.Float64() < a.Rate }

// bite does to the request what the fault says. It returns nil when the request may go on: the fault did its part, or ended
// while the request waited.
func (i *Injector) bite(ctx context.Context, a *active, method string) error {
	switch a.Kind {
	case Hang:
		<-a.life.Done()
		return nil
	case CrashOnStart:
		return nil
	case CPU:
		i.spin(a)
	}
	if err := a.wait(ctx, a.delay()); err != nil || a.over() {
		return err
	}
	switch a.Kind {
	case Error:
		return a.failure()
	case Crash, Poison:
		i.die(ctx, a, method, CrashCode)
	case OOM:
		i.exhaust(ctx, a, method)
	case DBLock:
		return i.lockDatabase(ctx, a)
	}
	return nil
}

// wait returns after d, or at once when the fault ends, or with the error of ctx. It holds nothing while it waits but the
// request itself.
func (a *active) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.life.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *active) over() bool { return a.life.Err() != nil }

// failure is the error that the fault answers with.
func (a *active) failure() error {
	code, _ := parseCode(a.Code) // validated when it came
	reason := a.Code
	switch code {
	case codes.DeadlineExceeded:
		reason = rpcerr.Timeout
	case codes.ResourceExhausted:
		reason = rpcerr.RateLimited
	case codes.Unknown, codes.DataLoss:
		reason = rpcerr.Internal
	}
	return rpcerr.New(code, reason, "a fault was set here on purpose")
}

// spinSlice is how many rounds, about a millisecond's worth, a busy core turns before it looks whether it may stop.
const spinSlice = 1_000_000

// spinner knows until when the cores are to be busy.
type spinner struct {
	mu      sync.Mutex
	running bool
	until   time.Time
}

// prolong returns whether nobody spins yet.
func (s *spinner) prolong(until time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.running = !s.running, true
	if until.After(s.until) {
		s.until = until
	}
	return first
}

// over returns whether the time has come.
func (s *spinner) over(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return false
	}
	s.running = false
	return true
}

// spin keeps all cores busy until the fault's delay from now, or its end. Requests that come meanwhile prolong it and add no
// goroutines.
func (i *Injector) spin(a *active) {
	if !a.cores.prolong(time.Now().Add(a.delay())) {
		return
	}
	for range runtime.GOMAXPROCS(0) {
		i.hogs.Go(func() {
			for sum := uint64(1); !a.over() && !a.cores.over(time.Now()); {
				for range spinSlice {
					sum = sum*6364136223846793005 + 1442695040888963407
				}
				runtime.KeepAlive(sum)
			}
		})
	}
}

// lockDatabase takes hold of the database once for all requests and returns when it is held, or when the caller has had
// enough of waiting. The hold lasts until the fault ends.
func (i *Injector) lockDatabase(ctx context.Context, a *active) error {
	if i.deps.Database == nil || !i.holding.CompareAndSwap(false, true) {
		return nil
	}
	tried := make(chan struct{})
	i.hogs.Go(func() {
		defer i.holding.Store(false)
		i.hold(a, tried)
	})
	select {
	case <-tried:
		return nil
	case <-a.life.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retryHold lies between two tries to take hold of a database that does not let itself be held.
const retryHold = time.Second

func (i *Injector) hold(a *active, tried chan<- struct{}) {
	release, err := i.deps.Database(a.life)
	close(tried)
	if err != nil {
		if !a.over() {
			i.deps.Log.Warn("fault cannot take hold of the database; a later request tries again", "error", err)
		}
		_ = a.wait(context.Background(), retryHold) // nobody cancels it
		return
	}
	i.deps.Log.Warn("fault holds the database")
	<-a.life.Done()
	release()
}
