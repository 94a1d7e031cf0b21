package gateway_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// blanks yields n blanks and counts how many were taken.
type blanks struct {
	left  int64
	taken atomic.Int64
}

func (b *blanks) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), b.left))
	for i := range p[:n] {
		p[i] = ' '
	}
	b.left -= int64(n)
	b.taken.Add(int64(n))
	return n, nil
}

// Field report 47.
func TestReport47_HugeBodiesAreRefusedInFlatMemory(t *testing.T) {
	const huge = 100 << 20
	e := newEdge(t, options{})
	post := func(t *testing.T, body io.Reader, length int64) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/api/v1/orders", io.NopCloser(body))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		r.Header.Set("Idempotency-Key", "k")
		resp, err := e.Client.Do(r)
		if err != nil {
			// The server answers and closes while the client still sends: it may meet the closed connection first.
			t.Logf("the client saw %v", err)
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusRequestEntityTooLarge && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("got %d %s, want 413", resp.StatusCode, text)
		}
		if resp.StatusCode == http.StatusRequestEntityTooLarge && !strings.Contains(string(text), `"code":"body_too_large"`) {
			t.Errorf("body: %s", text)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, tc := range map[string]struct {
		head   string
		length int64
	}{
		"by length":           {"", huge},
		"chunked":             {"", -1},
		"an order and blanks": {orderBody, -1},
	} {
		t.Run(name, func(t *testing.T) {
			tail := &blanks{left: huge - int64(len(tc.head))}
			start := time.Now()
			post(t, io.MultiReader(strings.NewReader(tc.head), tail), tc.length)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			// What was sent beyond the limit sits in socket buffers and the server's own bounded drain.
			if taken := tail.taken.Load(); taken > 50<<20 {
				t.Errorf("the server let %d bytes in", taken)
			}
		})
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("allocated %d MiB for 300 MiB of bodies", grown>>20)
	}
	a := e.raw(t, fmt.Sprintf("POST /api/v1/orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n{", huge))
	if a.Status != 413 || !strings.Contains(a.Body, "body_too_large") || !a.Close {
		t.Errorf("announced: %d, close %v, %s; want 413 and close", a.Status, a.Close, a.Body)
	}
	if n := e.Checkout.Calls.Load(); n != 0 {
		t.Errorf("checkout was called %d times", n)
	}
	if a = e.order(t, "k"); a.Status != 201 {
		t.Errorf("an order of usual size: %d %s", a.Status, a.Body)
	}
}

// Field report 52.
func TestReport52_SlowSocketsAreClosedWhileOthersAreServed(t *testing.T) {
	e := newEdge(t, options{environ: []string{"HTTP_READ_HEADER_TIMEOUT=1s", "HTTP_READ_TIMEOUT=2s"}})
	const sockets = 500
	drip := func(head string) error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", e.Addr)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, head); err != nil {
			return errors.Join(err, conn.Close())
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Logf("closed with %v", err) // by reset: what we sent was still unread
			}
		}()
		defer func() { conn.Close(); <-closed }()
		for range 30 {
			select {
			case <-closed:
				return nil
			case <-time.After(time.Second):
				if _, err := io.WriteString(conn, "x"); err != nil {
					return nil // the server has closed it, as it should
				}
			}
		}
		return errors.New("still open after 30 s")
	}
	var slow sync.WaitGroup
	for i := range sockets {
		head := "GET /api/v1/products HTTP/1.1\r\nHost: x\r\nX-"
		if i%2 == 0 {
			head = "POST /api/v1/orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 1000\r\n\r\n{"
		}
		slow.Go(func() {
			if err := drip(head); err != nil {
				t.Errorf("socket %d: %v", i, err)
			}
		})
	}
	closed := make(chan struct{})
	go func() { slow.Wait(); close(closed) }()
	served := 0
	for done := false; !done; served++ {
		a := e.get(t, "/api/v1/status")
		if a.Status != 200 || a.Took > 5*time.Second {
			t.Errorf("meanwhile: %d after %v", a.Status, a.Took)
		}
		select {
		case <-closed:
			done = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Logf("%d answers while %d sockets were slow", served, sockets)
	if n := e.Orders.Count(); n != 0 {
		t.Errorf("%d orders out of half bodies", n)
	}
}

func TestSlowBody_IsToldSo(t *testing.T) {
	e := newEdge(t, options{environ: []string{"HTTP_READ_TIMEOUT=200ms"}})
	a := e.raw(t, "POST /api/v1/orders HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 1000\r\n\r\n{")
	if a.Status != http.StatusRequestTimeout || !strings.Contains(a.Body, `"code":"timeout"`) {
		t.Errorf("got %d %s, want 408", a.Status, a.Body)
	}
}

func TestIdleConnections_AreClosed(t *testing.T) {
	e := newEdge(t, options{environ: []string{"HTTP_IDLE_TIMEOUT=100ms"}})
	conn := e.dial(t)
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, bufio.NewReader(conn)); err != nil {
		t.Errorf("the idle connection was not closed: %v", err)
	}
}

func TestHugeHeads_AreRefused(t *testing.T) {
	e := newEdge(t, options{})
	a := e.raw(t, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	if a.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, want 431", a.Status)
	}
}
