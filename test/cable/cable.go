// Package cable is a TCP connection that a test can hurt: it lies between two processes, and is cut, stalled or made to lose
// answers while they talk.
package cable

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the wait for the server behind the cable.
const dialTimeout = 2 * time.Second

// Cable carries connections to a server. Its methods may be called from any goroutine.
type Cable struct {
	listener net.Listener
	target   func() (string, error)

	mu   sync.Mutex
	deaf bool          // what the server says is lost
	free chan struct{} // nothing passes until it is closed; nil: all passes
	ends map[net.Conn]struct{}
}

// Lay lays a cable to the server whose address target tells, at each connection anew. It lasts as long as the process.
func Lay(target func() (string, error)) (*Cable, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cable: %w", err)
	}
	c := &Cable{listener: listener, target: target, ends: map[net.Conn]struct{}{}}
	go c.serve()
	return c, nil
}

// Address is where the cable begins.
func (c *Cable) Address() string { return c.listener.Addr().String() }

func (c *Cable) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.carry(client)
	}
}

func (c *Cable) carry(client net.Conn) {
	defer client.Close()
	address, err := c.target()
	if err != nil {
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	c.mu.Lock()
	c.ends[client], c.ends[server] = struct{}{}, struct{}{}
	c.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(passing{c, server, false}, client); server.Close(); client.Close() })
	both.Go(func() { _, _ = io.Copy(passing{c, client, true}, server); client.Close(); server.Close() })
	both.Wait()
	c.mu.Lock()
	delete(c.ends, client)
	delete(c.ends, server)
	c.mu.Unlock()
}

// passing is one direction of a connection.
type passing struct {
	cable  *Cable
	to     io.Writer
	answer bool
}

func (p passing) Write(b []byte) (int, error) {
	p.cable.mu.Lock()
	deaf, free := p.cable.deaf && p.answer, p.cable.free
	p.cable.mu.Unlock()
	if free != nil {
		<-free
	}
	if deaf {
		return len(b), nil
	}
	return p.to.Write(b)
}

// Cut breaks every connection; new ones work, and are heard.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = false
	for end := range c.ends {
		end.Close()
	}
}

// LoseAnswers has what the server says get lost until the next Cut: what was asked for is done, and nobody knows.
func (c *Cable) LoseAnswers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// Stall lets nothing pass until resume is called, once. It is false when nothing passes already.
func (c *Cable) Stall() (resume func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free != nil {
		return nil, false
	}
	free := make(chan struct{})
	c.free = free
	return func() {
		c.mu.Lock()
		c.free = nil
		c.mu.Unlock()
		close(free)
	}, true
}
