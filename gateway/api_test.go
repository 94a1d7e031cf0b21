package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/rpcerr"
)

type productsBody struct {
	Products      []shop.Product `json:"products"`
	NextPageToken string         `json:"next_page_token"`
}

type productBody struct {
	Product         *shop.Product         `json:"product"`
	Recommendations []shop.Recommendation `json:"recommendations"`
	Degraded        []string              `json:"degraded"`
}

func TestProducts_PagesThroughTheCatalog(t *testing.T) {
	e := newEdge(t, options{})
	var seen []string
	token := ""
	for range 4 {
		page := decode[productsBody](t, e.get(t, "/api/v1/products?q=number&category=things&page_size=10&page_token="+token))
		for _, p := range page.Products {
			seen = append(seen, p.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if len(seen) != 30 || seen[0] != "P-1" || seen[29] != "P-30" {
		t.Errorf("saw %v, want P-1 to P-30", seen)
	}
	if page := decode[productsBody](t, e.get(t, "/api/v1/products")); len(page.Products) != 20 {
		t.Errorf("without page_size: %d products, want 20", len(page.Products))
	}
	a := e.get(t, "/api/v1/products?q=nothing+like+that")
	if want := `{"products":[],"next_page_token":""}` + "\n"; a.Body != want {
		t.Errorf("no match: %s, want %s", a.Body, want)
	}
	wantProblem(t, e.get(t, "/api/v1/products?page_token=forged"), 400, "invalid_argument")
	wantProblem(t, e.get(t, "/api/v1/products?q="+strings.Repeat("x", 201)), 400, "invalid_argument")
}

func TestProduct_HasTheJSONOfTheContract(t *testing.T) {
	e := newEdge(t, options{})
	a := e.get(t, "/api/v1/products/P-1")
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" || a.Header.Get("Watertight-Degraded") != "" {
		t.Fatalf("got %d %v", a.Status, a.Header)
	}
	wantStart := `{"product":{"id":"P-1","name":"Product number 1","description":"plain \u0026 useful","category":"things","price":{"currency":"GBP","minor":101}},` +
		`"recommendations":[{"id":"P-2","name":"Product number 2","description":"plain \u0026 useful","category":"things","price":{"currency":"GBP","minor":102},"score":0.5},{"id":"P-3"`
	if !strings.HasPrefix(a.Body, wantStart) || !strings.HasSuffix(a.Body, `"degraded":[]}`+"\n") {
		t.Errorf("body:\n%s\nwant it to start with\n%s", a.Body, wantStart)
	}
	if got := decode[productBody](t, a); len(got.Recommendations) != 8 {
		t.Errorf("%d recommendations, want 8 (the one that search does not know left out)", len(got.Recommendations))
	}
	wantProblem(t, e.get(t, "/api/v1/products/unknown"), 404, "not_found")
}

// Field report 19 and DESIGN §5: recs can at most be missing.
func TestProduct_NeverFailsBecauseRecsDoes(t *testing.T) {
	for name, breakRecs := range map[string]func(e *edge){
		"recs fails":   func(e *edge) { e.Recs.Fail(status.Error(codes.Internal, "boom")) },
		"recs is slow": func(e *edge) { e.Recs.Hang(nil) },
		"recs is gone": func(e *edge) { e.Recs.Stop() },
		"recs is full": func(e *edge) { e.Recs.Fail(rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "full")) },
		"recs refuses": func(e *edge) { e.Recs.Fail(rpcerr.Invalid("product_id", "no")) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, options{environ: []string{"RECS_TIMEOUT=150ms"}})
			breakRecs(e)
			a := e.get(t, "/api/v1/products/P-1")
			got := decode[productBody](t, a)
			want := productBody{Product: got.Product, Recommendations: []shop.Recommendation{}, Degraded: []string{"recs"}}
			if diff := cmp.Diff(want, got); a.Status != 200 || diff != "" || got.Product == nil {
				t.Errorf("status %d, body (-want +got):\n%s", a.Status, diff)
			}
			if got := a.Header.Get("Watertight-Degraded"); got != "recs" {
				t.Errorf("Watertight-Degraded = %q, want recs", got)
			}
			if got := e.Upstreams.Status()[2].Outcomes["degraded"]; got != 1 {
				t.Errorf("degraded counted %d times, want once", got)
			}
		})
	}
}

