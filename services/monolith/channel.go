package monolith

import (
	"context"
	"strings"

	"github.com/fullstorydev/grpchan/inprocgrpc"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpc"
)

// channel carries calls from the edge to the features of the same process, without a network but with everything else
// that a call between processes passes: the contract, errors with reasons, deadlines, copies instead of shared messages. A
// caller whose time is over is answered, while a handler that does not listen keeps its slot.
type channel struct {
	inproc inprocgrpc.Channel
	pools  *pools
	chain  grpc.UnaryServerInterceptor // of package rpc
	faults grpc.UnaryServerInterceptor
}

var _ grpc.ClientConnInterface = (*channel)(nil)

// newChannel returns a channel on which features are yet to be registered. faults run next to the handlers.
func newChannel(p *pools, deps rpc.ServerDeps, maxStreams int, faults grpc.UnaryServerInterceptor) *channel {
	unary, stream := rpc.Interceptors(deps, maxStreams)
	c := &channel{pools: p, chain: unary, faults: faults}
	c.inproc.WithServerUnaryInterceptor(c.serve).WithServerStreamInterceptor(stream)
	return c
}

type callKey struct{}

// scope names the spans' instrumentation.
const scope = "example.com/watertight/services/monolith"

// Invoke makes one unary call and returns when it is answered or ctx ends.
func (c *channel) Invoke(ctx context.Context, method string, req, reply any, opts ...grpc.CallOption) (err error) {
	to := c.pools.of[serviceOf(method)]
	// The span is an internal one, since nothing leaves the process.
	name := strings.TrimPrefix(method, "/")
	ctx, span := trace.SpanFromContext(ctx).TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(attribute.String("rpc.method", name)))
	defer span.End()
	defer func() { noteError(span, err) }()
	work, err := c.pools.begin(ctx, to)
	if err != nil {
		return err
	}
	defer work.abandon()
	if work.own {
		defer func() { to.outcomes.count(err) }()
	}
	return c.inproc.Invoke(context.WithValue(ctx, callKey{}, work), method, req, reply, opts...)
}

// NewStream opens a stream, which takes no slot: streams have a cap of their own.
func (c *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.inproc.NewStream(ctx, desc, method, opts...)
}

// serve is the handler's side of Invoke. The context here has the caller's deadline and none of its values.
func (c *channel) serve(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	caller := inprocgrpc.ClientContext(ctx)
	work, ok := caller.Value(callKey{}).(*call) // Invoke has put it there
	if !ok || !work.start() {
		return nil, bulkhead.ErrCancelled
	}
	defer work.settle()
	ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(caller))
	return c.chain(ctx, req, info, func(ctx context.Context, req any) (any, error) {
		return c.faults(ctx, req, info, handler)
	})
}

func noteError(span trace.Span, err error) {
	if err != nil {
		code := status.Code(err).String()
		span.SetAttributes(attribute.String("rpc.response.status_code", code))
		span.SetStatus(otelcodes.Error, code)
	}
}

// serviceOf is the service that a method (/checkout.v1.CheckoutService/GetOrder) belongs to.
func serviceOf(method string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), ".")
	return name
}
