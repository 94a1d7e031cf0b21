package rpc_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	testv1 "google.golang.org/grpc/interop/grpc_testing"

	"example.com/watertight/platform/rpc"
)

func well(context.Context) error { return nil }

// wantWithin waits until the client is answered, and fails when that took longer than the promise.
func wantWithin(t *testing.T, promise time.Duration, client testv1.TestServiceClient) {
	t.Helper()
	start := time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		_, err := client.UnaryCall(ctx, &testv1.SimpleRequest{})
		cancel()
		took := time.Since(start)
		switch {
		case err == nil:
			t.Logf("answered after %v", took)
			return
		case took > promise:
			t.Fatalf("no answer within %v: %v", promise, err)
		}
		time.Sleep(20 * time.Millisecond) // paces the load
	}
}

// A name that had no address, as when a service is scaled to nothing: however long that was, it heals at once.
func TestDial_ANameIsUsedSoonAfterItGetsItsFirstAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, &peer{unary: well})
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	names := newNameServer(t)
	client := testv1.NewTestServiceClient(dial(t, "dns://"+names.addr+"/shop.test:"+port))
	for end := time.Now().Add(17 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := call(t, client); err == nil {
			t.Fatal("an answer from no address")
		}
	}
	names.set("127.0.0.1")
	wantWithin(t, 5*time.Second, client)
}

// A process that comes back under another address, as a pod does that was replaced.
func TestDial_AProcessThatMovedIsFoundWithinSeconds(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, &peer{unary: well})
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	names := newNameServer(t, "127.0.0.1")
	client := testv1.NewTestServiceClient(dial(t, "dns://"+names.addr+"/shop.test:"+port))
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err := call(t, client); err == nil {
			t.Fatal("an answer from a stopped server")
		}
	}
	serve(t, net.JoinHostPort("127.0.0.2", port), rpc.ServerConfig{}, &peer{unary: well})
	names.set("127.0.0.2")
	wantWithin(t, 5*time.Second, client)
}

// A replica that is added while no connection is lost: nothing asks for a lookup, and still it must be known before the one that it
// replaces has left.
func TestDial_AnAddressThatIsAddedIsFoundWhileConnectionsLast(t *testing.T) {
	t.Parallel()
	forever := rpc.ServerConfig{MaxConnectionAge: time.Hour}
	s := serve(t, "127.0.0.1:0", forever, &peer{unary: well})
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	added := make(chan struct{}, 1000)
	serve(t, net.JoinHostPort("127.0.0.2", port), forever, &peer{unary: func(context.Context) error {
		added <- struct{}{}
		return nil
	}})
	names := newNameServer(t, "127.0.0.1")
	client := testv1.NewTestServiceClient(dial(t, "dns://"+names.addr+"/shop.test:"+port))
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	names.set("127.0.0.1", "127.0.0.2")
	for end := time.Now().Add(15 * time.Second); len(added) == 0; time.Sleep(20 * time.Millisecond) {
		if err := call(t, client); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatal("the new address is not called after 15 s")
		}
	}
}

// A name server that forgets the name for a moment does not cost the connections that work.
func TestDial_KeepsItsAddressesWhileTheNameHasNone(t *testing.T) {
	t.Parallel()
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{MaxConnectionAge: 500 * time.Millisecond}, &peer{unary: well})
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	names := newNameServer(t, "127.0.0.1")
	client := testv1.NewTestServiceClient(dial(t, "dns://"+names.addr+"/shop.test:"+port))
	if err := call(t, client); err != nil {
		t.Fatal(err)
	}
	names.set()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := call(t, client); err != nil {
			t.Fatalf("while the name has no address: %v", err)
		}
	}
}

func TestDial_RefusesANameWithoutAPort(t *testing.T) {
	client := testv1.NewTestServiceClient(dial(t, "dns:///recs"))
	if err := call(t, client); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("got %v, want an error that says what is missing", err)
	}
}
