// Package gateway is the shop's HTTP edge: the only thing that faces people. It speaks the JSON API and carries the
// storefront's pages; it keeps slow, huge, wrong and too many requests away from the services, and hides their insides. It
// owns no data, and no request of it ever becomes an order by itself: what it cannot pass on, it refuses.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/gateway/bridge"
	"example.com/watertight/gateway/poison"
	"example.com/watertight/gateway/report"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/shop"
)

// Budgets are the longest that each upstream's routes may take from the arrival of a request. They are absolute: waiting in a
// queue counts.
type Budgets struct {
	Checkout, Search, Recs time.Duration
}

// Deps is what the edge stands on. All must be set but those that say otherwise.
type Deps struct {
	Shop    *shop.Shop
	Budgets Budgets
	// Upstreams says how each upstream is doing, for /api/v1/status; nil when calls cross no network.
	Upstreams func() []report.Upstream
	// Suspects lists the products whose requests seem to kill recs, for /api/v1/status; may be nil.
	Suspects func() []poison.Suspect
	// Version is the build, Design the shape of the shop (split, shared-pool, ...), both for /api/v1/status.
	Version, Design string
	// Draining is closed when the process begins to drain: event streams end then.
	Draining <-chan struct{}
	// Operations knows who runs and sets faults; nil when there is no broker to know it from.
	Operations *Operations
	// Worker runs a loop for as long as the process lives, as lifecycle.Process.Worker does. Nil leaves the bridge out, which
	// needs one.
	Worker func(name string, run func(ctx context.Context) error)
	// Storefront are the routes of the pages; may be nil.
	Storefront []route.Route
	// Guard, when set, wraps each route that has a feature: one process that holds all features takes the feature's slot
	// there. It runs inside the route's deadline and refuses with exchange.Fail.
	Guard func(feature string, next http.Handler) http.Handler

	Log            *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
}

// api holds what the handlers share; each handler has a file of its own.
type api struct {
	Deps
	cfg     Config
	streams chan struct{} // one element per open event stream of an order
	traffic traffic
	bridge  *bridge.Bridge // nil: there is none
	bodies  sync.Pool      // of *bytes.Buffer, for answers that are being written
}

// NewHandler returns the whole edge as a handler: routes, and around them limits, logs and telemetry.
func NewHandler(cfg Config, deps Deps) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Shop == nil || deps.Log == nil || deps.Draining == nil || deps.TracerProvider == nil || deps.MeterProvider == nil || deps.Propagator == nil {
		return nil, errors.New("gateway: a dependency is missing")
	}
	a := &api{Deps: deps, cfg: cfg, streams: make(chan struct{}, cfg.MaxEventStreams)}

	if err := a.manBridge(); err != nil {
		return nil, err
	}

	h := newRouter(slices.Concat(a.routes(), deps.Storefront), cfg.WriteTimeout, deps.Guard)
	h = sameOrigin(h)
	h = limitClients(cfg.ClientRate, h)
	h = canonicalPath(h)
	h = securityHeaders(h)
	h = logged(deps.Log, cfg.TrustedProxies, &a.traffic, h)
	// A name of our own in place of the Host header's, which is whatever a client likes.
	return otelhttp.NewHandler(h, "gateway", otelhttp.WithServerName("gateway:80"), otelhttp.WithTracerProvider(deps.TracerProvider),
		otelhttp.WithMeterProvider(deps.MeterProvider), otelhttp.WithPropagators(deps.Propagator)), nil
}

// manBridge sets the bridge up and has it look at what the process knows.
func (a *api) manBridge() (err error) {
	if a.Worker == nil {
		return nil
	}
	var targets []string
	if a.canFault() {
		targets = faultTargets()
	}
	a.bridge, err = bridge.New(bridge.Config{
		MaxStreams: a.cfg.MaxBridgeStreams, Heartbeat: a.cfg.EventHeartbeat, WriteTimeout: a.cfg.WriteTimeout, MaxAge: a.cfg.EventStreamMaxAge,
	}, bridge.Deps{Report: a.report, FaultTargets: targets, Draining: a.Draining})
	if err != nil {
		return err
	}
	a.Worker("bridge", a.bridge.Run)
	return nil
}

// routes is all that the edge serves but the storefront.
func (a *api) routes() []route.Route {
	return slices.Concat(a.shopRoutes(), a.faultRoutes(), a.bridge.Routes())
}

// shopRoutes is the JSON API of the shop.
func (a *api) shopRoutes() []route.Route {
	b := a.Budgets
	return []route.Route{
		{Method: http.MethodGet, Path: "/api/v1/products", Feature: shop.Search, Budget: b.Search, Handler: endpoint(a.products)},
		{Method: http.MethodGet, Path: "/api/v1/products/{id}", Feature: shop.Search, Budget: b.Search, Handler: endpoint(a.product)},
		{Method: http.MethodGet, Path: "/api/v1/recommendations", Feature: shop.Recs, Budget: b.Recs + b.Search, Handler: endpoint(a.recommendations)},
		{Method: http.MethodPost, Path: "/api/v1/orders", Feature: shop.Checkout, Budget: b.Checkout, Handler: endpoint(a.placeOrder)},
		{Method: http.MethodGet, Path: "/api/v1/orders/{id}", Feature: shop.Checkout, Budget: b.Checkout, Handler: endpoint(a.order)},
		{Method: http.MethodGet, Path: "/api/v1/orders/{id}/events", Handler: endpoint(a.orderEvents)},
		{Method: http.MethodGet, Path: "/api/v1/status", Handler: endpoint(a.status)},
		{Method: http.MethodGet, Path: "/api/v1/openapi.json", Handler: endpoint(a.openAPI)},
	}
}

// NewServer returns the HTTP server for a handler, with limits that a slow client cannot stretch.
func NewServer(cfg Config, handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: cfg.ReadHeaderTimeout,
		ReadTimeout:       cfg.ReadTimeout,
		WriteTimeout:      cfg.WriteTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
