// Package hop is the processes with which the price of a split is found: the project's edge with its services in the same
// process, which is what a split adds to; and next to it a handler that does nothing but pass an order on, with and without a
// bare gRPC call to another process in between, which is the least that any split adds.
package hop

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/fullstorydev/grpchan/inprocgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/telemetry"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/test/bench/canned"
)

// maxStreams is more than anybody opens here.
const maxStreams = 16

type settings struct {
	GRPC      string `env:"GRPC_ADDR" help:"where Services listens as the shop's do"`
	Bare      string `env:"BARE_ADDR" help:"where Services listens with no more than gRPC's own server, and Bare calls"`
	Telemetry telemetry.Config
}

// deps are what the shop's gRPC servers stand on.
func deps(ctx context.Context, cfg telemetry.Config, out io.Writer) (rpc.ServerDeps, error) {
	log := slog.New(slog.NewTextHandler(out, nil))
	tel, err := telemetry.New(ctx, cfg, "bench", log)
	if err != nil {
		return rpc.ServerDeps{}, err
	}
	return rpc.ServerDeps{
		Log: log, Registry: tel.Registry,
		TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider, Propagator: tel.Propagator,
	}, nil
}

// Services answers as all services, once behind all that the shop's servers put around theirs and once behind nothing.
func Services(ctx context.Context, environ []string, out io.Writer) (http.Handler, error) {
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return nil, err
	}
	deps, err := deps(ctx, cfg.Telemetry, out)
	if err != nil {
		return nil, err
	}
	server, err := rpc.NewServer(rpc.ServerConfig{
		Addr: cfg.GRPC, Pool: bulkhead.Config{Size: 64, Queue: 64}, MaxStreams: maxStreams, MaxConnectionAge: time.Hour,
	}, deps)
	if err != nil {
		return nil, err
	}
	services := canned.New()
	services.Register(server)
	go server.Serve() //nolint:errcheck // it ends with the process
	server.Ready()
	if err := services.Listen(ctx, cfg.Bare); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil
}

// OneProcess is the shop's edge with the services in its own process, reached as the monolith reaches its features: without a
// network, and with all else that a call passes.
func OneProcess(ctx context.Context, environ []string, out io.Writer) (http.Handler, error) {
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return nil, err
	}
	deps, err := deps(ctx, cfg.Telemetry, out)
	if err != nil {
		return nil, err
	}
	unary, stream := rpc.Interceptors(deps, maxStreams)
	channel := new(inprocgrpc.Channel).WithServerUnaryInterceptor(unary).WithServerStreamInterceptor(stream)
	canned.New().Register(channel)
	edge, err := config.Load[gateway.Config](environ)
	if err != nil {
		return nil, err
	}
	log, err := telemetry.NewLogger(out, "info", "json", "bench") // the edge writes a line for each request here too
	if err != nil {
		return nil, err
	}
	return gateway.NewHandler(edge, gateway.Deps{
		Shop: shop.New(shop.Backends{
			Checkout: checkoutv1.NewCheckoutServiceClient(channel), Search: searchv1.NewSearchServiceClient(channel),
			Recs: recsv1.NewRecsServiceClient(channel), RecsTimeout: time.Second, Log: log,
		}),
		Budgets: gateway.Budgets{Checkout: 2 * time.Second, Search: time.Second, Recs: time.Second}, Version: "bench", Design: "one process",
		Draining: make(chan struct{}), Log: log, TracerProvider: deps.TracerProvider, MeterProvider: deps.MeterProvider, Propagator: deps.Propagator,
	})
}

// Bare takes a request, makes one gRPC call to another process, and answers.
func Bare(_ context.Context, environ []string, _ io.Writer) (http.Handler, error) {
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(cfg.Bare, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := checkoutv1.NewCheckoutServiceClient(conn)
	return handler(func(ctx context.Context, order *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error) {
		return client.PlaceOrder(ctx, order)
	}), nil
}

// Direct is Bare with a call of a function.
func Direct(context.Context, []string, io.Writer) (http.Handler, error) {
	return handler(canned.New().PlaceOrder), nil
}

// handler passes one and the same order on, whatever it is asked.
func handler(place func(context.Context, *checkoutv1.PlaceOrderRequest) (*checkoutv1.PlaceOrderResponse, error)) http.Handler {
	order := &checkoutv1.PlaceOrderRequest{
		IdempotencyKey: "key", CustomerId: "c-1", Currency: "GBP", PaymentToken: "tok_ok",
		Lines: []*checkoutv1.NewLine{{ProductId: canned.ID(0), Quantity: 2}, {ProductId: canned.ID(1), Quantity: 2}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		placed, err := place(r.Context(), order)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":%q,"total":%d}`, placed.GetOrder().GetId(), placed.GetOrder().GetTotal().GetMinor())
	})
}