func TestRecommendations_AnswersWithoutRecsAndWithoutSearch(t *testing.T) {
	e := newEdge(t, options{})
	a := e.get(t, "/api/v1/recommendations?product_id=P-1&limit=3")
	if got := decode[productBody](t, a); a.Status != 200 || len(got.Recommendations) != 3 || len(got.Degraded) != 0 {
		t.Errorf("whole: %d %s", a.Status, a.Body)
	}
	if got := decode[productBody](t, e.get(t, "/api/v1/recommendations")); len(got.Recommendations) != 8 {
		t.Errorf("popular: %d recommendations, want 8", len(got.Recommendations))
	}
	wantProblem(t, e.get(t, "/api/v1/recommendations?limit=51"), 400, "invalid_argument")
	wantProblem(t, e.get(t, "/api/v1/recommendations?product_id=%00"), 400, "invalid_argument")

	e.Search.Fail(status.Error(codes.Unavailable, "down"))
	a = e.get(t, "/api/v1/recommendations?product_id=P-1")
	if want := `{"recommendations":[],"degraded":["search"]}` + "\n"; a.Status != 200 || a.Body != want ||
		a.Header.Get("Watertight-Degraded") != "search" {
		t.Errorf("without search: %d %s %q, want 200 %s", a.Status, a.Body, a.Header.Get("Watertight-Degraded"), want)
	}
	e.Recs.Fail(status.Error(codes.Unavailable, "down"))
	a = e.get(t, "/api/v1/recommendations?product_id=P-1")
	if want := `{"recommendations":[],"degraded":["recs"]}` + "\n"; a.Status != 200 || a.Body != want || a.Header.Get("Watertight-Degraded") != "recs" {
		t.Errorf("without recs: %d %s, want 200 %s", a.Status, a.Body, want)
	}
}

// DESIGN §5: search failing means 503 for search and a working checkout.
func TestOrder_WorksWhileSearchAndRecsAreDown(t *testing.T) {
	e := newEdge(t, options{})
	e.Search.Stop()
	e.Recs.Stop()
	a := e.get(t, "/api/v1/products")
	wantProblem(t, a, 503, "unavailable")
	if a.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	if a := e.order(t, "k-1"); a.Status != 201 {
		t.Errorf("order: %d %s", a.Status, a.Body)
	}
}

func TestPlaceOrder_AnswersAsTheContractSays(t *testing.T) {
	e := newEdge(t, options{})
	a := e.order(t, "k-1")
	want := `{"id":"00000000-0000-4000-8000-000000000001","customer_id":"c-1","status":"pending","reason":"","currency":"GBP","total":510,` +
		`"lines":[{"product_id":"85123A","name":"Product","quantity":2,"unit_price":255,"line_total":510}],` +
		`"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z"}` + "\n"
	if a.Status != 201 || a.Body != want {
		t.Fatalf("got %d\n%s\nwant 201\n%s", a.Status, a.Body, want)
	}
	if got := a.Header.Get("Location"); got != "/api/v1/orders/00000000-0000-4000-8000-000000000001" {
		t.Errorf("Location = %q", got)
	}
	if got := a.Header.Values("Idempotency-Replayed"); len(got) != 0 {
		t.Errorf("the first answer says it is a replay: %v", got)
	}
	if got := e.get(t, a.Header.Get("Location")); got.Status != 200 || got.Body != want {
		t.Errorf("GET the Location: %d %s", got.Status, got.Body)
	}

	again := e.order(t, `"k-1"`) // the IETF draft's form of the same key
	if again.Status != 201 || again.Body != want || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeated: %d %v %s", again.Status, again.Header, again.Body)
	}
	other := strings.Replace(orderBody, `"quantity":2`, `"quantity":3`, 1)
	other = strings.Replace(other, "510", "765", 1)
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", other, "Idempotency-Key", "k-1"), 422, "idempotency_key_reused")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody), 400, "idempotency_key_missing")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", " "), 400, "idempotency_key_missing")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", `""`), 400, "idempotency_key_missing")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "a", "Idempotency-Key", "b"), 400, "invalid_argument")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", `"open`), 400, "invalid_argument")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "ключ"), 400, "invalid_argument")
	wantProblem(t, e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", strings.Repeat("k", 256)), 400, "invalid_argument")
	if n := e.Orders.Count(); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}

	p := wantProblem(t, e.do(t, "POST", "/api/v1/orders", strings.Replace(orderBody, "510", "1", 1), "Idempotency-Key", "k-2"), 409, "price_changed")
	if p.Metadata["total"] != "510" {
		t.Errorf("price_changed does not say the total: %+v", p)
	}
	p = wantProblem(t, e.do(t, "POST", "/api/v1/orders", strings.Replace(orderBody, "85123A", "unknown", 1), "Idempotency-Key", "k-3"), 404, "not_found")
	if p.Metadata["product_id"] != "unknown" {
		t.Errorf("not_found does not name the product: %+v", p)
	}
}

