package shard

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// UnaryClientInterceptor marks the calls whose replica died under them, or lost its connection, with the reason SHARD_DOWN: as
// those that found none, they say something about one customer's replicas and nothing about the service. A circuit breaker
// that all customers share must not count them, or one of them could open it for everybody. It belongs innermost, next to the
// channel.
func UnaryClientInterceptor(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	var header, trailer metadata.MD
	err := invoker(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Header(&header), grpc.Trailer(&trailer))...)
	if status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != "" || len(header) > 0 || len(trailer) > 0 {
		return err // a server's own answer comes with metadata, its content type at least
	}
	return rpcerr.New(codes.Unavailable, rpcerr.ShardDown, "the replica went away under the call: "+status.Convert(err).Message())
}
