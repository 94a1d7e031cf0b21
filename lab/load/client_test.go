package load

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rawServer hands each connection to talk, with its number.
func rawServer(t *testing.T, talk func(n int, c net.Conn, r *bufio.Reader)) Target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				talk(n, c, bufio.NewReader(c))
			}()
		}
	}()
	return target(t, "http://"+listener.Addr().String())
}

// read takes in one request.
func read(r *bufio.Reader) bool {
	request, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, request.Body)
	return err == nil
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func soon() time.Time { return time.Now().Add(10 * time.Second) }

// A server that reads a request on a kept connection and closes it is what net/http's client answers with a second try, for
// a GET and for a POST with an Idempotency-Key.
func TestClient_SendsOnceWhenTheServerClosesAfterReading(t *testing.T) {
	var seen atomic.Int64
	shop := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for i := 0; read(r); i++ {
			seen.Add(1)
			if i == 1 {
				return
			}
			_, _ = io.WriteString(c, empty)
		}
	})
	for name, request := range map[string]Request{
		"order": orderNumber(shop)(1), "search": shop.SearchProducts("lamp", "c-1"), "recs": shop.Recommend("P1", "c-1"),
	} {
		c := newClient(shop)
		seen.Store(0)
		if _, err := c.do(request.wire, soon()); err != nil {
			t.Fatalf("%s: the first: %v", name, err)
		}
		_, err := c.do(request.wire, soon())
		if outcome, code := judgeError(err); outcome != Lost {
			t.Errorf("%s: got %s, %s (%v), want it lost", name, outcome, code, err)
		}
		if got := seen.Load(); got != 2 {
			t.Errorf("%s: the server has read %d requests, want 2: each once", name, got)
		}
		c.close()
	}
}

func TestClient_LeavesAConnectionThatTheServerHasClosed(t *testing.T) {
	closed := make(chan struct{})
	shop := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		for read(r) {
			_, _ = io.WriteString(c, empty)
			if n == 0 {
				c.Close()
				close(closed)
				return
			}
		}
	})
	c := newClient(shop)
	defer c.close()
	request := orderNumber(shop)(1)
	if _, err := c.do(request.wire, soon()); err != nil {
		t.Fatal(err)
	}
	<-closed
	kept := c.idle[0]
	for deadline := soon(); kept.quiet(); { // loopback hands a close over in no time, but not in none
		if time.Now().After(deadline) {
			t.Fatal("the close does not arrive")
		}
	}
	if _, err := c.do(request.wire, soon()); err != nil || c.dialed != 2 {
		t.Errorf("got %v over %d connections, want an answer over a second one", err, c.dialed)
	}
}

func TestClient_KeepsAConnectionLongerThanADeadline(t *testing.T) {
	shop := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for read(r) {
			_, _ = io.WriteString(c, empty)
		}
	})
	c := newClient(shop)
	defer c.close()
	deadline := time.Now().Add(time.Second)
	if _, err := c.do(orderNumber(shop)(1).wire, deadline); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(deadline) + time.Millisecond)
	if _, err := c.do(orderNumber(shop)(2).wire, soon()); err != nil || c.dialed != 1 {
		t.Errorf("got %v over %d connections, want an answer over the first one", err, c.dialed)
	}
}

func TestClient_ReadsEveryKindOfAnswer(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		name, answer string
		op           Operation
		outcome      Outcome
		code         string
	}{
		{"length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Recs, OK, ""},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", Recs, OK, ""},
		{"until close", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", Recs, OK, ""},
		{"after early hints", "HTTP/1.1 103 Early Hints\r\n\r\n" + empty, Search, OK, ""},
		{"degraded", "HTTP/1.1 200 OK\r\nWatertight-Degraded: recs\r\nContent-Length: 2\r\n\r\n{}", Recs, Degraded, ""},
		{"order", "HTTP/1.1 201 Created\r\nLocation: /api/v1/orders/o-1\r\nContent-Length: 0\r\n\r\n", Checkout, OK, ""},
		{"order without an id", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", Checkout, Failed, CodeNoOrder},
		{"shed", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 24\r\n\r\n{\"code\":\"bulkhead_full\"}", Checkout, Rejected, "bulkhead_full"},
		{"shed by a proxy", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nsorry", Checkout, Rejected, "http_503"},
		{"one client's share", "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 23\r\n\r\n{\"code\":\"rate_limited\"}", Recs, Rejected, "rate_limited"},
		{"too late", "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 18\r\n\r\n{\"code\":\"timeout\"}", Search, TimedOut, "timeout"},
		{"broken", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n", Search, Failed, "http_500"},
		{"moved", "HTTP/1.1 301 Moved Permanently\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", Search, Failed, "http_301"},
		{"a code that is too long", "HTTP/1.1 500 x\r\nConnection: close\r\n\r\n{\"code\":\"" + long + "\"}", Search, Failed, "http_500"},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", Recs, Lost, CodeClosed},
		{"no answer", "", Checkout, Lost, CodeClosed},
		{"not HTTP", "220 mail.example ESMTP\r\n", Recs, Failed, CodeMalformed},
		{"a head without end", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat(long, 100), Recs, Lost, CodeClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shop := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if read(r) {
					_, _ = io.WriteString(c, tc.answer)
				}
			})
			c := newClient(shop)
			defer c.close()
			a, err := c.do(shop.Recommend("P1", "c-1").wire, soon())
			if outcome, code := judge(tc.op, a, err); outcome != tc.outcome || code != tc.code {
				t.Errorf("got %s %q (%v), want %s %q", outcome, code, err, tc.outcome, tc.code)
			}
		})
	}
}

func TestClient_TellsSilenceFromRefusal(t *testing.T) {
	shop := rawServer(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		for read(r) { // and never answers
		}
	})
	c := newClient(shop)
	defer c.close()
	_, err := c.do(shop.Recommend("P1", "c-1").wire, time.Now().Add(50*time.Millisecond))
	if outcome, code := judgeError(err); outcome != TimedOut || code != CodeClientTimeout {
		t.Errorf("silence: got %s %s (%v), want timed_out client_timeout", outcome, code, err)
	}
	if len(c.idle) != 0 {
		t.Error("a connection with an answer outstanding is kept")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := target(t, "http://"+listener.Addr().String())
	listener.Close()
	_, err = newClient(nobody).do(nobody.Recommend("P1", "c-1").wire, soon())
	if outcome, code := judgeError(err); outcome != Lost || code != CodeRefused {
		t.Errorf("a closed port: got %s %s (%v), want lost connection_refused", outcome, code, err)
	}
}

func TestClient_SpeaksTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	shop := target(t, server.URL)
	c := newClient(shop)
	defer c.close()
	wire := shop.Recommend("P1", "c-1").wire
	_, err := c.do(wire, soon())
	if outcome, _ := judgeError(err); err == nil || outcome == OK {
		t.Errorf("a certificate nobody vouches for: got %v, want an error", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.tls = &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
	for range 2 {
		if a, err := c.do(wire, soon()); err != nil || a.status != http.StatusOK {
			t.Fatalf("got %d, %v, want 200", a.status, err)
		}
	}
	if c.dialed != 2 {
		t.Errorf("got %d connections, want 2: one refused, one kept", c.dialed)
	}
}
