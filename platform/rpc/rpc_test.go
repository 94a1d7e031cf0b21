package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"example.com/watertight/platform/bulkhead"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
)

// peer is a test service whose unary call does what the test says.
type peer struct {
	testv1.UnimplementedTestServiceServer
	unary func(ctx context.Context) error
	calls atomic.Int64
}

func (p *peer) UnaryCall(ctx context.Context, _ *testv1.SimpleRequest) (*testv1.SimpleResponse, error) {
	p.calls.Add(1)
	if err := p.unary(ctx); err != nil {
		return nil, err
	}
	return &testv1.SimpleResponse{}, nil
}

func (p *peer) StreamingOutputCall(_ *testv1.StreamingOutputCallRequest, stream grpc.ServerStreamingServer[testv1.StreamingOutputCallResponse]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

func newServer(t *testing.T, addr string, cfg rpc.ServerConfig) *rpc.Server {
	t.Helper()
	cfg.Addr = addr
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = 4
	}
	if cfg.MaxConnectionAge == 0 {
		cfg.MaxConnectionAge = time.Minute
	}
	if cfg.Pool.Size == 0 {
		cfg.Pool = bulkhead.Config{Size: 8, Queue: 8}
	}
	s, err := rpc.NewServer(cfg, rpc.ServerDeps{
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func serve(t *testing.T, addr string, cfg rpc.ServerConfig, p *peer) *rpc.Server {
	t.Helper()
	s := newServer(t, addr, cfg)
	testv1.RegisterTestServiceServer(s, p)
	go func() {
		if err := s.Serve(); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // streams of the test may still be open
	})
	s.Ready()
	return s
}

func dial(t *testing.T, target string, retry ...string) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(target, rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}, Retry: retry,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(t *testing.T, client testv1.TestServiceClient) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := client.UnaryCall(ctx, &testv1.SimpleRequest{})
	return err
}

func TestServer_PanicsCostNeitherTheProcessNorASlot(t *testing.T) {
	var panicking atomic.Bool
	panicking.Store(true)
	p := &peer{unary: func(context.Context) error {
		if panicking.Load() {
			panic("secret text")
		}
		return nil
	}}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{Pool: bulkhead.Config{Size: 2}}, p)
	client := testv1.NewTestServiceClient(dial(t, "static:///"+s.Addr()))
	for range 20 {
		err := call(t, client)
		if status.Code(err) != codes.Internal || rpcerr.Reason(err) != rpcerr.Internal || strings.Contains(err.Error(), "secret") {
			t.Fatalf("panicking call: %v, want INTERNAL and nothing of the panic", err)
		}
	}
	panicking.Store(false)
	if err := call(t, client); err != nil {
		t.Errorf("call after 20 panics in a pool of 2: %v", err)
	}
	if got := s.Pool().Stats().InFlight; got != 0 {
		t.Errorf("slots taken = %d, want 0", got)
	}
}

func TestGo_PanicEndsOnlyItsGoroutine(t *testing.T) {
	var out syncBuffer
	done := make(chan struct{})
	rpc.Go(slog.New(slog.NewTextHandler(&out, nil)), "enrich", func() { defer close(done); panic("boom") })
	<-done
	waitFor(t, "the panic in the log", func() bool { return strings.Contains(out.String(), "boom") && strings.Contains(out.String(), "enrich") })
}

func TestServer_FullPoolIsShedWithRetryInfo_HealthStaysOutside(t *testing.T) {
	release := make(chan struct{})
	p := &peer{unary: func(context.Context) error { <-release; return nil }}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{Pool: bulkhead.Config{Size: 1, Queue: 0}}, p)
	conn := dial(t, "static:///"+s.Addr())
	client := testv1.NewTestServiceClient(conn)
	first := make(chan error, 1)
	go func() { first <- call(t, client) }()
	waitFor(t, "the first call in its handler", func() bool { return p.calls.Load() == 1 })

	err := call(t, client)
	if status.Code(err) != codes.ResourceExhausted || rpcerr.Reason(err) != rpcerr.BulkheadFull {
		t.Errorf("call to a full pool: %v, want RESOURCE_EXHAUSTED BULKHEAD_FULL", err)
	}
	if delay, ok := rpcerr.Delay(err); !ok || delay < time.Second {
		t.Errorf("retry info = %v %v, want at least 1s", delay, ok)
	}
	if _, err := healthv1.NewHealthClient(conn).Check(context.Background(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health while the pool is full: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("first call: %v", err)
	}
}

