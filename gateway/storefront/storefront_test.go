package storefront_test

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// scripted is a shop whose answers a test decides. A product costs what its price says.
type scripted struct {
	mu        sync.Mutex
	products  []shop.Product
	orders    map[string]shop.Order
	keys      map[string]string
	searchErr error
	recsDown  bool
	placeErr  error
	placed    []shop.NewOrder
	queries   []shop.Query
}

func (s *scripted) Search(_ context.Context, q shop.Query) (shop.Results, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, q)
	if s.searchErr != nil {
		return shop.Results{}, s.searchErr
	}
	if q.PageToken != "" && q.PageToken != "more&more" {
		return shop.Results{}, rpcerr.Invalid("page_token", "was not made for this query")
	}
	r := shop.Results{Total: int64(len(s.products)), Categories: []shop.Category{{Name: "Kitchen & Co", Products: 20}, {Name: "Toys", Products: 4}}, Products: s.products}
	if q.PageToken == "" {
		r.NextPageToken = "more&more"
	}
	return r, nil
}

func (s *scripted) ProductPage(_ context.Context, id string) (shop.ProductPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.searchErr != nil {
		return shop.ProductPage{}, s.searchErr
	}
	if len(id) > 64 {
		return shop.ProductPage{}, rpcerr.Invalid("ids[0]", "must be at most 64 characters")
	}
	for _, p := range s.products {
		if p.ID != id {
			continue
		}
		page := shop.ProductPage{Product: p}
		if s.recsDown {
			page.Degraded = []string{shop.Recs}
			return page, nil
		}
		for _, other := range s.products[:min(8, len(s.products))] {
			page.Recommendations = append(page.Recommendations, shop.Recommendation{Product: other, Score: 0.5})
		}
		return page, nil
	}
	return shop.ProductPage{}, rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no product with this id")
}

func (s *scripted) PlaceOrder(_ context.Context, key string, o shop.NewOrder) (shop.Order, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placed = append(s.placed, o)
	if s.placeErr != nil {
		return shop.Order{}, false, s.placeErr
	}
	if id, ok := s.keys[o.CustomerID+"\x00"+key]; ok {
		return s.orders[id], true, nil
	}
	order := shop.Order{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(s.orders)+1), CustomerID: o.CustomerID, Status: shop.Pending, Currency: o.Currency}
	for _, l := range o.Lines {
		for _, p := range s.products {
			if p.ID == l.ProductID {
				order.Lines = append(order.Lines, shop.OrderLine{ProductID: p.ID, Name: p.Name, Quantity: l.Quantity, UnitPrice: p.Price.Minor, LineTotal: p.Price.Minor * l.Quantity})
				order.Total += p.Price.Minor * l.Quantity
			}
		}
	}
	if order.Total != *o.ExpectedTotal {
		return shop.Order{}, false, rpcerr.New(codes.FailedPrecondition, rpcerr.PriceChanged, "the total has changed", rpcerr.Meta("total", strconv.FormatInt(order.Total, 10)))
	}
	s.orders[order.ID], s.keys[o.CustomerID+"\x00"+key] = order, order.ID
	return order, false, nil
}

func (s *scripted) Order(_ context.Context, id string) (shop.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.orders[id]; ok {
		return o, nil
	}
	if len(id) != 36 {
		return shop.Order{}, rpcerr.Invalid("order_id", "must be a UUID")
	}
	return shop.Order{}, rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no order with this id")
}

// hostile is an id and a name that would break a page that took them at their word.
const (
	hostileID   = `a/b?c=d#e%2F&"'<éü€>`
	hostileName = `"><script>alert(1)</script><img src=x onerror=alert(2)> mug`
)

func newScripted() *scripted {
	s := &scripted{orders: map[string]shop.Order{}, keys: map[string]string{}}
	for i := range 24 {
		s.products = append(s.products, shop.Product{
			ID: fmt.Sprintf("KIT-%04d", i), Name: fmt.Sprintf("Harbour Blue Mixing Bowl %d", i), Description: "A heavy bowl.", Category: "Kitchen & Co",
			Price: shop.Money{Currency: "GBP", Minor: 1450},
		})
	}
	s.products[3].ID, s.products[3].Name = hostileID, hostileName
	s.products[4].Price.Currency = "EUR"
	return s
}

