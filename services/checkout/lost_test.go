package checkout_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/watertight/platform/postgres/pgtest"
)

// relay stands between a service and its database. The first time that the service sends something with the mark in it,
// the relay passes it on, keeps the answer to itself, waits until committed, and cuts the connection.
type relay struct {
	listener  net.Listener
	upstream  *pgx.ConnConfig
	mark      []byte
	committed func()
	cut       atomic.Bool
}

func newRelay(t *testing.T, database, mark string) *relay {
	t.Helper()
	upstream, err := pgx.ParseConfig(database)
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return &relay{listener: listener, upstream: upstream, mark: []byte(mark)}
}

// through is the database's URL by way of the relay.
func (r *relay) through(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	must(t, err)
	u.Host, u.RawQuery = r.listener.Addr().String(), ""
	return u.String()
}

func (r *relay) serve(ctx context.Context) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // closed by the test's end
		}
		network, address := pgconn.NetworkAddress(r.upstream.Host, r.upstream.Port)
		server, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			_ = client.Close()
			continue
		}
		go r.pass(client, server)
	}
}

func (r *relay) pass(client, server net.Conn) {
	defer func() { _, _ = client.Close(), server.Close() }()
	var silent atomic.Bool
	go func() {
		defer func() { _, _ = client.Close(), server.Close() }()
		_, _ = io.Copy(writerFunc(func(p []byte) (int, error) {
			if silent.Load() {
				return len(p), nil
			}
			return client.Write(p)
		}), server)
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		marked := bytes.Contains(buffer[:n], r.mark) && r.cut.CompareAndSwap(false, true)
		silent.Store(marked)
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if marked {
			r.committed()
			return
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestPlaceOrder_AnOrderThatIsCommittedWhileItsAnswerIsLostIsFoundByItsKey(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	relay := newRelay(t, app, "tok_lost") // only the transaction that writes holds the token
	s := start(t, owner, "DATABASE_URL="+relay.through(t, app), "MIGRATE_DATABASE_URL="+owner)
	relay.committed = func() {
		eventually(t, "the order is committed", func() bool { return s.count(t, "SELECT count(*) FROM orders") == 1 })
	}
	go relay.serve(t.Context())
	s.waitReady(t)
	s.list(t, "A", 100)

	req := wanted("k", "A", 1)
	req.PaymentToken = "tok_lost"
	resp := s.place(t, req)
	if !relay.cut.Load() {
		t.Fatal("the relay never saw the order")
	}
	if resp.GetReplayed() {
		t.Error("the call that placed the order says that an earlier one did")
	}
	if got, want := s.rowsOfOrders(t), 1+1+1+1+1; got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
	again := s.place(t, req)
	if !again.GetReplayed() || again.GetOrder().GetId() != resp.GetOrder().GetId() {
		t.Errorf("asked again: got order %s, replayed %t, want order %s replayed", again.GetOrder().GetId(), again.GetReplayed(), resp.GetOrder().GetId())
	}
}
