package checkout_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/rpcerr"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/checkout"
)

// slowRecs answers after a pause, or when its caller has had enough.
type slowRecs struct {
	recsv1.UnimplementedRecsServiceServer
	addr  string
	pause atomic.Int64
	calls atomic.Int64
}

func (r *slowRecs) Recommend(ctx context.Context, req *recsv1.RecommendRequest) (*recsv1.RecommendResponse, error) {
	r.calls.Add(1)
	if req.GetProductId() != "A" {
		return nil, rpcerr.Invalid("product_id", "not that of the order's first line")
	}
	select {
	case <-time.After(time.Duration(r.pause.Load())):
		return &recsv1.RecommendResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func newSlowRecs(t *testing.T) *slowRecs {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	r, server := &slowRecs{addr: listener.Addr().String()}, grpc.NewServer()
	recsv1.RegisterRecsServiceServer(server, r)
	healthv1.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		must(t, <-served)
	})
	return r
}

// storm places orders at 40 a second, whatever becomes of them, and returns how many of them were placed.
func (s *shop) storm(t *testing.T, orders int) (placed int64) {
	t.Helper()
	var ok atomic.Int64
	var clients sync.WaitGroup
	pace := time.NewTicker(time.Second / 40)
	defer pace.Stop()
	for i := range orders {
		<-pace.C
		clients.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := s.PlaceOrder(ctx, wanted(fmt.Sprintf("storm-%s-%d", t.Name(), i), "A", 1))
			switch code := status.Code(err); code {
			case codes.OK:
				ok.Add(1)
			case codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted:
			default:
				t.Errorf("order %d: %v", i, err)
			}
		})
	}
	clients.Wait()
	return ok.Load()
}

func TestSyncCall_RawAHangingRecsSinksCheckout_GuardedItFloats(t *testing.T) {
	const orders = 120
	for mode, want := range map[string]struct{ least, most int64 }{
		"raw":     {0, orders / 10},
		"guarded": {orders, orders},
	} {
		t.Run(mode, func(t *testing.T) {
			recs := newSlowRecs(t)
			s := open(t, "POOL_SIZE=4", "RECS_IN_CHECKOUT="+mode, "RECS_ADDR=static:///"+recs.addr)
			s.list(t, "A", 255)
			s.place(t, wanted("well", "A", 1))
			eventually(t, "recs is asked", func() bool {
				s.place(t, wanted("well", "A", 1))
				return recs.calls.Load() > 0
			})

			recs.pause.Store(int64(2 * time.Second))
			placed := s.storm(t, orders)
			t.Logf("%s: %d of %d orders placed", mode, placed, orders)
			if placed < want.least || placed > want.most {
				t.Errorf("%d of %d orders placed, want %d to %d", placed, orders, want.least, want.most)
			}

			recs.pause.Store(0)
			eventually(t, "orders are placed when recs is well again", func() bool {
				_, err := s.PlaceOrder(t.Context(), wanted("after", "A", 1))
				return err == nil
			})
		})
	}
}

func TestSyncCall_RawFailsAsRecsDoesAndSaysNothingOfIt(t *testing.T) {
	recs := newSlowRecs(t)
	s := open(t, "RECS_IN_CHECKOUT=raw", "RECS_ADDR=static:///"+recs.addr, "RECS_RAW_TIMEOUT=50ms")
	s.list(t, "A", 255, "B", 100)
	eventually(t, "an order is placed", func() bool { _, err := s.PlaceOrder(t.Context(), wanted("first", "A", 1)); return err == nil })
	rows := s.rowsOfOrders(t)

	_, err := s.PlaceOrder(t.Context(), wanted("refused", "B", 1))
	wantError(t, err, codes.Unavailable, rpcerr.Unavailable)
	recs.pause.Store(int64(time.Minute))
	_, err = s.PlaceOrder(t.Context(), wanted("late", "A", 1))
	wantError(t, err, codes.DeadlineExceeded, rpcerr.Timeout)
	if got := s.rowsOfOrders(t); got != rows {
		t.Errorf("the orders that failed left %d rows", got-rows)
	}
}

func TestSyncCall_OffNobodyIsCalled(t *testing.T) {
	recs := newSlowRecs(t)
	s := open(t, "RECS_ADDR=static:///"+recs.addr)
	s.list(t, "A", 255)
	s.place(t, wanted("k", "A", 1))
	if n := recs.calls.Load(); n != 0 {
		t.Errorf("recs was called %d times", n)
	}
}

func TestSyncCallConfig_SaysWhichVariableIsWrong(t *testing.T) {
	for variable, name := range map[string]string{
		"RECS_IN_CHECKOUT=on": "RECS_IN_CHECKOUT", "RECS_RAW_TIMEOUT=0s": "RECS_RAW_TIMEOUT", "RECS_TIMEOUT=0s": "RECS_TIMEOUT",
		"RECS_MAX_IN_FLIGHT=0": "RECS_MAX_IN_FLIGHT", "RECS_BREAKER_RATIO=2": "RECS_BREAKER_RATIO",
	} {
		_, err := config.Load[checkout.SyncCallConfig]([]string{variable})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names %s", variable, err, name)
		}
	}
}