func newPages(tb testing.TB, s storefront.Shop) *browser {
	tb.Helper()
	front, err := storefront.New(s, storefront.Budgets{Checkout: time.Second, Search: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range front.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	return browse(tb, mux)
}

// newEdge is the storefront inside the real edge, with real services behind it.
func newEdge(tb testing.TB) (*browser, *shoptest.Services) {
	tb.Helper()
	services := shoptest.Start(tb)
	type settings struct {
		HTTP      gateway.Config
		Upstreams gateway.UpstreamsConfig
	}
	cfg, err := config.Load[settings]([]string{
		"CHECKOUT_ADDR=" + services.Checkout.Target(), "SEARCH_ADDR=" + services.Search.Target(), "RECS_ADDR=" + services.Recs.Target(),
		"CHECKOUT_TIMEOUT=20s", "SEARCH_TIMEOUT=20s", "RECS_TIMEOUT=20s", "CHECKOUT_BREAKER_OPEN=30s", "SEARCH_BREAKER_OPEN=30s", "RECS_BREAKER_OPEN=30s",
	})
	if err != nil {
		tb.Fatal(err)
	}
	tracers, meters, log := nooptrace.NewTracerProvider(), noopmetric.NewMeterProvider(), slog.New(slog.DiscardHandler)
	upstreams, err := gateway.Connect(cfg.Upstreams, rpc.ClientDeps{TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{}}, prometheus.NewRegistry())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := upstreams.Close(context.Background()); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	shopOf := shop.New(upstreams.Backends(log))
	budgets := cfg.Upstreams.Budgets()
	front, err := storefront.New(shopOf, storefront.Budgets{Checkout: budgets.Checkout, Search: budgets.Search})
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := gateway.NewHandler(cfg.HTTP, gateway.Deps{
		Shop: shopOf, Budgets: budgets, Upstreams: upstreams.Status, Draining: make(chan struct{}), Storefront: front.Routes(),
		Log: log, TracerProvider: tracers, MeterProvider: meters, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return browse(tb, handler), services
}

func unavailable() error {
	return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "dial tcp 10.0.0.7:50052: connection refused", rpcerr.RetryAfter(1500*time.Millisecond))
}

// TestStorefront_FromSearchToOrderWithoutScripts goes the whole way through the real edge. The services charge 255 a piece
// and show less, so that the price changes on the way.
func TestStorefront_FromSearchToOrderWithoutScripts(t *testing.T) {
	b, services := newEdge(t)
	found := b.get("/").wants(http.StatusOK).form("Search").with("q", "number 7").send().wants(http.StatusOK).says("Results for “number 7”", "Product number 7", "£1.07")
	product := found.follow("Product number 7").wants(http.StatusOK).says("£1.07", "Often bought together", "Product number 2")
	basket := product.form("Add to basket").with("quantity", "2").send().wants(http.StatusOK).says("is in your basket", "£2.14")
	if basket.Address.Path != "/basket" {
		t.Errorf("after adding: at %s, want the basket by redirect", basket.Address)
	}
	basket = basket.form("Update the quantity of Product number 7").with("quantity", "3").send().wants(http.StatusOK).says("£3.21")
	refused := basket.follow("Go to checkout").wants(http.StatusOK).form("Place the order").send().wants(http.StatusConflict)
	refused.says("The price has changed", "It was £3.21", "is £7.65 now")
	if got := services.Orders.Count(); got != 0 {
		t.Fatalf("orders before the new price was agreed to: got %d, want 0", got)
	}
	order := refused.form("Order at the new price").send().wants(http.StatusOK).says("We have your order", "£7.65", "3 × £2.55")
	if !strings.HasPrefix(order.Address.Path, "/orders/") {
		t.Fatalf("after ordering: at %s, want the order by redirect", order.Address)
	}
	if !strings.Contains(order.Body, `<noscript><meta http-equiv="refresh"`) {
		t.Error("a pending order's page does not load again without scripts")
	}
	b.get("/basket").wants(http.StatusOK).says("There is nothing in it yet")

	services.Orders.Change(strings.TrimPrefix(order.Address.Path, "/orders/"), checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED)
	done := b.get(order.Address.Path).wants(http.StatusOK).says("Thank you!")
	if strings.Contains(done.Body, "http-equiv") || len(all(done.Root, "script")) > 0 {
		t.Error("a final order's page still waits for changes")
	}
	if got := services.Orders.Count(); got != 1 {
		t.Errorf("orders: got %d, want 1", got)
	}
}

func TestStorefront_AnotherSitesFormIsRefused(t *testing.T) {
	b, services := newEdge(t)
	form := b.get("/products/P-1").form("Add to basket").send().follow("Go to checkout").form("Place the order")
	b.headers.Set("Sec-Fetch-Site", "cross-site")
	form.send().wants(http.StatusForbidden)
	if got := services.Orders.Count(); got != 0 {
		t.Errorf("orders: got %d, want 0", got)
	}
}

func TestStorefront_SearchAwayLeavesOrderingUntouched(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	b.get("/products/KIT-0001").form("Add to basket").send().wants(http.StatusOK)
	for name, err := range map[string]error{
		"refused": unavailable(), "breaker open": rpcerr.New(codes.Unavailable, rpcerr.BreakerOpen, "open"), "too slow": status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		"broken": errors.New(`ERROR: relation "products" does not exist (SQLSTATE 42P01)`),
	} {
		s.searchErr = err
		for _, address := range []string{"/", "/?q=bowl", "/products/KIT-0001"} {
			down := b.get(address)
			want := map[string]int{"too slow": http.StatusGatewayTimeout, "broken": http.StatusInternalServerError}[name]
			down.wants(cmp.Or(want, http.StatusServiceUnavailable)).says("Ordering still works")
			if wrong := faults(down); wrong != nil {
				t.Errorf("%s, %s: %v", name, address, wrong)
			}
			seconds, err := strconv.Atoi(down.Header.Get("Retry-After"))
			if name != "broken" && (err != nil || seconds < 1) {
				t.Errorf("%s, %s: Retry-After %q, want whole seconds from 1", name, address, down.Header.Get("Retry-After"))
			}
			for _, inside := range []string{"dial", "SQLSTATE", "rpc error", "10.0.0.7", "deadline"} {
				if strings.Contains(down.Body, inside) {
					t.Errorf("%s, %s: the page says %q", name, address, inside)
				}
			}
		}
	}
	order := b.get("/basket").wants(http.StatusOK).says("£14.50").follow("Go to checkout").wants(http.StatusOK).form("Place the order").send()
	order.wants(http.StatusOK).says("We have your order")
}

func TestProduct_DegradedIsSaidAndKeepsThePage(t *testing.T) {
	s := newScripted()
	s.recsDown = true
	page := newPages(t, s).get("/products/KIT-0001").wants(http.StatusOK).says("No suggestions just now", "Add to basket")
	if got := page.Header.Get(gateway.DegradedHeader); got != shop.Recs {
		t.Errorf("%s: got %q, want %q", gateway.DegradedHeader, got, shop.Recs)
	}
	if wrong := faults(page); wrong != nil {
		t.Error(wrong)
	}
}

func TestCatalog_FacetsAndPagesKeepTheQuery(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	kitchen := b.get("/?q=a%26b+%22c").wants(http.StatusOK).follow("Kitchen & Co").wants(http.StatusOK)
	next := kitchen.follow("Next page").wants(http.StatusOK)
	next.follow("First page").wants(http.StatusOK)
	want := shop.Query{Text: `a&b "c`, Category: "Kitchen & Co", PageSize: 24, PageToken: "more&more"}
	if got := s.queries[2]; got != want {
		t.Errorf("query of the second page: got %+v, want %+v", got, want)
	}
	if got := attr(next.form("Search").page.input("q"), "value"); got != `a&b "c` {
		t.Errorf("search box: got %q", got)
	}
	for _, address := range []string{"/?page_token=forged", "/?q=a&q=b", "/?q=%ff", "/?q=%zz"} {
		if wrong := faults(b.get(address).wants(http.StatusBadRequest)); wrong != nil {
			t.Errorf("%s: %v", address, wrong)
		}
	}
}

func TestPages_HoldTheStandard(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	pages := map[string]page{"catalog": b.get("/").wants(http.StatusOK), "product": b.get("/products/KIT-0001").wants(http.StatusOK), "empty basket": b.get("/basket").wants(http.StatusOK)}
	pages["basket"] = pages["product"].form("Add to basket").send().wants(http.StatusOK)
	pages["checkout"] = pages["basket"].follow("Go to checkout").wants(http.StatusOK)
	pages["mended"] = pages["checkout"].form("Place the order").with("customer_id", "no spaces please").send().wants(http.StatusBadRequest).says("The customer number must have")
	pages["order"] = pages["checkout"].form("Place the order").send().wants(http.StatusOK)
	pages["nowhere"] = b.get("/nowhere").wants(http.StatusNotFound)
	pages["no product"] = b.get("/products/none").wants(http.StatusNotFound).says("We do not have this product")
	pages["odd product"] = b.get("/products/" + strings.Repeat("-", 300)).wants(http.StatusNotFound)
	pages["no order"] = b.get("/orders/" + strings.Repeat("0", 36)).wants(http.StatusNotFound).says("We do not know this order")
	pages["odd order"] = b.get("/orders/..%2F..%2Fetc%2Fpasswd").wants(http.StatusNotFound)
	for name, p := range pages {
		if wrong := faults(p); wrong != nil {
			t.Errorf("%s: %v", name, strings.Join(wrong, "; "))
		}
		if got := p.Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q, want no-store: it shows this visitor's basket", name, got)
		}
	}
	for status, words := range map[shop.Status]string{
		shop.Pending: "setting everything aside", shop.AwaitingPayment: "waiting for your payment", shop.Confirmed: "Thank you!",
		shop.Rejected: "not enough in stock", shop.Cancelled: "was cancelled", "delivered": "being looked after",
	} {
		s.orders["00000000-0000-4000-8000-000000000009"] = shop.Order{ID: "00000000-0000-4000-8000-000000000009", Status: status, Reason: "<b>because</b>", Currency: "GBP"}
		if wrong := faults(b.get("/orders/00000000-0000-4000-8000-000000000009").wants(http.StatusOK).says(words, "<b>because</b>")); wrong != nil {
			t.Errorf("%s: %v", status, wrong)
		}
	}
}

// The page, with its style in it, and all that it asks for fit together into what a server may send before it hears back.
func TestPages_FitIntoTheFirstFlight(t *testing.T) {
	const firstFlight = 10 * 1460
	s := newScripted()
	for i := range s.products { // as long as the contract lets them be, and all different
		s.products[i].Name = (fmt.Sprintf("%x Lantern ", i*7919) + strings.Repeat("Hand Painted ", 25))[:256]
	}
	b := newPages(t, s)
	b.headers.Set("Accept-Encoding", "gzip") // set by hand, it is not undone by the client
	var sent int
	page := b.get("/")
	sent += len(page.Body)
	plain, err := gzip.NewReader(strings.NewReader(page.Body))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	if len(content) > 100<<10 {
		t.Errorf("page: %d bytes before compression, want at most 100 KiB", len(content))
	}
	b.headers.Del("Accept-Encoding")
	for _, address := range staticAddresses(b.get("/")) {
		b.headers.Set("Accept-Encoding", "gzip")
		sent += len(b.get(address).wants(http.StatusOK).Body)
	}
	if sent > firstFlight {
		t.Errorf("page and style: %d bytes on the wire, want at most %d", sent, firstFlight)
	}
}

func TestPages_HostileNamesStayText(t *testing.T) {
	b := newPages(t, newScripted())
	product := b.get("/").wants(http.StatusOK).follow(hostileName).wants(http.StatusOK).says(hostileName, hostileID)
	basket := product.form("Add to basket").send().wants(http.StatusOK).says(hostileName[:50])
	checkout := basket.follow("Go to checkout").wants(http.StatusOK)
	order := checkout.form("Place the order").send().wants(http.StatusOK).says(hostileName)
	for _, p := range []page{product, basket, checkout, order, b.get("/basket?added=<script>alert(1)</script>").wants(http.StatusOK)} {
		if wrong := faults(p); wrong != nil {
			t.Errorf("%s: %v", p.Address, wrong)
		}
		if strings.Contains(p.Body, "<script>") || strings.Contains(p.Body, "<img") {
			t.Errorf("%s: the name became markup", p.Address)
		}
	}
	order.follow(hostileName).wants(http.StatusOK)
}

func TestStorefront_OddAddressesGetAPageFromTheEdgeToo(t *testing.T) {
	b, _ := newEdge(t)
	for _, address := range []string{
		"/products/" + url.PathEscape(hostileID), "/products/" + strings.Repeat("x", 200), "/products/%00", "/products/%ff", "/products/..%2f..%2fetc",
		"/orders/none", "/orders/" + strings.Repeat("-", 36), "/orders/%ff", "/nowhere", "/static/none.css",
	} {
		if wrong := faults(b.get(address).wants(http.StatusNotFound)); wrong != nil {
			t.Errorf("%s: %v", address, wrong)
		}
	}
	for _, address := range []string{"/?q=" + strings.Repeat("x", 300), "/?q=%ff", "/?page_token=forged", "/?category=%00"} {
		if wrong := faults(b.get(address).wants(http.StatusBadRequest)); wrong != nil {
			t.Errorf("%s: %v", address, wrong)
		}
	}
	if head := b.do(http.MethodHead, "/", nil).wants(http.StatusOK); head.Header.Get("Content-Security-Policy") == "" || head.Body != "" {
		t.Errorf("HEAD /: policy %q, body %q", head.Header.Get("Content-Security-Policy"), head.Body)
	}
}

func TestBasket_RefusesWhatNobodyCanOrder(t *testing.T) {
	b := newPages(t, newScripted())
	add := func() form { return b.get("/products/KIT-0001").form("Add to basket") }
	for _, quantity := range []string{"", "0", "-1", "1.5", "1e3", "abc", "100001", "2147483648", "9223372036854775808"} {
		page := add().with("quantity", quantity).send().wants(http.StatusBadRequest).says("The quantity must be a whole number")
		if wrong := faults(page); wrong != nil {
			t.Errorf("quantity %q: %v", quantity, wrong)
		}
	}
	for field, value := range map[string]string{"product_id": "", "name": "", "price": "-1", "currency": "pounds"} {
		add().with(field, value).send().wants(http.StatusBadRequest).says("cannot be put into a basket")
	}
	add().with("product_id", "a\x00b").send().wants(http.StatusBadRequest)
	add().with("name", "\xff").send().wants(http.StatusBadRequest)
	add().with("action", "explode").send().wants(http.StatusBadRequest)
	b.get("/basket").wants(http.StatusOK).says("There is nothing in it yet")

	add().with("quantity", "99999").send().wants(http.StatusOK)
	add().with("quantity", "2").send().wants(http.StatusBadRequest).says("The quantity must be")
	b.get("/products/KIT-0004").form("Add to basket").send().wants(http.StatusBadRequest).says("another currency")
	b.get("/basket").wants(http.StatusOK).form("Remove").send().wants(http.StatusOK).says("There is nothing in it yet")
	b.do(http.MethodPost, "/basket", url.Values{"action": {strings.Repeat("x", 1<<20)}}).wants(http.StatusRequestEntityTooLarge)
}

func TestBasket_IsFullBeforeTheCookieIs(t *testing.T) {
	b := newPages(t, newScripted())
	form := b.get("/products/KIT-0001").form("Add to basket").with("name", strings.Repeat("€", 200))
	for i := range 100 {
		page := form.with("product_id", fmt.Sprintf("%s-%d", strings.Repeat("é", 40), i)).send()
		if page.Status == http.StatusBadRequest {
			page.says("Your basket is full")
			page.get("/basket").wants(http.StatusOK).says("Go to checkout")
			if i < 5 {
				t.Errorf("full after %d products", i)
			}
			return
		}
		page.wants(http.StatusOK)
	}
	t.Error("100 products with long names went into one cookie")
}

func TestBasket_ForgedCookiesHarmNobody(t *testing.T) {
	s := newScripted()
	for name, value := range map[string]string{
		"garbage": "!!!", "not JSON": "bm90IGpzb24", "a number": "MQ", "huge": strings.Repeat("A", 8000),
		"negative quantity": "eyJjIjoiR0JQIiwibCI6W3siaSI6IkEiLCJuIjoiQSIsInAiOjEsInEiOi01fV19", // {"c":"GBP","l":[{"i":"A","n":"A","p":1,"q":-5}]}
		"overflow":          "eyJjIjoiR0JQIiwibCI6W3siaSI6IkEiLCJuIjoiQSIsInAiOjkyMjMzNzIwMzY4NTQ3NzU4MDcsInEiOjJ9XX0",
	} {
		b := newPages(t, s)
		base, err := url.Parse(b.base)
		if err != nil {
			t.Fatal(err)
		}
		b.client.Jar.SetCookies(base, []*http.Cookie{{Name: "basket", Value: value, Path: "/"}, {Name: "customer", Value: "<script>", Path: "/"}})
		b.get("/").wants(http.StatusOK)
		if got := b.get("/checkout").wants(http.StatusOK).Address.Path; got != "/basket" {
			t.Errorf("%s: checkout led to %s, want the basket", name, got)
		}
		b.client.Jar.SetCookies(base, []*http.Cookie{{Name: "basket", Value: value, Path: "/"}})
		b.get("/basket").wants(http.StatusOK).says("could not be read")
		if text := text(b.get("/basket").wants(http.StatusOK).Root); strings.Contains(text, "could not be read") {
			t.Errorf("%s: the damaged cookie was kept", name)
		}
	}
}

func TestBasket_CookieIsOutOfReachOfScriptsAndOtherSites(t *testing.T) {
	front, err := storefront.New(newScripted(), storefront.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range front.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	form := url.Values{"action": {"add"}, "product_id": {"A"}, "name": {"A"}, "price": {"1"}, "currency": {"GBP"}, "quantity": {"1"}}
	for proto, secure := range map[string]bool{"http": false, "https": true} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/basket", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", proto)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if len(w.Result().Cookies()) != 1 {
			t.Fatalf("status %d, cookies %v", w.Code, w.Result().Cookies())
		}
		if c := w.Result().Cookies()[0]; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure != secure {
			t.Errorf("over %s: HttpOnly %v, SameSite %v, Secure %v", proto, c.HttpOnly, c.SameSite, c.Secure)
		}
	}
}

func TestCheckout_SentTwiceIsOneOrder(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	form := b.get("/products/KIT-0001").form("Add to basket").send().follow("Go to checkout").form("Place the order")
	first, second := form.send().wants(http.StatusOK), form.send().wants(http.StatusOK) // the second without a basket in the cookie
	if first.Address.Path != second.Address.Path || len(s.orders) != 1 {
		t.Errorf("sent twice: %s and %s, %d orders", first.Address, second.Address, len(s.orders))
	}
	again := b.get("/products/KIT-0001").form("Add to basket").send().follow("Go to checkout").form("Place the order")
	if again.values.Get("idempotency_key") == form.values.Get("idempotency_key") {
		t.Error("two forms have one key")
	}
	if got, want := again.values.Get("customer_id"), form.values.Get("customer_id"); got != want {
		t.Errorf("customer of the next form: got %q, want %q as before", got, want)
	}
	if again.send().wants(http.StatusOK); len(s.orders) != 2 {
		t.Errorf("orders: got %d, want 2", len(s.orders))
	}
}

func TestCheckout_OrdersWhatWasShownAndLeavesTheRest(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	form := b.get("/products/KIT-0001").form("Add to basket").with("quantity", "2").send().follow("Go to checkout").form("Place the order").with("payment_token", "tok_slow")
	b.get("/products/KIT-0001").form("Add to basket").send() // in another tab
	b.get("/products/KIT-0002").form("Add to basket").send()
	form.send().wants(http.StatusOK)
	got := s.placed[0]
	if len(got.Lines) != 1 || got.Lines[0] != (shop.NewLine{ProductID: "KIT-0001", Quantity: 2}) || *got.ExpectedTotal != 2900 || got.PaymentToken != "tok_slow" {
		t.Errorf("ordered %+v, expected total %d", got, *got.ExpectedTotal)
	}
	b.get("/basket").says("£29.00", "Harbour Blue Mixing Bowl 2")
}

func TestCheckout_RefusalsAreShownOnTheForm(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		status  int
		words   string
		sameKey bool // because nobody knows whether there is an order
	}{
		"checkout away":   {unavailable(), http.StatusServiceUnavailable, "it is ordered once", true},
		"too slow":        {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), http.StatusGatewayTimeout, "it is ordered once", true},
		"broken":          {errors.New("SQLSTATE 40001"), http.StatusInternalServerError, "it is ordered once", true},
		"too many":        {rpcerr.New(codes.ResourceExhausted, rpcerr.RateLimited, "slow down"), http.StatusTooManyRequests, "it is ordered once", true},
		"product gone":    {rpcerr.New(codes.NotFound, rpcerr.NotFound, "no", rpcerr.Meta("product_id", "KIT-0001")), http.StatusNotFound, "“Harbour Blue Mixing Bowl 1” is no longer sold", false},
		"key used before": {rpcerr.New(codes.AlreadyExists, rpcerr.IdempotencyKeyReused, "reused"), http.StatusUnprocessableEntity, "used for another order", false},
		"invalid":         {rpcerr.Invalid("lines", "too odd"), http.StatusBadRequest, "could not be taken as it is", false},
	} {
		s := newScripted()
		b := newPages(t, s)
		form := b.get("/products/KIT-0001").form("Add to basket").send().follow("Go to checkout").form("Place the order")
		s.placeErr = tc.err
		refused := form.send().wants(tc.status).says(tc.words, "Harbour Blue Mixing Bowl 1", "£14.50")
		if wrong := faults(refused); wrong != nil || strings.Contains(refused.Body, "SQLSTATE") || strings.Contains(refused.Body, "dial") {
			t.Errorf("%s: %v", name, wrong)
		}
		again := refused.form("Place the order")
		if same := again.values.Get("idempotency_key") == form.values.Get("idempotency_key"); same != tc.sameKey {
			t.Errorf("%s: same key %v, want %v", name, same, tc.sameKey)
		}
		if tc.status == http.StatusServiceUnavailable && refused.Header.Get("Retry-After") != "2" {
			t.Errorf("%s: Retry-After %q, want 2 (1.5 s, rounded up)", name, refused.Header.Get("Retry-After"))
		}
		s.placeErr = nil
		again.send().wants(http.StatusOK).says("We have your order")
	}
}

