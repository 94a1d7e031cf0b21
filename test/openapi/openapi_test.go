// Package openapi checks that the gateway's OpenAPI document is true: it is valid, what the gateway answers is as it says, and
// what it calls a wrong request is refused by the gateway too. That it lists every route and every problem code is
// tested in the gateway itself. It is a module of its own, so that the validator is nobody else's burden.
package openapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/prometheus/client_golang/prometheus"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/shoptest"
	"example.com/watertight/gateway/storefront"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// edge is the whole gateway, with a broker and scripted services behind it, and its document.
type edge struct {
	*shoptest.Services

	t      *testing.T
	url    string
	client *http.Client
	doc    *openapi3.T
	router routers.Router
	broker *brokertest.Server
	// answered lists the statuses that were seen to be as documented, by operation.
	answered map[string][]int
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{Services: shoptest.Start(t), t: t, answered: map[string][]int{}, broker: brokertest.Start(t, fault.Bucket, broker.InstancesBucket)}
	cfg, err := config.Load[struct {
		HTTP       gateway.Config
		Upstreams  gateway.UpstreamsConfig
		Operations gateway.OperationsConfig
	}]([]string{
		"CHECKOUT_ADDR=" + e.Checkout.Target(), "SEARCH_ADDR=" + e.Search.Target(), "RECS_ADDR=" + e.Recs.Target(), "FAULTS_ENABLED=true",
		"NATS_URL=" + e.broker.URL(), "INSTANCE_ID=gateway-1", "CHECKOUT_TIMEOUT=20s", "SEARCH_TIMEOUT=20s", "RECS_TIMEOUT=20s", "MAX_BRIDGE_STREAMS=1",
		"CHECKOUT_BREAKER_OPEN=30s", "SEARCH_BREAKER_OPEN=30s", "RECS_BREAKER_OPEN=30s",
		"CHECKOUT_BREAKER_CONSECUTIVE=1000", "SEARCH_BREAKER_CONSECUTIVE=1000", "RECS_BREAKER_CONSECUTIVE=1000",
		"CHECKOUT_BREAKER_MIN_CALLS=1000", "SEARCH_BREAKER_MIN_CALLS=1000", "RECS_BREAKER_MIN_CALLS=1000",
	})
	if err != nil {
		t.Fatal(err)
	}
	log, tracers, meters := slog.New(slog.DiscardHandler), nooptrace.NewTracerProvider(), noopmetric.NewMeterProvider()
	process, err := lifecycle.New(lifecycle.Config{AdminAddr: "127.0.0.1:0"}, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	operations, err := gateway.JoinBroker(cfg.Operations, process, log)
	if err != nil {
		t.Fatal(err)
	}
	upstreams, err := gateway.Connect(cfg.Upstreams, rpc.ClientDeps{TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{}}, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	process.Closer("upstreams", upstreams.Close)
	behind, budgets := shop.New(upstreams.Backends(log)), cfg.Upstreams.Budgets()
	pages, err := storefront.New(behind, storefront.Budgets{Checkout: budgets.Checkout, Search: budgets.Search})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gateway.NewHandler(cfg.HTTP, gateway.Deps{
		Shop: behind, Budgets: budgets, Upstreams: upstreams.Status, Suspects: upstreams.Suspects, Storefront: pages.Routes(), Operations: operations,
		Version: "test", Design: "split", Draining: process.Draining(), Worker: process.Worker,
		Log: log, TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.serve(process, handler)
	e.load()
	return e
}

func (e *edge) serve(process *lifecycle.Process, handler http.Handler) {
	e.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	server := httptest.NewServer(handler)
	e.url, e.client = server.URL, server.Client()
	e.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	e.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			e.t.Errorf("the process: %v", err)
		}
		server.Close()
	})
}

// load reads the document from where clients get it.
func (e *edge) load() {
	e.t.Helper()
	content := e.send(e.request(http.MethodGet, "/api/v1/openapi.json", "")).body
	var err error
	if e.doc, err = openapi3.NewLoader().LoadFromData(content); err != nil {
		e.t.Fatal(err)
	}
	if err := e.doc.Validate(e.t.Context()); err != nil {
		e.t.Fatalf("the document is not valid: %v", err)
	}
	if e.doc.OpenAPI != "3.1.0" {
		e.t.Errorf("openapi is %q", e.doc.OpenAPI)
	}
	e.doc.Servers = nil // the router would look for the document's host
	if e.router, err = gorillamux.NewRouter(e.doc); err != nil {
		e.t.Fatal(err)
	}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (e *edge) request(method, path, body string, header ...string) *http.Request {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// send sends the request and reads the answer; of a stream, only the beginning.
func (e *edge) send(r *http.Request) answer {
	e.t.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	resp, err := e.client.Do(r.WithContext(ctx))
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	var content []byte
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		content = make([]byte, 64)
		n, err := resp.Body.Read(content)
		if err != nil {
			e.t.Fatal(err)
		}
		content = content[:n]
	} else if content, err = io.ReadAll(resp.Body); err != nil {
		e.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, content}
}

// documented sends a request and checks the answer against the document. A request that the document calls wrong must be refused
// with a 4xx; one that it calls right may still be wrong for reasons that it does not know.
func (e *edge) documented(want int, method, path, body string, header ...string) answer {
	e.t.Helper()
	r := e.request(method, path, body, header...)
	a := e.send(r)
	name := fmt.Sprintf("%s %s %.100s", method, path, body)
	if a.status != want {
		e.t.Errorf("%s: %d, want %d: %.300s", name, a.status, want, a.body)
	}
	again := e.request(method, path, body, header...)
	route, params, err := e.router.FindRoute(again)
	if err != nil {
		e.t.Errorf("%s: not in the document: %v", name, err)
		return a
	}
	input := &openapi3filter.RequestValidationInput{Request: again, PathParams: params, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if err := openapi3filter.ValidateRequest(e.t.Context(), input); err != nil && (a.status < 400 || a.status > 499) {
		e.t.Errorf("%s: answered %d, but the document calls the request wrong: %v", name, a.status, err)
	}
	// Into text, and that is streams and pages, the validator cannot look.
	err = openapi3filter.ValidateResponse(e.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: !strings.Contains(a.header.Get("Content-Type"), "json")},
	})
	if err != nil {
		e.t.Errorf("%s: the answer is not as documented: %v\n%d %s", name, err, a.status, a.body)
	}
	e.answered[route.Operation.OperationID] = append(e.answered[route.Operation.OperationID], a.status)
	return a
}

// wrong sends a request that the document calls wrong, and checks that it does, and that the gateway refuses it.
func (e *edge) wrong(want int, method, path, body string, header ...string) {
	e.t.Helper()
	e.documented(want, method, path, body, header...)
	r := e.request(method, path, body, header...)
	route, params, err := e.router.FindRoute(r)
	if err != nil {
		e.t.Fatal(err)
	}
	if openapi3filter.ValidateRequest(e.t.Context(), &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route}) == nil {
		e.t.Errorf("%s %s %.100s: the gateway refuses what the document calls right", method, path, body)
	}
}

