// Package monolith is the shop in one process: the edge and all features behind it, with calls in the process instead of a
// network. It is there to be compared with: what one pool of workers costs, what a pool for each feature mends, and what
// only processes of their own can mend, as which the same build can be deployed (FEATURES). It has no business of its own:
// every handler is the services' or the gateway's.
package monolith

import (
	"context"
	"io"
	"log/slog"

	"github.com/nats-io/nats.go"
	"google.golang.org/grpc"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/report"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/storefront"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/telemetry"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// Monolith is a process put together. Its listeners are bound, and nothing runs yet.
type Monolith struct {
	cfg       Settings
	log       *slog.Logger
	telemetry *telemetry.Telemetry
	tls       *mtls.Identity // nil: plain text
	process   *lifecycle.Process
	broker    *nats.Conn // nil without NATS_URL
	announcer *broker.Announcer

	pools    *pools
	faults   faults
	channel  *channel
	grpc     *rpc.Server
	upstream *gateway.Upstreams // of the features that run elsewhere; nil when none does
	http     *lifecycle.HTTPServer
}

// New puts the process together. Logs go to out. An error names the variable at fault.
func New(ctx context.Context, cfg Settings, out io.Writer) (*Monolith, error) {
	m := &Monolith{cfg: cfg}
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return m.setUpProcess(ctx, out) },
		m.joinBroker, m.openChannels, m.addServices, m.connectUpstreams, m.serveHTTP, m.readFaults,
	} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Run serves until ctx ends or a part fails.
func (m *Monolith) Run(ctx context.Context) error { return m.process.Run(ctx) }

// HTTPAddr is the address of the JSON API and the pages.
func (m *Monolith) HTTPAddr() string { return m.http.Addr() }

// GRPCAddr is the address of the gRPC server.
func (m *Monolith) GRPCAddr() string { return m.grpc.Addr() }

// AdminAddr is the address of /livez, /readyz and /metrics.
func (m *Monolith) AdminAddr() string { return m.process.AdminAddr() }

func (m *Monolith) setUpProcess(ctx context.Context, out io.Writer) (err error) {
	if m.log, err = telemetry.NewLogger(out, m.cfg.Process.LogLevel, m.cfg.Process.LogFormat, m.cfg.Roles.Features.process()); err != nil {
		return err
	}
	if m.telemetry, err = telemetry.New(ctx, m.cfg.Telemetry, m.cfg.Roles.Features.process(), m.log); err != nil {
		return err
	}
	if m.process, err = lifecycle.New(lifecycle.Config(m.cfg.Process), m.log, m.telemetry.Registry); err != nil {
		return err
	}
	m.process.Closer("telemetry", m.telemetry.Shutdown)
	if m.tls, err = mtls.Open(m.cfg.TLS); err != nil {
		return err
	}
	m.process.Closer("certificates", m.tls.Close)
	m.pools, err = newPools(m.cfg.Pools, m.cfg.Roles.Features, m.telemetry.Registry)
	return err
}

func (m *Monolith) joinBroker(context.Context) (err error) {
	name := m.cfg.Roles.Features.process()
	if m.broker, err = broker.Connect(m.cfg.Broker, name, m.log); err != nil {
		return err
	}
	m.process.Closer("broker", func(ctx context.Context) error { return broker.Close(ctx, m.broker) })
	if m.announcer, err = broker.NewAnnouncer(m.cfg.Broker, m.broker, name, m.log); err != nil {
		return err
	}
	m.process.Server("announcer", m.announcer)
	return nil
}

// openChannels makes the two ways into the features: the one in the process, for the edge, and gRPC, for imports and for
// processes that lack a feature.
func (m *Monolith) openChannels(context.Context) (err error) {
	m.faults = faults{}
	deps := rpc.ServerDeps{
		Log: m.log, Registry: m.telemetry.Registry, TracerProvider: m.telemetry.TracerProvider, MeterProvider: m.telemetry.MeterProvider,
		Propagator: m.telemetry.Propagator, MapError: postgres.RPCError,
		Unpooled: true, Inner: []grpc.UnaryServerInterceptor{m.pools.unary, m.faults.unary},
	}
	m.channel = newChannel(m.pools, deps, m.cfg.GRPC.MaxStreams, m.faults.unary)
	deps.TLS, deps.Callers = m.tls, callers() // nobody has to prove anything within the process
	m.grpc, err = rpc.NewServer(rpc.ServerConfig{
		Addr: m.cfg.GRPC.Addr, MaxStreams: m.cfg.GRPC.MaxStreams, MaxConnectionAge: m.cfg.GRPC.MaxConnectionAge,
	}, deps)
	if err != nil {
		return err
	}
	m.process.Server("grpc", m.grpc)
	return nil
}

