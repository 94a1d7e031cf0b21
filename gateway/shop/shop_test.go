package shop_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/shoptest"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// catalog is search as an in-process client: no wire, as in the monolith.
type catalog struct{ *shoptest.Catalog }

func (c catalog) SearchProducts(ctx context.Context, req *searchv1.SearchProductsRequest,
	_ ...grpc.CallOption) (*searchv1.SearchProductsResponse, error) {
	return c.Catalog.SearchProducts(ctx, req)
}

func (c catalog) GetProducts(ctx context.Context, req *searchv1.GetProductsRequest, _ ...grpc.CallOption) (*searchv1.GetProductsResponse, error) {
	return c.Catalog.GetProducts(ctx, req)
}

func (c catalog) ImportProducts(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[searchv1.ImportProductsRequest,
	searchv1.ImportProductsResponse], error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

type recommends func(ctx context.Context) (*recsv1.RecommendResponse, error)

func (r recommends) Recommend(ctx context.Context, _ *recsv1.RecommendRequest, _ ...grpc.CallOption) (*recsv1.RecommendResponse, error) {
	return r(ctx)
}

func (r recommends) ImportBaskets(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[recsv1.ImportBasketsRequest,
	recsv1.ImportBasketsResponse], error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}

func newShop(degraded *atomic.Int64, recs recommends) *shop.Shop {
	return shop.New(shop.Backends{
		Search: catalog{shoptest.NewCatalog()}, Recs: recs, RecsTimeout: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Degraded: func(context.Context, string) { degraded.Add(1) },
	})
}

func TestProductPage_SurvivesAPanicInTheCallToRecs(t *testing.T) {
	var degraded atomic.Int64
	s := newShop(&degraded, func(context.Context) (*recsv1.RecommendResponse, error) { panic("recs") })
	page, err := s.ProductPage(t.Context(), "P-1")
	want := []string{"recs"}
	if diff := cmp.Diff(want, page.Degraded); err != nil || diff != "" || page.Product.ID != "P-1" || degraded.Load() != 1 {
		t.Errorf("page %+v, %v, counted %d times", page, err, degraded.Load())
	}
}

func TestProductPage_WaitsForRecsNoLongerThanItsTimeout(t *testing.T) {
	var degraded atomic.Int64
	s := newShop(&degraded, func(ctx context.Context) (*recsv1.RecommendResponse, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	})
	page, err := s.ProductPage(t.Context(), "P-1")
	if err != nil || len(page.Degraded) != 1 || page.Recommendations == nil {
		t.Errorf("page %+v, %v", page, err)
	}
}

func TestProductPage_LeavesOutScoresThatJSONCannotHold(t *testing.T) {
	var degraded atomic.Int64
	s := newShop(&degraded, func(context.Context) (*recsv1.RecommendResponse, error) {
		return &recsv1.RecommendResponse{Recommendations: []*recsv1.Recommendation{
			{ProductId: "P-2", Score: math.NaN()}, {ProductId: "P-3", Score: math.Inf(1)}, {ProductId: "p-4", Score: 0.5},
		}}, nil
	})
	page, err := s.ProductPage(t.Context(), "P-1")
	if err != nil || len(page.Recommendations) != 1 || page.Recommendations[0].ID != "P-4" || degraded.Load() != 0 {
		t.Errorf("page %+v, %v", page, err)
	}
}

func TestRecommend_ACallerThatLeavesIsNotDegraded(t *testing.T) {
	var degraded atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	s := newShop(&degraded, func(ctx context.Context) (*recsv1.RecommendResponse, error) {
		cancel()
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	})
	if _, err := s.Recommend(ctx, "P-1", 3); status.Code(err) != codes.Canceled {
		t.Errorf("Recommend = %v, want CANCELLED", err)
	}
	if _, err := s.ProductPage(ctx, "P-1"); status.Code(err) != codes.Canceled {
		t.Errorf("ProductPage = %v, want CANCELLED", err)
	}
	if degraded.Load() != 0 {
		t.Errorf("counted as degraded %d times", degraded.Load())
	}
}

func TestShop_TextThatNoMessageMayHoldIsTheCallersFault(t *testing.T) {
	s := newShop(new(atomic.Int64), func(context.Context) (*recsv1.RecommendResponse, error) { return &recsv1.RecommendResponse{}, nil })
	bad := "a\xff"
	_, err1 := s.Search(t.Context(), shop.Query{Text: bad})
	_, err2 := s.ProductPage(t.Context(), bad)
	_, err3 := s.Order(t.Context(), bad)
	_, _, err4 := s.PlaceOrder(t.Context(), "k", shop.NewOrder{Lines: []shop.NewLine{{ProductID: bad, Quantity: 1}}})
	err5 := s.Watch(t.Context(), bad, 0, nil)
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if rpcerr.Reason(err) != rpcerr.InvalidArgument || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("call %d: %v, want INVALID_ARGUMENT", i, err)
		}
	}
}