func (e *edge) eventually(what string, holds func() bool) {
	e.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			e.t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}

const (
	orders = "/api/v1/orders"
	order  = `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"P-1","quantity":2}],"expected_total":510,"payment_token":"tok_ok"}`
	first  = orders + "/00000000-0000-4000-8000-000000000001"
	nobody = orders + "/00000000-0000-4000-8000-999999999999"
)

func TestDocument_IsTrueOfTheGateway(t *testing.T) {
	e := newEdge(t)
	e.shopping()
	e.refusals()
	e.operations()
	e.troubles()
	e.pages()

	for path, item := range e.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			well := slices.ContainsFunc(e.answered[operation.OperationID], func(status int) bool { return status < 400 })
			if !well {
				t.Errorf("%s %s: no good answer was checked", method, path)
			}
			for documented := range operation.Responses.Map() {
				// No service script leads to these everywhere: the client limit is off, and a panic is a bug.
				if slices.Contains([]string{"default", "429", "500", "503", "504"}, documented) || documented == "404" && strings.HasSuffix(path, "/faults") {
					continue
				}
				if !slices.ContainsFunc(e.answered[operation.OperationID], func(status int) bool { return fmt.Sprint(status) == documented }) {
					t.Errorf("%s %s: %s is documented, and was not seen", method, path, documented)
				}
			}
		}
	}
}

func (e *edge) shopping() {
	e.t.Helper()
	e.documented(200, "GET", "/api/v1/products", "")
	e.documented(200, "GET", "/api/v1/products?q=number&category=things&page_size=100", "", "Grpc-Timeout", "20S", "Watertight-Customer", "c-1")
	e.documented(200, "GET", "/api/v1/products/P-1", "")
	e.documented(200, "GET", "/api/v1/recommendations", "")
	e.documented(200, "GET", "/api/v1/recommendations?product_id=P-1&limit=50", "")
	e.documented(201, "POST", orders, order, "Idempotency-Key", "k-1")
	again := e.documented(201, "POST", orders, order, "Idempotency-Key", `"k-1"`)
	if again.header.Get("Idempotency-Replayed") != "true" {
		e.t.Errorf("sent again: %v", again.header)
	}
	e.documented(201, "POST", orders, strings.Replace(order, "510", "null", 1), "Idempotency-Key", "k-2")
	e.documented(200, "GET", first, "")
	e.documented(200, "GET", first+"/events", "", "Last-Event-ID", "0")
	e.Orders.Change("00000000-0000-4000-8000-000000000001", checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED)
	e.documented(204, "GET", first+"/events", "", "Last-Event-ID", "2")
}

