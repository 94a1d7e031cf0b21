package manifests

import (
	"encoding/json"
	"slices"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"example.com/watertight/test/manifests/chart"
	"example.com/watertight/test/manifests/schema"
	"example.com/watertight/test/manifests/target"
)

// custom decodes kinds that are no part of Kubernetes, strictly.
func custom(o chart.Object) (known bool, err error) {
	targets := map[string]any{
		"cert-manager.io/v1/Certificate":          &certmanagerv1.Certificate{},
		"cert-manager.io/v1/Issuer":               &certmanagerv1.Issuer{},
		"monitoring.coreos.com/v1/ServiceMonitor": &monitoringv1.ServiceMonitor{},
		"monitoring.coreos.com/v1/PrometheusRule": &monitoringv1.PrometheusRule{},
	}
	into, known := targets[o.GetAPIVersion()+"/"+o.GetKind()]
	if !known {
		return false, nil
	}
	return true, yaml.UnmarshalStrict([]byte(o.Source), into)
}

func TestObjects_AreValidForTheOldestAndTheNewestServer(t *testing.T) {
	for _, version := range schema.Versions() {
		server, err := schema.Open(version)
		if err != nil {
			t.Fatal(err)
		}
		each(t, func(t *testing.T, r release) {
			for _, o := range r.Objects {
				if known, err := custom(o); known {
					if err != nil {
						t.Errorf("%s: %v", o.ID(), err)
					}
					continue
				}
				known, err := server.Validate(o.GetAPIVersion(), o.GetKind(), o.Object)
				if !known {
					t.Errorf("%s: %s %s is a kind that nothing validates here; add it to package schema", o.ID(), o.GetAPIVersion(), o.GetKind())
				}
				if err != nil {
					t.Errorf("%s on Kubernetes %s: %v", o.ID(), version, err)
				}
			}
		})
	}
}

func TestSchemas_RefuseWhatAServerWould(t *testing.T) {
	server, err := schema.Open("1.30")
	if err != nil {
		t.Fatal(err)
	}
	pod := func(container string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[` + container + `]}}`
	}
	for name, c := range map[string]struct {
		object string
		valid  bool
	}{
		"a pod":                    {pod(`{"name":"c","image":"i","resources":{"limits":{"cpu":1,"memory":"1Gi"}}}`), true},
		"a field that is misspelt": {pod(`{"name":"c","livenessProb":{}}`), false},
		"a number for a string":    {pod(`{"name":"c","env":[{"name":"A","value":5}]}`), false},
		"no name":                  {pod(`{"image":"i"}`), false},
		"a field of 1.33":          {pod(`{"name":"c","lifecycle":{"stopSignal":"SIGINT"}}`), false},
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(c.object), &object); err != nil {
			t.Fatal(err)
		}
		known, err := server.Validate("v1", "Pod", object)
		if !known || (err == nil) != c.valid {
			t.Errorf("%s: known %v, error %v; want it valid: %v", name, known, err, c.valid)
		}
	}
}

// What is served for a namespace that enforces the profile "restricted", by the code that enforces it.
func TestPods_MeetTheRestrictedProfile(t *testing.T) {
	evaluator, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurityapi.LevelVersion{Level: podsecurityapi.LevelRestricted, Version: podsecurityapi.LatestVersion()}
	each(t, func(t *testing.T, r release) {
		for _, p := range pods(t, r) {
			for _, result := range evaluator.EvaluatePod(level, &p.ObjectMeta, &p.Spec) {
				if !result.Allowed {
					t.Errorf("%s: %s: %s", p.owner, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
		}
	})
}

// Our own additions to the profile.
func TestPods_HaveNoTokenNoWritableRootAndAServiceAccountOfTheirOwn(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		accounts := typed[corev1.ServiceAccount](t, r, "ServiceAccount")
		owners := map[string]string{}
		for _, p := range pods(t, r) {
			if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
				t.Errorf("%s: mounts a token", p.owner)
			}
			if accounts[p.Spec.ServiceAccountName] == nil {
				t.Errorf("%s: no ServiceAccount %q", p.owner, p.Spec.ServiceAccountName)
			}
			component := p.Labels["app.kubernetes.io/component"]
			if other, taken := owners[p.Spec.ServiceAccountName]; taken && component != "lab" {
				t.Errorf("%s and %s share the ServiceAccount %s", p.owner, other, p.Spec.ServiceAccountName)
			}
			owners[p.Spec.ServiceAccountName] = p.owner
			if uid := p.Spec.SecurityContext.RunAsUser; uid == nil || *uid == 0 {
				t.Errorf("%s: runs as %v, want a user by number", p.owner, uid)
			}
			for _, c := range p.containers() {
				if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s: container %s can write its root", p.owner, c.Name)
				}
			}
		}
	})
}

func TestObjects_CarryTheRecommendedLabels(t *testing.T) {
	want := []string{"name", "instance", "version", "component", "part-of", "managed-by"}
	each(t, func(t *testing.T, r release) {
		for _, o := range r.Objects {
			for _, label := range want {
				if o.GetLabels()["app.kubernetes.io/"+label] == "" {
					t.Errorf("%s: no label app.kubernetes.io/%s", o.ID(), label)
				}
			}
			if o.GetNamespace() != chart.Release {
				t.Errorf("%s: namespace %q", o.ID(), o.GetNamespace())
			}
		}
		seen := map[string]bool{}
		for _, o := range r.Objects {
			if id := o.GetAPIVersion() + " " + o.ID(); seen[id] {
				t.Errorf("%s is there twice", id)
			} else {
				seen[id] = true
			}
		}
	})
}

// The manifests below k8s/ and the broker's configuration are what the chart makes of them now.
func TestRendered_IsWhatTheChartMakes(t *testing.T) {
	want, err := target.Manifests(root)
	if err != nil {
		t.Fatal(err)
	}
	if want[target.NATSConfig], err = target.NATSConf(); err != nil {
		t.Fatal(err)
	}
	for name, content := range want {
		if got := read(t, name); got != string(content) {
			t.Errorf("%s is not what the chart makes; run `make manifests`", name)
		}
	}
	for name, values := range target.Targets() {
		for _, file := range files(t, "k8s/"+name) {
			if _, made := want[file]; !made && file != values {
				t.Errorf("%s is made by nothing any more; run `make manifests`", file)
			}
		}
	}
}

func TestChart_AsksForTheKubernetesThatItNeeds(t *testing.T) {
	if got := load(t).KubeVersion(); got != ">=1.30.0-0" {
		t.Errorf("kubeVersion %q, and the oldest schema is %s", got, slices.Min(schema.Versions()))
	}
}
