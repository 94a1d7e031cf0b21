package load

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Operation is what a request asks the shop for, by the feature that answers.
type Operation string

// The operations of the shop's traffic.
const (
	Checkout Operation = "checkout" // POST /api/v1/orders
	Search   Operation = "search"   // GET /api/v1/products
	Recs     Operation = "recs"     // GET /api/v1/recommendations
	Page     Operation = "page"     // GET /api/v1/products/{id}: a product and what goes with it
)

// Target is the shop's gateway.
type Target struct {
	base url.URL
	addr string // host:port
}

// ParseTarget reads a base URL such as http://127.0.0.1:8080.
func ParseTarget(text string) (Target, error) {
	base, err := url.Parse(text)
	if err != nil || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return Target{}, fmt.Errorf("target %q: must be a URL such as http://127.0.0.1:8080", text)
	}
	port := map[string]string{"http": "80", "https": "443"}[base.Scheme]
	if port == "" {
		return Target{}, fmt.Errorf("target %q: must begin with http:// or https://", text)
	}
	if base.Port() != "" {
		port = base.Port()
	}
	base.Path = strings.TrimRight(base.Path, "/")
	return Target{base: *base, addr: net.JoinHostPort(base.Hostname(), port)}, nil
}

// String is the base URL.
func (t Target) String() string { return t.base.String() }

// Request is an HTTP/1.1 request as it goes over the wire.
type Request struct {
	Operation Operation
	wire      []byte
}

// userAgent tells the lab's requests from people's in a log.
const userAgent = "watertight-lab"

func (t Target) request(op Operation, method, path, headers string, body []byte) Request {
	head := method + " " + t.base.EscapedPath() + path + " HTTP/1.1\r\nHost: " + t.base.Host + "\r\nUser-Agent: " + userAgent +
		"\r\nAccept: application/json\r\n" + headers
	if body != nil {
		head += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	wire := make([]byte, 0, len(head)+2+len(body))
	wire = append(append(wire, head...), "\r\n"...)
	return Request{op, append(wire, body...)}
}

// Order is what a customer orders.
type Order struct {
	CustomerID   string      `json:"customer_id"`
	Currency     string      `json:"currency"`
	Lines        []OrderLine `json:"lines"`
	PaymentToken string      `json:"payment_token"`
}

// OrderLine is one product of an order.
type OrderLine struct {
	ProductID string `json:"product_id"`
	Quantity  int64  `json:"quantity"` // pieces
}

// GoodToken is the payment token that the shop's sandbox charges without fail.
const GoodToken = "tok_ok"

// PlaceOrder is the request for an order. The key is the order's name: whoever sends it again means the same order.
func (t Target) PlaceOrder(key string, order Order) Request {
	body, err := json.Marshal(order)
	if err != nil {
		panic("load: an order of strings and numbers does not marshal: " + err.Error())
	}
	// Escaped, a key is one header line whatever is in it; letters, digits, dash, dot and underscore stay themselves.
	return t.request(Checkout, "POST", "/api/v1/orders", "Idempotency-Key: "+url.QueryEscape(key)+"\r\n", body)
}

// SearchProducts is the request for the first page of what is found.
func (t Target) SearchProducts(text, customer string) Request {
	return t.request(Search, "GET", "/api/v1/products?q="+url.QueryEscape(text), customerHeader(customer), nil)
}

// Recommend is the request for what goes with a product.
func (t Target) Recommend(product, customer string) Request {
	return t.request(Recs, "GET", "/api/v1/recommendations?product_id="+url.QueryEscape(product), customerHeader(customer), nil)
}

// ProductPage is the request for a product with what goes with it.
func (t Target) ProductPage(product, customer string) Request {
	return t.request(Page, "GET", "/api/v1/products/"+url.PathEscape(product), customerHeader(customer), nil)
}

func customerHeader(id string) string {
	return "Watertight-Customer: " + url.QueryEscape(id) + "\r\n"
}
