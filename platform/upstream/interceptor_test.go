package upstream_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/upstream"
)

// server answers Check by the service's name; Watch sends one message and stays open until its client leaves, or ends
// at once for the service "short".
type server struct {
	healthpb.UnimplementedHealthServer
	inFlight, peak atomic.Int64
}

func (s *server) Check(ctx context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s.peak.Store(max(s.peak.Load(), s.inFlight.Add(1)))
	defer s.inFlight.Add(-1)
	switch req.GetService() {
	case "hangs":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case "missing":
		return nil, rpcerr.New(codes.NotFound, rpcerr.NotFound, "no such service")
	case "broken":
		return nil, rpcerr.New(codes.Internal, rpcerr.Internal, "internal error")
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

func (s *server) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	if req.GetService() != "short" {
		<-stream.Context().Done()
	}
	return nil
}

// dial connects a generated client, guarded by u, to a real gRPC server in this process.
func dial(t *testing.T, u *upstream.Upstream) (healthpb.HealthClient, *server) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	srv, impl := grpc.NewServer(), &server{}
	healthpb.RegisterHealthServer(srv, impl)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///recs",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(u.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(u.StreamClientInterceptor()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Error(err)
		}
	})
	return healthpb.NewHealthClient(conn), impl
}

func check(ctx context.Context, client healthpb.HealthClient, service string) error {
	_, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	return err
}

// eventually waits for a condition that a stream's end brings about in the background.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not within 10s: %s", what)
}

func TestUnaryClientInterceptor_GuardsAGeneratedClient(t *testing.T) {
	u := newUpstream(t, func(c *upstream.Config) { c.Timeout, c.Breaker.Open = time.Minute, 2*time.Minute })
	client, _ := dial(t, u)
	ctx := t.Context()

	if err := check(ctx, client, ""); err != nil {
		t.Errorf("a good call = %v", err)
	}
	wantError(t, check(ctx, client, "missing"), codes.NotFound, rpcerr.NotFound)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	wantError(t, check(short, client, "hangs"), codes.DeadlineExceeded, rpcerr.Timeout)
	for range 5 {
		wantError(t, check(ctx, client, "broken"), codes.Internal, rpcerr.Internal)
	}
	err := check(ctx, client, "")
	wantError(t, err, codes.Unavailable, rpcerr.BreakerOpen)
	if d, ok := rpcerr.Delay(err); !ok || d < time.Second || d > 2*time.Minute {
		t.Errorf("RetryInfo = %v %v, want 1s to 2m", d, ok)
	}
	wantOutcomes(t, u, map[string]uint64{"ok": 2, "timed_out": 1, "failed": 5, "rejected_open": 1})
}

func TestUnaryClientInterceptor_KeepsTheServerWithinTheBulkhead(t *testing.T) {
	u := newUpstream(t, func(c *upstream.Config) {
		c.Timeout, c.Breaker.Open, c.MaxInFlight, c.MaxQueue = time.Minute, 2*time.Minute, 4, 2
	})
	client, impl := dial(t, u)
	if err := check(t.Context(), client, ""); err != nil { // connects
		t.Fatal(err)
	}
	results := make(chan error, 500)
	ctx, cancel := context.WithCancel(t.Context())
	for range 500 {
		go func() { results <- check(ctx, client, "hangs") }()
	}
	for range 494 { // all but 4 in flight and 2 in the queue are turned away
		wantError(t, <-results, codes.ResourceExhausted, rpcerr.BulkheadFull)
	}
	// Looked at before the calls are cancelled: a client lets go at once, its server a moment later.
	eventually(t, "the bulkhead's 4 calls are at the server", func() bool { return impl.inFlight.Load() == 4 })
	if got := impl.peak.Load(); got != 4 {
		t.Errorf("%d calls at the server at once, want at most 4", got)
	}
	cancel()
	for range 6 {
		wantError(t, <-results, codes.Canceled, "")
	}
	if s := u.Status(); s.InFlight != 0 || s.Queued != 0 || s.Breaker != "closed" {
		t.Errorf("left behind: %+v", s)
	}
}

func TestStreamClientInterceptor_CapsOpenStreams(t *testing.T) {
	u := newUpstream(t, func(c *upstream.Config) {
		c.MaxStreams, c.MaxInFlight, c.MaxQueue, c.Timeout, c.Breaker.Open = 2, 1, 0, time.Minute, 2*time.Minute
	})
	client, _ := dial(t, u)
	watch := func(ctx context.Context, service string) (healthpb.Health_WatchClient, error) {
		return client.Watch(ctx, &healthpb.HealthCheckRequest{Service: service})
	}
	canOpen := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := watch(ctx, "")
		return err == nil
	}

	ctx, leave := context.WithCancel(t.Context())
	open, err := watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Recv(); err != nil {
		t.Fatal(err)
	}
	short, err := watch(t.Context(), "short")
	if err != nil {
		t.Fatal(err)
	}
	_, err = watch(t.Context(), "")
	wantError(t, err, codes.ResourceExhausted, rpcerr.BulkheadFull)
	if d, ok := rpcerr.Delay(err); !ok || d < time.Second {
		t.Errorf("RetryInfo = %v %v, want at least 1s", d, ok)
	}
	if err := check(t.Context(), client, ""); err != nil {
		t.Errorf("a call beside full streams = %v, want success", err)
	}
	if _, hasDeadline := open.Context().Deadline(); hasDeadline {
		t.Error("the stream has a deadline, want none")
	}

	for err = nil; err == nil; {
		_, err = short.Recv() // to its end
	}
	eventually(t, "a stream that was read to its end frees its place", canOpen)
	eventually(t, "its place is free again", canOpen)
	leave()
	eventually(t, "a stream whose context is done frees its place", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := watch(ctx, ""); err != nil {
			return false
		}
		_, err := watch(ctx, "")
		return err == nil
	})
	eventually(t, "all places are free", func() bool { return canOpen() })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = watch(gone, "")
	wantError(t, err, codes.Canceled, "")
	wantOutcomes(t, u, map[string]uint64{"ok": 1})
}

func TestStreamClientInterceptor_AStreamThatNeverBeganHoldsNothing(t *testing.T) {
	u := newUpstream(t, func(c *upstream.Config) { c.MaxStreams = 1 })
	refused := status.Error(codes.PermissionDenied, "refused further in")
	for i := range 3 {
		_, err := u.StreamClientInterceptor()(t.Context(), &grpc.StreamDesc{}, nil, "/shop/Watch",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				return nil, refused
			})
		if err != refused {
			t.Errorf("stream %d = %v, want the refusal of the interceptor further in", i, err)
		}
	}
}