// Field report 30.
func TestPlaceOrder_RefusesQuantitiesThatAreNone(t *testing.T) {
	e := newEdge(t, options{})
	for _, quantity := range []string{"-1", "0", "1.5", `"1"`, "2147483648", "9223372036854775808", "null", "true", "1e3", "[]"} {
		body := strings.Replace(orderBody, `"quantity":2`, `"quantity":`+quantity, 1)
		p := wantProblem(t, e.do(t, "POST", "/api/v1/orders", body, "Idempotency-Key", "k-"+quantity), 400, "invalid_argument")
		if len(p.Errors) == 0 || p.Errors[0].Field != "lines[0].quantity" {
			t.Errorf("quantity %s: the problem does not name the field: %+v", quantity, p)
		}
	}
	if n := e.Orders.Count(); n != 0 {
		t.Errorf("%d orders, want none", n)
	}
}

// Field report 49.
func TestPlaceOrder_RefusesWhatItDoesNotKnow(t *testing.T) {
	e := newEdge(t, options{})
	for name, body := range map[string]string{
		"unknown field":    strings.Replace(orderBody, `{`, `{"admin":true,`, 1),
		"repeated key":     strings.Replace(orderBody, `{`, `{"currency":"EUR",`, 1),
		"different case":   strings.Replace(orderBody, `"currency"`, `"Currency"`, 1),
		"trailing JSON":    orderBody + `{"x":1}`,
		"trailing bracket": orderBody + "]",
		"not JSON":         "quantity=1",
		"no body":          "",
		"invalid UTF-8":    strings.Replace(orderBody, "c-1", "c-\xff", 1),
		"NUL in a name":    strings.Replace(orderBody, "c-1", `c-\u0000`, 1),
		"no lines":         `{"customer_id":"c-1","currency":"GBP","lines":[],"payment_token":"tok_ok"}`,
		"no customer":      strings.Replace(orderBody, `"customer_id":"c-1",`, "", 1),
		"long customer":    strings.Replace(orderBody, "c-1", strings.Repeat("c", 129), 1),
		"no such currency": strings.Replace(orderBody, "GBP", "gbp", 1),
		"too many lines":   strings.Replace(orderBody, `[{`, `[`+strings.Repeat(`{"product_id":"a","quantity":1},`, 1200)+`{`, 1),
	} {
		a := e.do(t, "POST", "/api/v1/orders", body, "Idempotency-Key", "k")
		p := wantProblem(t, a, 400, "invalid_argument")
		if len(p.Errors) == 0 {
			t.Errorf("%s: no field is named: %s", name, a.Body)
		}
	}
	if n := e.Orders.Count(); n != 0 {
		t.Errorf("%d orders, want none", n)
	}
}

// Field report 32, the edge's part.
func TestPlaceOrder_ParallelRepeatsAreOneOrder(t *testing.T) {
	e := newEdge(t, options{})
	var wg sync.WaitGroup
	bodies := make([]string, 50)
	for i := range bodies {
		wg.Go(func() {
			a, err := e.try(t.Context(), "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "same")
			if err != nil || a.Status != 201 {
				t.Errorf("got %d %s %v", a.Status, a.Body, err)
			}
			bodies[i] = a.Body
		})
	}
	wg.Wait()
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("answers differ: %s and %s", bodies[0], b)
		}
	}
	if n := e.Orders.Count(); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
}

