//go:build unix

package accept

import (
	"context"
	"encoding/hex"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives traces over OTLP and remembers them.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	listener net.Listener

	mu    sync.Mutex
	spans map[string][]span // by trace id
	names map[string]bool
}

// span is what a service told of one piece of work.
type span struct {
	trace, id, parent string
	service, name     string
	kind              tracepb.Span_SpanKind
	failed            bool
	attributes        map[string]string // values as text
	events            []string          // names
	links             []link
}

type link struct{ trace, id string }

func newCollector() (*collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{listener: listener, spans: map[string][]span{}, names: map[string]bool{}}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until the test binary ends
	return c, nil
}

func (c *collector) address() string { return c.listener.Addr().String() }

func (c *collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		service := serviceOf(resource)
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.note(service, span)
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func (c *collector) note(service string, from *tracepb.Span) {
	noted := span{
		trace: hex.EncodeToString(from.GetTraceId()), id: hex.EncodeToString(from.GetSpanId()), parent: hex.EncodeToString(from.GetParentSpanId()),
		service: service, name: from.GetName(), kind: from.GetKind(), failed: from.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
		attributes: map[string]string{},
	}
	for _, a := range from.GetAttributes() {
		noted.attributes[a.GetKey()] = valueOf(a.GetValue())
	}
	for _, e := range from.GetEvents() {
		noted.events = append(noted.events, e.GetName())
	}
	for _, l := range from.GetLinks() {
		noted.links = append(noted.links, link{hex.EncodeToString(l.GetTraceId()), hex.EncodeToString(l.GetSpanId())})
	}
	c.spans[noted.trace] = append(c.spans[noted.trace], noted)
	c.names[noted.name] = true
}

func valueOf(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	}
	return "?"
}

func serviceOf(resource *tracepb.ResourceSpans) string {
	for _, attribute := range resource.GetResource().GetAttributes() {
		if attribute.GetKey() == "service.name" {
			return attribute.GetValue().GetStringValue()
		}
	}
	return ""
}

// servicesOf lists the services that took part in a trace, sorted.
func (c *collector) servicesOf(trace string) []string {
	services := map[string]bool{}
	for _, s := range c.of(trace) {
		services[s.service] = true
	}
	return slices.Sorted(maps.Keys(services))
}

// of returns the spans of a trace so far.
func (c *collector) of(trace string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans[trace])
}

// linkedTo returns the spans of other traces that link to this one.
func (c *collector) linkedTo(trace string) []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []span
	for other, spans := range c.spans {
		for _, s := range spans {
			if other != trace && slices.ContainsFunc(s.links, func(l link) bool { return l.trace == trace }) {
				out = append(out, s)
			}
		}
	}
	return out
}

// spanNames lists every name that a span had so far.
func (c *collector) spanNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}

// attributes lists every attribute that a span had so far, each with a span that has it.
func (c *collector) attributes() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]string{}
	for _, spans := range c.spans {
		for _, s := range spans {
			for key := range s.attributes {
				out[key] = s.service + " " + s.name
			}
		}
	}
	return out
}
