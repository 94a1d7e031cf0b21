// Package lifecycle starts a process, says how it is, and ends it without losing a request. It knows listeners, workers
// and the order of their ends; it never asks whether a dependency is well.
//
//	starting ──all Ready conditions done──▶ ready ──ctx ends, or a part fails──▶ draining ──▶ stopping ──▶ stopped
//	/readyz 503                             200                                  503
//	/livez  200                             200                                  200           200
//
// draining: readiness and gRPC health turn at once, answers say Connection: close, streams end, and the servers go on
// serving for DRAIN_DELAY, while the news spreads. stopping: the servers finish what they hold, bounded by
// DRAIN_TIMEOUT; then workers end; then, in parallel, all that was given to Closer; the last two within 2 s together.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/watertight/platform/config"
)

// stopTime bounds the last part of the stop: workers, then everything given to Closer.
const stopTime = 2 * time.Second

// Config is how a process reports and ends.
type Config struct {
	LogLevel     string        `env:"LOG_LEVEL" envDefault:"info" help:"debug, info, warn or error"`
	LogFormat    string        `env:"LOG_FORMAT" help:"json or text; empty is text on a terminal, json elsewhere"`
	AdminAddr    string        `env:"ADMIN_ADDR" envDefault:":9090" help:"address of /livez, /readyz and /metrics"`
	DrainDelay   time.Duration `env:"DRAIN_DELAY" envDefault:"5s" help:"how long to go on serving after SIGTERM, while the news spreads"`
	DrainTimeout time.Duration `env:"DRAIN_TIMEOUT" envDefault:"15s" help:"how long requests in flight may take after that"`
	Pprof        bool          `env:"PPROF_ENABLED" envDefault:"false" help:"serve /debug/pprof on the admin address"`
}

// Validate checks the durations; a time of zero means not to wait.
func (c Config) Validate() error {
	var errs []error
	if c.DrainDelay < 0 {
		errs = append(errs, errors.New("DRAIN_DELAY: must not be negative"))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, errors.New("DRAIN_TIMEOUT: must not be negative"))
	}
	return errors.Join(errs...)
}

// A Server is one listener's worth of serving. Serve returns nil after Shutdown. Ready and Drain are told once each and
// return at once. Shutdown waits for what is in flight until ctx ends, then cuts it off.
type Server interface {
	Serve() error
	Ready()
	Drain()
	Shutdown(ctx context.Context) error
}

type part[T any] struct {
	name string
	do   T
}

// Process is one process's life. Server, Worker, Closer and Ready are called before Run, Run once.
type Process struct {
	cfg      Config
	log      *slog.Logger
	admin    net.Listener
	registry *prometheus.Registry
	servers  []part[Server]
	workers  []part[func(context.Context) error]
	closers  []part[func(context.Context) error]
	draining chan struct{}

	mu      sync.Mutex
	waiting []string // readiness conditions still to come
}

// New binds the admin listener, so that a busy port is an error before anything else is done.
func New(cfg Config, log *slog.Logger, registry *prometheus.Registry) (*Process, error) {
	admin, err := Listen("ADMIN_ADDR", cfg.AdminAddr)
	if err != nil {
		return nil, err
	}
	return &Process{
		cfg: cfg, log: log, admin: admin, registry: registry,
		draining: make(chan struct{}), waiting: []string{"start"},
	}, nil
}

// Listen binds a TCP address; its error names the variable that the address came from.
func Listen(variable, addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %q: %w", variable, addr, err)
	}
	return listener, nil
}

// AdminAddr is the address that the admin listener is bound to.
func (p *Process) AdminAddr() string { return p.admin.Addr().String() }

// Server adds a server, which serves from Run on.
func (p *Process) Server(name string, s Server) { p.servers = append(p.servers, part[Server]{name, s}) }

// Worker adds a background loop. Its context ends when the servers have stopped. An error from it ends the process; nil
// before that means that its work is done.
func (p *Process) Worker(name string, run func(ctx context.Context) error) {
	p.workers = append(p.workers, part[func(context.Context) error]{name, run})
}

// Closer adds something to close in the last stage, beside all others; what is not closed when ctx ends is left.
func (p *Process) Closer(name string, end func(ctx context.Context) error) {
	p.closers = append(p.closers, part[func(context.Context) error]{name, end})
}

