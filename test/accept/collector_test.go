//go:build unix

package accept

import (
	"context"
	"encoding/hex"
	"maps"
	"net"
	"slices"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives traces over OTLP and remembers which services were part of which trace, and all span names.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	listener net.Listener

	mu       sync.Mutex
	services map[string]map[string]bool // by trace id
	names    map[string]bool
}

func newCollector() (*collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{listener: listener, services: map[string]map[string]bool{}, names: map[string]bool{}}
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

func (c *collector) note(service string, span *tracepb.Span) {
	id := hex.EncodeToString(span.GetTraceId())
	if c.services[id] == nil {
		c.services[id] = map[string]bool{}
	}
	c.services[id][service] = true
	c.names[span.GetName()] = true
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.services[trace]))
}

// spanNames lists every name that a span had so far.
func (c *collector) spanNames() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}
