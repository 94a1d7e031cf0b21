package edge

import (
	"testing"

	"github.com/google/pprof/profile"
)

// stack is a sample of one nanosecond, innermost call first.
func stack(names ...string) *profile.Sample {
	sample := &profile.Sample{Value: []int64{1, 1}}
	for _, name := range names {
		sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return sample
}

func TestGuardShare_IsWhatGuardsDoThemselves(t *testing.T) {
	const (
		guard  = "example.com/watertight/platform/upstream.(*Upstream).do"
		invoke = "google.golang.org/grpc.(*ClientConn).Invoke"
	)
	for _, c := range []struct {
		what   string
		sample *profile.Sample
		want   float64
	}{
		{"the breaker, below the guard", stack("sync.(*Mutex).Lock", "github.com/sony/gobreaker/v2.(*TwoStepCircuitBreaker).Allow", guard, invoke), 100},
		{"the bulkhead, inlined into it", stack("time.Since", "example.com/watertight/platform/bulkhead.(*Bulkhead).Acquire", guard, invoke), 100},
		{"the reading of an answer's status", stack("google.golang.org/grpc/status.Code", guard, invoke), 100},
		{"the retry budget", stack("google.golang.org/grpc.(*retryThrottler).successfulRPC", "google.golang.org/grpc.(*clientStream).finish", guard, invoke), 100},
		{"the guarded call", stack("runtime.mallocgc", "google.golang.org/grpc.newClientStream", "example.com/watertight/platform/upstream.func1", guard, invoke), 0},
		{"another interceptor", stack("example.com/watertight/platform/rpc.countAttempts", "google.golang.org/grpc.getChainUnaryInvoker.func1", guard, invoke), 0},
		{"the rest of the gateway", stack("encoding/json.Marshal", "example.com/watertight/gateway.(*api).product"), 0},
	} {
		if got := guardShare(&profile.Profile{Sample: []*profile.Sample{c.sample}}); got != c.want {
			t.Errorf("%s: %v %% is the guard's, want %v", c.what, got, c.want)
		}
	}
}
