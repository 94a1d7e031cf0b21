// Package shoptest runs the services that the edge talks to inside a test: real gRPC servers on loopback, with the contracts'
// validation, a small catalog and orders in memory, and a script for what goes wrong. It is for tests only.
package shoptest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// Script decides what happens to a call before the service's own work: return an error to answer with it, block on ctx
// to hang, return nil to go on.
type Script func(ctx context.Context, method string) error

// Peer is one running service.
type Peer struct {
	Addr  string
	Calls atomic.Int64

	script    atomic.Pointer[Script]
	poison    atomic.Pointer[string]
	crash     func()        // once
	crashed   chan struct{} // closed when crash is over
	mu        sync.Mutex
	deadlines []time.Duration // time left at arrival, per call; -1 for none
	metadata  metadata.MD     // of the last call
	server    *rpc.Server
}

// Do sets the script; nil ends it.
func (p *Peer) Do(s Script) {
	if s == nil {
		p.script.Store(nil)
		return
	}
	p.script.Store(&s)
}

// Fail makes every call answer with err.
func (p *Peer) Fail(err error) {
	p.Do(func(context.Context, string) error { return err })
}

// Hang makes every call wait until its context ends. ended, when not nil, gets a value each time one does.
func (p *Peer) Hang(ended chan<- time.Time) {
	p.Do(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		if ended != nil {
			ended <- time.Now()
		}
		return ctx.Err()
	})
}

// CrashOn makes the service end, as a crash would, in the middle of a request for the product.
func (p *Peer) CrashOn(product string) { p.poison.Store(&product) }

// Crashed is closed when a request has made the service end and its address is free again.
func (p *Peer) Crashed() <-chan struct{} { return p.crashed }

// Stop ends the service, as a crash would.
func (p *Peer) Stop() { p.server.Stop() }

// Deadlines returns how much time each call had left when it arrived; -1 stands for no deadline.
func (p *Peer) Deadlines() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.deadlines)
}

// Metadata returns the metadata of the last call.
func (p *Peer) Metadata() metadata.MD {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.metadata
}

func (p *Peer) arrived(ctx context.Context) {
	p.Calls.Add(1)
	left := time.Duration(-1)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deadlines = append(p.deadlines, left)
	p.metadata, _ = metadata.FromIncomingContext(ctx)
}

func (p *Peer) play(ctx context.Context, method string) error {
	if s := p.script.Load(); s != nil {
		return (*s)(ctx, method)
	}
	return nil
}

func (p *Peer) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/grpc.") {
		return next(ctx, req)
	}
	p.arrived(ctx)
	if err := p.play(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	if r, ok := req.(*recsv1.RecommendRequest); ok && p.poison.Load() != nil && r.GetProductId() == *p.poison.Load() {
		go p.crash() // cuts the connection, which ends ctx
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return next(ctx, req)
}

func (p *Peer) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if strings.HasPrefix(info.FullMethod, "/grpc.") { // health and reflection are not the service's work
		return next(srv, stream)
	}
	p.arrived(stream.Context())
	if err := p.play(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

// Services are the three upstreams of the edge.
type Services struct {
	Checkout, Search, Recs *Peer
	Orders                 *Orders
	Catalog                *Catalog
}

// Start runs the services until the test ends.
func Start(tb testing.TB) *Services {
	tb.Helper()
	s := &Services{Orders: newOrders(), Catalog: NewCatalog()}
	s.Checkout = start(tb, "127.0.0.1:0", func(r grpc.ServiceRegistrar) { checkoutv1.RegisterCheckoutServiceServer(r, s.Orders) })
	s.Search = start(tb, "127.0.0.1:0", func(r grpc.ServiceRegistrar) { searchv1.RegisterSearchServiceServer(r, s.Catalog) })
	s.Recs = StartRecs(tb, "127.0.0.1:0")
	return s
}

// StartRecs starts one more replica of recs on addr, or one that has crashed again on its own.
func StartRecs(tb testing.TB, addr string) *Peer {
	tb.Helper()
	return start(tb, addr, func(r grpc.ServiceRegistrar) { recsv1.RegisterRecsServiceServer(r, &recommender{}) })
}

// RestartCheckout starts checkout again on its address, with its orders.
func (s *Services) RestartCheckout(tb testing.TB) {
	tb.Helper()
	s.Checkout = start(tb, s.Checkout.Addr, func(r grpc.ServiceRegistrar) { checkoutv1.RegisterCheckoutServiceServer(r, s.Orders) })
}

func start(tb testing.TB, addr string, register func(grpc.ServiceRegistrar)) *Peer {
	tb.Helper()
	p := &Peer{crashed: make(chan struct{})}
	p.crash = sync.OnceFunc(func() { p.Stop(); close(p.crashed) })
	server, err := rpc.NewServer(rpc.ServerConfig{
		Addr: addr, Pool: bulkhead.Config{Size: 512, Queue: 512}, MaxStreams: 512, MaxConnectionAge: time.Hour,
	}, rpc.ServerDeps{
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), TracerProvider: nooptrace.NewTracerProvider(),
		MeterProvider: noopmetric.NewMeterProvider(), Propagator: propagation.TraceContext{},
		Inner: []grpc.UnaryServerInterceptor{p.unary}, InnerStream: []grpc.StreamServerInterceptor{p.stream},
	})
	if err != nil {
		tb.Fatal(err)
	}
	register(server)
	p.server, p.Addr = server, server.Addr()
	server.Ready()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(); err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it came to serve
			tb.Errorf("serve: %v", err)
		}
	}()
	tb.Cleanup(func() {
		p.Do(nil)
		server.Stop()
		<-served
	})
	return p
}

