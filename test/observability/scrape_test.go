//go:build unix

package observability

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/watertight/test/shop"
)

// metric is one that the shop's processes show.
type metric struct {
	name      string
	kind      dto.MetricType
	help      string
	labels    map[string]map[string]bool // values by label
	processes map[string]bool
}

// route is what requests are counted by.
type route struct{ method, route string }

// visited are the requests that a scrape comes after, so that every route and every method has been used.
func visited() []route {
	return []route{
		{"GET", "/"}, {"GET", "/products/{id}"}, {"GET", "/orders/{id}"}, {"GET", "/api/v1/products"}, {"GET", "/api/v1/products/{id}"},
		{"GET", "/api/v1/recommendations"}, {"POST", "/api/v1/orders"}, {"GET", "/api/v1/orders/{id}"}, {"GET", "/api/v1/orders/{id}/events"},
		{"GET", "/api/v1/status"}, {"GET", "/api/v1/faults"}, {"PUT", "/api/v1/faults/{service}"}, {"DELETE", "/api/v1/faults/{service}"},
	}
}

// called are the methods that those and the seeding lead to.
func called() []string {
	return []string{
		"checkout.v1.CheckoutService/PlaceOrder", "checkout.v1.CheckoutService/GetOrder", "checkout.v1.CheckoutService/WatchOrder", "checkout.v1.CheckoutService/ImportPrices",
		"search.v1.SearchService/SearchProducts", "search.v1.SearchService/GetProducts", "search.v1.SearchService/ImportProducts",
		"recs.v1.RecsService/Recommend", "recs.v1.RecsService/ImportBaskets", "inventory.v1.InventoryService/ImportStock",
	}
}

var scraped struct {
	sync.Once
	metrics map[string]*metric
}

// scrape sends the shop a customer or two, and returns what its processes then show, by name.
func scrape(t *testing.T) map[string]*metric {
	t.Helper()
	s := live.Get(t)
	scraped.Do(func() {
		id := visit(t, s)
		shop.Eventually(t, 30*time.Second, "the order is confirmed, and recs has heard of it", func() bool {
			return strings.Contains(s.Get(t, "/api/v1/orders/"+id).Body, `"confirmed"`)
		})
		scraped.metrics = map[string]*metric{}
		for name, process := range s.Services(t) {
			gather(t, name, s.Get(t, "http://"+process.Addresses["admin"]+"/metrics").Body, scraped.metrics)
		}
	})
	if len(scraped.metrics) == 0 {
		t.Fatal("nothing was scraped")
	}
	return scraped.metrics
}

// visit uses every route, and returns the order that it has placed.
func visit(t *testing.T, s *shop.Shop) (id string) {
	t.Helper()
	var order struct {
		ID string `json:"id"`
	}
	body := `{"customer_id":"c-observer","currency":"GBP","lines":[{"product_id":"LGT-0007","quantity":1}],"payment_token":"tok_ok"}`
	s.Do(t, http.MethodPost, "/api/v1/orders", body, "Idempotency-Key", fmt.Sprint(time.Now().UnixNano())).Into(t, http.StatusCreated, &order)
	for _, path := range []string{
		"/", "/products/LGT-0007", "/orders/" + order.ID, "/api/v1/products?q=lantern", "/api/v1/products/LGT-0007", "/api/v1/recommendations?product_id=LGT-0007",
		"/api/v1/orders/" + order.ID, "/api/v1/orders/" + order.ID + "/events", "/api/v1/status", "/api/v1/faults",
	} {
		if a := s.Get(t, path); a.Status >= http.StatusBadRequest {
			t.Fatalf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	s.Do(t, http.MethodPut, "/api/v1/faults/inventory", `{"kind":"slow","rate":0,"ttl_s":5}`, "Content-Type", "application/json")
	s.Do(t, http.MethodDelete, "/api/v1/faults/inventory", "")
	return order.ID
}

func gather(t *testing.T, process, text string, into map[string]*metric) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", process, err)
	}
	for name, family := range families {
		m := into[name]
		if m == nil {
			m = &metric{name: name, kind: family.GetType(), help: family.GetHelp(), labels: map[string]map[string]bool{}, processes: map[string]bool{}}
			into[name] = m
		}
		m.processes[process] = true
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if m.labels[label.GetName()] == nil {
					m.labels[label.GetName()] = map[string]bool{}
				}
				m.labels[label.GetName()][label.GetValue()] = true
			}
		}
	}
}

// Rate, errors and duration of each route and of each method, from one histogram.
func TestMetrics_EveryRouteAndEveryMethodIsMeasured(t *testing.T) {
	metrics := scrape(t)
	http, server, client := metrics["http_server_request_duration_seconds"], metrics["rpc_server_call_duration_seconds"], metrics["rpc_client_call_duration_seconds"]
	if http == nil || server == nil || client == nil {
		t.Fatalf("no durations of requests or calls among %v", slices.Sorted(maps.Keys(metrics)))
	}
	for _, r := range visited() {
		if !http.labels["http_route"][r.route] || !http.labels["http_request_method"][r.method] {
			t.Errorf("%s %s is not measured", r.method, r.route)
		}
	}
	for _, method := range called() {
		if !server.labels["rpc_method"][method] {
			t.Errorf("%s is not measured where it is handled", method)
		}
	}
	for _, m := range []*metric{server, client} {
		if len(m.labels["rpc_response_status_code"]) == 0 {
			t.Errorf("%s does not tell errors from answers", m.name)
		}
	}
}
