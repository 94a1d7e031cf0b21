// Package saga measures how soon an order is final: from the moment it is sent until the customer's event stream says that it is confirmed,
// through checkout, the relays, inventory and payment, in a whole shop that `lab up` runs with nothing else to do.
package saga

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/test/bench/lab"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

const (
	// limit is how soon 95 of 100 orders are to be confirmed, in milliseconds.
	limit = 300
	// tries is how many sets of ports are tried.
	tries = 3
	// bound is how long one order may take before the benchmark gives up.
	bound = 30 * time.Second
	// httpPort is the gateway's, without an offset.
	httpPort = 8080
)

type part struct {
	dir, program string
	shop         string // URL; empty until it runs
	offset       int    // of its ports
	product      string
	orders       int // in each round
	soon         *table.Row
}

// Start builds and starts a shop on free ports.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	p := &part{orders: 100, soon: r.Row("saga", "order, POST to confirmed, one after the other, p95", "limit", "ms", table.Within())}
	if r.Quick {
		p.orders = 30
	}
	if p.dir, err = os.MkdirTemp("", "watertight-bench-saga-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := os.Chmod(p.dir, 0o755); err != nil { //nolint:gosec // PostgreSQL's user, another one when this one is root, passes through it
		return nil, err
	}
	if p.program, err = lab.Build(ctx, p.dir); err != nil {
		return nil, err
	}
	if err := p.up(ctx); err != nil {
		return nil, err
	}
	target, err := load.ParseTarget(p.shop)
	if err != nil {
		return nil, err
	}
	products, err := target.Products(ctx, 1)
	if err != nil {
		return nil, err
	}
	if len(products) == 0 {
		return nil, errors.New("the shop has no product")
	}
	p.product = products[0].ID
	_, err = p.place(ctx, p.orders/3) // to warm up
	return p, err
}

// up tries ports until a shop has started; another program's are refused before anything is built or kept.
func (p *part) up(ctx context.Context) (err error) {
	for range tries {
		p.offset = 1000 + rand.IntN(13_000)
		var said []byte
		if said, err = p.lab(ctx, "up", "--detach", "--port-offset", strconv.Itoa(p.offset)); err == nil {
			p.shop = "http://127.0.0.1:" + strconv.Itoa(httpPort+p.offset)
			return nil
		}
		err = fmt.Errorf("lab up: %w\n%s", err, said)
	}
	return err
}

func (p *part) lab(ctx context.Context, command string, flags ...string) ([]byte, error) {
	return exec.CommandContext(ctx, p.program, append([]string{command, "--dir", p.dir}, flags...)...).CombinedOutput()
}

// Close ends the shop and removes its data.
func (p *part) Close() error {
	var err error
	if p.program != "" {
		if said, down := p.lab(context.Background(), "down"); down != nil {
			err = fmt.Errorf("lab down: %w\n%s", down, said)
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// Round places orders one after the other.
func (p *part) Round(ctx context.Context, _ int) error {
	took, err := p.place(ctx, p.orders)
	if err != nil {
		return err
	}
	slices.Sort(took)
	p.soon.Add(float64(took[len(took)*95/100])/float64(time.Millisecond), limit)
	return nil
}

func (p *part) place(ctx context.Context, orders int) ([]time.Duration, error) {
	took := make([]time.Duration, orders)
	for i := range took {
		start := time.Now()
		if err := p.order(ctx); err != nil {
			return nil, err
		}
		took[i] = time.Since(start)
	}
	return took, nil
}

// order places one order and follows it until it is confirmed.
func (p *part) order(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	wanted, err := json.Marshal(map[string]any{
		"customer_id": "c-1", "currency": "GBP", "payment_token": "tok_ok", "lines": []map[string]any{{"product_id": p.product, "quantity": 1}},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.shop+"/api/v1/orders", bytes.NewReader(wanted))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", strconv.FormatUint(rand.Uint64(), 36))
	var placed struct {
		ID string `json:"id"`
	}
	if err := do(request, http.StatusCreated, func(body io.Reader) error { return json.NewDecoder(body).Decode(&placed) }); err != nil {
		return err
	}
	events, err := http.NewRequestWithContext(ctx, http.MethodGet, p.shop+"/api/v1/orders/"+placed.ID+"/events", http.NoBody)
	if err != nil {
		return err
	}
	return do(events, http.StatusOK, confirmed)
}

// confirmed reads an order's events until it is.
func confirmed(body io.Reader) error {
	lines := bufio.NewScanner(body)
	last := "nothing"
	for lines.Scan() {
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		if strings.Contains(data, `"status":"confirmed"`) {
			return nil
		}
		last = data
	}
	return errors.Join(fmt.Errorf("an order was not confirmed; its last event was %s", last), lines.Err())
}

func do(request *http.Request, want int, read func(io.Reader) error) error {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != want {
		said, err := io.ReadAll(response.Body)
		return errors.Join(fmt.Errorf("%s: got %s, want %d: %s", request.URL.Path, response.Status, want, said), err)
	}
	if err := read(response.Body); err != nil {
		return fmt.Errorf("%s: %w", request.URL.Path, err)
	}
	return nil
}