func (m *Monolith) connectUpstreams(context.Context) (err error) {
	missing := m.cfg.Roles.Features.missing()
	if len(missing) == 0 {
		return nil
	}
	m.upstream, err = gateway.Connect(m.cfg.Upstreams, rpc.ClientDeps{
		TracerProvider: m.telemetry.TracerProvider, MeterProvider: m.telemetry.MeterProvider, Propagator: m.telemetry.Propagator, TLS: m.tls,
	}, m.telemetry.Registry, missing...)
	if err != nil {
		return err
	}
	m.process.Closer("upstreams", m.upstream.Close)
	return nil
}

// backends are the features' clients: in the process where the feature is, else behind the upstream's guard.
func (m *Monolith) backends() shop.Backends {
	var b shop.Backends
	if m.upstream != nil {
		b = m.upstream.Backends(m.log)
	}
	elsewhere := b.Degraded
	b.RecsTimeout, b.Log = m.cfg.Upstreams.Recs.Timeout, m.log
	b.Degraded = func(ctx context.Context, name string) {
		if c := m.pools.of[name]; c != nil {
			c.outcomes[degraded].Add(1)
			return
		}
		elsewhere(ctx, name)
	}
	here := m.cfg.Roles.Features
	if here.Has(shop.Checkout) {
		b.Checkout = checkoutv1.NewCheckoutServiceClient(m.channel)
	}
	if here.Has(shop.Search) {
		b.Search = searchv1.NewSearchServiceClient(m.channel)
	}
	if here.Has(shop.Recs) {
		b.Recs = recsv1.NewRecsServiceClient(m.channel)
	}
	return b
}

func (m *Monolith) serveHTTP(context.Context) error {
	behind, budgets := shop.New(m.backends()), m.cfg.Upstreams.Budgets()
	pages, err := storefront.New(behind, storefront.Budgets{Checkout: budgets.Checkout, Search: budgets.Search})
	if err != nil {
		return err
	}
	deps := gateway.Deps{
		Shop: behind, Budgets: budgets, Upstreams: m.status, Storefront: pages.Routes(), Guard: m.pools.guard,
		Operations: gateway.Operate(m.broker, m.cfg.Faults.Enabled, m.process, m.log),
		Version:    telemetry.Version(), Design: m.cfg.Design(), Draining: m.process.Draining(), Worker: m.process.Worker,
		Log: m.log, TracerProvider: m.telemetry.TracerProvider, MeterProvider: m.telemetry.MeterProvider, Propagator: m.telemetry.Propagator,
	}
	if m.upstream != nil {
		deps.Suspects = m.upstream.Suspects
	}
	handler, err := gateway.NewHandler(m.cfg.HTTP, deps)
	if err != nil {
		return err
	}
	listener, err := lifecycle.Listen("HTTP_ADDR", m.cfg.HTTP.Addr)
	if err != nil {
		return err
	}
	m.http = lifecycle.NewHTTPServer(listener, gateway.NewServer(m.cfg.HTTP, handler, m.log))
	m.process.Server("http", m.http)
	return nil
}

// status lists the features of this process and the upstreams for the others, always in the same order.
func (m *Monolith) status() []report.Upstream {
	elsewhere := map[string]report.Upstream{}
	if m.upstream != nil {
		for _, s := range m.upstream.Status() {
			elsewhere[s.Name] = s
		}
	}
	var out []report.Upstream
	budgets := m.cfg.Upstreams.Budgets()
	timeouts := map[string]int64{
		shop.Checkout: budgets.Checkout.Milliseconds(), shop.Search: budgets.Search.Milliseconds(), shop.Recs: budgets.Recs.Milliseconds(),
	}
	for _, name := range allFeatures() {
		if c := m.pools.of[name]; c != nil {
			out = append(out, c.status(timeouts[name]))
		} else {
			out = append(out, elsewhere[name])
		}
	}
	return out
}
