//go:build unix

package accept

import (
	"io"
	"net"
	"sync"
)

// cable carries connections to a server, until it is told to lose what the server says.
type cable struct {
	listener net.Listener
	server   string

	mu   sync.Mutex
	deaf bool
	ends map[net.Conn]struct{}
}

func layCable(server string) (*cable, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cable{listener: listener, server: server, ends: map[net.Conn]struct{}{}}
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
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		client.Close()
		return
	}
	c.mu.Lock()
	c.ends[client], c.ends[server] = struct{}{}, struct{}{}
	c.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(server, client); server.Close() })
	both.Go(func() { _, _ = io.Copy(hearing{c, client}, server); client.Close() })
	both.Wait()
	c.mu.Lock()
	delete(c.ends, client)
	delete(c.ends, server)
	c.mu.Unlock()
}

// hearing passes on what the server says, or loses it.
type hearing struct {
	cable *cable
	io.Writer
}

func (h hearing) Write(p []byte) (int, error) {
	h.cable.mu.Lock()
	deaf := h.cable.deaf
	h.cable.mu.Unlock()
	if !deaf {
		return h.Writer.Write(p)
	}
	return len(p), nil
}

// loseAnswers makes the server's words get lost from now on.
func (c *cable) loseAnswers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// cut breaks every connection; new ones work again.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = false
	for end := range c.ends {
		end.Close()
	}
}