func TestServer_StreamsHaveTheirOwnCap(t *testing.T) {
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{Pool: bulkhead.Config{Size: 1}, MaxStreams: 2}, &peer{unary: func(context.Context) error { return nil }})
	client := testv1.NewTestServiceClient(dial(t, "static:///"+s.Addr()))
	shed := 0
	for range 3 {
		stream, err := client.StreamingOutputCall(t.Context(), &testv1.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		short := make(chan error, 1)
		go func() { _, err := stream.Recv(); short <- err }()
		select {
		case err := <-short:
			if rpcerr.Reason(err) != rpcerr.BulkheadFull {
				t.Errorf("third stream: %v, want BULKHEAD_FULL", err)
			}
			shed++
		case <-time.After(300 * time.Millisecond): // an open stream says nothing
		}
	}
	if shed != 1 {
		t.Errorf("streams shed = %d, want 1 of 3 with a cap of 2", shed)
	}
	if err := call(t, client); err != nil {
		t.Errorf("unary call beside two streams: %v", err)
	}
}

func TestServer_ErrorsCarryAReasonAndNoInternals(t *testing.T) {
	cases := []struct {
		name   string
		err    error
		code   codes.Code
		reason string
	}{
		{"plain", errors.New("dial tcp 10.0.0.1: SQLSTATE 42P01"), codes.Internal, rpcerr.Internal},
		{"made with a reason", rpcerr.New(codes.NotFound, rpcerr.NotFound, "no such product"), codes.NotFound, rpcerr.NotFound},
		{"bare status", status.Error(codes.Unavailable, "not now"), codes.Unavailable, rpcerr.Unavailable},
		{"bare internal status", status.Error(codes.Internal, "dial tcp"), codes.Internal, rpcerr.Internal},
		{"deadline of its own", context.DeadlineExceeded, codes.DeadlineExceeded, rpcerr.Timeout},
	}
	p := &peer{}
	client := testv1.NewTestServiceClient(dial(t, "static:///"+serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p).Addr()))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p.unary = func(context.Context) error { return c.err }
			err := call(t, client)
			if status.Code(err) != c.code || rpcerr.Reason(err) != c.reason {
				t.Errorf("got %v with reason %q, want %v %q", err, rpcerr.Reason(err), c.code, c.reason)
			}
			if strings.Contains(err.Error(), "dial tcp") || strings.Contains(err.Error(), "SQLSTATE") {
				t.Errorf("internals in %v", err)
			}
		})
	}
}

func TestServer_HealthFollowsReadyAndDrain_ShutdownIsBounded(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	p := &peer{unary: func(context.Context) error { <-release; return nil }}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p)
	conn := dial(t, "static:///"+s.Addr())
	// The probe's connection does not check health first, as Dial's do.
	probe, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	health := func() healthv1.HealthCheckResponse_ServingStatus {
		resp, err := healthv1.NewHealthClient(probe).Check(context.Background(), &healthv1.HealthCheckRequest{Service: "grpc.testing.TestService"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetStatus()
	}
	if got := health(); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health when ready = %v, want SERVING", got)
	}
	go func() { _ = call(t, testv1.NewTestServiceClient(conn)) }() // cut off below
	waitFor(t, "a call in flight", func() bool { return p.calls.Load() == 1 })
	s.Drain()
	if got := health(); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health while draining = %v, want NOT_SERVING", got)
	}
	waitFor(t, "clients to send no more calls", func() bool {
		return status.Code(call(t, testv1.NewTestServiceClient(conn))) == codes.Unavailable
	})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("Shutdown with a call that never ends says all is well")
	}
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("Shutdown took %v with a bound of 200ms", took)
	}
}

