package rpc_test

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
)

// Whoever calls handlers without a network gets a server's answers all the same.
func TestInterceptors_TreatHandlersAsAServerDoes(t *testing.T) {
	unary, _ := rpc.Interceptors(rpc.ServerDeps{Log: slog.New(slog.DiscardHandler)}, 1)
	for name, c := range map[string]struct {
		handler grpc.UnaryHandler
		code    codes.Code
		reason  string
	}{
		"an answer":      {func(context.Context, any) (any, error) { return &testv1.SimpleResponse{}, nil }, codes.OK, ""},
		"a plain error":  {func(context.Context, any) (any, error) { return nil, context.DeadlineExceeded }, codes.DeadlineExceeded, rpcerr.Timeout},
		"a panic":        {func(context.Context, any) (any, error) { panic("no") }, codes.Internal, rpcerr.Internal},
		"a known reason": {func(context.Context, any) (any, error) { return nil, rpcerr.Invalid("x", "is wrong") }, codes.InvalidArgument, rpcerr.InvalidArgument},
	} {
		_, err := unary(t.Context(), &testv1.SimpleRequest{}, &grpc.UnaryServerInfo{FullMethod: "/grpc.testing.TestService/UnaryCall"}, c.handler)
		if status.Code(err) != c.code || rpcerr.Reason(err) != c.reason {
			t.Errorf("%s: got %v with reason %q, want %v with %q", name, err, rpcerr.Reason(err), c.code, c.reason)
		}
	}
}
