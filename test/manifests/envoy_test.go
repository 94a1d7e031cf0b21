package manifests

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"example.com/watertight/gateway"
	"example.com/watertight/platform/config"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/test/manifests/chart"
)

var withEnvoy = chart.Values{"envoy": chart.Values{"enabled": true}}

// knownTypes are the messages that the configuration holds as Any.
func knownTypes(t *testing.T) *protoregistry.Types {
	t.Helper()
	types := &protoregistry.Types{}
	for _, m := range []proto.Message{
		&hcmv3.HttpConnectionManager{}, &routerv3.Router{}, &httpv3.HttpProtocolOptions{}, &previousv3.PreviousHostsPredicate{},
	} {
		if err := types.RegisterMessage(m.ProtoReflect().Type()); err != nil {
			t.Fatal(err)
		}
	}
	return types
}

// envoy reads the sidecar's configuration as Envoy does: strictly.
func envoy(t *testing.T, r release) *bootstrapv3.Bootstrap {
	t.Helper()
	file := typed[corev1.ConfigMap](t, r, "ConfigMap")["envoy"]
	if file == nil {
		t.Fatal("no ConfigMap envoy")
	}
	text, err := yaml.YAMLToJSONStrict([]byte(file.Data["envoy.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	bootstrap := &bootstrapv3.Bootstrap{}
	if err := (protojson.UnmarshalOptions{Resolver: knownTypes(t)}).Unmarshal(text, bootstrap); err != nil {
		t.Fatal(err)
	}
	return bootstrap
}

// validate holds a message against Envoy's own rules, and every message that it holds as Any, at any depth.
func validate(t *testing.T, message proto.Message) error {
	t.Helper()
	ruled, ok := message.(interface{ ValidateAll() error })
	if !ok {
		return fmt.Errorf("%T has no rules", message)
	}
	errs := []error{ruled.ValidateAll()}
	err := protorange.Range(message.ProtoReflect(), func(p protopath.Values) error {
		inner, ok := p.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		if packed, ok := inner.Interface().(*anypb.Any); ok {
			held, err := anypb.UnmarshalNew(packed, proto.UnmarshalOptions{Resolver: knownTypes(t)})
			if err != nil {
				return err
			}
			errs = append(errs, validate(t, held))
			return protorange.Break
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func TestEnvoy_ItsOwnRulesHold(t *testing.T) {
	for name, values := range map[string]chart.Values{"split": withEnvoy, "roles": {"envoy": chart.Values{"enabled": true}, "design": "roles"}} {
		t.Run(name, func(t *testing.T) {
			bootstrap := envoy(t, render(t, values))
			if err := validate(t, bootstrap); err != nil {
				t.Error(err)
			}
			// The rules bite, also inside of what is held as Any.
			bootstrap.StaticResources.Clusters[0].ConnectTimeout.Seconds = -1
			if err := validate(t, bootstrap); err == nil {
				t.Error("a negative connect_timeout passes")
			}
		})
	}
}

func TestEnvoy_HasTheGatewaysLimits(t *testing.T) {
	r := render(t, withEnvoy)
	bootstrap := envoy(t, r)
	own, err := config.Load[gateway.UpstreamsConfig](nil)
	if err != nil {
		t.Fatal(err)
	}
	type limits struct {
		timeout            time.Duration
		inFlight, streams  int
		consecutive, queue int
	}
	for name, want := range map[string]limits{
		"checkout": {own.Checkout.Timeout, own.Checkout.MaxInFlight, own.Checkout.MaxStreams, int(own.Checkout.Breaker.Consecutive), own.Checkout.MaxQueue},
		"search":   {own.Search.Timeout, own.Search.MaxInFlight, 0, int(own.Search.Breaker.Consecutive), own.Search.MaxQueue},
		"recs":     {own.Recs.Timeout, own.Recs.MaxInFlight, 0, int(own.Recs.Breaker.Consecutive), own.Recs.MaxQueue},
	} {
		cluster, routes := clusterOf(t, bootstrap, name), routesOf(t, bootstrap, name)
		threshold := cluster.GetCircuitBreakers().GetThresholds()[0]
		if got := int(threshold.GetMaxRequests().GetValue()); got != want.inFlight+want.streams {
			t.Errorf("%s: max_requests is %d, want the gateway's %d calls and %d streams", name, got, want.inFlight, want.streams)
		}
		if got := int(threshold.GetMaxPendingRequests().GetValue()); got != want.queue {
			t.Errorf("%s: max_pending_requests is %d, want %d", name, got, want.queue)
		}
		if threshold.GetMaxRetries() != nil || threshold.GetRetryBudget().GetBudgetPercent().GetValue() != 10 {
			t.Errorf("%s: want a retry budget of 10 %%, and no max_retries beside it", name)
		}
		if got := int(cluster.GetOutlierDetection().GetConsecutive_5Xx().GetValue()); got != want.consecutive {
			t.Errorf("%s: a replica is left alone after %d failures, want %d", name, got, want.consecutive)
		}
		if got := routes[len(routes)-1].GetRoute().GetTimeout().AsDuration(); got != want.timeout {
			t.Errorf("%s: timeout is %v, want %v", name, got, want.timeout)
		}
	}
}

func TestEnvoy_RetriesReadsOfSearchAndCheckoutOnly(t *testing.T) {
	bootstrap := envoy(t, render(t, withEnvoy))
	want := map[string][]string{
		"checkout": {checkoutv1.CheckoutService_GetOrder_FullMethodName},
		"search":   {searchv1.SearchService_SearchProducts_FullMethodName, searchv1.SearchService_GetProducts_FullMethodName},
		"recs":     nil,
	}
	for name, reads := range want {
		var got []string
		for _, route := range routesOf(t, bootstrap, name) {
			if route.GetRoute().GetRetryPolicy() != nil {
				got = append(got, route.GetMatch().GetPath())
			}
			if path := route.GetMatch().GetPath(); path == checkoutv1.CheckoutService_WatchOrder_FullMethodName && route.GetRoute().GetTimeout().AsDuration() != 0 {
				t.Errorf("%s ends after %v", path, route.GetRoute().GetTimeout().AsDuration())
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(reads) {
			t.Errorf("%s: retries %v, want %v", name, got, reads)
		}
	}
}

func TestEnvoy_StandsBetweenTheGatewayAndItsUpstreams(t *testing.T) {
	r := render(t, withEnvoy)
	bootstrap := envoy(t, r)
	for _, p := range pods(t, r) {
		if p.owner != "Deployment/gateway" {
			continue
		}
		env := environment(t, r, p.Spec.Containers[0])
		if env["RETRY_LAYERS"] != "0" {
			t.Errorf("RETRY_LAYERS is %q: two layers would retry", env["RETRY_LAYERS"])
		}
		for _, name := range []string{"checkout", "search", "recs"} {
			var address *corev3.SocketAddress
			for _, l := range bootstrap.GetStaticResources().GetListeners() {
				if l.GetName() == name {
					address = l.GetAddress().GetSocketAddress()
				}
			}
			want := fmt.Sprintf("static:///%s:%d", address.GetAddress(), address.GetPortValue())
			if got := env[strings.ToUpper(name)+"_ADDR"]; got != want || address.GetAddress() != "127.0.0.1" {
				t.Errorf("%s: the gateway calls %s, Envoy listens at %s", name, got, want)
			}
		}
	}
}

func TestEnvoy_IsRefusedWhereItCannotWork(t *testing.T) {
	for want, values := range map[string]chart.Values{
		"mtls.enabled": {"envoy": chart.Values{"enabled": true}, "mtls": chart.Values{"enabled": true}},
		"shared-pool":  {"envoy": chart.Values{"enabled": true}, "design": "shared-pool"},
	} {
		if _, err := load(t).Render(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that names %s", err, want)
		}
	}
}

func clusterOf(t *testing.T, b *bootstrapv3.Bootstrap, name string) *clusterv3.Cluster {
	t.Helper()
	for _, c := range b.GetStaticResources().GetClusters() {
		if c.GetName() == name {
			return c
		}
	}
	t.Fatalf("no cluster %s", name)
	return nil
}

func routesOf(t *testing.T, b *bootstrapv3.Bootstrap, name string) []*routev3.Route {
	t.Helper()
	for _, l := range b.GetStaticResources().GetListeners() {
		if l.GetName() != name {
			continue
		}
		manager := &hcmv3.HttpConnectionManager{}
		if err := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
			t.Fatal(err)
		}
		return manager.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()
	}
	t.Fatalf("no listener %s", name)
	return nil
}
