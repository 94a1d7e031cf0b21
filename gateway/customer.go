package gateway

import (
	"context"

	"google.golang.org/grpc"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/platform/shard"
)

// byCustomer makes the calls of one customer go to the same few replicas.
func byCustomer(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoker(shard.WithKey(ctx, customerKey(exchange.From(ctx))), method, req, reply, cc, opts...)
}

// customerKey tells customers apart: by their id, or their address as long as they have none. One without either shares the
// subset of all such. A client that makes up a new id for each request reaches every replica: this confines accidents, and for
// the rest there is CLIENT_RATE.
func customerKey(e *exchange.Exchange) string {
	if e.Customer != "" {
		return "customer " + e.Customer
	}
	return "address " + e.Client.String()
}