// Field report 48.
func TestQuery_OddPageSizesAre400(t *testing.T) {
	e := newEdge(t, options{})
	for _, size := range []string{"-1", "0", "2147483648", "9223372036854775808", "1e9", "", "abc", "101", "5&page_size=5"} {
		p := wantProblem(t, e.get(t, "/api/v1/products?page_size="+size), 400, "invalid_argument")
		if len(p.Errors) != 1 || p.Errors[0].Field != "page_size" {
			t.Errorf("page_size=%s: the problem does not name it: %+v", size, p)
		}
	}
	wantProblem(t, e.get(t, "/api/v1/products?q=%ff"), 400, "invalid_argument")
	wantProblem(t, e.get(t, "/api/v1/products?%zz"), 400, "invalid_argument")
	if n := e.Search.Calls.Load(); n != 0 {
		t.Errorf("search was asked %d times", n)
	}
}

// Field report 48.
func TestIDs_OddOnesAreTheClientsFault(t *testing.T) {
	e := newEdge(t, options{})
	for _, id := range []string{
		strings.Repeat("-", 36), "..%2Fx", "%2e%2e%2fx", "%00", "%ff", "%20", "1", strings.Repeat("9",
			5000), "'%20OR%201=1", "00000000-0000-0000-0000-00000000000g",
		"%E2%98%83", "a%0d%0ab", "x%2Fevents", "00000000-0000-4000-8000-999999999999",
	} {
		for _, path := range []string{"/api/v1/orders/" + id, "/api/v1/orders/" + id + "/events", "/api/v1/products/" + id} {
			if a := e.get(t, path); a.Status != 400 && a.Status != 404 {
				t.Errorf("GET %s = %d, want 400 or 404: %s", path, a.Status, a.Body)
			}
		}
	}
	for _, path := range []string{"/api/v1/orders/../x", "/api/v1/products/..", "/api/v1/products/", "/api/v1/products/."} {
		a := e.raw(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if a.Status != 404 {
			t.Errorf("GET %s = %d, want 404: %s", path, a.Status, a.Body)
		}
	}
	for _, line := range e.Log.All() {
		if strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("logged as our error: %s", line)
		}
	}
}

// Field report 53.
func TestPlaceOrder_HasOnePathAndNoRedirects(t *testing.T) {
	e := newEdge(t, options{})
	for _, path := range []string{"//orders", "/a/../orders", "//api/v1/orders", "/api//v1/orders", "/api/v1/orders/", "/api/v1/./orders",
		"/api/v1/x/../orders", "/api/v1/orders/.", "/api/v1/%6frders/", "/api", "/api/", "/api/v1/orders%2F", "http://other/api/v1//orders"} {
		a := e.raw(t, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, len(orderBody), orderBody))
		if a.Status != 404 && a.Status != 405 {
			t.Errorf("POST %s = %d (Location %q), want 404 or 405: %s", path, a.Status, a.Header.Get("Location"), a.Body)
		}
	}
	if n := e.Checkout.Calls.Load(); n != 0 {
		t.Errorf("checkout was called %d times", n)
	}
}

