package fault_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/fault"
)

// injector is one as the environment configures it, without a broker.
func injector(t *testing.T, environ ...string) *fault.Injector {
	t.Helper()
	cfg, err := config.Load[fault.Config](environ)
	if err != nil {
		t.Fatal(err)
	}
	i, err := fault.New("victim", cfg, fault.Deps{Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// took calls the method and returns how long that was, and its error.
func took(ctx context.Context, i *fault.Injector, method string) (time.Duration, error) {
	began := time.Now()
	_, err := i.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) { return nil, ctx.Err() })
	return time.Since(began), err
}

func TestServiceTimes_AreDrawnAroundTheBaseOfTheMethodAndHaveATail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := injector(t, "FAULT_SERVICE_TIMES=PlaceOrder:20ms,Recommend:15ms")
		const calls = 4000
		tail, sum := 0, time.Duration(0)
		for range calls {
			d, err := took(t.Context(), i, "/checkout.v1.CheckoutService/PlaceOrder")
			if err != nil {
				t.Fatal(err)
			}
			if d < 10*time.Millisecond || d > 90*time.Millisecond {
				t.Fatalf("a call took %v, want 10 to 30 ms, or three times that", d)
			}
			if d > 30*time.Millisecond {
				tail++
			}
			sum += d
		}
		// 3 % of the calls, of which those below 10 ms x 3 cannot be told from the others; the mean is 20 x (1 + 0.03 x 2) = 21.2 ms.
		if tail < calls*15/1000 || tail > calls*45/1000 {
			t.Errorf("%d of %d calls took longer than 30 ms, want about 3 %%", tail, calls)
		}
		if mean := sum / calls; mean < 20*time.Millisecond || mean > 22500*time.Microsecond {
			t.Errorf("the mean is %v, want about 21.2 ms", mean)
		}
		for _, method := range []string{"/checkout.v1.CheckoutService/GetOrder", "/grpc.health.v1.Health/Check"} {
			if d, err := took(t.Context(), i, method); d != 0 || err != nil {
				t.Errorf("%s took %v (%v), want no time", method, d, err)
			}
		}
	})
}

func TestServiceTimes_EndWithTheCallerUnlessTheyAreDeafToIt(t *testing.T) {
	for environ, want := range map[string]time.Duration{"FAULT_IGNORE_CANCELLATION=false": 5 * time.Millisecond, "FAULT_IGNORE_CANCELLATION=true": 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			i := injector(t, "FAULT_SERVICE_TIMES=PlaceOrder:20ms", "FAULT_SERVICE_SPREAD=0", "FAULT_SERVICE_TAIL_SHARE=0", environ)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if d, err := took(ctx, i, "/x.X/PlaceOrder"); d != want || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, %v, want the deadline's error after %v", environ, d, err, want)
			}
		})
	}
}

func TestServiceTimes_ThatCannotBeAreRefusedByName(t *testing.T) {
	for name, value := range map[string]string{
		"FAULT_SERVICE_TIMES": "PlaceOrder:-1s", "FAULT_SERVICE_SPREAD": "2", "FAULT_SERVICE_TAIL_SHARE": "-1", "FAULT_SERVICE_TAIL_FACTOR": "0.5",
	} {
		if _, err := config.Load[fault.Config]([]string{name + "=" + value}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: got %v, want an error that names it", name, value, err)
		}
	}
}
