// Package client asks a gateway over connections that are kept open, as a proxy in front of it would. It checks every answer:
// a gateway that refuses is fast and proves nothing.
package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/watertight/test/bench/canned"
)

// Client asks one gateway. Its methods may be called from any goroutine.
type Client struct {
	// KeyInBody sends an order's idempotency key as a field of the body: grpc-gateway knows no header for it.
	KeyInBody bool

	base string
	http *http.Client
	n    atomic.Int64 // requests so far
	run  string       // makes the idempotency keys differ from those of other clients
}

// New returns a client with at most so many connections to a gateway at addr.
func New(addr string, connections int) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true}
	return &Client{base: "http://" + addr, http: &http.Client{Transport: transport}, run: strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// Close closes its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Page asks for the page of the next product, with its recommendations. Whole says whether they were there.
func (c *Client) Page(ctx context.Context) (whole bool, err error) {
	id := canned.ID(int(c.n.Add(1)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/v1/products/"+id, http.NoBody)
	if err != nil {
		return false, err
	}
	body, err := c.do(request)
	if err != nil {
		return false, err
	}
	if !bytes.Contains(body, []byte(id)) {
		return false, fmt.Errorf("the page of %s does not name it: %s", id, body)
	}
	return bytes.Contains(body, []byte(`"score"`)), nil
}

// WholePage is Page for those who want the recommendations.
func (c *Client) WholePage(ctx context.Context) error {
	whole, err := c.Page(ctx)
	if err == nil && !whole {
		err = fmt.Errorf("a page of %s has no recommendations", c.base)
	}
	return err
}

// Order places an order.
func (c *Client) Order(ctx context.Context) error {
	key := c.run + "-" + strconv.FormatInt(c.n.Add(1), 10)
	const order = `"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"P-0001","quantity":2},{"product_id":"P-0002","quantity":2}],` +
		`"expected_total":1021,"payment_token":"tok_ok"}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/api/v1/orders", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	content := "{" + order
	if c.KeyInBody {
		content = `{"idempotency_key":"` + key + `",` + order
	} else {
		request.Header.Set("Idempotency-Key", key)
	}
	request.Body, request.ContentLength = io.NopCloser(strings.NewReader(content)), int64(len(content))
	body, err := c.do(request)
	if err == nil && !bytes.Contains(body, []byte(`"total"`)) {
		err = fmt.Errorf("the answer is no order: %s", body)
	}
	return err
}

func (c *Client) do(request *http.Request) ([]byte, error) {
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", request.Method, request.URL, answer.Status, body)
	}
	return body, nil
}

// Loop has callers ask one request after the other until the time is over, and returns how many were answered. The first error ends it.
func Loop(ctx context.Context, callers int, length time.Duration, ask func(context.Context) error) (int64, error) {
	until := time.Now().Add(length)
	var answered atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range callers {
		group.Go(func() error {
			for time.Now().Before(until) {
				if err := ask(ctx); err != nil {
					return err
				}
				answered.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	return answered.Load(), err
}
