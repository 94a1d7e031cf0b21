package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/platform/broker"
)

// Exit codes of a process that a fault ended.
const (
	CrashCode = 2   // as a panic that nobody recovered
	OOMCode   = 137 // as a process that the kernel killed
)

// retryRead lies between two tries to read the bucket before the start.
const retryRead = 50 * time.Millisecond

// Config is whether a process can be made sick, and how far.
type Config struct {
	Enabled       bool          `env:"FAULTS_ENABLED" envDefault:"false" help:"let faults be set from outside; false leaves nothing of it in the process"`
	StartWait     time.Duration `env:"FAULT_START_WAIT" envDefault:"2s" help:"how long the start waits for the broker, to see whether a fault is set"`
	OOMBound      int64         `env:"FAULT_OOM_BOUND" envDefault:"268435456" help:"bytes that oom takes before it exits with 137; set it above a memory limit"`
	DBConnections int           `env:"FAULT_DB_CONNECTIONS" envDefault:"200" help:"connections that the fault db-lock tries to hold, besides its locks"`
	Work          WorkConfig
}

// Validate checks the bounds.
func (c Config) Validate() error {
	var errs []error
	if c.StartWait < 0 {
		errs = append(errs, errors.New("FAULT_START_WAIT: must not be negative"))
	}
	if c.OOMBound < 1 {
		errs = append(errs, errors.New("FAULT_OOM_BOUND: must be at least 1 byte"))
	}
	if c.DBConnections < 0 {
		errs = append(errs, errors.New("FAULT_DB_CONNECTIONS: must not be negative"))
	}
	return errors.Join(append(errs, c.Work.validate())...)
}

// ErrCrashOnStart is why a process ends that finds the fault crash-on-start.
var ErrCrashOnStart = errors.New("the fault crash-on-start is set")

// Deps is what an Injector works with.
type Deps struct {
	Conn     *nats.Conn // nil: no fault ever comes
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Database takes hold of the service's database, for the fault db-lock, until release is called. It gives up when ctx
	// ends. Nil: the service has none, and the fault does nothing.
	Database func(ctx context.Context) (release func(), err error)
}

// Injector applies the fault that is set for a service to this process. At most one is set at a time.
type Injector struct {
	service string
	cfg     Config
	deps    Deps
	gauge   *prometheus.GaugeVec

	mu      sync.Mutex             // for changes of current
	current atomic.Pointer[active] // nil: the process is well

	eating  atomic.Bool    // memory
	holding atomic.Bool    // the database
	hogs    sync.WaitGroup // goroutines that belong to faults
}

// active is a fault from its beginning to its end.
type active struct {
	Fault
	life   context.Context //nolint:containedctx // its own life: done when it was cleared or replaced, or its time is over
	stop   context.CancelFunc
	expiry *time.Timer
	cores  spinner
}

// New returns an injector without a fault. cfg.Enabled is the caller's to look at: a process that must not be made sick
// makes none.
func New(service string, cfg Config, deps Deps) (*Injector, error) {
	i := &Injector{service: service, cfg: cfg, deps: deps, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "watertight_faults_active", Help: "1 while a fault of this kind is set for this process.",
	}, []string{"kind"})}
	if err := deps.Registry.Register(i.gauge); err != nil {
		return nil, fmt.Errorf("metrics of faults: %w", err)
	}
	for _, kind := range Kinds() {
		i.gauge.WithLabelValues(string(kind)).Set(0)
	}
	return i, nil
}

// Read looks once which fault is set, so that a process is sick from its first request on. It waits for the broker for
// FAULT_START_WAIT and no longer: without one the process starts well, and Run finds out later. The error is
// ErrCrashOnStart or the end of ctx.
func (i *Injector) Read(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, i.cfg.StartWait)
	defer cancel()
	if i.deps.Conn == nil {
		i.deps.Log.Warn("faults are enabled, but without NATS_URL nobody can set one")
		return nil
	}
	entry, err := i.read(bounded)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		i.deps.Log.Warn("started without knowing whether a fault is set", "error", err)
		return nil
	}
	i.apply(entry)
	if a := i.current.Load(); a != nil && a.Kind == CrashOnStart {
		return i.crashOnStart(ctx, a)
	}
	return nil
}

