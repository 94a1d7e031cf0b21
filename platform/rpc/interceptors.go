package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/rpc/contract"
	"example.com/watertight/platform/rpcerr"
)

// chain is what every call passes before its handler, outermost first: errors and panics become statuses; the caller must be
// one who may call; the request is held against the contract; a slot is taken.
type chain struct {
	deps     ServerDeps
	contract contract.Rules
	pool     *bulkhead.Bulkhead // nil: no slots are taken
	streams  chan struct{}
}

func newChain(deps ServerDeps, pool *bulkhead.Bulkhead, maxStreams int) *chain {
	return &chain{deps: deps, pool: pool, streams: make(chan struct{}, maxStreams)}
}

// Interceptors are what a Server puts around its handlers, without a pool: errors, contract, the cap on streams. They are
// for handlers that are called without a network and must behave as if there was one. Of deps they use Log and MapError;
// what runs inside of them, as Inner does in a Server, is the caller's to chain.
func Interceptors(deps ServerDeps, maxStreams int) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	c := newChain(deps, nil, maxStreams)
	return c.unary, c.stream
}

func (c *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	if infrastructure(info.FullMethod) {
		return handler(ctx, req)
	}
	defer func() {
		if panicked := recovered(recover()); panicked != nil {
			err = panicked
		}
		if err != nil {
			resp, err = nil, c.status(ctx, info.FullMethod, err)
		}
	}()
	if err := c.allow(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	if err := c.check(req); err != nil {
		return nil, err
	}
	if c.pool != nil {
		slot, err := c.pool.Acquire(ctx)
		c.pool.Trace(trace.SpanFromContext(ctx), slot, err)
		if err != nil {
			return nil, err
		}
		defer slot.Release()
	}
	return handler(ctx, req)
}

func (c *chain) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if infrastructure(info.FullMethod) {
		return handler(srv, stream)
	}
	defer func() {
		if panicked := recovered(recover()); panicked != nil {
			err = panicked
		}
		if err != nil {
			err = c.status(stream.Context(), info.FullMethod, err)
		}
	}()
	if err := c.allow(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		return bulkhead.ErrFull
	}
	return handler(srv, &checkedStream{stream, c})
}

// allow refuses a caller that Callers does not list for the method. Refusals are logged: each is a mistake in the set-up, or worse.
func (c *chain) allow(ctx context.Context, method string) error {
	if c.deps.TLS == nil {
		return nil
	}
	names, _ := mtls.Peer(ctx)
	for _, name := range names {
		if slices.Contains(c.deps.Callers[method], name) {
			return nil
		}
	}
	c.deps.Log.LogAttrs(ctx, slog.LevelWarn, "caller refused", slog.String("method", method), slog.Any("caller", names))
	return rpcerr.New(codes.PermissionDenied, rpcerr.PermissionDenied, "this caller may not call this method")
}

// checkedStream holds each message received against the contract.
type checkedStream struct {
	grpc.ServerStream
	chain *chain
}

func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.chain.check(m)
}

// check holds a message against the rules of the contract.
func (c *chain) check(req any) error {
	msg, ok := req.(proto.Message)
	if !ok {
		return fmt.Errorf("request is a %T, not a protobuf message", req)
	}
	return c.contract.Check(msg)
}

type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func recovered(value any) error {
	if value == nil {
		return nil
	}
	return &panicError{value, debug.Stack()}
}

// status turns a handler's error into what the client gets: an error with a status keeps it, and gets a reason when it
// has none; the caller's own end becomes CANCELLED or DEADLINE_EXCEEDED; everything else is logged here, and the client
// is told INTERNAL and nothing more.
func (c *chain) status(ctx context.Context, method string, err error) error {
	if c.deps.MapError != nil {
		err = c.deps.MapError(ctx, err)
	}
	switch {
	case rpcerr.Reason(err) != "":
		if cause := errors.Unwrap(err); cause != nil && status.Code(err) == codes.Unavailable {
			c.deps.Log.LogAttrs(ctx, slog.LevelWarn, "call unavailable", slog.String("method", method), slog.Any("error", cause))
		}
		return status.Convert(err).Err()
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() == context.DeadlineExceeded:
		return rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the deadline passed")
	case errors.Is(err, context.Canceled), ctx.Err() == context.Canceled:
		return status.Error(codes.Canceled, "the caller went away")
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.Unknown && st.Code() != codes.Internal {
		return rpcerr.New(st.Code(), strings.ToUpper(snake(st.Code().String())), st.Message())
	}
	c.deps.Log.LogAttrs(ctx, slog.LevelError, "call failed", slog.String("method", method), slog.Any("error", err))
	return rpcerr.New(codes.Internal, rpcerr.Internal, "internal error")
}

// snake writes InvalidArgument as Invalid_Argument.
func snake(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	return out.String()
}

// Go runs fn in a goroutine of its own whose panic is logged and ends nothing else. Handlers that start goroutines start
// them here: an interceptor cannot recover what happens in them.
func Go(log *slog.Logger, name string, fn func()) {
	go func() {
		defer func() {
			if err := recovered(recover()); err != nil {
				log.Error("goroutine panicked", "name", name, "error", err)
			}
		}()
		fn()
	}()
}
