// Package manifests holds the chart, as it is rendered for every kind of cluster and every design, against what is expected
// of it: valid for the API servers, secure, no request lost in a rollout, nothing reachable that need not be. It needs no
// cluster.
package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"example.com/watertight/test/manifests/chart"
	"example.com/watertight/test/manifests/target"
)

const root = "../.."

// variants are the values of everything that is looked at, by name.
func variants(t *testing.T) map[string]chart.Values {
	t.Helper()
	on := chart.Values{"enabled": true}
	out := map[string]chart.Values{
		"defaults":          {},
		"shared-pool":       {"design": "shared-pool"},
		"pool-per-feature":  {"design": "pool-per-feature"},
		"roles":             {"design": "roles"},
		"faults":            {"faults": on},
		"mtls":              {"mtls": on},
		"mtls, own issuer":  {"mtls": chart.Values{"enabled": true, "issuerRef": chart.Values{"name": "corporate", "kind": "ClusterIssuer"}}},
		"mtls, own secrets": {"mtls": chart.Values{"enabled": true, "certManager": false}},
		"mtls, roles":       {"mtls": on, "design": "roles"},
		"no network policy": {"networkPolicy": chart.Values{"enabled": false}},
		"no drain":          {"drain": chart.Values{"delay": 0}},
		"autoscaled": {"autoscaling": chart.Values{"enabled": true, "maxReplicas": 4}, "replicas": 2,
			"postgres": chart.Values{"maxConnections": 1500}},
		"recs in checkout": {"services": chart.Values{"checkout": chart.Values{"env": chart.Values{"RECS_IN_CHECKOUT": "guarded"}}}},
		"observed": {"observability": chart.Values{"otlpEndpoint": "http://collector.tracing:4317", "serviceMonitor": chart.Values{"enabled": true},
			"prometheusRules": on, "dashboards": on, "collector": on}},
		"traced": {"observability": chart.Values{"jaeger": on, "collector": on}},
	}
	for name, file := range target.Targets() {
		values, err := chart.ReadValues(root + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = values
	}
	return out
}

// each runs the test for every variant.
func each(t *testing.T, test func(t *testing.T, release release)) {
	t.Helper()
	for name, values := range variants(t) {
		t.Run(name, func(t *testing.T) { test(t, render(t, values)) })
	}
}

// release is a rendered chart.
type release struct{ chart.Rendered }

func load(t *testing.T) chart.Chart {
	t.Helper()
	loaded, err := chart.Load(root + "/" + target.ChartDir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func render(t *testing.T, values chart.Values) release {
	t.Helper()
	rendered, err := load(t).Render(values)
	if err != nil {
		t.Fatal(err)
	}
	return release{rendered}
}

// typed returns the release's objects of one kind, by name.
func typed[T any](t *testing.T, r release, kind string) map[string]*T {
	t.Helper()
	out := map[string]*T{}
	for _, o := range r.Objects {
		if o.GetKind() != kind {
			continue
		}
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, object, true); err != nil {
			t.Fatalf("%s: %v", o.ID(), err)
		}
		out[o.GetName()] = object
	}
	return out
}

// pod is what a workload makes pods from.
type pod struct {
	owner string // kind and name
	corev1.PodTemplateSpec
}

// pods returns the pod templates of all workloads.
func pods(t *testing.T, r release) []pod {
	t.Helper()
	var out []pod
	for name, d := range typed[appsv1.Deployment](t, r, "Deployment") {
		out = append(out, pod{"Deployment/" + name, d.Spec.Template})
	}
	for name, s := range typed[appsv1.StatefulSet](t, r, "StatefulSet") {
		out = append(out, pod{"StatefulSet/" + name, s.Spec.Template})
	}
	for name, j := range typed[batchv1.Job](t, r, "Job") {
		out = append(out, pod{"Job/" + name, j.Spec.Template})
	}
	for name, p := range typed[corev1.Pod](t, r, "Pod") {
		out = append(out, pod{"Pod/" + name, corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}})
	}
	slices.SortFunc(out, func(a, b pod) int { return strings.Compare(a.owner, b.owner) })
	return out
}

func (p pod) containers() []corev1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// environment is what a container's variables are, those of its ConfigMaps included; a variable from a Secret is
// "secret NAME/KEY".
func environment(t *testing.T, r release, c corev1.Container) map[string]string {
	t.Helper()
	configs := typed[corev1.ConfigMap](t, r, "ConfigMap")
	out := map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			config := configs[from.ConfigMapRef.Name]
			if config == nil {
				t.Fatalf("no ConfigMap %s", from.ConfigMapRef.Name)
			}
			maps.Copy(out, config.Data)
		}
	}
	for _, e := range c.Env {
		out[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			out[e.Name] = "secret " + e.ValueFrom.SecretKeyRef.Name + "/" + e.ValueFrom.SecretKeyRef.Key
		}
	}
	return out
}

// deployments are the shop's own processes; what keeps their traces is none.
func deployments(t *testing.T, r release) map[string]*appsv1.Deployment {
	t.Helper()
	found := typed[appsv1.Deployment](t, r, "Deployment")
	maps.DeleteFunc(found, func(_ string, d *appsv1.Deployment) bool {
		return d.Labels["app.kubernetes.io/component"] == "observability"
	})
	if len(found) == 0 {
		t.Fatal("no Deployment at all")
	}
	return found
}

// replicasOf is how many replicas of a process there may be: what its Deployment says, or its autoscaler.
func replicasOf(t *testing.T, r release, name string) int {
	t.Helper()
	if scaler := typed[autoscalingv2.HorizontalPodAutoscaler](t, r, "HorizontalPodAutoscaler")[name]; scaler != nil {
		return int(scaler.Spec.MaxReplicas)
	}
	replicas := deployments(t, r)[name].Spec.Replicas
	if replicas == nil {
		t.Fatalf("%s: neither replicas nor an autoscaler", name)
	}
	return int(*replicas)
}
