//go:build unix

package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/result"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/lab/supervise"
)

// collector receives the shop's traces over OTLP and keeps those that orders are part of.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	server *grpc.Server
	served sync.WaitGroup
	at     string

	mu    sync.Mutex
	spans map[string][]span // by trace
}

// span is what is needed of one.
type span struct {
	service, name string
	kind          tracepb.Span_SpanKind
	database      bool
	from, to      uint64 // nanoseconds
}

func (s span) took() time.Duration { return time.Duration(s.to - s.from) }

func newCollector(ctx context.Context) (*collector, error) {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("collect traces: %w", err)
	}
	c := &collector{server: grpc.NewServer(), at: "http://" + listener.Addr().String(), spans: map[string][]span{}}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	c.served.Go(func() { _ = c.server.Serve(listener) }) // until close; without it no traces come, which is seen
	return c, nil
}

func (c *collector) close() {
	c.server.Stop()
	c.served.Wait()
}

// Export takes spans in.
func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				id := string(s.GetTraceId())
				c.spans[id] = append(c.spans[id], newSpan(service, s))
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func newSpan(service string, s *tracepb.Span) span {
	out := span{service: service, name: s.GetName(), kind: s.GetKind(), from: s.GetStartTimeUnixNano(), to: s.GetEndTimeUnixNano()}
	for _, a := range s.GetAttributes() {
		if a.GetKey() == "db.system.name" || a.GetKey() == "db.system" {
			out.database = true
		}
	}
	return out
}

// The parts of an order's time, in the order in which a request comes by.
const (
	partEdge     = "the edge itself"
	partWay      = "the way to checkout and back"
	partWork     = "checkout's work"
	partDatabase = "checkout's database"
	partWhole    = "in all"
)

// hops are the medians of the parts over all orders whose traces are whole.
func (c *collector) hops(design string) []result.Hop {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := map[string][]time.Duration{}
	for _, trace := range c.spans {
		for name, took := range split(trace) {
			parts[name] = append(parts[name], took)
		}
	}
	var out []result.Hop
	for _, name := range []string{partEdge, partWay, partWork, partDatabase, partWhole} {
		if all := parts[name]; len(all) > 0 {
			slices.Sort(all)
			out = append(out, result.Hop{Design: design, Name: name, P50MS: rounded(float64(all[len(all)/2].Microseconds()) / 1000), Traces: len(all)})
		}
	}
	return out
}

// split divides an order's time among its parts; nil for a trace that is no order's, or of which a span is missing.
func split(trace []span) map[string]time.Duration {
	var edge, client, server *span
	for i := range trace {
		s := &trace[i]
		order := strings.HasSuffix(s.name, "/PlaceOrder")
		switch {
		case s.kind == tracepb.Span_SPAN_KIND_SERVER && strings.HasPrefix(s.name, "POST ") && strings.HasSuffix(s.name, "/orders"):
			edge = s
		case s.kind == tracepb.Span_SPAN_KIND_CLIENT && order:
			client = s
		case order:
			server = s
		}
	}
	if edge == nil || server == nil {
		return nil
	}
	database := covered(trace, server)
	parts := map[string]time.Duration{partWhole: edge.took(), partDatabase: database, partWork: server.took() - database}
	if client == nil { // in one process there is no way between the two
		parts[partEdge] = edge.took() - server.took()
		return parts
	}
	parts[partEdge], parts[partWay] = edge.took()-client.took(), client.took()-server.took()
	return parts
}

// covered is for how long, within the server's span, its database worked: spans may lie within each other.
func covered(trace []span, server *span) time.Duration {
	var all []span
	for _, s := range trace {
		if s.database && s.service == server.service && s.from >= server.from && s.to <= server.to {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b span) int {
		if a.from < b.from {
			return -1
		}
		return 1
	})
	sum, until := uint64(0), uint64(0)
	for _, s := range all {
		if s.to > until {
			sum += s.to - max(s.from, until)
			until = s.to
		}
	}
	return time.Duration(sum)
}

const (
	traceRate   = 20 // orders a second: few enough that none waits for another
	traceLength = 3 * time.Second
	// exportEvery has the spans come while the shop runs.
	exportEvery = "200"
)

// trace measures where the time of an order goes in a design, on a shop of its own, since tracing takes time itself.
func (r *run) trace(ctx context.Context, stage *runner.Stage, d *scenario.Design) (err error) {
	c, err := newCollector(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	normal := scenario.Table(r.Inputs)[0]
	o := options(r.Runner.Shop, r.Inputs, &normal, d)
	for _, env := range o.Env {
		env["OTEL_EXPORTER_OTLP_ENDPOINT"], env["OTEL_BSP_SCHEDULE_DELAY"] = c.at, exportEvery
	}
	r.show("tracing a normal day in " + d.Name)
	running, err := stage.Open(ctx, o, supervise.DefaultBackoff())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.End()) }()
	target, err := load.ParseTarget(running.Gateway())
	if err != nil {
		return err
	}
	config := traffic(r.Inputs, &normal, target, r.products, r.Seed)
	config.Rate, config.Mix, config.Duration = traceRate, load.Mix{Checkout: 1}, traceLength
	config.Warmup = min(config.Warmup, traceLength/3)
	if _, err := load.Run(ctx, config); err != nil {
		return err
	}
	r.file.Hops = append(r.file.Hops, c.hops(d.Name)...)
	return nil
}

// traced says whether the design's normal day is traced: the two that the cost of the split is measured between.
func (r *run) traced(d *scenario.Design) bool {
	_, normal := scenario.Find(r.Scenarios, scenario.Normal, func(s scenario.Scenario) string { return s.Name })
	return r.Trace && normal && (d.Name == scenario.SharedPool || d.Name == scenario.Split) &&
		(r.until.IsZero() || time.Now().Add(traceLength).Before(r.until))
}
