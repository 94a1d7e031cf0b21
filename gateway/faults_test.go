package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/lifecycle"
)

// bridge is an edge that has a broker.
type bridge struct {
	t   *testing.T
	url string
}

// newBridge runs an edge whose process lives as long as the test.
func newBridge(t *testing.T, environ ...string) *bridge {
	t.Helper()
	cfg, err := config.Load[struct {
		HTTP       gateway.Config
		Operations gateway.OperationsConfig
	}](environ)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	process, err := lifecycle.New(lifecycle.Config{AdminAddr: "127.0.0.1:0"}, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	operations, err := gateway.JoinBroker(cfg.Operations, process, log)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gateway.NewHandler(cfg.HTTP, gateway.Deps{
		Shop: shop.New(shop.Backends{Log: log}), Operations: operations, Draining: process.Draining(), Log: log,
		TracerProvider: nooptrace.NewTracerProvider(), MeterProvider: noopmetric.NewMeterProvider(), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the process: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return &bridge{t: t, url: server.URL}
}

// do sends a request and returns the answer's status, header and JSON.
func (b *bridge) do(method, path, body string, header ...string) (int, http.Header, map[string]any) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var out map[string]any
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			b.t.Fatalf("%s %s: %v in %q", method, path, err, raw)
		}
	}
	return resp.StatusCode, resp.Header, out
}

func (b *bridge) list(path string) []any {
	b.t.Helper()
	status, _, body := b.do(http.MethodGet, path, "")
	faults, ok := body["faults"].([]any)
	if status != http.StatusOK || !ok {
		b.t.Fatalf("GET %s: got %d %v, want 200 and a list of faults", path, status, body)
	}
	return faults
}

// comesTrue waits for what follows by itself.
func comesTrue(t *testing.T, name string, what func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(10 * time.Millisecond) {
		if what() {
			return
		}
	}
	t.Fatalf("never came true: %s", name)
}

func withBroker(t *testing.T) (*brokertest.Server, *bridge) {
	t.Helper()
	server := brokertest.Start(t, fault.Bucket, broker.InstancesBucket)
	b := newBridge(t, "FAULTS_ENABLED=true", "NATS_URL="+server.URL(), "INSTANCE_ID=gateway-1")
	comesTrue(t, "the broker is reached", func() bool {
		status, _, _ := b.do(http.MethodGet, "/api/v1/faults", "")
		return status == http.StatusOK
	})
	return server, b
}

func TestFaults_AreSetListedReplacedAndCleared(t *testing.T) {
	_, b := withBroker(t)
	if got := b.list("/api/v1/faults"); len(got) != 0 {
		t.Errorf("at first: got %v, want none", got)
	}
	status, _, set := b.do(http.MethodPut, "/api/v1/faults/recs", `{"kind":"slow","rate":0.5,"delay_ms":250,"ttl_s":60,"match":{"product_id":"85123A"}}`)
	want := map[string]any{"service": "recs", "kind": "slow", "rate": 0.5, "delay_ms": 250.0, "ttl_s": 60.0, "match": map[string]any{"product_id": "85123A"}}
	noEnd := cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "expires_at" })
	if diff := cmp.Diff(want, set, noEnd); status != http.StatusOK || diff != "" {
		t.Errorf("PUT: got %d, answer (-want +got):\n%s", status, diff)
	}
	end, err := time.Parse(time.RFC3339, set["expires_at"].(string))
	if left := time.Until(end); err != nil || left < 30*time.Second || left > 60*time.Second {
		t.Errorf("expires_at: got %v (%v), want a time in about a minute", set["expires_at"], err)
	}
	if diff := cmp.Diff([]any{set}, b.list("/api/v1/faults")); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	comesTrue(t, "the status has the fault", func() bool { return cmp.Equal([]any{set}, b.list("/api/v1/status")) })

	b.do(http.MethodPut, "/api/v1/faults/checkout", `{"kind":"error"}`)
	b.do(http.MethodPut, "/api/v1/faults/recs", `{"kind":"crash"}`)
	second := []any{
		map[string]any{"service": "checkout", "kind": "error", "rate": 1.0, "delay_ms": 0.0, "ttl_s": 600.0, "code": "UNAVAILABLE"},
		map[string]any{"service": "recs", "kind": "crash", "rate": 1.0, "delay_ms": 0.0, "ttl_s": 600.0},
	}
	if diff := cmp.Diff(second, b.list("/api/v1/faults"), noEnd); diff != "" {
		t.Errorf("with defaults, one fault a service (-want +got):\n%s", diff)
	}
	for range 2 {
		if status, _, body := b.do(http.MethodDelete, "/api/v1/faults/recs", ""); status != http.StatusNoContent {
			t.Errorf("DELETE: got %d %v, want 204, however often", status, body)
		}
	}
	if diff := cmp.Diff(second[:1], b.list("/api/v1/faults"), noEnd); diff != "" {
		t.Errorf("after DELETE (-want +got):\n%s", diff)
	}
	comesTrue(t, "the status follows", func() bool { return cmp.Equal(second[:1], b.list("/api/v1/status"), noEnd) })
}

