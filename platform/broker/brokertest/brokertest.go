// Package brokertest runs a real NATS server with JetStream inside a test. It is for tests only.
package brokertest

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Server is a broker that keeps its address and its data over Stop and Start.
type Server struct {
	tb     testing.TB
	port   int
	store  string
	server *server.Server
}

// New returns a server that does not run yet.
func New(tb testing.TB) *Server {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer listener.Close()
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		tb.Fatalf("a TCP listener's address is a %T", listener.Addr())
	}
	s := &Server{tb: tb, port: addr.Port, store: tb.TempDir()}
	tb.Cleanup(s.Stop)
	return s
}

// Start returns a server that runs, with the given key-value buckets.
func Start(tb testing.TB, buckets ...string) *Server {
	tb.Helper()
	s := New(tb)
	s.Start()
	for _, bucket := range buckets {
		s.Bucket(bucket)
	}
	return s
}

// URL is where clients connect.
func (s *Server) URL() string { return "nats://127.0.0.1:" + strconv.Itoa(s.port) }

// Start starts the server, again when it was stopped.
func (s *Server) Start() {
	s.tb.Helper()
	running, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: s.port, JetStream: true, SyncAlways: true, StoreDir: s.store, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	running.Start()
	s.server = running
	if !running.ReadyForConnections(30 * time.Second) {
		s.tb.Fatal("the NATS server is not ready")
	}
}

// Stop ends the server and keeps its data.
func (s *Server) Stop() {
	if s.server == nil {
		return
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.server = nil
}

// JetStream returns a client that lives as long as the test.
func (s *Server) JetStream() jetstream.JetStream {
	s.tb.Helper()
	conn, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		s.tb.Fatal(err)
	}
	return js
}

// Bucket makes the key-value bucket when it is not there, and returns it.
func (s *Server) Bucket(name string) jetstream.KeyValue {
	s.tb.Helper()
	kv, err := s.JetStream().CreateOrUpdateKeyValue(s.tb.Context(), jetstream.KeyValueConfig{Bucket: name, Storage: jetstream.FileStorage})
	if err != nil {
		s.tb.Fatal(err)
	}
	return kv
}
