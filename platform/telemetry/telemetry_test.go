package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/telemetry"
)

func TestTelemetry_PassesTheTraceOnWithTheExporterOff(t *testing.T) {
	tel, err := telemetry.New(context.Background(), telemetry.Config{}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := tel.Propagator.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent})
	ctx, span := tel.TracerProvider.Tracer("test").Start(ctx, "work")
	defer span.End()
	out := propagation.MapCarrier{}
	tel.Propagator.Inject(ctx, out)
	if got := out["traceparent"]; !strings.HasPrefix(got, parent[:36]) {
		t.Errorf("traceparent = %q, want the trace of %q", got, parent)
	}
	_, root := tel.TracerProvider.Tracer("test").Start(context.Background(), "work")
	if !root.SpanContext().TraceID().IsValid() {
		t.Error("a request without a caller has no trace id")
	}
}

// A collector that accepts connections and never answers is the worst kind of dead.
func TestTelemetry_ADeadCollectorHoldsNothingUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	started := time.Now()
	tel, err := telemetry.New(context.Background(), telemetry.Config{Endpoint: "http://" + silent.Addr().String()}, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than the batcher's queue
		_, span := tel.TracerProvider.Tracer("test").Start(context.Background(), "work")
		span.End()
	}
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("start and 10,000 spans took %v", took)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	started = time.Now()
	_ = tel.Shutdown(ctx) // says that it could not flush
	if took := time.Since(started); took > 3*time.Second {
		t.Errorf("Shutdown took %v, want at most 2s", took)
	}
}

func TestConfig_NamesABadEndpoint(t *testing.T) {
	for _, bad := range []string{"localhost:4317", "grpc://x:1", "http://"} {
		if err := (telemetry.Config{Endpoint: bad}).Validate(); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ENDPOINT") {
			t.Errorf("Validate(%q) = %v, want an error that names the variable", bad, err)
		}
	}
}

func TestLogger_OneJSONObjectALineWithTraceID(t *testing.T) {
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, "info", "", "checkout")
	if err != nil {
		t.Fatal(err)
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	log.With("a", 1).InfoContext(trace.ContextWithSpanContext(context.Background(), span), "two\nlines", "header", "x\r\ny")
	log.Debug("not shown")
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Fatalf("%d lines, want 1: %q", got, out.String())
	}
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["service"] != "checkout" || line["trace_id"] != span.TraceID().String() || line["span_id"] != span.SpanID().String() {
		t.Errorf("line = %v, want service, trace_id and span_id", line)
	}
}

func TestLogger_NamesABadVariable(t *testing.T) {
	if _, err := telemetry.NewLogger(io.Discard, "loud", "", "x"); err == nil || !strings.Contains(err.Error(), "LOG_LEVEL") {
		t.Errorf("got %v, want an error that names LOG_LEVEL", err)
	}
	if _, err := telemetry.NewLogger(io.Discard, "info", "xml", "x"); err == nil || !strings.Contains(err.Error(), "LOG_FORMAT") {
		t.Errorf("got %v, want an error that names LOG_FORMAT", err)
	}
}