func TestFaults_EndByThemselves(t *testing.T) {
	_, b := withBroker(t)
	b.do(http.MethodPut, "/api/v1/faults/recs", `{"kind":"hang","ttl_s":1}`)
	comesTrue(t, "the fault is gone", func() bool {
		return len(b.list("/api/v1/faults")) == 0 && len(b.list("/api/v1/status")) == 0
	})
}

func TestFaults_WhatIsWrongIsNamed(t *testing.T) {
	_, b := withBroker(t)
	for body, field := range map[string]string{
		`{}`:                                    "kind",
		`{"kind":"sleepy"}`:                     "kind",
		`{"kind":7}`:                            "kind",
		`{"kind":"slow","rate":1.1}`:            "rate",
		`{"kind":"slow","rate":-0.1}`:           "rate",
		`{"kind":"slow","rate":"1"}`:            "rate",
		`{"kind":"slow","delay_ms":-1}`:         "delay_ms",
		`{"kind":"slow","delay_ms":600001}`:     "delay_ms",
		`{"kind":"slow","delay_ms":1.5}`:        "delay_ms",
		`{"kind":"slow","ttl_s":0}`:             "ttl_s",
		`{"kind":"slow","ttl_s":86401}`:         "ttl_s",
		`{"kind":"slow","ttl_s":9e18}`:          "ttl_s",
		`{"kind":"slow","code":"UNAVAILABLE"}`:  "code",
		`{"kind":"error","code":"OK"}`:          "code",
		`{"kind":"error","code":"unavailable"}`: "code",
		`{"kind":"error","code":"\""}`:          "code",
		`{"kind":"poison"}`:                     "match",
		`{"kind":"poison","match":{}}`:          "match",
		`{"kind":"poison","match":{"":"x"}}`:    "match",
		`{"kind":"poison","match":{"a":1}}`:     "match.a",
		`{"kind":"slow","speed":1}`:             "speed",
		`{"kind":"slow","kind":"slow"}`:         "kind",
		`{"Kind":"slow"}`:                       "Kind",
		`[]`:                                    "body",
		``:                                      "body",
		`{"kind":"slow"} x`:                     "body",
	} {
		status, header, answer := b.do(http.MethodPut, "/api/v1/faults/recs", body)
		var got any
		if errs, ok := answer["errors"].([]any); ok && len(errs) > 0 {
			got = errs[0].(map[string]any)["field"]
		}
		if status != http.StatusBadRequest || got != field || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %v, want 400 that names %s", body, status, answer, field)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		for _, service := range []string{"gateway", "shipping", "RECS", "*", "recs.x", "%3E"} {
			status, _, answer := b.do(method, "/api/v1/faults/"+service, `{"kind":"slow"}`)
			if detail, _ := answer["detail"].(string); status != http.StatusNotFound || !strings.Contains(detail, "inventory") {
				t.Errorf("%s %s: got %d %v, want 404 that lists the services", method, service, status, answer)
			}
		}
	}
	if got := b.list("/api/v1/faults"); len(got) != 0 {
		t.Errorf("something was set: %v", got)
	}
}

func TestFaults_AreNoBusinessOfOtherSites(t *testing.T) {
	_, b := withBroker(t)
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
			if status, _, answer := b.do(method, "/api/v1/faults/recs", `{"kind":"slow"}`, header...); status != http.StatusForbidden {
				t.Errorf("%s %v: got %d %v, want 403", method, header, status, answer)
			}
		}
	}
	if got := b.list("/api/v1/faults"); len(got) != 0 {
		t.Errorf("something was set: %v", got)
	}
}

