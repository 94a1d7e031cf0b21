package rpc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/platform/shard"
)

func TestMain(m *testing.M) {
	shard.Register()
	os.Exit(m.Run())
}

// replica is a server that can crash and come back on its address.
type replica struct {
	*peer
	addr   string
	server *rpc.Server
}

// replicas serves n of them. Their handlers answer well.
func replicas(t *testing.T, n int) []*replica {
	t.Helper()
	out := make([]*replica, n)
	for i := range out {
		p := &peer{unary: func(context.Context) error { return nil }}
		s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p)
		out[i] = &replica{p, s.Addr(), s}
	}
	return out
}

func addresses(all []*replica) []string {
	var out []string
	for _, r := range all {
		out = append(out, r.addr)
	}
	return out
}

func target(all []*replica) string { return "static:///" + strings.Join(addresses(all), ",") }

// crash cuts its connections and frees its port. A server that is told to stop before it has begun to serve frees it only then.
func (r *replica) crash() {
	r.server.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			return
		}
		conn.Close()
	}
}

func (r *replica) restart(t *testing.T) {
	t.Helper()
	r.server = serve(t, r.addr, rpc.ServerConfig{}, r.peer)
}

func dialShards(t *testing.T, target string, size int) testv1.TestServiceClient {
	t.Helper()
	conn, err := rpc.Dial(target, rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{}, ShardSize: size,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testv1.NewTestServiceClient(conn)
}

func callAs(t *testing.T, client testv1.TestServiceClient, customer string, opts ...grpc.CallOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := client.UnaryCall(shard.WithKey(ctx, customer), &testv1.SimpleRequest{}, opts...)
	return err
}

// of returns the replicas that the customer's calls go to.
func of(all []*replica, customer string, size int) []*replica {
	var out []*replica
	for _, addr := range shard.Subset(customer, addresses(all), size) {
		out = append(out, all[slices.IndexFunc(all, func(r *replica) bool { return r.addr == addr })])
	}
	return out
}

func settle(t *testing.T, client testv1.TestServiceClient, all []*replica, customer string, size int) {
	t.Helper()
	waitFor(t, "both replicas of "+customer+" serve it", func() bool {
		var before []int64
		mine := of(all, customer, size)
		for _, r := range mine {
			before = append(before, r.calls.Load())
		}
		for range 2 * size {
			if callAs(t, client, customer) != nil {
				return false
			}
		}
		for i, r := range mine {
			if r.calls.Load() == before[i] {
				return false
			}
		}
		return true
	})
}

func TestShard_ACustomersCallsTakeTurnsAtItsReplicasAndReachNoOther(t *testing.T) {
	all := replicas(t, 6)
	client := dialShards(t, target(all), 2)
	for i := range 20 {
		customer := fmt.Sprintf("c-%d", i)
		settle(t, client, all, customer, 2)
		before := map[string]int64{}
		for _, r := range all {
			before[r.addr] = r.calls.Load()
		}
		for range 10 {
			if err := callAs(t, client, customer); err != nil {
				t.Fatal(err)
			}
		}
		mine := shard.Subset(customer, addresses(all), 2)
		for _, r := range all {
			want := int64(0)
			if slices.Contains(mine, r.addr) {
				want = 5
			}
			if got := r.calls.Load() - before[r.addr]; got != want {
				t.Errorf("%s: %s got %d of 10 calls, want %d", customer, r.addr, got, want)
			}
		}
	}
}

func TestShard_CrashedReplicasAreNotReplacedAndComeBack(t *testing.T) {
	all := replicas(t, 6)
	client := dialShards(t, target(all), 2)
	const victim = "victim"
	settle(t, client, all, victim, 2)
	mine := of(all, victim, 2)
	var other string // shares neither replica
	for i := 0; other == ""; i++ {
		if name := fmt.Sprintf("c-%d", i); !slices.ContainsFunc(of(all, name, 2), func(r *replica) bool { return slices.Contains(mine, r) }) {
			other = name
		}
	}
	settle(t, client, all, other, 2)

	mine[0].crash()
	waitFor(t, "the first crash is known", func() bool {
		first := callAs(t, client, victim) // two in a row take both turns
		return first == nil && callAs(t, client, victim) == nil
	})
	alone := mine[1].calls.Load()
	for range 10 {
		if err := callAs(t, client, victim); err != nil {
			t.Fatalf("with one of two replicas: %v", err)
		}
	}
	if got := mine[1].calls.Load() - alone; got != 10 {
		t.Errorf("the other replica got %d of 10 calls", got)
	}

	mine[1].crash()
	var err error
	waitFor(t, "the second crash is known", func() bool { err = callAs(t, client, victim); return rpcerr.Reason(err) == rpcerr.ShardDown })
	for _, wait := range []bool{false, true} {
		start := time.Now()
		err = callAs(t, client, victim, grpc.WaitForReady(wait))
		if took := time.Since(start); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.ShardDown || took > 5*time.Second {
			t.Errorf("with its subset down, wait for ready %v: %v after %v, want UNAVAILABLE/SHARD_DOWN at once", wait, err, took)
		}
	}
	for range 20 {
		if err := callAs(t, client, other); err != nil {
			t.Errorf("a customer of other replicas: %v", err)
		}
	}

	mine[0].restart(t)
	waitFor(t, "the restarted replica serves again", func() bool { return callAs(t, client, victim) == nil })
	mine[1].restart(t)
	settle(t, client, all, victim, 2)
}

func TestShard_AnUnhealthyReplicaIsDown(t *testing.T) {
	all := replicas(t, 3)
	client := dialShards(t, target(all), 1)
	settle(t, client, all, "c", 1)
	mine := of(all, "c", 1)[0]
	mine.server.Drain()
	waitFor(t, "NOT_SERVING is known", func() bool { return rpcerr.Reason(callAs(t, client, "c")) == rpcerr.ShardDown })
	mine.server.Ready()
	waitFor(t, "SERVING is known", func() bool { return callAs(t, client, "c") == nil })
}

// The channel takes the address set from the name: an address that leaves it is replaced, one that only crashes is not.
func TestShard_FollowsTheNamesAddressSet(t *testing.T) {
	t.Parallel()
	var counts [4]atomic.Int64
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"}
	port := "0"
	for i, host := range hosts {
		p := &peer{unary: func(context.Context) error { counts[i].Add(1); return nil }}
		_, port, _ = net.SplitHostPort(serve(t, net.JoinHostPort(host, port), rpc.ServerConfig{MaxConnectionAge: 2 * time.Second}, p).Addr())
	}
	names := newNameServer(t, hosts...)
	client := dialShards(t, "dns://"+names.addr+"/shop.test:"+port, 1)
	at := func(set []string) int {
		var full []string
		for _, h := range set {
			full = append(full, net.JoinHostPort(h, port))
		}
		return slices.Index(full, shard.Subset("c", full, 1)[0])
	}
	first := at(hosts)
	for range 5 {
		if err := callAs(t, client, "c"); err != nil {
			t.Fatal(err)
		}
	}
	if got := counts[first].Load(); got != 5 {
		t.Errorf("%s got %d of 5 calls", hosts[first], got)
	}
	left := slices.Delete(slices.Clone(hosts), first, first+1)
	names.set(left...)
	next := slices.Index(hosts, left[at(left)])
	for deadline := time.Now().Add(time.Minute); counts[next].Load() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute later the address that left is still used")
		}
		if err := callAs(t, client, "c"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestShard_TellsADeadReplicaFromAnAnswer(t *testing.T) {
	all := replicas(t, 1)
	client := dialShards(t, target(all), 1)
	settle(t, client, all, "c", 1)

	all[0].unary = func(context.Context) error { return status.Error(codes.Unavailable, "not loaded yet") }
	if err := callAs(t, client, "c"); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) == rpcerr.ShardDown {
		t.Errorf("an answer of UNAVAILABLE: %v %s", err, rpcerr.Reason(err))
	}
	crashing := sync.OnceFunc(func() { go all[0].crash() })
	all[0].unary = func(ctx context.Context) error { crashing(); <-ctx.Done(); return ctx.Err() }
	if err := callAs(t, client, "c"); status.Code(err) != codes.Unavailable || rpcerr.Reason(err) != rpcerr.ShardDown {
		t.Errorf("a crash under the call: %v %s, want UNAVAILABLE/SHARD_DOWN", err, rpcerr.Reason(err))
	}
}

func TestShard_CallsFromManyCustomersAtOnce(t *testing.T) {
	all := replicas(t, 4)
	client := dialShards(t, target(all), 2)
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			for range 50 {
				err := callAs(t, client, fmt.Sprintf("c-%d", i))
				if code := status.Code(err); err != nil && code != codes.Unavailable && code != codes.ResourceExhausted {
					t.Error(err)
				}
			}
		})
	}
	all[0].crash()
	all[0].restart(t)
	calls.Wait()
}

func TestDial_RefusesShardsOfANegativeSize(t *testing.T) {
	_, err := rpc.Dial("static:///127.0.0.1:1", rpc.ClientDeps{ShardSize: -1})
	if err == nil || !strings.Contains(err.Error(), "shard") {
		t.Errorf("got %v, want an error that names the shard size", err)
	}
}

func TestDial_WithoutABudgetEveryFailingCallIsThreeTries(t *testing.T) {
	p := &peer{unary: func(context.Context) error { return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "not now") }}
	s := serve(t, "127.0.0.1:0", rpc.ServerConfig{}, p)
	conn, err := rpc.Dial("static:///"+s.Addr(), rpc.ClientDeps{
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(), Propagator: propagation.TraceContext{},
		Retry: []string{"/grpc.testing.TestService/UnaryCall"}, NoRetryBudget: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 30 {
		if err := call(t, testv1.NewTestServiceClient(conn)); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	if got := p.calls.Load(); got != 90 {
		t.Errorf("30 failing calls made %d tries, want 90", got)
	}
}
