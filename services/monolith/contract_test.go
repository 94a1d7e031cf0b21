package monolith_test

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// volatile is what two answers to the same request may differ in.
var volatile = regexp.MustCompile(`"(id|order_id|created_at|updated_at|at|request_id|trace_id|instance)":"[^"]*"|[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{22}|[A-Z2-7]{26}`)

// request is one line of the comparison.
type request struct {
	method, path, body string
	header             []string
}

// comparison is what a client may ask, rightly and wrongly.
func comparison() map[string]request {
	key := []string{"Idempotency-Key", "k"}
	order := func(body string) request { return request{http.MethodPost, "/api/v1/orders", body, key} }
	get := func(path string) request { return request{http.MethodGet, path, "", nil} }
	return map[string]request{
		"products":                      get("/api/v1/products?q=number&page_size=3"),
		"a category":                    get("/api/v1/products?category=things&page_size=100"),
		"a page size that is too much":  get("/api/v1/products?page_size=101"),
		"a page token of nobody":        get("/api/v1/products?page_token=xyz"),
		"text that is not UTF-8":        get("/api/v1/products?q=%ff"),
		"a query that is too long":      get("/api/v1/products?q=" + strings.Repeat("x", 5000)),
		"a product":                     get("/api/v1/products/P-1"),
		"no such product":               get("/api/v1/products/none"),
		"a product id that is too long": get("/api/v1/products/" + strings.Repeat("x", 65)),
		"recommendations":               get("/api/v1/recommendations?product_id=P-1&limit=3"),
		"popular ones":                  get("/api/v1/recommendations"),
		"an id that is too long":        get("/api/v1/recommendations?product_id=" + strings.Repeat("x", 65)),
		"no such order":                 get("/api/v1/orders/00000000-0000-4000-8000-000000000000"),
		"no order id":                   get("/api/v1/orders/x"),
		"events of no order":            get("/api/v1/orders/00000000-0000-4000-8000-000000000000/events"),
		"an order":                      order(orderBody),
		"no key":                        {http.MethodPost, "/api/v1/orders", orderBody, nil},
		"a key that is too long":        {http.MethodPost, "/api/v1/orders", orderBody, []string{"Idempotency-Key", strings.Repeat("k", 300)}},
		"no body":                       order(""),
		"not JSON":                      order("{"),
		"an unknown field":              order(`{"x":1}`),
		"no lines":                      order(`{"customer_id":"c-1","currency":"GBP","lines":[],"payment_token":"tok_ok"}`),
		"two wrong fields":              order(`{"customer_id":"","currency":"pounds","lines":[{"product_id":"P-1","quantity":0}],"payment_token":"tok_ok"}`),
		"an unknown product":            order(`{"customer_id":"c-2","currency":"GBP","lines":[{"product_id":"none","quantity":1}],"payment_token":"tok_ok"}`),
		"another price":                 order(`{"customer_id":"c-3","currency":"GBP","lines":[{"product_id":"P-1","quantity":1}],"expected_total":1,"payment_token":"tok_ok"}`),
		"two lines beyond the limit":    order(`{"customer_id":"c-4","currency":"GBP","lines":[{"product_id":"P-1","quantity":99999},{"product_id":"P-1","quantity":2}],"payment_token":"tok_ok"}`),
		"a body that is too large":      order(strings.Repeat(" ", 1<<20+1)),
		"another method":                {http.MethodDelete, "/api/v1/orders", "", nil},
		"nothing there":                 get("/api/v1/nothing"),
		"faults when disabled":          get("/api/v1/faults"),
		"the start page":                get("/"),
		"a product's page":              get("/products/P-1"),
		"the page of no product":        get("/products/none"),
		"the page of no order":          get("/orders/00000000-0000-4000-8000-000000000000"),
		"a time that is up":             {http.MethodGet, "/api/v1/products", "", []string{"Grpc-Timeout", "1n"}},
	}
}

// The process that has every feature answers as the one that has none and calls them over the network.
func TestHTTP_IsTheSameWithAndWithoutANetwork(t *testing.T) {
	whole := open(t)
	front := run(t, "FEATURES=none", "CHECKOUT_ADDR=static:///"+whole.grpc, "SEARCH_ADDR=static:///"+whole.grpc, "RECS_ADDR=static:///"+whole.grpc)
	type seen struct {
		Status                                                       int
		ContentType, RetryAfter, Allow, Degraded, CacheControl, Body string
	}
	ask := func(s *shop, r request) seen {
		a := s.do(t, r.method, r.path, r.body, r.header...)
		return seen{a.status, a.header.Get("Content-Type"), a.header.Get("Retry-After"), a.header.Get("Allow"),
			a.header.Get("Watertight-Degraded"), a.header.Get("Cache-Control"), volatile.ReplaceAllString(a.body, `"$1":…`)}
	}
	for name, r := range comparison() {
		t.Run(name, func(t *testing.T) {
			local := r
			if name == "an order" { // of another customer each, or one would be the other's repeat
				local.body = strings.Replace(r.body, "c-1", "c-9", 1)
			}
			got, want := ask(whole, local), ask(front, r)
			got.Body = strings.Replace(got.Body, "c-9", "c-1", 1)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("over the network (-) and in the process (+):\n%s", diff)
			}
		})
	}
}

