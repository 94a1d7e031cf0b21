//go:build unix

package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// cable carries connections to a server, and can be hurt.
type cable struct {
	listener net.Listener
	target   func() (string, error)

	mu   sync.Mutex
	deaf bool          // what the server says is lost
	free chan struct{} // nothing passes until it is closed; nil: all passes
	ends map[net.Conn]struct{}
}

func layCable(target func() (string, error)) (*cable, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cable: %w", err)
	}
	c := &cable{listener: listener, target: target, ends: map[net.Conn]struct{}{}}
	go c.serve()
	return c, nil
}

func (c *cable) address() string { return c.listener.Addr().String() }

func (c *cable) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		go c.carry(client)
	}
}

func (c *cable) carry(client net.Conn) {
	defer client.Close()
	address, err := c.target()
	if err != nil {
		return
	}
	server, err := net.DialTimeout("tcp", address, 2*time.Second)
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
	cable  *cable
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

// cut breaks every connection; new ones work.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = false
	for end := range c.ends {
		end.Close()
	}
}

// loseAnswers has what the server says get lost for a time, and then cuts: what was asked for is done, and nobody knows.
func (c *cable) loseAnswers(ctx context.Context, d time.Duration) {
	c.mu.Lock()
	c.deaf = true
	c.mu.Unlock()
	pause(ctx, d)
	c.cut()
}

// stall lets nothing pass for a time, unless nothing does already.
func (c *cable) stall(ctx context.Context, d time.Duration) error {
	free := make(chan struct{})
	c.mu.Lock()
	if c.free != nil {
		c.mu.Unlock()
		return errNothing
	}
	c.free = free
	c.mu.Unlock()
	pause(ctx, d)
	c.mu.Lock()
	c.free = nil
	c.mu.Unlock()
	close(free)
	return nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
