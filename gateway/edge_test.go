package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/shoptest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/telemetry"
)

// edge is a whole gateway on loopback, with the services of shoptest behind it.
type edge struct {
	*shoptest.Services
	URL, Addr string
	Log       *shoptest.Lines
	Registry  *prometheus.Registry
	Drain     func()
	Upstreams *gateway.Upstreams
	Client    *http.Client
	Config    gateway.Config
	Handler   http.Handler
}

type settings struct {
	HTTP      gateway.Config
	Upstreams gateway.UpstreamsConfig
}

type options struct {
	environ []string // NAME=value, over the defaults
	tracers trace.TracerProvider
	pages   func(*shop.Shop) []route.Route
	guard   func(feature string, next http.Handler) http.Handler
}

// patient are time-outs that a busy machine keeps when nothing is wrong; tests about slowness set their own.
func patient() []string {
	return []string{"HTTP_WRITE_TIMEOUT=30s", "CHECKOUT_TIMEOUT=20s", "SEARCH_TIMEOUT=20s", "RECS_TIMEOUT=20s", "CHECKOUT_BREAKER_OPEN=30s",
		"SEARCH_BREAKER_OPEN=30s", "RECS_BREAKER_OPEN=30s"}
}

func newEdge(tb testing.TB, o options) *edge {
	tb.Helper()
	e := &edge{Services: shoptest.Start(tb), Log: &shoptest.Lines{}}
	addresses := []string{
		"CHECKOUT_ADDR=" + e.Checkout.Target(), "SEARCH_ADDR=" + e.Search.Target(), "RECS_ADDR=" + e.Recs.Target(), "HTTP_ADDR=127.0.0.1:0",
	}
	cfg, err := config.Load[settings](slices.Concat(patient(), addresses, o.environ))
	if err != nil {
		tb.Fatal(err)
	}
	log, err := telemetry.NewLogger(e.Log, "info", "json", "gateway")
	if err != nil {
		tb.Fatal(err)
	}
	tel, err := telemetry.New(tb.Context(), telemetry.Config{}, "gateway", log)
	if err != nil {
		tb.Fatal(err)
	}
	if o.tracers == nil {
		o.tracers = tel.TracerProvider
	}
	e.Registry = tel.Registry
	e.Upstreams, err = gateway.Connect(cfg.Upstreams, rpc.ClientDeps{TracerProvider: o.tracers, MeterProvider: tel.MeterProvider,
		Propagator: tel.Propagator}, tel.Registry)
	if err != nil {
		tb.Fatal(err)
	}
	draining := make(chan struct{})
	deps := gateway.Deps{
		Shop: shop.New(e.Upstreams.Backends(log)), Budgets: cfg.Upstreams.Budgets(), Upstreams: e.Upstreams.Status, Suspects: e.Upstreams.Suspects,
		Version: "test", Design: "split", Draining: draining, Guard: o.guard,
		Log: log, TracerProvider: o.tracers, MeterProvider: tel.MeterProvider, Propagator: tel.Propagator,
	}
	if o.pages != nil {
		deps.Storefront = o.pages(deps.Shop)
	}
	handler, err := gateway.NewHandler(cfg.HTTP, deps)
	if err != nil {
		tb.Fatal(err)
	}
	e.Config, e.Handler = cfg.HTTP, handler
	e.serve(tb, cfg.HTTP, handler, log, draining)
	return e
}

func (e *edge) serve(tb testing.TB, cfg gateway.Config, handler http.Handler, log *slog.Logger, draining chan struct{}) {
	tb.Helper()
	listener, err := lifecycle.Listen("HTTP_ADDR", cfg.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	server := lifecycle.NewHTTPServer(listener, gateway.NewServer(cfg, handler, log))
	e.Addr, e.URL = server.Addr(), "http://"+server.Addr()
	e.Drain = sync.OnceFunc(func() { close(draining); server.Drain() })
	e.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(); err != nil {
			tb.Errorf("serve: %v", err)
		}
	}()
	tb.Cleanup(func() {
		e.Drain()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			tb.Errorf("shut down: %v", err)
		}
		<-served
		if err := e.Upstreams.Close(ctx); err != nil {
			tb.Errorf("close: %v", err)
		}
		e.Client.CloseIdleConnections()
	})
}

// answer is a response, read whole.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Took   time.Duration
	Close  bool // the server says that the connection ends
}

// json reads the body into a T.
func decode[T any](tb testing.TB, a answer) T {
	tb.Helper()
	var out T
	if err := json.Unmarshal([]byte(a.Body), &out); err != nil {
		tb.Fatalf("body %q: %v", a.Body, err)
	}
	return out
}

// problemBody is a problem as a client reads it.
type problemBody struct {
	Type, Title, Detail, Instance, Code string
	Status                              int
	RequestID                           string `json:"request_id"`
	TraceID                             string `json:"trace_id"`
	Errors                              []struct{ Field, Detail string }
	Metadata                            map[string]string
}

// do sends a request; header is name, value, name, value.
func (e *edge) do(tb testing.TB, method, path, body string, header ...string) answer {
	tb.Helper()
	a, err := e.try(tb.Context(), method, path, body, header...)
	if err != nil {
		tb.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (e *edge) try(ctx context.Context, method, path, body string, header ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, e.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	start := time.Now()
	resp, err := e.Client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(read), time.Since(start), resp.Close}, err
}

func (e *edge) get(tb testing.TB, path string, header ...string) answer {
	tb.Helper()
	return e.do(tb, http.MethodGet, path, "", header...)
}

const orderBody = `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"85123A","quantity":2}],"expected_total":510,"payment_token":"tok_ok"}`

func (e *edge) order(tb testing.TB, key string) answer {
	tb.Helper()
	return e.do(tb, http.MethodPost, "/api/v1/orders", orderBody, "Idempotency-Key", key)
}

// raw sends bytes on a connection of its own and reads one response.
func (e *edge) raw(tb testing.TB, request string) answer {
	tb.Helper()
	conn := e.dial(tb)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		tb.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		tb.Fatalf("%q: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		tb.Fatalf("%q: %v", request, err)
	}
	return answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body), Close: resp.Close}
}

func (e *edge) dial(tb testing.TB) net.Conn {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), "tcp", e.Addr)
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// wantProblem checks that an answer is a complete problem with this status and code.
func wantProblem(tb testing.TB, a answer, status int, code string) problemBody {
	tb.Helper()
	if a.Status != status {
		tb.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		tb.Errorf("Content-Type %q, want application/problem+json", got)
	}
	p := decode[problemBody](tb, a)
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == "" || p.Type == "" || p.Instance == "" ||
		p.RequestID != a.Header.Get("X-Request-ID") {
		tb.Errorf("problem %+v, want code %s and every member set", p, code)
	}
	return p
}

// eventually waits until the condition holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
