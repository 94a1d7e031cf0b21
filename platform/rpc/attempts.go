package rpc

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"example.com/watertight/platform/telemetry/names"
)

// attemptsKey is where a call keeps the number of its attempts.
type attemptsKey struct{}

// countAttempts lets the attempts of one call know of each other: gRPC makes them below, each with a span of its own.
func countAttempts(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if trace.SpanFromContext(ctx).IsRecording() {
		ctx = context.WithValue(ctx, attemptsKey{}, new(atomic.Int64))
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// attemptHandler numbers the spans of a call's attempts from the second on; a call that was not tried again needs none.
type attemptHandler struct{}

func (attemptHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if attempts, ok := ctx.Value(attemptsKey{}).(*atomic.Int64); ok {
		if n := attempts.Add(1); n > 1 {
			trace.SpanFromContext(ctx).SetAttributes(names.RetryAttempt.Int64(n))
		}
	}
	return ctx
}

func (attemptHandler) HandleRPC(context.Context, stats.RPCStats)                         {}
func (attemptHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (attemptHandler) HandleConn(context.Context, stats.ConnStats)                       {}
