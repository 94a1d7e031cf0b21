//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.com/watertight/test/cable"
	"example.com/watertight/test/shop"
)

// errNothing says that there was nothing to hurt at the moment, such as a process that is dead already.
var errNothing = errors.New("nothing to hurt")

// fault is something that is done to the shop, and for how long it lasts if it lasts.
type fault struct {
	kind   string
	weight int // how often it comes, in relation to the others
	strike func(ctx context.Context, random *rand.Rand) error
}

// faults hurts the shop on a schedule that the seed decides.
type faults struct {
	t      *testing.T
	shop   *shop.Shop
	random *rand.Rand
	kinds  []fault

	mu      sync.Mutex
	counted counts
	nothing map[string]error // why a kind had no effect the last time it had none
}

func newFaults(t *testing.T, s *shop.Shop, r *rig, seed uint64) *faults {
	t.Helper()
	record, err := s.Record()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(record.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	e, err := newMeddler(conn)
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{t: t, shop: s, random: rand.New(rand.NewPCG(seed, 2)), counted: counts{}, nothing: map[string]error{}}
	f.kinds = []fault{
		{"kill service", 40, f.killService},
		{"kill nats", 3, f.signalProcess("nats", syscall.SIGKILL)},
		{"kill postgres", 1, f.signalProcess("postgres", syscall.SIGKILL)},
		{"kill a backend of postgres", 1, f.killBackend},
		{"restart service", 4, f.restartService},
		{"restart nats", 2, f.signalProcess("nats", syscall.SIGTERM)},
		{"restart postgres", 2, f.signalProcess("postgres", syscall.SIGINT)}, // its fast shutdown
		{"freeze nats", 4, f.freeze("nats")},
		{"freeze postgres", 4, f.freeze("postgres")},
		{"freeze service", 5, f.freezeService},
		{"cut nats", 6, cutting(r.nats)},
		{"cut postgres", 5, cutting(r.postgres)},
		{"lose nats' answers", 4, deafening(r.nats)},
		{"lose postgres' answers", 4, deafening(r.postgres)},
		{"stall nats", 3, stalling(r.nats)},
		{"stall postgres", 3, stalling(r.postgres)},
		{"duplicate events", 12, e.duplicate},
		{"delay events", 6, e.delay},
		{"reorder events", 8, e.reorder},
	}
	return f
}

// run strikes until the time is over and enough faults were counted, at most for three times as long: first each kind once,
// then as the weights have it. All of them have ended when it returns.
func (f *faults) run(duration time.Duration, enough int) {
	began := time.Now()
	var striking sync.WaitGroup
	defer striking.Wait()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel() // what lasts ends here
	opening := f.random.Perm(len(f.kinds))
	for n := 0; time.Since(began) < duration || f.total() < enough && time.Since(began) < 3*duration; n++ {
		kind, strike := f.draw(), fault.attempt
		if n < len(opening) {
			kind, strike = f.kinds[opening[n]], fault.insist
		}
		random := rand.New(rand.NewPCG(f.random.Uint64(), 3)) // its own, because strikes overlap
		striking.Go(func() {
			f.note(kind.kind, strike(kind, ctx, random))
		})
		pause(ctx, 100*time.Millisecond+time.Duration(f.random.Int64N(int64(400*time.Millisecond))))
	}
}

func (f *faults) draw() fault {
	all := 0
	for _, k := range f.kinds {
		all += k.weight
	}
	n := f.random.IntN(all)
	for _, k := range f.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return f.kinds[0]
}

// attempt strikes once.
func (k fault) attempt(ctx context.Context, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return k.strike(ctx, random)
}

// insist strikes until there was something to hurt, for half a minute at most.
func (k fault) insist(ctx context.Context, random *rand.Rand) error {
	for deadline := time.Now().Add(30 * time.Second); ; pause(ctx, 100*time.Millisecond) {
		err := k.attempt(ctx, random)
		if !errors.Is(err, errNothing) || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}

// note counts a fault that bit.
func (f *faults) note(kind string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.counted[kind]++
		return
	}
	f.nothing[kind] = err
	if !errors.Is(err, errNothing) {
		f.t.Logf("not done: %s: %v", kind, err)
	}
}

// judge reports the kinds that never bit: of those the run has shown nothing.
func (f *faults) judge() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kinds {
		if f.counted[k.kind] == 0 {
			f.t.Errorf("not once: %s; the last attempt: %v", k.kind, f.nothing[k.kind])
		}
	}
}

