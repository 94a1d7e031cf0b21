// Package peer is what the project's gateway is compared with: one that grpc-gateway generates from the same contracts, with
// gobreaker and a deadline around every call and OpenTelemetry's own instrumentation at both ends. It has what its libraries
// bring, and no more: no bulkhead, no access log, no limits on clients.
//
// The route for orders is the generated one. A product page is composed by hand, because grpc-gateway makes one call for one
// request: it asks the same services for the same three answers, at the same times, and writes them as they are, with
// grpc-gateway's marshaler, without joining recommendations and products.
package peer

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/sony/gobreaker/v2"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/telemetry"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	checkoutgw "example.com/watertight/test/bench/edge/peer/checkout/v1"
)

type settings struct {
	Services  string        `env:"SERVICES_ADDR,required" help:"gRPC address of all services"`
	Checkout  time.Duration `env:"CHECKOUT_TIMEOUT" envDefault:"2s"`
	Search    time.Duration `env:"SEARCH_TIMEOUT" envDefault:"800ms"`
	Recs      time.Duration `env:"RECS_TIMEOUT" envDefault:"150ms"`
	Telemetry telemetry.Config
}

// gateway is the peer.
type gateway struct {
	mux    *runtime.ServeMux
	search searchv1.SearchServiceClient
	recs   recsv1.RecsServiceClient
}

// Handler returns the peer, set up from environ.
func Handler(ctx context.Context, environ []string, log io.Writer) (http.Handler, error) {
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(ctx, cfg.Telemetry, "peer", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return nil, err
	}
	dial := func(name string, timeout time.Duration) (*grpc.ClientConn, error) {
		return grpc.NewClient(cfg.Services, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(guard(name, timeout)),
			grpc.WithStatsHandler(otelgrpc.NewClientHandler(
				otelgrpc.WithTracerProvider(tel.TracerProvider), otelgrpc.WithMeterProvider(tel.MeterProvider), otelgrpc.WithPropagators(tel.Propagator))))
	}
	checkout, err := dial("checkout", cfg.Checkout)
	if err != nil {
		return nil, err
	}
	search, err := dial("search", cfg.Search)
	if err != nil {
		return nil, err
	}
	recs, err := dial("recs", cfg.Recs)
	if err != nil {
		return nil, err
	}
	g := &gateway{search: searchv1.NewSearchServiceClient(search), recs: recsv1.NewRecsServiceClient(recs)}
	// The names of the contracts, as the project's gateway writes them; the rest is the marshaler's default.
	g.mux = runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}))
	if err := checkoutgw.RegisterCheckoutServiceHandler(ctx, g.mux, checkout); err != nil {
		return nil, err
	}
	if err := g.mux.HandlePath(http.MethodGet, "/api/v1/products/{id}", g.page); err != nil {
		return nil, err
	}
	return otelhttp.NewHandler(g.mux, "peer", otelhttp.WithTracerProvider(tel.TracerProvider), otelhttp.WithMeterProvider(tel.MeterProvider),
		otelhttp.WithPropagators(tel.Propagator)), nil
}

// guard is a deadline and a circuit breaker around each call, with the numbers of the project's.
func guard(name string, timeout time.Duration) grpc.UnaryClientInterceptor {
	breaker := gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name: name, MaxRequests: 3, Interval: 10 * time.Second, BucketPeriod: time.Second, Timeout: 5 * time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return c.ConsecutiveFailures >= 5 || c.Requests >= 20 && 2*c.TotalFailures >= c.Requests
		},
		IsSuccessful: func(err error) bool {
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.DataLoss:
				return false
			default:
				return true
			}
		},
	})
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		_, err := breaker.Execute(func() (struct{}, error) {
			return struct{}{}, invoke(ctx, method, req, reply, cc, opts...)
		})
		return err
	}
}

// page answers with a product, and what goes with it when recs says so in time.
func (g *gateway) page(w http.ResponseWriter, r *http.Request, params map[string]string) {
	ctx, id := r.Context(), params["id"]
	_, marshaler := runtime.MarshalerForRequest(g.mux, r)
	type recommended struct {
		list *recsv1.RecommendResponse
		err  error
	}
	aside := make(chan recommended, 1)
	go func() {
		list, err := g.recs.Recommend(ctx, &recsv1.RecommendRequest{ProductId: id, Limit: 8})
		aside <- recommended{list, err}
	}()
	found, err := g.search.GetProducts(ctx, &searchv1.GetProductsRequest{Ids: []string{id}})
	if err == nil && len(found.GetProducts()) == 0 {
		err = status.Error(codes.NotFound, "there is no product with this id")
	}
	if err != nil {
		runtime.HTTPError(ctx, g.mux, marshaler, w, r, err)
		return
	}
	got := <-aside
	var products *searchv1.GetProductsResponse
	if got.err == nil {
		ids := make([]string, 0, len(got.list.GetRecommendations()))
		for _, one := range got.list.GetRecommendations() {
			ids = append(ids, one.GetProductId())
		}
		if products, err = g.search.GetProducts(ctx, &searchv1.GetProductsRequest{Ids: ids}); err != nil {
			products = nil
		}
	}
	body, err := compose(marshaler, found.GetProducts()[0], got.list, products)
	if err != nil {
		runtime.HTTPError(ctx, g.mux, marshaler, w, r, err)
		return
	}
	w.Header().Set("Content-Type", marshaler.ContentType(found))
	w.Write(body) //nolint:errcheck,gosec // the client is gone; the content is JSON that the marshaler made
}

// compose writes the answers of the services into one; products are nil when recommendations could not be had.
func compose(m runtime.Marshaler, product *searchv1.Product, list *recsv1.RecommendResponse, products *searchv1.GetProductsResponse) ([]byte, error) {
	first, err := m.Marshal(product)
	if err != nil || products == nil {
		return fmt.Appendf(nil, `{"product":%s,"degraded":["recs"]}`, first), err
	}
	second, err := m.Marshal(list)
	if err != nil {
		return nil, err
	}
	third, err := m.Marshal(products)
	return fmt.Appendf(nil, `{"product":%s,"recommendations":%s,"products":%s,"degraded":[]}`, first, second, third), err
}