// crashOnStart waits as the fault says: it may end, or the process, before it bites.
func (i *Injector) crashOnStart(ctx context.Context, a *active) error {
	if err := a.wait(ctx, a.delay()); err != nil || a.over() || !a.dice() {
		return err
	}
	return ErrCrashOnStart
}

// read tries until the bucket answers or ctx ends. No entry is no error.
func (i *Injector) read(ctx context.Context) (jetstream.KeyValueEntry, error) {
	for {
		entry, err := i.readOnce(ctx)
		if err == nil {
			return entry, nil
		}
		select {
		case <-time.After(retryRead):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (i *Injector) readOnce(ctx context.Context) (jetstream.KeyValueEntry, error) {
	if err := broker.Await(ctx, i.deps.Conn); err != nil {
		return nil, ErrAway
	}
	js, err := jetstream.New(i.deps.Conn)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", Bucket, err)
	}
	entry, err := kv.Get(ctx, i.service)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	return entry, err
}

// Run follows the bucket until ctx ends, and ends the fault then.
func (i *Injector) Run(ctx context.Context) error {
	broker.Watch(ctx, i.deps.Conn, i.deps.Log, Bucket, i.service, func(entries broker.Entries) {
		entry, set := entries[i.service]
		if !set {
			entry = nil
		}
		i.apply(entry)
	})
	i.set(nil)
	i.hogs.Wait()
	return nil
}

// apply makes what an entry says the current fault. What cannot be read is no fault: a process must not stay sick because of
// an entry that nobody understands.
func (i *Injector) apply(entry jetstream.KeyValueEntry) {
	if entry == nil {
		i.set(nil)
		return
	}
	var f Fault
	err := json.Unmarshal(entry.Value(), &f)
	if err == nil {
		err = f.validate()
	}
	if err != nil {
		i.deps.Log.Warn("fault not understood", "error", err)
		i.set(nil)
		return
	}
	i.set(&f)
}

// set ends the current fault and begins the next; nil, or one whose time is over, is none. The same again changes nothing.
func (i *Injector) set(next *Fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.current.Load()
	if now != nil && next != nil && now.equal(*next) {
		return
	}
	if now != nil {
		i.end(now)
	}
	if next == nil || time.Until(next.ExpiresAt) <= 0 {
		return
	}
	a := &active{Fault: *next}
	a.life, a.stop = context.WithCancel(context.Background())
	a.expiry = time.AfterFunc(time.Until(next.ExpiresAt), func() { i.expire(a) })
	i.current.Store(a)
	i.gauge.WithLabelValues(string(a.Kind)).Set(1)
	i.deps.Log.Warn("fault begins", "kind", a.Kind, "rate", a.Rate, "delay", a.delay().String(), "match", a.Match, "expires_at", a.ExpiresAt)
}

// end is called with the lock held.
func (i *Injector) end(a *active) {
	a.expiry.Stop()
	i.current.Store(nil)
	a.stop()
	i.gauge.WithLabelValues(string(a.Kind)).Set(0)
	i.deps.Log.Info("fault ends", "kind", a.Kind)
}

func (i *Injector) expire(a *active) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current.Load() == a { // else it has ended already
		i.end(a)
	}
}

// die ends the process at once, in the middle of everything, after one line that says why.
func (i *Injector) die(ctx context.Context, a *active, method string, code int) {
	i.deps.Log.ErrorContext(ctx, "fault ends the process", "kind", a.Kind, "method", method, "exit_code", code)
	os.Exit(code)
}