// refusals are requests that are wrong. What a schema can say, the document says too.
func (e *edge) refusals() {
	e.t.Helper()
	for _, query := range []string{"page_size=0", "page_size=101", "page_size=abc", "page_size=1.5", "q=" + strings.Repeat("x", 201), "category=" + strings.Repeat("x", 65)} {
		e.wrong(400, "GET", "/api/v1/products?"+query, "")
	}
	e.documented(400, "GET", "/api/v1/products?page_token=forged", "")
	e.wrong(400, "GET", "/api/v1/products", "", "Grpc-Timeout", "soon")
	e.documented(404, "GET", "/api/v1/products/unknown", "")
	e.documented(400, "GET", "/api/v1/products/"+strings.Repeat("x", 65), "")
	e.wrong(400, "GET", "/api/v1/recommendations?limit=51", "")
	e.wrong(400, "GET", "/api/v1/recommendations?product_id="+strings.Repeat("x", 65), "")

	keyed := func(want int, old, replacement string) {
		e.wrong(want, "POST", orders, strings.Replace(order, old, replacement, 1), "Idempotency-Key", "k-9")
	}
	for _, quantity := range []string{"0", "-1", "100001", `"1"`, "1.5", "2147483648000", "null"} {
		keyed(400, `"quantity":2`, `"quantity":`+quantity)
	}
	keyed(400, `"currency":"GBP"`, `"currency":"gbp"`)
	keyed(400, `"customer_id":"c-1"`, `"customer_id":""`)
	keyed(400, `"customer_id":"c-1"`, `"customer_id":"`+strings.Repeat("c", 129)+`"`)
	keyed(400, `"customer_id":"c-1"`, `"customer_id":"a\u0007b"`)
	keyed(400, `"customer_id":"c-1",`, ``)
	keyed(400, `"customer_id"`, `"Customer_ID"`)
	keyed(400, `"payment_token":"tok_ok"`, `"payment_token":"tok_ok","price":1`)
	keyed(400, `510`, `-1`)
	keyed(400, `[{"product_id":"P-1","quantity":2}]`, `[]`)
	e.wrong(400, "POST", orders, order)
	e.documented(409, "POST", orders, strings.Replace(order, "510", "511", 1), "Idempotency-Key", "k-8")
	e.documented(422, "POST", orders, strings.Replace(order, "tok_ok", "tok_other", 1), "Idempotency-Key", "k-1")
	e.documented(404, "POST", orders, strings.Replace(order, "P-1", "unknown", 1), "Idempotency-Key", "k-7")
	e.documented(403, "POST", orders, order, "Idempotency-Key", "k-6", "Sec-Fetch-Site", "cross-site")
	e.wrong(413, "POST", orders, `{"customer_id":"`+strings.Repeat("c", 1<<20)+`"}`, "Idempotency-Key", "k-5")
	e.documented(404, "GET", nobody, "")
	e.documented(400, "GET", orders+"/none", "")
	e.documented(404, "GET", nobody+"/events", "")
	e.wrong(400, "GET", first+"/events", "", "Last-Event-ID", "-1")
}

