package manifests

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"example.com/watertight/test/manifests/chart"
)

// A value that cannot be is a clear error, and so is one that nothing reads.
func TestValues_ThatMakeNoSenseAreRefusedByName(t *testing.T) {
	checkout := func(v chart.Values) chart.Values { return chart.Values{"services": chart.Values{"checkout": v}} }
	for want, values := range map[string]chart.Values{
		"replica":                    {"replica": 3},
		"dealy":                      {"drain": chart.Values{"dealy": 3}},
		"/drain/delay":               {"drain": chart.Values{"delay": "5s"}},
		"/drain/timeout":             {"drain": chart.Values{"timeout": -1}},
		"/design":                    {"design": "spilt"},
		"recomendations":             {"services": chart.Values{"recomendations": chart.Values{}}},
		"cpu":                        checkout(chart.Values{"resources": chart.Values{"limits": chart.Values{"cpu": "1"}}}),
		"limits/memory":              checkout(chart.Values{"resources": chart.Values{"limits": chart.Values{"memory": "128M"}}}),
		"requests/memory":            checkout(chart.Values{"resources": chart.Values{"requests": chart.Values{"memory": 128}}}),
		"pool_size":                  checkout(chart.Values{"env": chart.Values{"pool_size": "3"}}),
		"DRAIN_DELAY":                checkout(chart.Values{"env": chart.Values{"DRAIN_DELAY": "9s"}}),
		"GOMEMLIMIT":                 checkout(chart.Values{"env": chart.Values{"GOMEMLIMIT": "1GiB"}}),
		"DATABASE_URL":               checkout(chart.Values{"env": chart.Values{"DATABASE_URL": "postgres://x"}}),
		"RECS_DATABASE_URL":          checkout(chart.Values{"env": chart.Values{"RECS_DATABASE_URL": "postgres://x"}}),
		"/passwords/database/search": {"passwords": chart.Values{"database": chart.Values{"search": "short"}}},
		"/passwords/broker/lab":      {"passwords": chart.Values{"broker": chart.Values{"lab": "with/slashes@and#more"}}},
		"/passwords/broker/recs":     {"passwords": chart.Values{"broker": chart.Values{"recs": "12345678"}}},
		"/gateway/service/type":      {"gateway": chart.Values{"service": chart.Values{"type": "Nodeport"}}},
		"/images/pullPolicy":         {"images": chart.Values{"pullPolicy": "Sometimes"}},
		"/mtls":                      {"mtls": chart.Values{"enable": true}},
		"otlpEndpoint":               {"observability": chart.Values{"otlpEndpoint": "collector:4317"}},
		"postgres.enabled is false":  {"postgres": chart.Values{"enabled": false}},
		"nats.enabled is false":      {"nats": chart.Values{"enabled": false}},
	} {
		_, err := load(t).Render(values)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), ".", "/"), strings.ReplaceAll(want, ".", "/")) {
			t.Errorf("%v: got %v, want an error that names %s", values, err, want)
		}
	}
}

// A laptop is asked for less than 1 GiB of memory for the whole release, the jobs included.
func TestDefaults_FitOnALaptop(t *testing.T) {
	for _, design := range []string{"split", "shared-pool", "pool-per-feature", "roles"} {
		requests, limits := resource.Quantity{}, resource.Quantity{}
		for _, p := range pods(t, render(t, chart.Values{"design": design})) {
			largest, largestLimit := resource.Quantity{}, resource.Quantity{}
			for _, c := range p.containers() { // init containers run before the others
				if c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s: container %s requests %v and is limited to %v", p.owner, c.Name, c.Resources.Requests, c.Resources.Limits)
				}
				if !c.Resources.Limits.Cpu().IsZero() {
					t.Errorf("%s: container %s has a CPU limit", p.owner, c.Name)
				}
				if c.Resources.Requests.Memory().Cmp(largest) > 0 {
					largest, largestLimit = *c.Resources.Requests.Memory(), *c.Resources.Limits.Memory()
				}
			}
			requests.Add(largest)
			limits.Add(largestLimit)
		}
		if most := resource.MustParse("1Gi"); requests.Cmp(most) > 0 || requests.IsZero() {
			t.Errorf("%s: memory requests add up to %s, want at most %s", design, &requests, &most)
		}
		t.Logf("%s: memory requests %s, limits %s", design, &requests, &limits)
	}
}

func TestValues_OfEachDesignAreMadeForIt(t *testing.T) {
	r := render(t, chart.Values{"services": chart.Values{"recs": chart.Values{"replicas": 3}}, "replicas": 2, "postgres": chart.Values{"maxConnections": 1500}})
	for name, want := range map[string]int{"recs": 3, "checkout": 2, "gateway": 2} {
		if got := replicasOf(t, r, name); got != want {
			t.Errorf("%s: %d replicas, want %d", name, got, want)
		}
	}
	zero := render(t, chart.Values{"services": chart.Values{"recs": chart.Values{"replicas": 0}}})
	if got := replicasOf(t, zero, "recs"); got != 0 {
		t.Errorf("recs: %d replicas, want none", got)
	}
}

func TestImages_FollowTheirValues(t *testing.T) {
	r := render(t, chart.Values{"images": chart.Values{"registry": "registry.example.com/shop/", "recs": chart.Values{"tag": "sha-123"}}})
	got := map[string]string{}
	for _, p := range pods(t, r) {
		for _, c := range p.containers() {
			got[c.Name] = c.Image
		}
	}
	for name, want := range map[string]string{
		"recs": "registry.example.com/shop/watertight/recs:sha-123", "checkout": "registry.example.com/shop/watertight/checkout:0.1.0",
		"nats": "registry.example.com/shop/watertight/nats:0.1.0", "postgres": "postgres:17-bookworm",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
}

func TestNotes_SayWhatToTypeNext(t *testing.T) {
	for name, c := range map[string]struct {
		values chart.Values
		want   []string
	}{
		"laptop":    {nil, []string{"kubectl -n watertight wait", "port-forward service/gateway 8080:8080", "helm test -n watertight watertight", "for a laptop only"}},
		"node port": {variants(t)["kind"], []string{"http://localhost:30080"}},
	} {
		notes := render(t, c.values).Notes
		for _, want := range c.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no %q in:\n%s", name, want, notes)
			}
		}
	}
}
