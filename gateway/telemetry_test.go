package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/shop"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Field report 38: the header passes with the exporter off.
func TestReport38_TheTraceReachesTheBackends(t *testing.T) {
	e := newEdge(t, options{})
	e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "k", "Traceparent", traceparent)
	e.get(t, "/api/v1/products/P-1", "Traceparent", traceparent)
	for name, md := range map[string][]string{"checkout": e.Checkout.Metadata()["traceparent"], "search": e.Search.Metadata()["traceparent"],
		"recs": e.Recs.Metadata()["traceparent"]} {
		if len(md) != 1 || !strings.HasPrefix(md[0], "00-0af7651916cd43dd8448eb211c80319c-") {
			t.Errorf("%s got traceparent %v", name, md)
		}
	}
	p := wantProblem(t, e.get(t, "/nothing", "Traceparent", traceparent), 404, "not_found")
	if p.TraceID != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the problem's trace_id is %q", p.TraceID)
	}
}

func series(tb testing.TB, r *prometheus.Registry) (n int, all string) {
	tb.Helper()
	families, err := r.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fmt.Fprintln(&out, f.GetName(), m.GetLabel())
			n++
			if f.GetType() == dto.MetricType_HISTOGRAM {
				n += len(m.GetHistogram().GetBucket()) + 2 // +Inf and sum; the count is the one above
			}
		}
	}
	return n, out.String()
}

