package lifecycle

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// HTTPServer serves HTTP as a lifecycle Server. While it drains, every answer says Connection: close, so that clients
// come back by a new connection, elsewhere; idle connections are left alone until Shutdown, because closing them under a
// client that is about to send would lose a request.
type HTTPServer struct {
	listener net.Listener
	server   *http.Server
	draining atomic.Bool
}

// NewHTTPServer wraps srv's handler and serves it on listener.
func NewHTTPServer(listener net.Listener, srv *http.Server) *HTTPServer {
	s := &HTTPServer{listener: listener, server: srv}
	next := srv.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
	return s
}

// Addr is the address it listens on.
func (s *HTTPServer) Addr() string { return s.listener.Addr().String() }

// Serve answers requests until Shutdown.
func (s *HTTPServer) Serve() error {
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Ready does nothing: an HTTP server's readiness is the admin listener's /readyz.
func (s *HTTPServer) Ready() {}

// Drain makes answers say Connection: close.
func (s *HTTPServer) Drain() { s.draining.Store(true) }

// Shutdown waits for the requests in flight until ctx ends, then cuts them off.
func (s *HTTPServer) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		s.server.Close()
	}
	return err
}
