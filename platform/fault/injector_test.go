package fault

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

func newInjector(t *testing.T, deps Deps) *Injector {
	t.Helper()
	deps.Log, deps.Registry = slog.New(slog.NewTextHandler(t.Output(), nil)), prometheus.NewRegistry()
	i, err := New("victim", Config{}, deps)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func wanted(t *testing.T, r Request) *Fault {
	t.Helper()
	f, err := r.Fault(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &f
}

// call runs a request through the injector and returns when it was answered and how.
func call(ctx context.Context, i *Injector) (time.Time, error) {
	_, err := i.Unary(ctx, &testpb.SimpleRequest{}, &grpc.UnaryServerInfo{FullMethod: "/any.Service/Call"}, func(context.Context, any) (any, error) { return nil, nil })
	return time.Now(), err
}

// The bubble's clock makes the moments exact.
func TestInjector_SleepersGoAtTheMomentTheFaultEnds(t *testing.T) {
	for _, kind := range []Kind{Slow, Hang} {
		for _, way := range []string{"ttl", "clear", "replace"} {
			t.Run(string(kind)+" by "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					i := newInjector(t, Deps{})
					start := time.Now()
					i.set(wanted(t, Request{Kind: kind, DelayMS: new(int64(500_000)), TTLS: new(int64(60))}))
					ended := make(chan time.Time)
					for range 3 {
						go func() {
							at, err := call(context.WithoutCancel(t.Context()), i)
							if err != nil {
								t.Errorf("got %v, want an answer", err)
							}
							ended <- at
						}()
					}
					want := start.Add(60 * time.Second).Truncate(time.Millisecond)
					switch way {
					case "clear":
						want = start.Add(7 * time.Second)
						time.AfterFunc(7*time.Second, func() { i.set(nil) })
					case "replace":
						want = start.Add(9 * time.Second)
						time.AfterFunc(9*time.Second, func() { i.set(wanted(t, Request{Kind: Error})) })
					}
					for range 3 {
						if got := <-ended; !got.Equal(want) {
							t.Errorf("answered after %s, want %s", got.Sub(start), want.Sub(start))
						}
					}
					i.set(nil)
				})
			})
		}
	}
}

func TestInjector_SlowHonoursTheCallersEndAndHangDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInjector(t, Deps{})
		for kind, want := range map[Kind]time.Duration{Slow: time.Second, Hang: 60 * time.Second} {
			start := time.Now()
			i.set(wanted(t, Request{Kind: kind, DelayMS: new(int64(30_000)), TTLS: new(int64(60))}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			at, err := call(ctx, i)
			cancel()
			if at.Sub(start) != want || errors.Is(err, context.DeadlineExceeded) != (kind == Slow) {
				t.Errorf("%s: ended after %s with %v, want %s", kind, at.Sub(start), err, want)
			}
			i.set(nil)
		}
	})
}

func TestInjector_TheSameEntryAgainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInjector(t, Deps{})
		f := wanted(t, Request{Kind: Slow, Match: map[string]string{"a": "b"}})
		i.set(f)
		first := i.current.Load()
		again := *f
		again.ExpiresAt = again.ExpiresAt.In(time.FixedZone("elsewhere", 3600))
		i.set(&again)
		if i.current.Load() != first || first.over() {
			t.Error("the fault began anew")
		}
		other := *f
		other.Match = map[string]string{"a": "c"}
		i.set(&other)
		if i.current.Load() == first || !first.over() {
			t.Error("another fault did not take its place")
		}
		i.set(nil)
	})
}

func TestInjector_AnEntryWhoseTimeIsOverIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInjector(t, Deps{})
		f := wanted(t, Request{Kind: Error, TTLS: new(int64(1))})
		time.Sleep(time.Second)
		i.set(f)
		if i.current.Load() != nil || testutil.ToFloat64(i.gauge.WithLabelValues(string(Error))) != 0 {
			t.Error("it is in force")
		}
	})
}