// Field report 2: a headless name with three addresses spreads the calls.
func TestFieldReport_02_ThreeAddressesShareTheCalls(t *testing.T) {
	var peers [3]*peer
	var addrs []string
	for i := range peers {
		peers[i] = &peer{unary: func(context.Context) error { return nil }}
		addrs = append(addrs, serve(t, "127.0.0.1:0", rpc.ServerConfig{}, peers[i]).Addr())
	}
	client := testv1.NewTestServiceClient(dial(t, "static:///"+strings.Join(addrs, ",")))
	waitFor(t, "all three connected", func() bool {
		if err := call(t, client); err != nil {
			t.Fatal(err)
		}
		return peers[0].calls.Load() > 0 && peers[1].calls.Load() > 0 && peers[2].calls.Load() > 0
	})
	before := [3]int64{peers[0].calls.Load(), peers[1].calls.Load(), peers[2].calls.Load()}
	for range 300 {
		if err := call(t, client); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range peers {
		if got := p.calls.Load() - before[i]; got < 60 {
			t.Errorf("address %d got %d of 300 calls, want at least 60", i, got)
		}
	}
}

// Field report 1: a name that grows from one address to three.
func TestFieldReport_01_NewAddressesGetTrafficWithinAMinute(t *testing.T) {
	t.Parallel()
	first := &peer{unary: func(context.Context) error { return nil }}
	cfg := rpc.ServerConfig{MaxConnectionAge: 2 * time.Second}
	s := serve(t, "127.0.0.1:0", cfg, first)
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	names := newNameServer(t, "127.0.0.1")
	client := testv1.NewTestServiceClient(dial(t, "dns://"+names.addr+"/shop.test:"+port))
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	var others [2]*peer
	for i, host := range []string{"127.0.0.2", "127.0.0.3"} {
		others[i] = &peer{unary: func(context.Context) error { return nil }}
		serve(t, net.JoinHostPort(host, port), cfg, others[i])
	}
	names.set("127.0.0.1", "127.0.0.2", "127.0.0.3")

	deadline := time.Now().Add(time.Minute)
	for others[0].calls.Load() == 0 || others[1].calls.Load() == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("a minute later the new addresses got %d and %d calls", others[0].calls.Load(), others[1].calls.Load())
		}
		if err := call(t, client); err != nil {
			t.Fatalf("call while the name grows: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // paces the load
	}
	start := [3]int64{first.calls.Load(), others[0].calls.Load(), others[1].calls.Load()}
	for range 300 {
		if err := call(t, client); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range []*peer{first, others[0], others[1]} {
		if got := p.calls.Load() - start[i]; got < 45 {
			t.Errorf("address %d got %d of 300 calls, want at least 15 %%", i, got)
		}
	}
}

func TestDial_RetryBudgetKeepsAStormSmall(t *testing.T) {
	p := &peer{unary: func(context.Context) error { return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "not now") }}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p)
	client := testv1.NewTestServiceClient(dial(t, "static:///"+s.Addr(), "/grpc.testing.TestService/UnaryCall"))
	for range 1000 {
		if err := call(t, client); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	if got := p.calls.Load(); got <= 1000 || got > 1100 {
		t.Errorf("1000 failing calls made %d tries, want some retries and at most 1100", got)
	}
}

func TestDial_WithoutRetryOneCallIsOneTry(t *testing.T) {
	p := &peer{unary: func(context.Context) error { return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "not now") }}
	client := testv1.NewTestServiceClient(dial(t, "static:///"+serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p).Addr()))
	if err := call(t, client); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
	if got := p.calls.Load(); got != 1 {
		t.Errorf("tries = %d, want 1", got)
	}
}

func TestDial_RefusesAMethodItCannotName(t *testing.T) {
	_, err := rpc.Dial("static:///127.0.0.1:1", rpc.ClientDeps{Retry: []string{"UnaryCall"}})
	if err == nil || !strings.Contains(err.Error(), "UnaryCall") {
		t.Errorf("got %v, want an error that names the method", err)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10s for %s", what)
		}
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// nameServer answers every A query with the addresses it holds.
type nameServer struct {
	addr  string
	hosts atomic.Pointer[[]string]
}

func newNameServer(t *testing.T, hosts ...string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n := &nameServer{addr: conn.LocalAddr().String()}
	n.set(hosts...)
	go func() {
		buf := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return // closed at the end of the test
			}
			if reply := n.answer(buf[:size]); reply != nil {
				_, _ = conn.WriteTo(reply, from) // a lost answer is asked for again
			}
		}
	}()
	return n
}

func (n *nameServer) set(hosts ...string) { n.hosts.Store(&hosts) }

func (n *nameServer) answer(query []byte) []byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(query); err != nil || len(msg.Questions) == 0 {
		return nil
	}
	msg.Response, msg.Additionals = true, nil
	if q := msg.Questions[0]; q.Type == dnsmessage.TypeA {
		for _, h := range *n.hosts.Load() {
			msg.Answers = append(msg.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(h).To4())},
			})
		}
	}
	reply, err := msg.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// A rule that nobody could keep must not wait for the first request.
func TestServer_AnswersNobodyWhenAContractIsNotUnderstood(t *testing.T) {
	file := &descriptorpb.FileDescriptorProto{}
	err := prototext.Unmarshal([]byte(`
		name: "odd.proto" package: "odd" syntax: "proto3"
		message_type { name: "Request" field { name: "inner" number: 1 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".odd.Inner" } }
		message_type { name: "Inner" field {
			name: "share" number: 1 type: TYPE_DOUBLE label: LABEL_OPTIONAL options { [buf.validate.field] { double { gte: 0 } } }
		} }
		message_type { name: "Response" }
		service { name: "Odd" method { name: "Call" input_type: ".odd.Request" output_type: ".odd.Response" } }`), file)
	if err != nil {
		t.Fatal(err)
	}
	built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := protoregistry.GlobalFiles.FindFileByPath(built.Path()); err != nil { // there already, when the test runs again
		if err := protoregistry.GlobalFiles.RegisterFile(built); err != nil {
			t.Fatal(err)
		}
	}
	for service, want := range map[string]string{"odd.Odd": "odd.Inner.share", "odd.Unknown": "odd.Unknown", "odd.Request": "odd.Request"} {
		s := newServer(t, "127.0.0.1:0", rpc.ServerConfig{})
		s.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil)}, nil)
		if err := s.Serve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Serve returned %v, want an error about %s", service, err, want)
		}
		if conn, err := net.Dial("tcp", s.Addr()); err == nil {
			conn.Close()
			t.Errorf("%s: the server still listens", service)
		}
	}
}
