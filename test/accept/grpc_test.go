//go:build unix

package accept

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/test/shop"
)

func dial(t *testing.T, s *shop.Shop, service string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.Process(t, service).Addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestGRPC_EachServiceHasHealthReflectionAndItsContract(t *testing.T) {
	s := live.Get(t)
	for name, p := range s.Services(t) {
		if p.Addresses["grpc"] == "" {
			continue
		}
		conn := dial(t, s, name)
		health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%s: health %v (%v)", name, health, err)
		}
		services := reflected(t, conn)
		if !slices.ContainsFunc(services, func(service string) bool { return strings.HasPrefix(service, name+".v1.") }) {
			t.Errorf("%s: reflection lists %v", name, services)
		}
	}
}

func reflected(t *testing.T, conn *grpc.ClientConn) []string {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := errors.Join(stream.Send(ask), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	return names
}

func TestGRPC_EachErrorHasOneReasonAndNamesTheField(t *testing.T) {
	s := live.Get(t)
	checkout := checkoutv1.NewCheckoutServiceClient(dial(t, s, "checkout"))
	search := searchv1.NewSearchServiceClient(dial(t, s, "search"))
	recs := recsv1.NewRecsServiceClient(dial(t, s, "recs"))
	const unknown = "00000000-0000-4000-8000-000000000000"
	for name, tc := range map[string]struct {
		call   func(ctx context.Context) error
		code   codes.Code
		reason string
		field  string
	}{
		"no such order": {func(ctx context.Context) error {
			_, err := checkout.GetOrder(ctx, &checkoutv1.GetOrderRequest{OrderId: unknown})
			return err
		}, codes.NotFound, "NOT_FOUND", ""},
		"no such order to watch": {func(ctx context.Context) error {
			stream, err := checkout.WatchOrder(ctx, &checkoutv1.WatchOrderRequest{OrderId: unknown})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.NotFound, "NOT_FOUND", ""},
		"an order id that is none": {func(ctx context.Context) error {
			_, err := checkout.GetOrder(ctx, &checkoutv1.GetOrderRequest{OrderId: strings.Repeat("-", 36)})
			return err
		}, codes.InvalidArgument, "INVALID_ARGUMENT", "order_id"},
		"a page too large": {func(ctx context.Context) error {
			_, err := search.SearchProducts(ctx, &searchv1.SearchProductsRequest{PageSize: 101})
			return err
		}, codes.InvalidArgument, "INVALID_ARGUMENT", "page_size"},
		"a page before the first": {func(ctx context.Context) error {
			_, err := search.SearchProducts(ctx, &searchv1.SearchProductsRequest{PageToken: "forged"})
			return err
		}, codes.InvalidArgument, "INVALID_ARGUMENT", "page_token"},
		"too many recommendations": {func(ctx context.Context) error {
			_, err := recs.Recommend(ctx, &recsv1.RecommendRequest{Limit: 51})
			return err
		}, codes.InvalidArgument, "INVALID_ARGUMENT", "limit"},
		"a basket without products": {func(ctx context.Context) error {
			stream, err := recs.ImportBaskets(ctx)
			if err != nil {
				return err
			}
			basket := &recsv1.ImportBasketsRequest{Baskets: []*recsv1.Basket{{Id: "accept-1"}}}
			if err := stream.Send(basket); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			_, err = stream.CloseAndRecv()
			return err
		}, codes.InvalidArgument, "INVALID_ARGUMENT", "baskets[0].product_ids"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		st := status.Convert(tc.call(ctx))
		cancel()
		var reasons, fields []string
		for _, detail := range st.Details() {
			switch d := detail.(type) {
			case *errdetails.ErrorInfo:
				reasons = append(reasons, d.GetReason())
			case *errdetails.BadRequest:
				for _, v := range d.GetFieldViolations() {
					fields = append(fields, v.GetField())
				}
			}
		}
		if st.Code() != tc.code || !slices.Equal(reasons, []string{tc.reason}) || (tc.field != "" && !slices.Contains(fields, tc.field)) {
			t.Errorf("%s: %v, reasons %v, fields %v; want %v, %s, %s", name, st, reasons, fields, tc.code, tc.reason, tc.field)
		}
	}
}
