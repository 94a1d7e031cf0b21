// Package shop puts the services' answers together into what people see: products with recommendations, result pages,
// orders and their changes. The JSON API and the storefront both stand on it. It decides the fallbacks (no
// recommendations rather than no page) and refuses to know HTTP: errors are the services' own gRPC statuses with a
// stable reason (package rpcerr), or errors made the same way here.
package shop

import (
	"context"
	"log/slog"
	"time"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// The upstreams' names, as Degraded lists and metrics show them.
const (
	Checkout = "checkout"
	Search   = "search"
	Recs     = "recs"
)

// Backends are the services behind the shop. The clients may be guarded gRPC connections or in-process channels.
type Backends struct {
	Checkout checkoutv1.CheckoutServiceClient
	Search   searchv1.SearchServiceClient
	Recs     recsv1.RecsServiceClient
	// RecsTimeout is the most that recommendations may hold up an answer; it must be more than 0.
	RecsTimeout time.Duration
	// Degraded, when set, is told the name of the upstream each time an answer goes out without its part.
	Degraded func(ctx context.Context, upstream string)
	Log      *slog.Logger
}

// Shop answers what the HTTP edge asks. Its methods may be called from any goroutine and end when their context does.
type Shop struct {
	b      Backends
	orders *orderRate
}

// New returns a Shop on the given backends. It contacts nobody.
func New(b Backends) *Shop {
	return &Shop{b: b, orders: newOrderRate(time.Now())}
}

// OrdersPerSecond is how many orders this Shop placed per second, averaged over the last ten full seconds. An order
// answered from its idempotency record is not counted again.
func (s *Shop) OrdersPerSecond() float64 { return s.orders.perSecond(time.Now()) }

// degraded notes why an answer goes out without the upstream's part.
func (s *Shop) degraded(ctx context.Context, upstream string, cause error) string {
	if s.b.Degraded != nil {
		s.b.Degraded(ctx, upstream)
	}
	// Debug: a failing recs would otherwise fill the log with lines that the metrics already count.
	s.b.Log.DebugContext(ctx, "degraded answer", "upstream", upstream, "error", cause)
	return upstream
}