// Ready adds a condition without which the process does not become ready. done fulfils it, for good.
func (p *Process) Ready(name string) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, name)
	return sync.OnceFunc(func() { p.fulfil(name) })
}

func (p *Process) fulfil(name string) {
	if !p.last(name) {
		return
	}
	p.log.Info("ready")
	// A start leaves more garbage than a process at rest would collect for minutes, and none of it is needed again.
	debug.FreeOSMemory()
}

// last takes a condition off the list, and tells the servers when it was the last one.
func (p *Process) last(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, name)
	p.waiting = slices.Delete(p.waiting, i, i+1)
	if len(p.waiting) > 0 {
		return false
	}
	for _, s := range p.servers {
		s.do.Ready()
	}
	return true
}

// Draining is closed when the drain begins; long streams end then.
func (p *Process) Draining() <-chan struct{} { return p.draining }

// Run serves until ctx ends or a part fails, then drains and stops. It returns the first failure, or nil.
func (p *Process) Run(ctx context.Context) error {
	admin := &http.Server{Handler: p.adminRoutes(), ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn)}
	defer admin.Close()
	failed := make(chan error, 1+len(p.servers)+len(p.workers))
	go func() { failed <- named("admin", admin.Serve(p.admin)) }()
	for _, s := range p.servers {
		go func() { failed <- named(s.name, s.do.Serve()) }()
	}
	workers, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorkers()
	var running sync.WaitGroup
	for _, w := range p.workers {
		running.Go(func() {
			if err := w.do(workers); err != nil && workers.Err() == nil {
				failed <- named(w.name, err)
			}
		})
	}
	p.fulfil("start")

	var err error
	select {
	case <-ctx.Done():
		p.drain()
	case err = <-failed:
		p.drain()
		err = errors.Join(err, errors.New("stopped because a part of the process ended"))
	}
	p.shutdownServers()
	last, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	stopWorkers()
	p.waitFor(last, &running)
	p.close(last)
	return err
}

func named(name string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: ended by itself", name)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// drain turns readiness at once and lets the news spread while requests are still served.
func (p *Process) drain() {
	p.log.Info("draining", "delay", p.cfg.DrainDelay.String())
	close(p.draining)
	for _, s := range p.servers {
		s.do.Drain()
	}
	<-time.After(p.cfg.DrainDelay)
}

func (p *Process) shutdownServers() {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.DrainTimeout)
	defer cancel()
	p.each(ctx, serverStops(p.servers))
}

func serverStops(servers []part[Server]) []part[func(context.Context) error] {
	stops := make([]part[func(context.Context) error], 0, len(servers))
	for _, s := range servers {
		stops = append(stops, part[func(context.Context) error]{s.name, s.do.Shutdown})
	}
	return stops
}

// waitFor waits for the workers, but leaves the closers half of the time.
func (p *Process) waitFor(ctx context.Context, running *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopTime / 2):
		p.log.WarnContext(ctx, "workers still run; leaving them")
	}
}

func (p *Process) close(ctx context.Context) {
	done := make(chan struct{})
	go func() { p.each(ctx, p.closers); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		p.log.WarnContext(ctx, "not everything was closed in time")
	}
}

// each runs the stops side by side and logs those that fail.
func (p *Process) each(ctx context.Context, stops []part[func(context.Context) error]) {
	var all sync.WaitGroup
	for _, s := range stops {
		all.Go(func() {
			if err := s.do(ctx); err != nil {
				p.log.WarnContext(ctx, "stop", "part", s.name, "error", err)
			}
		})
	}
	all.Wait()
}

func (p *Process) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := p.notReady(); reason != "" {
			w.Header().Set("Retry-After", "1")
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry}))
	if p.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	}
	return mux
}

// notReady says why the process takes no traffic; empty when it does.
func (p *Process) notReady() string {
	select {
	case <-p.draining:
		return "draining"
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		return "waiting for " + strings.Join(p.waiting, ", ")
	}
	return ""
}

// Main is a process's main: it calls run with a context that ends at SIGINT or SIGTERM (a second one kills), prints its
// error as one line, and exits with 1 for an error and 0 for none.
func Main(name string, run func(ctx context.Context, args, environ []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Environ(), os.Stdout); err != nil && !errors.Is(err, config.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}
