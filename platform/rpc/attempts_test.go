package rpc_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	testv1 "google.golang.org/grpc/interop/grpc_testing"

	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/telemetry/names"
)

func TestDial_EachAttemptIsASpanWithItsNumber(t *testing.T) {
	var calls atomic.Int64
	p := &peer{unary: func(context.Context) error {
		if calls.Add(1) == 1 {
			return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "not now")
		}
		return nil
	}}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p)
	recorder := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	conn, err := rpc.Dial("static:///"+s.Addr(), rpc.ClientDeps{TracerProvider: tracers, MeterProvider: noop.NewMeterProvider(),
		Propagator: propagation.TraceContext{}, Retry: []string{"/grpc.testing.TestService/UnaryCall"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "request")
	defer parent.End()
	if _, err := testv1.NewTestServiceClient(conn).UnaryCall(ctx, &testv1.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the spans of both attempts", func() bool { return len(recorder.Ended()) == 2 })
	var attempts []int64
	for _, span := range recorder.Ended() {
		if span.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is not a child of the request's span", span.Name())
		}
		for _, a := range span.Attributes() {
			if a.Key == names.RetryAttempt {
				attempts = append(attempts, a.Value.AsInt64())
			}
		}
	}
	if want := []int64{2}; !slices.Equal(attempts, want) {
		t.Errorf("%s = %v, want %v: the first attempt says nothing", names.RetryAttempt, attempts, want)
	}
}
