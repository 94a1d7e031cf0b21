// Package telemetry sets up what a process tells about itself: traces over OTLP, metrics for Prometheus, logs as one JSON
// object a line. It sets no OpenTelemetry globals but the error handler: providers are handed to those who use them.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

// exportTimeout bounds each try to hand spans to the collector, so that a dead one holds nothing up.
const exportTimeout = 2 * time.Second

// Config is how a process reports.
type Config struct {
	Endpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" help:"OTLP gRPC collector, http://host:4317; empty sends no traces"`
	Service  string `env:"OTEL_SERVICE_NAME" help:"service name in traces and logs; empty is the process's own name"`
}

// Validate checks the endpoint.
func (c Config) Validate() error {
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL such as http://localhost:4317")
	}
	return nil
}

// Telemetry holds a process's providers. Its methods and fields may be used from any goroutine.
type Telemetry struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Propagator     propagation.TextMapPropagator
	Registry       *prometheus.Registry

	traces *sdktrace.TracerProvider
}

// New sets up telemetry for the named process. It contacts nobody: spans leave in the background, and are dropped when
// the collector does not take them. Without an endpoint every request still has a trace id, and the header of a caller
// who samples is passed on, but nothing is exported.
func New(ctx context.Context, cfg Config, process string, log *slog.Logger) (*Telemetry, error) {
	if cfg.Service != "" {
		process = cfg.Service
	}
	otel.SetErrorHandler(quietly(log))
	res, err := resource.New(ctx, resource.WithAttributes(
		semconv.ServiceName(process), semconv.ServiceNamespace("watertight"), semconv.ServiceVersion(Version()),
	), resource.WithFromEnv(), resource.WithHost(), resource.WithProcessPID())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}

	t := &Telemetry{
		Registry:   prometheus.NewRegistry(),
		Propagator: propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
	}
	if t.traces, err = tracing(ctx, cfg, res); err != nil {
		return nil, err
	}
	t.TracerProvider = t.traces
	t.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(t.Registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("set up the metrics exporter: %w", err)
	}
	t.MeterProvider = sdkmetric.NewMeterProvider(append(boundedViews(), sdkmetric.WithReader(exporter), sdkmetric.WithResource(res))...)
	return t, nil
}

func tracing(ctx context.Context, cfg Config, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	if cfg.Endpoint == "" {
		return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))), nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint), otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: 10 * time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	// The sampler is the SDK's: parent-based and always on, or what OTEL_TRACES_SAMPLER says.
	return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second))), nil
}

// boundedViews keep the labels of the request metrics to those with few values: a Host header or a peer's address is
// whatever a client likes.
func boundedViews() []sdkmetric.Option {
	// Each set of labels costs a series per bucket: these are as many as it takes to tell an order from a page from a time-out.
	seconds := sdkmetric.AggregationExplicitBucketHistogram{Boundaries: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5}}
	keep := func(instrument string, keys ...attribute.Key) sdkmetric.Option {
		return sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: instrument},
			sdkmetric.Stream{Aggregation: seconds, AttributeFilter: attribute.NewAllowKeysFilter(keys...)}))
	}
	drop := func(instrument string) sdkmetric.Option {
		return sdkmetric.WithView(sdkmetric.NewView(sdkmetric.Instrument{Name: instrument}, sdkmetric.Stream{Aggregation: sdkmetric.AggregationDrop{}}))
	}
	return []sdkmetric.Option{
		keep("http.server.request.duration", semconv.HTTPRequestMethodKey, semconv.HTTPRouteKey, semconv.HTTPResponseStatusCodeKey),
		drop("http.server.request.body.size"), drop("http.server.response.body.size"),
		keep("rpc.*.call.duration", semconv.RPCMethodKey, semconv.RPCResponseStatusCodeKey, semconv.RPCSystemNameKey),
	}
}

// Shutdown sends the spans that are left, for as long as ctx lasts.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := t.traces.Shutdown(ctx); err != nil {
		return fmt.Errorf("flush traces: %w", err)
	}
	return nil
}

// quietly logs telemetry's own troubles, at most one line in ten seconds: a dead collector must not flood the log.
func quietly(log *slog.Logger) otel.ErrorHandler {
	var last atomic.Int64
	return otel.ErrorHandlerFunc(func(err error) {
		now, before := time.Now().Unix(), last.Load()
		if now-before >= 10 && last.CompareAndSwap(before, now) {
			log.Warn("telemetry", "error", err)
		}
	})
}

// release is for the linker to set: -X example.com/watertight/platform/telemetry.release=0.1.0. The images are built without
// the commit, so that their content changes only with the code.
var release string //nolint:gochecknoglobals // the linker sets nothing else, and nobody sets it later

// Version is the build's: its release, or the module version, or the first twelve digits of the commit, or "dev".
func Version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	if v := strings.Trim(info.Main.Version, "()"); v != "" && v != "devel" {
		return v
	}
	return "dev"
}
