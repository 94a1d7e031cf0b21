package upstream

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"example.com/watertight/platform/bulkhead"
)

// UnaryClientInterceptor guards every unary call of a connection with Do.
func (u *Upstream) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return u.do(ctx, func(ctx context.Context) (bool, error) {
			var server peer.Peer // is set once the call has a connection
			err := invoker(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Peer(&server))...)
			return server.Addr != nil, err
		})
	}
}

// StreamClientInterceptor caps the open streams of a connection at MaxStreams and rejects the next one at once with
// RESOURCE_EXHAUSTED/BULKHEAD_FULL. Streams live long and wait much, so they take no call's slot, no time-out and no part
// in the breaker. As gRPC demands, a stream is over when it was read to its end or its context is done.
func (u *Upstream) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		slot, err := u.streams.Acquire(ctx)
		if errors.Is(err, bulkhead.ErrFull) {
			return nil, u.errStreams
		}
		if err != nil {
			return nil, u.turnedAway(err).err
		}
		release := sync.OnceFunc(slot.Release)
		stream, err := streamer(ctx, desc, cc, method, append(slices.Clip(opts), grpc.OnFinish(func(error) { release() }))...)
		if err != nil {
			release() // an interceptor further in may refuse without gRPC ever having begun
			return nil, err
		}
		return stream, nil
	}
}
