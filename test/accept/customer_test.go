//go:build unix

package accept

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/watertight/test/shop"
)

// What a customer's program knows of the shop's JSON.
type (
	money struct {
		Currency string `json:"currency"`
		Minor    int64  `json:"minor"`
	}
	product struct {
		ID, Name, Description, Category string
		Price                           money
		Score                           float64 // of a recommendation
	}
	order struct {
		ID, Status, Currency, Reason string
		CustomerID                   string `json:"customer_id"`
		Total                        int64
		Lines                        []struct {
			ProductID string `json:"product_id"`
			Name      string
			Quantity  int64
			UnitPrice int64 `json:"unit_price"`
			LineTotal int64 `json:"line_total"`
		}
	}
	productList struct {
		Products      []product
		NextPageToken string `json:"next_page_token"`
	}
	productPage struct {
		Product         product
		Recommendations []product
		Degraded        []string
	}
)

// somethings returns n products that the shop sells.
func somethings(t *testing.T, s *shop.Shop, n int) []product {
	t.Helper()
	var list productList
	s.Get(t, fmt.Sprintf("/api/v1/products?category=Lighting&page_size=%d", n)).Into(t, http.StatusOK, &list)
	if len(list.Products) != n {
		t.Fatalf("%d products, want %d", len(list.Products), n)
	}
	return list.Products
}

// wish is the body of an order by customer for pairs of product id and quantity as JSON has it.
func wish(customer string, lines ...string) string {
	var b strings.Builder
	for i := 0; i < len(lines); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"product_id":%q,"quantity":%s}`, lines[i], lines[i+1])
	}
	return fmt.Sprintf(`{"customer_id":%q,"currency":"GBP","lines":[%s],"payment_token":"tok_ok"}`, customer, b.String())
}

// someone is a customer whom no other test knows.
func someone() string { return "c-" + rand.Text()[:12] }

// newKey is an idempotency key that was never used.
func newKey() string { return "k-" + rand.Text() }

// place sends an order under a key.
func place(t *testing.T, s *shop.Shop, key, body string, headers ...string) shop.Answer {
	t.Helper()
	return s.Do(t, http.MethodPost, "/api/v1/orders", body, append(slices.Clip(headers), "Idempotency-Key", key)...)
}

// mustPlace places an order that must be taken.
func mustPlace(t *testing.T, s *shop.Shop, key, body string) order {
	t.Helper()
	var o order
	place(t, s, key, body).Into(t, http.StatusCreated, &o)
	return o
}

// ordersTaken is how many orders checkout has stored since it started, as its metrics say.
func ordersTaken(t *testing.T, s *shop.Shop) int {
	t.Helper()
	return int(sample(t, s, "checkout", `watertight_orders_total{status="pending"}`))
}

// sample reads one series of a process's metrics.
func sample(t *testing.T, s *shop.Shop, process, series string) float64 {
	t.Helper()
	for line := range strings.Lines(metrics(t, s, process)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			var value float64
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return value
		}
	}
	t.Fatalf("%s has no series %s", process, series)
	return 0
}

func metrics(t *testing.T, s *shop.Shop, process string) string {
	t.Helper()
	a := s.Get(t, "http://"+s.Process(t, process).Addresses["admin"]+"/metrics")
	if a.Status != http.StatusOK {
		t.Fatalf("%s: /metrics answers %d", process, a.Status)
	}
	return a.Body
}