func TestCheckout_FormsThatAreNotOursAreRefused(t *testing.T) {
	s := newScripted()
	b := newPages(t, s)
	fresh := func() form {
		return b.get("/products/KIT-0001").form("Add to basket").send().follow("Go to checkout").form("Place the order")
	}
	for field, values := range map[string][]string{
		"idempotency_key": {"", strings.Repeat("k", 256), "a\nb"}, "expected_total": {"", "-1", "1.5", "9223372036854775808"},
		"quantity": {"0", "-1", "x", "100001"}, "price": {"-1", "9223372036854775807"}, "currency": {"", "gbp"}, "product_id": {""},
		"customer_id": {"", "a b", strings.Repeat("c", 65), "ü"}, "payment_token": {"", "tok_stolen"},
	} {
		for _, value := range values {
			page := fresh().with(field, value).send().wants(http.StatusBadRequest)
			if wrong := faults(page); wrong != nil {
				t.Errorf("%s=%q: %v", field, value, wrong)
			}
		}
	}
	b.do(http.MethodPost, "/checkout", url.Values{}).wants(http.StatusBadRequest)
	b.do(http.MethodPost, "/checkout", url.Values{"product_id": {"a", "b"}, "quantity": {"1"}, "price": {"1"}, "name": {"x"}}).wants(http.StatusBadRequest)
	if len(s.placed) != 0 {
		t.Errorf("%d of them reached the shop", len(s.placed))
	}
}

