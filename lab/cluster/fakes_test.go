package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"example.com/watertight/platform/fault"
)

const namespace = "shop"

// newShop is a shop whose objects are kept by client-go's fake, and whose processes answer at the proxy.
func newShop(t *testing.T, proxy http.Handler, objects ...runtime.Object) (*Shop, *fake.Clientset) {
	t.Helper()
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	api, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(objects...)
	return &Shop{Namespace: namespace, client: client, api: api, http: server.Client()}, client
}

func labels(name string) map[string]string {
	return map[string]string{nameLabel: name, partLabel: "service", "app.kubernetes.io/part-of": "watertight"}
}

// pod is one of a process, ready unless it waits for a reason.
func pod(process, name string, restarts int32, waits string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name), Labels: labels(process)}}
	status := corev1.ContainerStatus{Name: process, RestartCount: restarts}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if waits != "" {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: waits}
		condition.Status = corev1.ConditionFalse
	}
	p.Status.ContainerStatuses, p.Status.Conditions = []corev1.ContainerStatus{status}, []corev1.PodCondition{condition}
	return p
}

// deployment is settled at one replica.
func deployment(name string, env ...corev1.EnvVar) *appsv1.Deployment {
	one := int32(1)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels(name)}}
	d.Spec.Replicas = &one
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: name, Env: env}}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
	return d
}

// fakeGateway is what the API server's proxy leads to. It records the faults that were set, in order.
type fakeGateway struct {
	mu       sync.Mutex
	calls    []string
	degraded bool
}

func (g *fakeGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const prefix = "/api/v1/namespaces/" + namespace + "/services/gateway:http/proxy"
	path, mine := strings.CutPrefix(r.URL.Path, prefix)
	if !mine {
		http.NotFound(w, r)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := func(of any) {
		content, err := json.Marshal(of)
		if err != nil {
			panic(err) // maps and strings marshal
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(content) // a test that misses it says so
	}
	switch {
	case path == "/api/v1/status":
		answer(map[string]any{"version": "1", "design": "split", "upstreams": []any{map[string]any{"name": "recs", "breaker": "open"}},
			"faults": []any{map[string]any{"service": "recs"}}, "orders": map[string]any{"per_second": 12.5}})
	case path == "/api/v1/products":
		answer(map[string]any{"products": []any{map[string]any{"id": "A-1", "price": map[string]any{"currency": "GBP", "minor": 100}}}})
	case path == "/api/v1/recommendations":
		if g.degraded {
			w.Header().Set("Watertight-Degraded", "recs")
		}
		answer(map[string]any{})
	case path == "/api/v1/orders":
		if r.Header.Get("Idempotency-Key") == "" {
			http.Error(w, "no key", http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
	case strings.HasPrefix(path, "/api/v1/faults/"):
		var body fault.Request
		_ = json.NewDecoder(r.Body).Decode(&body) // a clearing has none
		g.calls = append(g.calls, strings.TrimSpace(r.Method+" "+strings.TrimPrefix(path, "/api/v1/faults/")+" "+string(body.Kind)))
		answer(map[string]any{})
	default:
		http.NotFound(w, r)
	}
}
