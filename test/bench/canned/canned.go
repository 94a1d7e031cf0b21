// Package canned is the services behind a gateway with answers that are made in advance, so that a benchmark of the gateway
// measures the gateway. Recs can be told to fail or to hang. Nothing is stored.
package canned

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// Products is how many products there are: P-0001, P-0002, ...
const Products = 200

// ID is the id of the product n, which counts from 0 and starts again after the last.
func ID(n int) string { return fmt.Sprintf("P-%04d", n%Products+1) }

// Services answers for search, recs and checkout.
type Services struct {
	searchv1.UnimplementedSearchServiceServer
	recsv1.UnimplementedRecsServiceServer
	checkoutv1.UnimplementedCheckoutServiceServer

	products    map[string]*searchv1.Product
	recommended map[string]*recsv1.RecommendResponse
	order       *checkoutv1.Order

	calls, hung atomic.Int64
	hangs, none atomic.Bool
	failing     atomic.Int64 // of each hundred calls of recs
}

// New makes the answers.
func New() *Services {
	s := &Services{products: map[string]*searchv1.Product{}, recommended: map[string]*recsv1.RecommendResponse{}}
	for n := range Products {
		s.products[ID(n)] = &searchv1.Product{
			Id: ID(n), Name: fmt.Sprintf("Set of %d lanterns, white & gold", n+2), Category: "Home & garden",
			Description: "Hangs from a beam or stands on a table; takes one small candle each. " + strings.Repeat("Made by hand. ", n%4),
			Price:       &moneyv1.Money{Currency: "GBP", Minor: int64(255 + n)}, Popularity: int64(n),
		}
		list := &recsv1.RecommendResponse{Basis: recsv1.Basis_BASIS_BOUGHT_TOGETHER}
		for i := range 8 {
			list.Recommendations = append(list.Recommendations, &recsv1.Recommendation{ProductId: ID(n + i + 1), Score: 0.875 / float64(i+3)})
		}
		s.recommended[ID(n)] = list
	}
	at := timestamppb.Now()
	s.order = &checkoutv1.Order{
		Id: "0197a1b2-0000-7000-8000-000000000001", CustomerId: "c-1", Status: checkoutv1.OrderStatus_ORDER_STATUS_PENDING,
		Total: &moneyv1.Money{Currency: "GBP", Minor: 1021}, CreatedAt: at, UpdatedAt: at,
		Lines: []*checkoutv1.OrderLine{
			{ProductId: ID(0), Name: "Set of 2 lanterns, white & gold", Quantity: 2, UnitPrice: 255, LineTotal: 510},
			{ProductId: ID(1), Name: "Set of 3 lanterns, white & gold", Quantity: 2, UnitPrice: 256, LineTotal: 511},
		},
	}
	return s
}

// Register puts all three services on a server.
func (s *Services) Register(r grpc.ServiceRegistrar) {
	searchv1.RegisterSearchServiceServer(r, s)
	recsv1.RegisterRecsServiceServer(r, s)
	checkoutv1.RegisterCheckoutServiceServer(r, s)
}

// Listen serves them at an address, with no more around them than gRPC's own server, until ctx ends.
func (s *Services) Listen(ctx context.Context, addr string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	s.Register(server)
	context.AfterFunc(ctx, server.Stop)
	go server.Serve(listener) //nolint:errcheck // it ends when it is stopped
	return nil
}

// FailRecs makes so many of each hundred calls of recs fail, and the others succeed.
func (s *Services) FailRecs(percent int) { s.failing.Store(int64(percent)) }

// HangRecs makes calls of recs wait until their callers give up; those that wait already are not let go.
func (s *Services) HangRecs(yes bool) { s.hangs.Store(yes) }

// EmptyRecs makes calls of recs succeed without any recommendation, so that nothing comes of them, as of one that fails.
func (s *Services) EmptyRecs(yes bool) { s.none.Store(yes) }

// Hung is how many calls of recs have hung.
func (s *Services) Hung() int64 { return s.hung.Load() }

// GetProducts returns the known ones of the products.
func (s *Services) GetProducts(_ context.Context, req *searchv1.GetProductsRequest) (*searchv1.GetProductsResponse, error) {
	resp := &searchv1.GetProductsResponse{Products: make([]*searchv1.Product, 0, len(req.GetIds()))}
	for _, id := range req.GetIds() {
		if p, ok := s.products[id]; ok {
			resp.Products = append(resp.Products, p)
		}
	}
	return resp, nil
}

// Recommend returns the eight products that follow the one named.
func (s *Services) Recommend(ctx context.Context, req *recsv1.RecommendRequest) (*recsv1.RecommendResponse, error) {
	if s.hangs.Load() {
		s.hung.Add(1)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	// Calls that fail are spread evenly among the others.
	if n, share := s.calls.Add(1), s.failing.Load(); n*share/100 != (n-1)*share/100 {
		return nil, status.Error(codes.Unavailable, "told to fail")
	}
	if s.none.Load() {
		return &recsv1.RecommendResponse{Basis: recsv1.Basis_BASIS_BOUGHT_TOGETHER}, nil
	}
	return s.recommended[req.GetProductId()], nil
}

// PlaceOrder returns the one order that there is.
func (s *Services) PlaceOrder(context.Context, *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error) {
	return &checkoutv1.PlaceOrderResponse{Order: s.order}, nil
}