func TestStatic_FilesAreKeptByTheirHash(t *testing.T) {
	b := newPages(t, newScripted())
	for _, address := range staticAddresses(b.get("/")) {
		p := b.get(address).wants(http.StatusOK)
		if got := p.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %q", address, got)
		}
		if strings.Contains(p.Body, "http://") && !strings.Contains(address, ".svg") || strings.Contains(p.Body, "@import") || strings.Contains(p.Body, "url(") {
			t.Errorf("%s asks somebody else for something", address)
		}
	}
	other := b.get("/static/order.000000000000.js").wants(http.StatusOK) // another build's page
	if got := other.Header.Get("Cache-Control"); got != "no-cache" {
		t.Errorf("a file under another build's hash: Cache-Control %q, want no-cache", got)
	}
	for _, address := range []string{"/static/none.0.css", "/static/..%2Fstorefront.go", "/static/.css"} {
		b.get(address).wants(http.StatusNotFound)
	}
}

func TestStorefront_NeedsAShop(t *testing.T) {
	if _, err := storefront.New(nil, storefront.Budgets{}); err == nil {
		t.Error("no error without a shop")
	}
}

// staticAddresses are the static files that a page names.
func staticAddresses(p page) []string {
	var found []string
	for _, n := range all(p.Root, "*") {
		for _, name := range []string{"href", "src"} {
			if address := attr(n, name); strings.HasPrefix(address, "/static/") {
				found = append(found, address)
			}
		}
	}
	if len(found) < 1 {
		p.tb.Fatalf("%s names no static file", p.Address)
	}
	return found
}