func (e *edge) operations() {
	e.t.Helper()
	e.eventually("the broker is reached", func() bool {
		return e.send(e.request("GET", "/api/v1/faults", "")).status == 200
	})
	e.documented(200, "GET", "/api/v1/openapi.json", "")
	e.documented(200, "GET", "/api/v1/faults", "")
	for _, body := range []string{
		`{"kind":"slow"}`, `{"kind":"error","rate":0.5,"code":"INTERNAL","ttl_s":60}`, `{"kind":"poison","match":{"product_id":"P-1"}}`, `{"kind":"cpu","delay_ms":5,"ttl_s":86400}`,
	} {
		e.documented(200, "PUT", "/api/v1/faults/recs", body)
	}
	e.documented(200, "GET", "/api/v1/faults", "")
	for _, body := range []string{
		`{}`, `{"kind":"mean"}`, `{"kind":"slow","rate":2}`, `{"kind":"slow","ttl_s":0}`, `{"kind":"slow","delay_ms":-1}`, `{"kind":"error","code":"OK"}`, `{"kind":"slow","more":1}`,
	} {
		e.wrong(400, "PUT", "/api/v1/faults/recs", body)
	}
	e.documented(400, "PUT", "/api/v1/faults/recs", `{"kind":"poison"}`)
	e.wrong(413, "PUT", "/api/v1/faults/recs", `{"kind":"`+strings.Repeat("c", 1<<20)+`"}`)
	e.wrong(404, "PUT", "/api/v1/faults/gateway", `{"kind":"slow"}`)
	e.documented(403, "PUT", "/api/v1/faults/recs", `{"kind":"slow"}`, "Sec-Fetch-Site", "cross-site")
	e.wrong(404, "DELETE", "/api/v1/faults/gateway", "")
	e.documented(403, "DELETE", "/api/v1/faults/recs", "", "Sec-Fetch-Site", "cross-site")
	e.eventually("the status shows the fault and the process", func() bool {
		body := string(e.send(e.request("GET", "/api/v1/status", "")).body)
		return strings.Contains(body, `"expires_at"`) && strings.Contains(body, `"restarts"`)
	})
	e.documented(200, "GET", "/api/v1/status", "")
	e.documented(204, "DELETE", "/api/v1/faults/recs", "")
	for _, path := range []string{"/api/v1/status", "/api/v1/openapi.json", "/api/v1/faults", "/bridge/events"} {
		e.documented(400, "GET", path, "", "Grpc-Timeout", "soon")
	}
	e.documented(400, "DELETE", "/api/v1/faults/recs", "", "Grpc-Timeout", "soon")
	e.documented(200, "GET", "/bridge/events", "")
}

// troubles are the answers of a shop whose services fail in each of the ways they can.
func (e *edge) troubles() {
	e.t.Helper()
	for _, trouble := range []struct {
		err  error
		want int
	}{
		{status.Error(codes.Internal, "boom"), 500}, {rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "away"), 503}, {rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "late"), 504},
		{rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "full"), 503}, {rpcerr.New(codes.Unavailable, rpcerr.Draining, "draining"), 503},
		{rpcerr.New(codes.ResourceExhausted, rpcerr.RateLimited, "fast"), 429},
	} {
		for _, peer := range []*shoptest.Peer{e.Checkout, e.Search, e.Recs} {
			peer.Fail(trouble.err)
		}
		e.documented(trouble.want, "GET", "/api/v1/products", "")
		e.documented(trouble.want, "GET", "/api/v1/products/P-1", "")
		e.documented(trouble.want, "POST", orders, order, "Idempotency-Key", "k-4")
		e.documented(trouble.want, "GET", first, "")
		e.documented(trouble.want, "GET", first+"/events", "")
		e.documented(200, "GET", "/api/v1/recommendations", "") // degraded
		e.Search.Do(nil)
		if a := e.documented(200, "GET", "/api/v1/products/P-1", ""); a.header.Get("Watertight-Degraded") != "recs" {
			e.t.Errorf("a product without recs: %v", a.header)
		}
	}
	for _, peer := range []*shoptest.Peer{e.Checkout, e.Search, e.Recs} {
		peer.Do(nil)
	}
	e.broker.Stop()
	e.eventually("the broker's absence is noticed", func() bool {
		return e.send(e.request("GET", "/api/v1/faults", "")).status == 503
	})
	e.documented(503, "GET", "/api/v1/faults", "")
	e.documented(503, "PUT", "/api/v1/faults/recs", `{"kind":"slow"}`)
	e.documented(503, "DELETE", "/api/v1/faults/recs", "")
	e.documented(200, "GET", "/api/v1/status", "")
}

func (e *edge) pages() {
	e.t.Helper()
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	page := string(e.documented(200, "GET", "/", "").body)
	e.documented(200, "GET", "/products/P-1", "")
	e.documented(404, "GET", "/products/unknown", "")
	e.documented(200, "GET", "/bridge", "")
	e.documented(200, "GET", "/basket", "")
	e.documented(400, "POST", "/basket", "action=dance&product_id=P-1", form...)
	added := e.documented(303, "POST", "/basket", "action=add&product_id=P-1&name=Product&price=255&currency=GBP&quantity=1", form...)
	e.documented(303, "GET", "/checkout", "")
	e.documented(200, "GET", "/checkout", "", "Cookie", added.header.Get("Set-Cookie"))
	e.documented(400, "POST", "/checkout", "currency=GBP", form...)
	e.documented(303, "POST", "/checkout", "idempotency_key=k-3&currency=GBP&expected_total=255&product_id=P-1&name=P&price=255&quantity=1&customer_id=c-1&payment_token=tok_ok", form...)
	e.documented(200, "GET", strings.TrimPrefix(first, "/api/v1"), "")
	_, icon, _ := strings.Cut(page, `href="/static/`)
	icon, _, _ = strings.Cut(icon, `"`)
	e.documented(200, "GET", "/static/"+icon, "")
	e.documented(404, "GET", "/static/none.css", "")
}
