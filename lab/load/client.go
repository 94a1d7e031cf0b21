package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"sync"
	"syscall"
	"time"
)

// client sends requests over HTTP/1.1 connections that it keeps. It writes a request exactly once, and says so when there
// was no answer. net/http's client would send some a second time by itself: a GET, and a POST that carries an
// Idempotency-Key, when a kept connection breaks before the answer. It also takes a fifth more CPU time, and wakes two
// goroutines for each answer, which at 10,000 requests per second on one core is the longer part of the measured latency.
type client struct {
	target Target
	dialer net.Dialer
	tls    *tls.Config // nil for http

	mu     sync.Mutex
	idle   []*conn // the one used last is at the end: few are kept busy rather than many lukewarm
	dialed int64
}

func newClient(t Target) *client {
	c := &client{target: t}
	if t.base.Scheme == "https" {
		c.tls = &tls.Config{ServerName: t.base.Hostname(), MinVersion: tls.VersionTLS12}
	}
	return c
}

// answer is what the load needs of a response.
type answer struct {
	status   int
	degraded bool
	replayed bool
	order    string // id of the order that was placed
	problem  []byte // the start of the body, from status 300 on
}

// Limits of one answer; a longer one ends as one that was cut off.
const (
	maxAnswer  = 8 << 20
	maxProblem = 16 << 10
)

type conn struct {
	net.Conn
	limit io.LimitedReader
	r     *bufio.Reader
}

// do sends the request and waits for the answer until the deadline. An error means that there was no whole answer.
func (c *client) do(wire []byte, deadline time.Time) (answer, error) {
	conn, err := c.take(deadline)
	if err != nil {
		return answer{}, err
	}
	a, reusable, err := conn.exchange(wire)
	if err != nil || !reusable {
		conn.Close()
		return a, err
	}
	c.mu.Lock()
	c.idle = append(c.idle, conn)
	c.mu.Unlock()
	return a, nil
}

// take returns a kept connection that the server has not closed, or a new one, with its deadline set.
func (c *client) take(deadline time.Time) (*conn, error) {
	for {
		c.mu.Lock()
		last := len(c.idle) - 1
		if last < 0 {
			c.dialed++
			c.mu.Unlock()
			return c.dial(deadline)
		}
		kept := c.idle[last]
		c.idle[last] = nil
		c.idle = c.idle[:last]
		c.mu.Unlock()
		if kept.SetDeadline(deadline) == nil && kept.quiet() {
			return kept, nil
		}
		kept.Close()
	}
}

func (c *client) dial(deadline time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	raw, err := c.dialer.DialContext(ctx, "tcp", c.target.addr)
	if err != nil {
		return nil, err
	}
	if c.tls != nil {
		secure := tls.Client(raw, c.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		raw = secure
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	made := &conn{Conn: raw, limit: io.LimitedReader{R: raw}}
	made.r = bufio.NewReader(&made.limit)
	return made, nil
}

// close closes what is kept.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kept := range c.idle {
		kept.Close()
	}
	c.idle = nil
}

// quiet reports whether nothing has come in since the last answer. Anything would be the server's goodbye; a request
// written after that is lost for no fault of the shop's.
func (c *conn) quiet() bool {
	network := c.Conn
	if secure, ok := network.(*tls.Conn); ok {
		network = secure.NetConn()
	}
	socket, ok := network.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var seen error
	err = raw.Read(func(fd uintptr) bool {
		_, seen = syscall.Read(int(fd), make([]byte, 1))
		return true // never wait
	})
	return err == nil && errors.Is(seen, syscall.EAGAIN)
}

// exchange writes the request and reads the whole answer, until the deadline that is set.
func (c *conn) exchange(wire []byte) (a answer, reusable bool, err error) {
	if _, err := c.Write(wire); err != nil {
		return a, false, err
	}
	response, err := c.response()
	if err != nil {
		return a, false, err
	}
	defer response.Body.Close()
	a = answer{
		status:   response.StatusCode,
		degraded: response.Header.Get("Watertight-Degraded") != "",
		replayed: response.Header.Get("Idempotency-Replayed") == "true",
	}
	if a.status == http.StatusCreated {
		if location := response.Header.Get("Location"); location != "" {
			a.order = path.Base(location)
		}
	}
	if a.status >= http.StatusMultipleChoices {
		if a.problem, err = io.ReadAll(io.LimitReader(response.Body, maxProblem)); err != nil {
			return a, false, fmt.Errorf("read the answer: %w", err)
		}
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return a, false, fmt.Errorf("read the answer: %w", err)
	}
	return a, !response.Close && c.r.Buffered() == 0, nil
}

// response reads the head of the final response.
func (c *conn) response() (*http.Response, error) {
	c.limit.N = maxAnswer
	for {
		response, err := http.ReadResponse(c.r, nil)
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols {
			return response, nil
		}
	}
}