func TestRoutes_UnknownPathsAndMethodsAreProblems(t *testing.T) {
	e := newEdge(t, options{})
	for _, path := range []string{"/nothing", "/api/v2/products", "/api/v1", "/", "/api/v1/faults", "/bridge", "/metrics"} {
		wantProblem(t, e.get(t, path), 404, "not_found")
	}
	for _, tc := range []struct{ method, path, allow string }{
		{"DELETE", "/api/v1/products", "GET, HEAD"}, {"PUT", "/api/v1/orders", "POST"}, {"GET", "/api/v1/orders", "POST"},
		{"BREW", "/api/v1/status", "GET, HEAD"}, {"POST", "/api/v1/orders/x/events", "GET, HEAD"}, {"OPTIONS", "/api/v1/orders", "POST"},
	} {
		a := e.do(t, tc.method, tc.path, "")
		wantProblem(t, a, 405, "method_not_allowed")
		if got := a.Header.Get("Allow"); got != tc.allow {
			t.Errorf("%s %s: Allow = %q, want %q", tc.method, tc.path, got, tc.allow)
		}
	}
	wantProblem(t, e.do(t, "PUT", "/api/v1/faults/recs", "{}"), 404, "not_found")
	a := e.raw(t, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if a.Status >= 500 {
		t.Errorf("OPTIONS * = %d", a.Status)
	}
}

func TestHEAD_AnswersAsGETWithoutABody(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	for _, path := range []string{"/api/v1/products", "/api/v1/products/P-1", "/api/v1/recommendations",
		"/api/v1/orders/00000000-0000-4000-8000-000000000001", "/api/v1/orders/00000000-0000-4000-8000-000000000001/events"} {
		a := e.do(t, "HEAD", path, "")
		if a.Status != 200 || a.Body != "" {
			t.Errorf("HEAD %s = %d %q", path, a.Status, a.Body)
		}
		if strings.HasSuffix(path, "events") {
			continue
		}
		if get := e.get(t, path); get.Header.Get("Content-Length") != a.Header.Get("Content-Length") {
			t.Errorf("HEAD %s: Content-Length %s, GET says %s", path, a.Header.Get("Content-Length"), get.Header.Get("Content-Length"))
		}
	}
}

type statusBody struct {
	Version, Design string
	Upstreams       []map[string]any
	Orders          map[string]*float64
	Services        []any
	Faults          []any
}

func TestStatus_HasTheShapeOfTheContract(t *testing.T) {
	e := newEdge(t, options{environ: []string{"CHECKOUT_TIMEOUT=2s", "CHECKOUT_BREAKER_OPEN=5s"}})
	e.order(t, "k-1")
	e.order(t, "k-1") // a replay is not another order
	a := e.get(t, "/api/v1/status")
	got := decode[statusBody](t, a)
	perSecond := got.Orders["per_second"]
	want := statusBody{
		Version: "test", Design: "split", Upstreams: got.Upstreams, Services: []any{}, Faults: []any{},
		Orders: map[string]*float64{"per_second": perSecond, "oldest_pending_seconds": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" || perSecond == nil || len(got.Upstreams) != 3 {
		t.Fatalf("status %s (-want +got):\n%s", a.Body, diff)
	}
	wantCheckout := map[string]any{
		"name": "checkout", "breaker": "closed", "in_flight": 0.0, "queued": 0.0,
		"limits": map[string]any{
			"scope": "per gateway replica", "max_in_flight": 64.0, "max_queue": 64.0, "max_streams": 256.0, "timeout_ms": 2000.0,
		},
		"outcomes": map[string]any{
			"ok": 2.0, "degraded": 0.0, "rejected_full": 0.0, "rejected_open": 0.0, "timed_out": 0.0, "failed": 0.0, "cancelled": 0.0,
		},
	}
	if diff := cmp.Diff(wantCheckout, got.Upstreams[0]); diff != "" {
		t.Errorf("checkout (-want +got):\n%s", diff)
	}
	eventually(t, "the order shows in the rate", func() bool {
		rate := *decode[statusBody](t, e.get(t, "/api/v1/status")).Orders["per_second"]
		return rate > 0 && rate <= 1
	})
}

func TestAnswers_TellBrowsersWhatTheyMay(t *testing.T) {
	e := newEdge(t, options{})
	for _, a := range []answer{e.get(t, "/api/v1/products"), e.get(t, "/nothing"), e.order(t, "k")} {
		if a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Referrer-Policy") == "" {
			t.Errorf("headers: %v", a.Header)
		}
		csp := a.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") || !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("Content-Security-Policy: %q", csp)
		}
	}
	a := e.do(t, "POST", "/api/v1/orders", orderBody, "Idempotency-Key", "k-2", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	wantProblem(t, a, 403, "cross_origin")
	a = e.get(t, "/api/v1/products", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	for name := range a.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("a CORS header: %s", name)
		}
	}
	if n := e.Orders.Count(); n != 1 {
		t.Errorf("%d orders, want only the one of this site", n)
	}
}

func TestGuard_WrapsEachRouteWithItsFeatureInsideTheDeadline(t *testing.T) {
	var mu sync.Mutex
	features := map[string]string{}
	e := newEdge(t, options{guard: func(feature string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, ok := r.Context().Deadline(); !ok {
				t.Errorf("%s: no deadline", r.URL.Path)
			}
			mu.Lock()
			features[r.Method+" "+r.URL.Path] = feature
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}})
	e.order(t, "k")
	for _, path := range []string{"/api/v1/products", "/api/v1/products/P-1", "/api/v1/recommendations", "/api/v1/status"} {
		e.get(t, path)
	}
	want := map[string]string{"POST /api/v1/orders": "checkout", "GET /api/v1/products": "search", "GET /api/v1/products/P-1": "search",
		"GET /api/v1/recommendations": "recs"}
	if diff := cmp.Diff(want, features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}