// Target is how a client names the peer.
func (p *Peer) Target() string { return "static:///" + p.Addr }

// DeadAddr is an address that nobody listens on.
func DeadAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Catalog is search with n products P-1 to P-n, all of one category.
type Catalog struct {
	searchv1.UnimplementedSearchServiceServer
	products []*searchv1.Product
}

// NewCatalog returns a catalog of 30 products.
func NewCatalog() *Catalog {
	c := &Catalog{}
	for i := 1; i <= 30; i++ {
		c.products = append(c.products, &searchv1.Product{
			Id: fmt.Sprintf("P-%d", i), Name: fmt.Sprintf("Product number %d", i), Description: "plain & useful",
			Category: "things", Price: &moneyv1.Money{Currency: "GBP", Minor: int64(100 + i)},
		})
	}
	return c
}

// SearchProducts pages through the products whose name contains the query; the token is the last id.
func (c *Catalog) SearchProducts(_ context.Context, req *searchv1.SearchProductsRequest) (*searchv1.SearchProductsResponse, error) {
	var found []*searchv1.Product
	for _, p := range c.products {
		if strings.Contains(strings.ToLower(p.GetName()), strings.ToLower(req.GetQuery())) &&
			(req.GetCategory() == "" || req.GetCategory() == p.GetCategory()) {
			found = append(found, p)
		}
	}
	resp := &searchv1.SearchProductsResponse{Total: int64(len(found)),
		Categories: []*searchv1.CategoryCount{{Category: "things", Products: int64(len(found))}}}
	if req.GetPageToken() != "" {
		i := slices.IndexFunc(found, func(p *searchv1.Product) bool { return p.GetId() == req.GetPageToken() })
		if i < 0 {
			return nil, rpcerr.Invalid("page_token", "was not made for this query")
		}
		found = found[i+1:]
	}
	size := int(req.GetPageSize())
	if size == 0 {
		size = 20
	}
	if len(found) > size {
		found = found[:size]
		resp.NextPageToken = found[size-1].GetId()
	}
	resp.Products = found
	return resp, nil
}

// GetProducts returns the known ones of the ids.
func (c *Catalog) GetProducts(_ context.Context, req *searchv1.GetProductsRequest) (*searchv1.GetProductsResponse, error) {
	resp := &searchv1.GetProductsResponse{}
	for _, id := range req.GetIds() {
		if i := slices.IndexFunc(c.products, func(p *searchv1.Product) bool { return strings.EqualFold(p.GetId(), id) }); i >= 0 {
			resp.Products = append(resp.Products, c.products[i])
		}
	}
	return resp, nil
}

type recommender struct {
	recsv1.UnimplementedRecsServiceServer
}

// Recommend names P-2, P-3, ... and, second, a product that search does not know.
func (*recommender) Recommend(_ context.Context, req *recsv1.RecommendRequest) (*recsv1.RecommendResponse, error) {
	resp := &recsv1.RecommendResponse{}
	for i := int32(2); i < 2+req.GetLimit(); i++ {
		resp.Recommendations = append(resp.Recommendations, &recsv1.Recommendation{ProductId: fmt.Sprintf("P-%d", i), Score: 1 / float64(i)})
		if i == 2 {
			resp.Recommendations = append(resp.Recommendations, &recsv1.Recommendation{ProductId: "gone", Score: 0.4})
		}
	}
	return resp, nil
}

// Orders is checkout in memory. Every product costs 255 minor units.
type Orders struct {
	checkoutv1.UnimplementedCheckoutServiceServer
	mu      sync.Mutex
	orders  map[string]*order
	keys    map[string]string // customer and key to order id
	changed chan struct{}     // closed and replaced at each change
	breaks  int               // streams to cut after one change
}

type order struct {
	state   *checkoutv1.Order
	content string
	changes []*checkoutv1.WatchOrderResponse
}