func TestHTTP_OrderIsPlacedOnceAndWatched(t *testing.T) {
	s := open(t)
	first, again := s.order(t, "k"), s.order(t, "k")
	if first.status != http.StatusCreated || again.status != http.StatusCreated || again.header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("got %d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	if first.body != again.body {
		t.Errorf("the repeat is another order:\n%s\n%s", first.body, again.body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+first.header.Get("Location")+"/events", nil)
	must(t, err)
	resp, err := s.client.Do(r)
	must(t, err)
	defer resp.Body.Close()
	buf, read := make([]byte, 4096), ""
	for !strings.Contains(read, `"status":"pending"`) {
		n, err := resp.Body.Read(buf)
		must(t, err)
		read += string(buf[:n])
	}
	if !strings.Contains(read, "id: 1\n") {
		t.Errorf("events: %q", read)
	}
}

// The trace of a request reaches the outbox: the call in between must not lose it.
func TestTrace_OfTheRequestIsInTheOutbox(t *testing.T) {
	s := open(t)
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	a := s.do(t, http.MethodPost, "/api/v1/orders", orderBody, "Idempotency-Key", "k", "Traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	if a.status != http.StatusCreated {
		t.Fatalf("order: %d %s", a.status, a.body)
	}
	conn, err := pgx.Connect(t.Context(), s.owners["checkout"])
	must(t, err)
	defer conn.Close(context.Background())
	var parent string
	must(t, conn.QueryRow(t.Context(), "SELECT traceparent FROM outbox").Scan(&parent))
	if !strings.Contains(parent, traceID) {
		t.Errorf("traceparent %q, want the trace %s", parent, traceID)
	}
}

func TestStatus_NamesTheDesignAndEachFeaturesLimits(t *testing.T) {
	for design, c := range map[string]struct {
		environ []string
		limits  map[string][2]int
	}{
		"shared-pool":      {nil, map[string][2]int{"checkout": {16, 32}, "search": {16, 32}, "recs": {16, 32}}},
		"pool-per-feature": {[]string{"POOLS=per-feature"}, map[string][2]int{"checkout": {4, 8}, "search": {6, 12}, "recs": {6, 12}}},
	} {
		t.Run(design, func(t *testing.T) {
			s := open(t, c.environ...)
			if a := s.get(t, "/api/v1/products/P-1"); a.status != http.StatusOK || a.header.Get("Watertight-Degraded") != "" {
				t.Fatalf("page: %d %s", a.status, a.body)
			}
			got := s.status(t)
			if got.Design != design {
				t.Errorf("design %q, want %q", got.Design, design)
			}
			limits := map[string][2]int{}
			for _, u := range got.Upstreams {
				limits[u.Name] = [2]int{u.Limits.MaxInFlight, u.Limits.MaxQueue}
			}
			if diff := cmp.Diff(c.limits, limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if ok := got.upstream(t, "search").Outcomes["ok"]; ok != 1 {
				t.Errorf("search has served %d requests, want 1", ok)
			}
			metrics := s.do(t, http.MethodGet, s.admin+"/metrics", "").body
			pools := []string{"shared"}
			if design != "shared-pool" {
				pools = []string{"checkout", "search", "recs"}
			}
			for _, pool := range pools {
				for _, want := range []string{"in_flight", "queued", "limit"} {
					if !strings.Contains(metrics, `watertight_bulkhead_`+want+`{pool="`+pool+`"}`) {
						t.Errorf("no metric %s of the pool %s", want, pool)
					}
				}
			}
			if strings.Contains(metrics, `pool="grpc"`) {
				t.Error("there is one pool more than the design has")
			}
		})
	}
}

func TestHTTP_RecommendationsOfAPageAreInIt(t *testing.T) {
	s := open(t)
	page := decode[struct {
		Recommendations []struct{ ID string }
		Degraded        []string
	}](t, s.get(t, "/api/v1/products/P-1"))
	if len(page.Recommendations) == 0 || len(page.Degraded) > 0 || slices.ContainsFunc(page.Recommendations, func(r struct{ ID string }) bool { return r.ID == "P-1" }) {
		t.Errorf("page: %+v, want other products recommended", page)
	}
}