func TestInjector_HoldsTheDatabaseOnceAndTriesAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries, held int
		i := newInjector(t, Deps{Database: func(context.Context) (func(), error) {
			if tries++; tries == 1 {
				return nil, errors.New("no connection")
			}
			held++
			return func() { held-- }, nil
		}})
		i.set(wanted(t, Request{Kind: DBLock}))
		for range 5 {
			if _, err := call(t.Context(), i); err != nil {
				t.Error(err)
			}
		}
		if tries != 1 {
			t.Errorf("tried %d times at once, want 1", tries)
		}
		time.Sleep(retryHold + time.Millisecond)
		for range 5 {
			if _, err := call(t.Context(), i); err != nil {
				t.Error(err)
			}
		}
		if tries != 2 || held != 1 {
			t.Errorf("%d tries, held %d times; want 2 and once", tries, held)
		}
		i.set(nil)
		synctest.Wait()
		if held != 0 {
			t.Error("still held")
		}
	})
}

func TestMatches_FieldsOfEveryShape(t *testing.T) {
	message := &testpb.SimpleRequest{
		ResponseType: testpb.PayloadType_COMPRESSABLE, ResponseSize: 7, FillUsername: true,
		Payload: &testpb.Payload{Body: []byte("x")}, ResponseStatus: &testpb.EchoStatus{Code: 3, Message: "a=b"},
		ExpectCompressed: &testpb.BoolValue{Value: true},
	}
	streamed := &testpb.StreamingOutputCallRequest{ResponseParameters: []*testpb.ResponseParameters{{Size: 1}, {Size: 2, IntervalUs: 5}}}
	backends := &testpb.LoadBalancerStatsResponse{
		RpcsByPeer:      map[string]int32{"a": 1, "b": 2},
		RpcsByMethod:    map[string]*testpb.LoadBalancerStatsResponse_RpcsByPeer{"m": {RpcsByPeer: map[string]int32{"c": 9}}},
		MetadatasByPeer: map[string]*testpb.LoadBalancerStatsResponse_MetadataByPeer{"p": {RpcMetadata: []*testpb.LoadBalancerStatsResponse_RpcMetadata{{Metadata: []*testpb.LoadBalancerStatsResponse_MetadataEntry{{Key: "k", Value: "v"}}}}}},
	}
	clients := &testpb.LoadBalancerStatsRequest{MetadataKeys: []string{"one", "two"}}
	for _, c := range []struct {
		name  string
		match map[string]string
		want  bool
	}{
		{"number", map[string]string{"response_size": "7"}, true},
		{"another number", map[string]string{"response_size": "70"}, false},
		{"bool", map[string]string{"fill_username": "true"}, true},
		{"nested", map[string]string{"message": "a=b"}, true},
		{"nested twice over", map[string]string{"value": "true"}, true},
		{"both", map[string]string{"message": "a=b", "code": "3"}, true},
		{"one of two", map[string]string{"message": "a=b", "code": "4"}, false},
		{"no such field", map[string]string{"product_id": "a=b"}, false},
		{"not set", map[string]string{"fill_oauth_scope": "false"}, false},
		{"JSON's name is not the contract's", map[string]string{"responseSize": "7"}, false},
	} {
		if got := matches(message.ProtoReflect(), c.match); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if !matches(streamed.ProtoReflect(), map[string]string{"size": "2"}) || matches(streamed.ProtoReflect(), map[string]string{"size": "3"}) {
		t.Error("messages in a list: one that matches is enough, and one has to")
	}
	if !matches(clients.ProtoReflect(), map[string]string{"metadata_keys": "two"}) || matches(clients.ProtoReflect(), map[string]string{"metadata_keys": "three"}) {
		t.Error("values in a list: one that matches is enough, and one has to")
	}
	for value, want := range map[string]bool{"2": true, "9": true, "3": false} {
		if got := matches(backends.ProtoReflect(), map[string]string{"rpcs_by_peer": value}); got != want {
			t.Errorf("map with the value %s: got %v, want %v", value, got, want)
		}
	}
	if !matches(backends.ProtoReflect(), map[string]string{"key": "k", "value": "v"}) {
		t.Error("messages in a map are looked into")
	}
	answer := &testpb.SimpleResponse{GrpclbRouteType: testpb.GrpclbRouteType_GRPCLB_ROUTE_TYPE_BACKEND}
	if !matches(answer.ProtoReflect(), map[string]string{"grpclb_route_type": "GRPCLB_ROUTE_TYPE_BACKEND"}) {
		t.Error("an enum matches by its name")
	}
	enum := &testpb.SimpleRequest{ResponseType: testpb.PayloadType_COMPRESSABLE}
	if matches(enum.ProtoReflect(), map[string]string{"response_type": "COMPRESSABLE"}) {
		t.Error("the zero value counts as set")
	}
}