func (f *faults) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.counted[kind])
}

func (f *faults) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int(f.counted.sum())
}

// String lists the kinds with their counts.
func (f *faults) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counted.String()
}

// someService is a process of the shop's own that runs.
func (f *faults) someService(random *rand.Rand) (pid int, err error) {
	return f.some(random, func(p shop.RecordedProcess) bool { return p.PID() > 1 })
}

func (f *faults) some(random *rand.Rand, is func(shop.RecordedProcess) bool) (pid int, err error) {
	record, err := f.shop.Record()
	if err != nil {
		return 0, err
	}
	var pids []int
	for _, p := range record.Processes {
		if p.Service != "nats" && p.Service != "postgres" && is(p) {
			pids = append(pids, p.PID())
		}
	}
	if len(pids) == 0 {
		return 0, errNothing
	}
	return pids[random.IntN(len(pids))], nil
}

func (f *faults) process(name string) (pid int, err error) {
	record, err := f.shop.Record()
	if err != nil {
		return 0, err
	}
	for _, p := range record.Processes {
		if p.Name == name && p.PID() > 1 {
			return p.PID(), nil
		}
	}
	return 0, errNothing
}

func (f *faults) killService(_ context.Context, random *rand.Rand) error {
	pid, err := f.someService(random)
	if err != nil {
		return err
	}
	return signal(pid, syscall.SIGKILL)
}

func (f *faults) signalProcess(name string, sig syscall.Signal) func(context.Context, *rand.Rand) error {
	return func(context.Context, *rand.Rand) error {
		pid, err := f.process(name)
		if err != nil {
			return err
		}
		return signal(pid, sig)
	}
}

// restartService ends a service that is up as an operator does; it drains, and is started again.
func (f *faults) restartService(_ context.Context, random *rand.Rand) error {
	pid, err := f.some(random, func(p shop.RecordedProcess) bool { return p.PID() > 1 && p.Ready })
	if err != nil {
		return err
	}
	return signal(pid, syscall.SIGTERM)
}

// killBackend kills one of the server's processes, upon which it breaks all sessions and recovers.
func (f *faults) killBackend(ctx context.Context, random *rand.Rand) error {
	pid, err := f.process("postgres")
	if err != nil {
		return err
	}
	pids, err := children(ctx, pid)
	if err != nil || len(pids) == 0 {
		return errors.Join(errNothing, err)
	}
	return signal(pids[random.IntN(len(pids))], syscall.SIGKILL)
}

// freeze stops a process and its children in their tracks for up to a second and a half.
func (f *faults) freeze(name string) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		pid, err := f.process(name)
		if err != nil {
			return err
		}
		return freeze(ctx, pid, random)
	}
}

func (f *faults) freezeService(ctx context.Context, random *rand.Rand) error {
	pid, err := f.someService(random)
	if err != nil {
		return err
	}
	return freeze(ctx, pid, random)
}

func freeze(ctx context.Context, pid int, random *rand.Rand) error {
	if err := signal(pid, syscall.SIGSTOP); err != nil { // first, so that it makes no more children
		return err
	}
	frozen, err := children(ctx, pid)
	frozen = append(frozen, pid)
	for _, p := range frozen {
		_ = signal(p, syscall.SIGSTOP) // it may have ended since
	}
	pause(ctx, time.Duration(200+random.IntN(1300))*time.Millisecond)
	for _, p := range frozen {
		_ = signal(p, syscall.SIGCONT) // it may have been killed meanwhile
	}
	return err
}

func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); errors.Is(err, syscall.ESRCH) {
		return errNothing
	} else if err != nil {
		return fmt.Errorf("signal %v: %w", sig, err)
	}
	return nil
}

// children lists the direct children of a process.
func children(ctx context.Context, parent int) (pids []int, err error) {
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("ps: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func cutting(c *cable.Cable) func(context.Context, *rand.Rand) error {
	return func(context.Context, *rand.Rand) error {
		c.Cut()
		return nil
	}
}

func deafening(c *cable.Cable) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		c.LoseAnswers()
		pause(ctx, time.Duration(20+random.IntN(480))*time.Millisecond)
		c.Cut()
		return nil
	}
}

func stalling(c *cable.Cable) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		resume, ok := c.Stall()
		if !ok {
			return errNothing
		}
		pause(ctx, time.Duration(200+random.IntN(1800))*time.Millisecond)
		resume()
		return nil
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
