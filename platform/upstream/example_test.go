package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
)

// A page asks for recommendations and does without them while they fail. With grpc.WithUnaryInterceptor(
// recs.UnaryClientInterceptor()) on the connection, the call to Do is made by the generated client.
func ExampleUpstream_Do() {
	recs, err := upstream.New("recs", upstream.Config{
		Addr: "dns:///recs:50051", Timeout: 150 * time.Millisecond, MaxInFlight: 32, MaxQueue: 8, MaxStreams: 256,
		Breaker: upstream.BreakerConfig{Window: 10 * time.Second, MinCalls: 20, Ratio: 0.5, Consecutive: 2, Open: 5 * time.Second, Probes: 3},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for range 3 {
		err := recs.Do(ctx, func(context.Context) error { return status.Error(codes.Unavailable, "crashed") })
		if err != nil {
			recs.Degraded(ctx)
			fmt.Printf("page without recommendations: %v %q\n", status.Code(err), rpcerr.Reason(err))
		}
	}
	s := recs.Status()
	fmt.Println(s.Name, s.Breaker, "failed:", s.Outcomes["failed"], "rejected:", s.Outcomes["rejected_open"], "degraded:", s.Outcomes["degraded"])
	// Output:
	// page without recommendations: Unavailable ""
	// page without recommendations: Unavailable ""
	// page without recommendations: Unavailable "BREAKER_OPEN"
	// recs open failed: 2 rejected: 1 degraded: 3
}

// Every error about a setting starts with the name of its variable; the process puts the prefix in front.
func ExampleConfig_Validate() {
	cfg := upstream.Config{
		Addr: "dns:///recs:50051", Timeout: 6 * time.Second, MaxInFlight: 0, MaxQueue: 8, MaxStreams: 256,
		Breaker: upstream.BreakerConfig{Window: 10 * time.Second, MinCalls: 20, Ratio: 0.5, Consecutive: 5, Open: 5 * time.Second, Probes: 3},
	}
	var all interface{ Unwrap() []error }
	if errors.As(cfg.Validate(), &all) {
		for _, err := range all.Unwrap() {
			fmt.Println(fmt.Errorf("RECS_%w", err))
		}
	}
	// Output:
	// RECS_MAX_IN_FLIGHT: must be between 1 and 1000000, got 0
	// RECS_BREAKER_OPEN: must be longer than TIMEOUT (6s), got 5s
}