// watchScript is checkout's watch, one step per stream opened.
type watchScript struct {
	checkoutv1.CheckoutServiceClient
	status checkoutv1.OrderStatus
	steps  []func(after int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error)
	opened int
}

func (w *watchScript) WatchOrder(_ context.Context, req *checkoutv1.WatchOrderRequest,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
	step := w.steps[w.opened]
	w.opened++
	return step(req.GetAfterSequence())
}

func (w *watchScript) GetOrder(context.Context, *checkoutv1.GetOrderRequest, ...grpc.CallOption) (*checkoutv1.GetOrderResponse, error) {
	return &checkoutv1.GetOrderResponse{Order: &checkoutv1.Order{Status: w.status}}, nil
}

type changes struct {
	grpc.ClientStream
	list []*checkoutv1.WatchOrderResponse
	end  error
}

func (c *changes) Recv() (*checkoutv1.WatchOrderResponse, error) {
	if len(c.list) == 0 {
		return nil, c.end
	}
	next := c.list[0]
	c.list = c.list[1:]
	return next, nil
}

func change(sequence int64, to checkoutv1.OrderStatus) *checkoutv1.WatchOrderResponse {
	return &checkoutv1.WatchOrderResponse{Sequence: sequence, Status: to}
}

func TestWatch_ResumesBehindTheLastChangeAndRepeatsNone(t *testing.T) {
	var asked []int64
	open := func(end error, list ...*checkoutv1.WatchOrderResponse) func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
		return func(after int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
			asked = append(asked, after)
			return &changes{list: list, end: end}, nil
		}
	}
	script := &watchScript{status: checkoutv1.OrderStatus_ORDER_STATUS_PENDING,
		steps: []func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error){
			open(status.Error(codes.Unavailable, "draining"), change(1, checkoutv1.OrderStatus_ORDER_STATUS_PENDING)),
			func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
				return nil, status.Error(codes.ResourceExhausted, "full")
			},
			open(errors.New("EOF of another kind"), change(1, checkoutv1.OrderStatus_ORDER_STATUS_PENDING),
				change(2, checkoutv1.OrderStatus_ORDER_STATUS_AWAITING_PAYMENT)),
			open(nil, change(3, checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED)),
		}}
	s := shop.New(shop.Backends{Checkout: script, Log: slog.New(slog.DiscardHandler)})
	var got []int64
	err := s.Watch(t.Context(), "id", 0, func(e shop.Event) error { got = append(got, e.Sequence); return nil })
	if diff := cmp.Diff([]int64{1, 2, 3}, got); err != nil || diff != "" {
		t.Errorf("Watch = %v, events (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]int64{0, 1, 2}, asked); diff != "" {
		t.Errorf("asked for changes after (-want +got):\n%s", diff)
	}
}

func TestWatch_EndsWhenTryingAgainCannotHelp(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.Unimplemented} {
		script := &watchScript{steps: []func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error){
			func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
				return &changes{end: status.Error(code, "no")}, nil
			},
		}}
		s := shop.New(shop.Backends{Checkout: script, Log: slog.New(slog.DiscardHandler)})
		if err := s.Watch(t.Context(), "id", 0, nil); status.Code(err) != code {
			t.Errorf("%v: Watch = %v", code, err)
		}
	}
}

func TestWatch_TheListenersErrorEndsIt(t *testing.T) {
	script := &watchScript{steps: []func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error){
		func(int64) (grpc.ServerStreamingClient[checkoutv1.WatchOrderResponse], error) {
			return &changes{list: []*checkoutv1.WatchOrderResponse{change(1, checkoutv1.OrderStatus_ORDER_STATUS_PENDING)}}, nil
		},
	}}
	s := shop.New(shop.Backends{Checkout: script, Log: slog.New(slog.DiscardHandler)})
	gone := errors.New("gone")
	if err := s.Watch(t.Context(), "id", 0, func(shop.Event) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("Watch = %v, want the listener's error", err)
	}
}

func TestStatus_FinalOnesStay(t *testing.T) {
	for s, want := range map[shop.Status]bool{shop.Pending: false, shop.AwaitingPayment: false, shop.Confirmed: true, shop.Rejected: true,
		shop.Cancelled: true} {
		if s.Final() != want {
			t.Errorf("%s.Final() = %v", s, !want)
		}
	}
}