// Field report 39.
func TestReport39_WhatClientsMakeUpMakesNoSeries(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	e := newEdge(t, options{tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	e.get(t, "/api/v1/products/P-1")
	before, _ := series(t, e.Registry)
	for i := range 5000 {
		e.get(t, fmt.Sprintf("/api/v1/products/id-%d", i))
		if i%10 == 0 {
			e.get(t, fmt.Sprintf("/unknown/path-%d", i), "Host", fmt.Sprintf("host-%d.example:%d", i, 1000+i))
			e.do(t, fmt.Sprintf("ODD%d", i), fmt.Sprintf("/api/v1/products/id-%d", i), "")
		}
	}
	after, all := series(t, e.Registry)
	t.Logf("%d series more", after-before)
	if after-before >= 50 {
		t.Errorf("%d new series, want fewer than 50:\n%s", after-before, all)
	}
	madeUp := regexp.MustCompile(`id-\d|path-\d|host-\d|ODD\d`)
	if found := madeUp.FindString(all); found != "" {
		t.Errorf("a label has %q in it", found)
	}
	for _, s := range spans.GetSpans() {
		if found := madeUp.FindString(s.Name); found != "" {
			t.Fatalf("span name %q has %q in it", s.Name, found)
		}
	}
}

func TestSpans_AreNamedAfterTheRoute(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	e := newEdge(t, options{tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	e.get(t, "/api/v1/products/P-1")
	eventually(t, "the server's span is named", func() bool {
		for _, s := range spans.GetSpans() {
			if s.Name == "GET /api/v1/products/{id}" {
				return true
			}
		}
		return false
	})
}

// Field report 50.
func TestReport50_RequestIDsAreCheckedAndLogsStayOneObjectALine(t *testing.T) {
	e := newEdge(t, options{})
	good := regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	for _, id := range []string{"req-1.A_b", strings.Repeat("x", 64)} {
		if got := e.get(t, "/api/v1/products", "X-Request-ID", id).Header.Get("X-Request-ID"); got != id {
			t.Errorf("request id %q came back as %q", id, got)
		}
	}
	for _, id := range []string{strings.Repeat("x", 8192), strings.Repeat("x", 65), "a b", "a\"b", "é", "<script>", "a/b", "{}"} {
		if got := e.get(t, "/api/v1/products", "X-Request-ID", id).Header.Get("X-Request-ID"); got == id || !good.MatchString(got) {
			t.Errorf("request id %.20q came back as %.20q, want one of ours", id, got)
		}
	}
	a := e.raw(t, "GET /api/v1/products/%0A%22x HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\tb\x7f\r\nWatertight-Customer: c\t\"1\r\nConnection: close\r\n\r\n")
	if got := a.Header.Get("X-Request-ID"); a.Status != 400 && !good.MatchString(got) {
		t.Errorf("control characters: %d, request id %q", a.Status, got)
	}
	lines := e.Log.All()
	if len(lines) < 10 {
		t.Fatalf("%d lines in the log", len(lines))
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || strings.Contains(line, "\n") {
			t.Errorf("log line %q: %v", line, err)
		}
		if len(line) > 2048 {
			t.Errorf("a log line of %d bytes", len(line))
		}
	}
}

func TestLog_HasOneLinePerRequestWithWhatMatters(t *testing.T) {
	e := newEdge(t, options{})
	e.get(t, "/api/v1/products/P-1?secret=1", "X-Request-ID", "r-1", "Watertight-Customer", "c-7", "Traceparent", traceparent, "X-Forwarded-For",
		"9.9.9.9")
	e.get(t, "/api/v1/products", "Cookie", "customer=c-8")
	eventually(t, "two lines", func() bool { return len(e.Log.All()) == 2 })
	var got map[string]any
	if err := json.Unmarshal([]byte(e.Log.All()[0]), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"msg": "request", "level": "INFO", "service": "gateway", "request_id": "r-1", "method": "GET", "path": "/api/v1/products/P-1", "route": "/api/v1/products/{id}",
		"status": 200.0, "client": "127.0.0.0/24", "trace_id": "0af7651916cd43dd8448eb211c80319c",
	} {
		if got[field] != want {
			t.Errorf("%s = %v, want %v", field, got[field], want)
		}
	}
	for _, line := range e.Log.All() {
		if strings.Contains(line, "c-7") || strings.Contains(line, "c-8") || strings.Contains(line, "127.0.0.1") {
			t.Errorf("the customer or the whole address is in %s", line)
		}
	}
}

func TestPanic_InAHandlerIsA500AndTheServerGoesOn(t *testing.T) {
	e := newEdge(t, options{pages: func(*shop.Shop) []route.Route {
		return []route.Route{{Method: "GET", Path: "/panic", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") })}}
	}})
	a := e.get(t, "/panic")
	wantProblem(t, a, 500, "internal")
	if strings.Contains(a.Body, "secret") {
		t.Errorf("the panic is in the body: %s", a.Body)
	}
	if a := e.get(t, "/api/v1/products"); a.Status != 200 {
		t.Errorf("the next request: %d", a.Status)
	}
	if log := strings.Join(e.Log.All(), "\n"); !strings.Contains(log, "a secret") || !strings.Contains(log, "telemetry_test.go") {
		t.Errorf("no panic with its stack in the log:\n%s", log)
	}
}

func TestStorefront_PagesAreRoutedBesideTheAPI(t *testing.T) {
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if text == "missing" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, text)
		})
	}
	e := newEdge(t, options{pages: func(s *shop.Shop) []route.Route {
		return []route.Route{
			{Method: "GET", Path: "/{$}", Handler: say("home")}, {Method: "POST", Path: "/basket", Handler: say("basket")},
			{Method: "GET", Path: "/products/{id}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				page, err := s.ProductPage(r.Context(), r.PathValue("id"))
				fmt.Fprint(w, page.Product.Name, err)
			})},
			{Method: "GET", Path: "/", Handler: say("missing")},
		}
	}})
	for path, want := range map[string]string{"/": "home", "/products/P-1": "Product number 1<nil>", "/nothing": "missing"} {
		if a := e.get(t, path); a.Body != want {
			t.Errorf("GET %s = %q, want %q", path, a.Body, want)
		}
	}
	wantProblem(t, e.get(t, "/api/v1/nothing"), 404, "not_found")
	wantProblem(t, e.get(t, "/api/nothing"), 404, "not_found")
	wantProblem(t, e.do(t, "POST", "/nothing", ""), 404, "not_found")
	wantProblem(t, e.get(t, "/basket"), 405, problem.CodeMethodNotAllowed)
	wantProblem(t, e.do(t, "POST", "/basket", "", "Sec-Fetch-Site", "cross-site"), 403, problem.CodeCrossOrigin)
}