func newOrders() *Orders {
	return &Orders{orders: map[string]*order{}, keys: map[string]string{}, changed: make(chan struct{})}
}

// Count is how many orders there are.
func (o *Orders) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.orders)
}

// BreakStreams makes the next n watches end after one change, as a draining checkout would.
func (o *Orders) BreakStreams(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaks = n
}

// PlaceOrder stores an order once per customer and key.
func (o *Orders) PlaceOrder(_ context.Context, req *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	content := fmt.Sprint(req.GetCurrency(), req.GetLines(), req.GetPaymentToken())
	key := req.GetCustomerId() + "\x00" + req.GetIdempotencyKey()
	if id, ok := o.keys[key]; ok {
		if o.orders[id].content != content {
			return nil, rpcerr.New(codes.AlreadyExists, rpcerr.IdempotencyKeyReused, "the key was used for another order")
		}
		return &checkoutv1.PlaceOrderResponse{Order: proto.CloneOf(o.orders[id].state), Replayed: true}, nil
	}
	state := &checkoutv1.Order{
		Id: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(o.orders)+1), CustomerId: req.GetCustomerId(),
		Total: &moneyv1.Money{Currency: req.GetCurrency()}, CreatedAt: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
	for _, l := range req.GetLines() {
		if l.GetProductId() == "unknown" {
			return nil, rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no product \"unknown\"", rpcerr.Meta("product_id", "unknown"))
		}
		state.Lines = append(state.Lines, &checkoutv1.OrderLine{ProductId: l.GetProductId(), Name: "Product", Quantity: l.GetQuantity(),
			UnitPrice: 255, LineTotal: 255 * l.GetQuantity()})
		state.Total.Minor += 255 * l.GetQuantity()
	}
	if req.ExpectedTotal != nil && req.GetExpectedTotal() != state.GetTotal().GetMinor() {
		return nil, rpcerr.New(codes.FailedPrecondition, rpcerr.PriceChanged, "the total has changed",
			rpcerr.Meta("total", fmt.Sprint(state.GetTotal().GetMinor())))
	}
	o.orders[state.GetId()], o.keys[key] = &order{state: state, content: content}, state.GetId()
	o.change(state.GetId(), checkoutv1.OrderStatus_ORDER_STATUS_PENDING)
	return &checkoutv1.PlaceOrderResponse{Order: proto.CloneOf(state)}, nil
}

// Change moves an order to a status.
func (o *Orders) Change(id string, to checkoutv1.OrderStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.change(id, to)
}

func (o *Orders) change(id string, to checkoutv1.OrderStatus) {
	it := o.orders[id]
	at := timestamppb.New(it.state.GetCreatedAt().AsTime().Add(time.Duration(len(it.changes)) * time.Second))
	it.state.Status, it.state.UpdatedAt = to, at
	it.changes = append(it.changes, &checkoutv1.WatchOrderResponse{Sequence: int64(len(it.changes) + 1), OrderId: id, Status: to, At: at})
	close(o.changed)
	o.changed = make(chan struct{})
}

// GetOrder returns an order.
func (o *Orders) GetOrder(_ context.Context, req *checkoutv1.GetOrderRequest) (*checkoutv1.GetOrderResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	it, ok := o.orders[req.GetOrderId()]
	if !ok {
		return nil, rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no order with this id")
	}
	return &checkoutv1.GetOrderResponse{Order: proto.CloneOf(it.state)}, nil
}

// WatchOrder streams an order's changes.
func (o *Orders) WatchOrder(req *checkoutv1.WatchOrderRequest, stream grpc.ServerStreamingServer[checkoutv1.WatchOrderResponse]) error {
	next := int(req.GetAfterSequence())
	for {
		o.mu.Lock()
		it, ok := o.orders[req.GetOrderId()]
		if !ok {
			o.mu.Unlock()
			return rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no order with this id")
		}
		changes, changed := it.changes[min(next, len(it.changes)):], o.changed
		final := it.state.GetStatus() >= checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED
		cut := o.breaks > 0 && len(changes) > 0
		if cut {
			o.breaks--
			changes = changes[:1]
		}
		o.mu.Unlock()
		for _, c := range changes {
			if err := stream.Send(c); err != nil {
				return err
			}
		}
		next += len(changes)
		if cut {
			return rpcerr.New(codes.Unavailable, rpcerr.Draining, "shutting down")
		}
		if final {
			return nil
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

var _ io.Writer = (*Lines)(nil)

// Lines collects what is logged, one element a line.
type Lines struct {
	mu  sync.Mutex
	all []string
}

// Write takes one log line, as slog's handlers write it.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// All returns the lines so far.
func (l *Lines) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
