package upstream_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
)

// channel makes guarded calls that end with err, on a connection or without one.
func channel(u *upstream.Upstream) func(ctx context.Context, sent bool, err error) error {
	guarded := u.UnaryClientInterceptor()
	return func(ctx context.Context, sent bool, err error) error {
		return guarded(ctx, "/shop/Get", nil, nil, nil, func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			for _, o := range opts {
				if p, ok := o.(grpc.PeerCallOption); ok && sent {
					p.PeerAddr.Addr = &net.TCPAddr{}
				}
			}
			return err
		})
	}
}

// A process that is back after an outage is used as soon as it is connected, not when the breaker's next turn comes.
func TestBreaker_ProbesThatFoundNoConnectionDoNotOpenItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const open = 10 * time.Second
		u := newUpstream(t, func(c *upstream.Config) {
			c.Breaker.Open, c.Breaker.Consecutive, c.Breaker.Probes = open, 5, 3
		})
		call := channel(u)
		refused := status.Error(codes.Unavailable, "connection refused")
		for range 5 {
			wantError(t, call(t.Context(), false, refused), codes.Unavailable, "")
		}
		wantError(t, call(t.Context(), false, refused), codes.Unavailable, rpcerr.BreakerOpen)

		time.Sleep(open)
		for range 20 {
			wantError(t, call(t.Context(), false, refused), codes.Unavailable, "")
			if got := u.Status().Breaker; got != "half-open" {
				t.Fatalf("after a probe that found no connection the breaker is %s, want half-open", got)
			}
		}
		for range 3 {
			if err := call(t.Context(), true, nil); err != nil {
				t.Errorf("a probe of the healed upstream: %v", err)
			}
		}
		if got := u.Status().Breaker; got != "closed" {
			t.Errorf("after three good probes the breaker is %s, want closed", got)
		}
	})
}

func TestBreaker_AProbeThatWasSentAndFailedOpensItAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const open = 10 * time.Second
		u := newUpstream(t, func(c *upstream.Config) { c.Breaker.Open, c.Breaker.Consecutive = open, 5 })
		call := channel(u)
		broken := status.Error(codes.Unavailable, "connection reset")
		for range 5 {
			wantError(t, call(t.Context(), true, broken), codes.Unavailable, "")
		}
		time.Sleep(open)
		wantError(t, call(t.Context(), true, broken), codes.Unavailable, "")
		wantError(t, call(t.Context(), true, nil), codes.Unavailable, rpcerr.BreakerOpen)
	})
}

func TestBreaker_ACustomersReplicasThatAreDownDoNotOpenItForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, func(c *upstream.Config) { c.Breaker.Consecutive = 5 })
		call := channel(u)
		for range 100 {
			wantError(t, call(t.Context(), false, rpcerr.New(codes.Unavailable, rpcerr.ShardDown, "down")), codes.Unavailable, rpcerr.ShardDown)
		}
		if got := u.Status(); got.Breaker != "closed" || got.Outcomes["failed"] != 100 {
			t.Errorf("%+v, want a closed breaker and 100 failed calls", got)
		}
	})
}
