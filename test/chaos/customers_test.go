//go:build unix

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

const (
	// between is the pause between two orders, whatever becomes of them.
	between = 100 * time.Millisecond
	// patience is how long a customer waits for an answer before he asks again.
	patience = 4 * time.Second
	// shortest and longest are the pauses before he does; each is twice the one before, and half of it is at random.
	shortest, longest = 400 * time.Millisecond, 4 * time.Second
)

// crowd are the customers. Each asks for one order, under one key, until he is told that it is placed.
type crowd struct {
	t        *testing.T
	gateways []string // base URLs
	client   *http.Client
	random   *rand.Rand // for the goroutine that sends customers in
	products []string

	ctx      context.Context
	cancel   context.CancelFunc
	asking   sync.WaitGroup
	mu       sync.Mutex
	placed   int
	attempts int
	acked    map[string]string // the order's id by key
	wrong    []string
}

func newCrowd(t *testing.T, s *shop.Shop, seed uint64) *crowd {
	t.Helper()
	c := &crowd{t: t, random: rand.New(rand.NewPCG(seed, 4)), acked: map[string]string{},
		// A connection for each request: on one that is used again Go may send a POST twice by itself.
		client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(c.cancel)
	record, err := s.Record()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range record.Processes {
		if p.Service == "gateway" {
			c.gateways = append(c.gateways, "http://"+p.Addresses["http"])
		}
	}
	var page struct {
		Products []struct {
			ID string `json:"id"`
		} `json:"products"`
	}
	shop.Eventually(t, time.Minute, "the catalog is there", func() bool {
		s.Get(t, "/api/v1/products?page_size=20").Into(t, http.StatusOK, &page)
		return len(page.Products) == 20
	})
	for _, p := range page.Products {
		c.products = append(c.products, p.ID)
	}
	if len(c.gateways) == 0 {
		t.Fatal("the shop has no gateway")
	}
	return c
}

// ordering is customers coming in.
type ordering struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// stop returns when no more customers come in; those who are there go on.
func (o ordering) stop() {
	o.cancel()
	<-o.done
}

func (c *crowd) start() ordering {
	ctx, cancel := context.WithCancel(c.ctx)
	o := ordering{cancel, make(chan struct{})}
	go func() {
		defer close(o.done)
		tick := time.NewTicker(between)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			key, body := fmt.Sprintf("chaos-%d", n), c.order(n)
			c.note(func() { c.placed++ })
			hasty := c.random.IntN(10) == 0 // presses the button twice
			random := rand.New(rand.NewPCG(c.random.Uint64(), 5))
			c.asking.Go(func() { c.ask(key, body, random) })
			if hasty {
				other := rand.New(rand.NewPCG(c.random.Uint64(), 5))
				c.asking.Go(func() { c.ask(key, body, other) })
			}
		}
	}()
	return o
}

// order is what a customer wants: one to three products, few of which are wanted by most, so that stock runs out, paid by
// all that the sandbox provider can do.
func (c *crowd) order(n int) string {
	token := "tok_ok"
	switch d := c.random.IntN(100); {
	case d < 10:
		token = "tok_declined"
	case d < 14:
		token = "tok_timeout"
	case d < 18:
		token = "tok_slow"
	case d < 22:
		token = "tok_flaky"
	}
	var lines []string
	for range 1 + c.random.IntN(3) {
		product, quantity := c.products[c.random.IntN(len(c.products))], 1+c.random.IntN(3)
		if c.random.IntN(6) == 0 {
			product, quantity = c.products[c.random.IntN(2)], 5+c.random.IntN(20)
		}
		lines = append(lines, fmt.Sprintf(`{"product_id":%q,"quantity":%d}`, product, quantity))
	}
	return fmt.Sprintf(`{"customer_id":"c-%d","currency":"GBP","payment_token":%q,"lines":[%s]}`, n, token, strings.Join(lines, ","))
}

// ask asks until the order is placed or the crowd is told to go.
func (c *crowd) ask(key, body string, random *rand.Rand) {
	for backoff := shortest; c.ctx.Err() == nil; backoff = min(2*backoff, longest) {
		c.note(func() { c.attempts++ })
		gateway := c.gateways[random.IntN(len(c.gateways))]
		status, answer, err := c.send(http.MethodPost, gateway+"/api/v1/orders", body, key)
		switch {
		case err != nil, status >= 500, status == http.StatusTooManyRequests:
			pause(c.ctx, backoff/2+time.Duration(random.Int64N(int64(backoff))))
			continue
		case status != http.StatusCreated:
			c.blamef("order %s: got %d, want 201 or an error that passes: %s", key, status, answer)
			return
		}
		var order struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(answer, &order); err != nil || order.ID == "" {
			c.blamef("order %s: got %s, want an order with an id", key, answer)
			return
		}
		c.acknowledged(key, order.ID)
		if status, answer, err := c.send(http.MethodGet, gateway+"/api/v1/orders/"+order.ID, "", ""); err == nil && status != http.StatusOK && status < 500 && status != http.StatusTooManyRequests {
			c.blamef("order %s is acknowledged and cannot be read: got %d, %s", order.ID, status, answer)
		}
		return
	}
}

func (c *crowd) send(method, url, body, key string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(c.ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, errors.Join(err, response.Body.Close())
}

func (c *crowd) acknowledged(key, id string) {
	c.mu.Lock()
	before, known := c.acked[key]
	c.acked[key] = id
	c.mu.Unlock()
	if known && before != id {
		c.blamef("key %s was answered with order %s and with order %s", key, before, id)
	}
}

func (c *crowd) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *crowd) blamef(format string, args ...any) {
	c.note(func() { c.wrong = append(c.wrong, fmt.Sprintf(format, args...)) })
}

// await waits until every customer has his answer, and sends away who has none after the time. It returns how long it took.
func (c *crowd) await(within time.Duration) time.Duration {
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		c.asking.Wait()
	}()
	select {
	case <-done:
	case <-time.After(within):
		c.cancel()
		<-done
	}
	return time.Since(began)
}

// writeAcknowledged writes the ids of the acknowledged orders to a file and returns its path.
func (c *crowd) writeAcknowledged(path string) string {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := slices.Sorted(maps.Values(c.acked))
	if err := os.WriteFile(path, []byte(strings.Join(ids, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// judge reports every answer that should not have been, customers who never got one, and orders that nobody asked for: who
// asks again because the reply was lost must not get a second one.
func (c *crowd) judge(orders int64) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.wrong {
		c.t.Error(w)
	}
	if len(c.acked) < c.placed {
		c.t.Errorf("%d of %d customers still have no answer %v after the last fault", c.placed-len(c.acked), c.placed, 2*recovery)
	}
	if orders > int64(c.placed) {
		c.t.Errorf("%d orders of %d customers who wanted one each", orders, c.placed)
	}
}

// String tells how many orders there were.
func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d orders placed in %d attempts, %d acknowledged", c.placed, c.attempts, len(c.acked))
}