func TestFaults_WithoutABrokerAre503AndTheStatusStillAnswers(t *testing.T) {
	server, b := withBroker(t)
	comesTrue(t, "the gateway sees itself", func() bool { return len(b.services()) == 1 })
	server.Stop()
	for _, call := range [][2]string{{http.MethodGet, "/api/v1/faults"}, {http.MethodPut, "/api/v1/faults/recs"}, {http.MethodDelete, "/api/v1/faults/recs"}} {
		var status int
		var header http.Header
		var answer map[string]any
		start := time.Now()
		status, header, answer = b.do(call[0], call[1], `{"kind":"slow"}`)
		if status != http.StatusServiceUnavailable || answer["code"] != "unavailable" || header.Get("Retry-After") == "" || time.Since(start) > 10*time.Second {
			t.Errorf("%v: got %d %v %v after %s, want 503 with Retry-After", call, status, header, answer, time.Since(start))
		}
		if text := strings.ToLower(answer["detail"].(string)); strings.Contains(text, "nats") || strings.Contains(text, "127.0.0.1") {
			t.Errorf("%v: internals in %q", call, text)
		}
	}
	if got := b.services(); !cmp.Equal(got, map[string]any{"gateway": true}) {
		t.Errorf("status: got %v, want what was known", got)
	}
	server.Start()
	comesTrue(t, "the switch works again", func() bool {
		status, _, _ := b.do(http.MethodPut, "/api/v1/faults/recs", `{"kind":"slow"}`)
		return status == http.StatusOK
	})
}

// services is the readiness of each service in the status.
func (b *bridge) services() map[string]any {
	b.t.Helper()
	_, _, body := b.do(http.MethodGet, "/api/v1/status", "")
	out := map[string]any{}
	for _, s := range body["services"].([]any) {
		out[s.(map[string]any)["name"].(string)] = s.(map[string]any)["ready"]
	}
	return out
}

func TestFaults_DisabledOrWithoutABroker(t *testing.T) {
	disabled := newBridge(t)
	for _, call := range [][2]string{{http.MethodGet, "/api/v1/faults"}, {http.MethodPut, "/api/v1/faults/recs"}, {http.MethodDelete, "/api/v1/faults/recs"}} {
		if status, _, answer := disabled.do(call[0], call[1], `{"kind":"slow"}`); status != http.StatusNotFound || answer["code"] != "not_found" {
			t.Errorf("disabled, %v: got %d %v, want 404", call, status, answer)
		}
	}
	if got := disabled.list("/api/v1/status"); len(got) != 0 {
		t.Errorf("status: got %v, want no faults", got)
	}
	alone := newBridge(t, "FAULTS_ENABLED=true")
	if status, _, answer := alone.do(http.MethodPut, "/api/v1/faults/recs", `{"kind":"slow"}`); status != http.StatusServiceUnavailable {
		t.Errorf("without a broker: got %d %v, want 503", status, answer)
	}
	if got := alone.services(); len(got) != 0 {
		t.Errorf("status: got %v, want nobody", got)
	}
}

func TestStatus_CountsTheRestartsOfServices(t *testing.T) {
	server, b := withBroker(t)
	for _, wanted := range []float64{0, 1} {
		cfg := broker.Config{URL: server.URL(), Instance: "recs-1", Heartbeat: 200 * time.Millisecond}
		conn, err := broker.Connect(cfg, "recs", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		announcer, err := broker.NewAnnouncer(cfg, conn, "recs", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- announcer.Serve() }()
		announcer.Ready()
		recs := func() (ready bool, restarts float64) {
			_, _, body := b.do(http.MethodGet, "/api/v1/status", "")
			for _, s := range body["services"].([]any) {
				if s := s.(map[string]any); s["name"] == "recs" {
					return s["ready"].(bool), s["restarts"].(float64)
				}
			}
			return false, -1
		}
		comesTrue(t, "recs is ready", func() bool { ready, restarts := recs(); return ready && restarts == wanted })
		conn.Close() // a crash: nobody says goodbye
		comesTrue(t, "recs is not ready", func() bool { ready, _ := recs(); return !ready })
		if err := announcer.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		<-ended
	}
}
