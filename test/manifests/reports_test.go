package manifests

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"example.com/watertight/lab/shop"
	"example.com/watertight/test/manifests/chart"
)

// Each test here is named after a line of docs/field-reports.md.

// stopTime is what a process needs after its drain to close everything.
const stopTime = 2 * time.Second

// grace adds up what the end of a pod may take.
func grace(t *testing.T, r release, p pod) time.Duration {
	t.Helper()
	c := p.Spec.Containers[0]
	env := environment(t, r, c)
	sum := stopTime
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
		sum += time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	for _, variable := range []string{"DRAIN_DELAY", "DRAIN_TIMEOUT"} {
		d, err := time.ParseDuration(env[variable])
		if err != nil {
			t.Fatalf("%s: %s: %v", p.owner, variable, err)
		}
		sum += d
	}
	return sum
}

func TestReport16_PreStopExistsAndTheDrainFitsTheGracePeriod(t *testing.T) {
	// PostgreSQL's image has a shell and pg_ctl: it calls them for its own start too.
	hasPrograms := []string{"postgres"}
	each(t, func(t *testing.T, r release) {
		for _, p := range pods(t, r) {
			for _, c := range p.containers() {
				if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
					continue
				}
				if c.Lifecycle.PreStop.Exec != nil && !slices.Contains(hasPrograms, c.Name) {
					t.Errorf("%s: runs %v before it stops, which an image from scratch does not have", p.owner, c.Lifecycle.PreStop.Exec.Command)
				}
			}
			if !strings.HasPrefix(p.owner, "Deployment/") || p.Labels["app.kubernetes.io/component"] == "observability" {
				continue // what keeps traces has no drain: nobody waits for it
			}
			if need, have := grace(t, r, p), time.Duration(*p.Spec.TerminationGracePeriodSeconds)*time.Second; need > have {
				t.Errorf("%s: its end may take %v, and %v are granted", p.owner, need, have)
			}
		}
	})
}

// The whole drain can be switched off, to see what it is good for.
func TestReport16_NoDelayIsNoPreStopEither(t *testing.T) {
	r := render(t, chart.Values{"drain": chart.Values{"delay": 0}})
	for name, d := range deployments(t, r) {
		c := d.Spec.Template.Spec.Containers[0]
		if env := environment(t, r, c); c.Lifecycle != nil || env["DRAIN_DELAY"] != "0s" {
			t.Errorf("%s: preStop %v, DRAIN_DELAY %s", name, c.Lifecycle, env["DRAIN_DELAY"])
		}
	}
}

func TestReport24_RolloutsNeverTakeAwayCapacity(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		for name, d := range deployments(t, r) {
			rolling := d.Spec.Strategy.RollingUpdate
			if rolling.MaxUnavailable.String() != "0" || rolling.MaxSurge.String() != "1" {
				t.Errorf("%s: maxUnavailable %s, maxSurge %s; want 0 and 1", name, rolling.MaxUnavailable, rolling.MaxSurge)
			}
			if ready := d.Spec.MinReadySeconds; ready == 0 || ready >= *d.Spec.ProgressDeadlineSeconds {
				t.Errorf("%s: minReadySeconds %d of %d", name, ready, *d.Spec.ProgressDeadlineSeconds)
			}
			c := d.Spec.Template.Spec.Containers[0]
			// Callers must know a new pod before an old one leaves, be it for a rollout, an eviction or fewer replicas, of which only
			// the first waits for minReadySeconds: they look every 5 s, and DNS servers keep answers for 30 s.
			least := int64(2)
			if slices.Contains([]string{"checkout", "search", "recs"}, name) {
				least = 35
			}
			drains := environment(t, r, c)["DRAIN_DELAY"] != "0s"
			if drains && (c.Lifecycle == nil || c.Lifecycle.PreStop.Sleep.Seconds < least) {
				t.Errorf("%s: preStop %+v, and those who are to hear that it leaves need %d s", name, c.Lifecycle, least)
			}
			ports := map[string]bool{}
			for _, port := range c.Ports {
				ports[port.Name] = true
			}
			for what, probe := range map[string]*corev1.Probe{"/livez of startup": c.StartupProbe, "/readyz of readiness": c.ReadinessProbe, "/livez of liveness": c.LivenessProbe} {
				path, _, _ := strings.Cut(what, " ")
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "admin" || !ports["admin"] {
					t.Errorf("%s: %s: %v", name, what, probe)
				}
			}
		}
	})
}

// quantity is how many connections the pools of one replica may hold, as the process would work it out.
func TestReport23_AllPoolsOfAllReplicasFitIntoTheServer(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		server, ok := serverConnections(t, r)
		sum := 0
		for name, d := range deployments(t, r) {
			env := environment(t, r, d.Spec.Template.Spec.Containers[0])
			per := poolsOf(env)
			// As many may be there still while those that follow them are there already.
			replicas := 2 * (replicasOf(t, r, name) + d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue())
			sum += per * replicas
			if !ok && per*replicas >= 500 { // each has a server of its own, see values-prod.yaml
				t.Errorf("%s: %d replicas with %d connections each", name, replicas, per)
			}
		}
		if ok && (sum == 0 || sum >= server) {
			t.Errorf("all pools together may hold %d connections, max_connections is %d", sum, server)
		}
	})
}

// poolsOf adds up the pools of one process: those of each database it has a URL for.
func poolsOf(env map[string]string) int {
	size := func(variable string, otherwise int) int {
		if n, err := strconv.Atoi(env[variable]); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	sum := 0
	for variable := range env {
		prefix, isURL := strings.CutSuffix(variable, "DATABASE_URL")
		if !isURL || strings.HasSuffix(prefix, "MIGRATE_") {
			continue
		}
		main := size("DB_MAX_CONNS", 16)
		if prefix != "" { // the monolith has one for each worker and two more
			main = size(prefix+"DB_MAX_CONNS", size("POOL_SIZE", 16)+2)
		}
		sum += main + size("RELAY_DB_MAX_CONNS", 2) + size("CONSUMER_DB_MAX_CONNS", 4)
	}
	return sum
}

// serverConnections is the max_connections of the release's own server, if there is one.
func serverConnections(t *testing.T, r release) (n int, ok bool) {
	t.Helper()
	for _, p := range pods(t, r) {
		for _, c := range p.Spec.Containers {
			for _, arg := range c.Args {
				if value, found := strings.CutPrefix(arg, "max_connections="); found {
					n, err := strconv.Atoi(value)
					if err != nil {
						t.Fatal(err)
					}
					return n, true
				}
			}
		}
	}
	return 0, false
}

func TestReport23_TheChartRefusesWhatDoesNotFit(t *testing.T) {
	for name, values := range map[string]chart.Values{
		"many replicas":               {"replicas": 3},
		"growth":                      {"autoscaling": chart.Values{"enabled": true}},
		"a large pool":                {"services": chart.Values{"checkout": chart.Values{"env": chart.Values{"DB_MAX_CONNS": 64}}}},
		"a small server":              {"postgres": chart.Values{"maxConnections": 450}},
		"many workers in one process": {"design": "shared-pool", "services": chart.Values{"monolith": chart.Values{"env": chart.Values{"POOL_SIZE": 64}}}},
	} {
		if _, err := load(t).Render(values); err == nil || !strings.Contains(err.Error(), "postgres.maxConnections") {
			t.Errorf("%s: got %v, want an error that names postgres.maxConnections", name, err)
		}
	}
}

// What the roles may hold is what lab gives them on one machine, twice: there, nobody leaves while a successor works.
func TestReport23_RolesAreLimitedAsInLab(t *testing.T) {
	for _, design := range shop.Designs() {
		options := shop.Options{Design: design}
		databases, err := options.Databases(options.Present(root))
		if err != nil || len(databases) == 0 {
			t.Fatalf("%s: %v, %v", design, databases, err)
		}
		script := typed[corev1.ConfigMap](t, render(t, chart.Values{"design": design}), "ConfigMap")["postgres"].Data["provision.sql"]
		for _, d := range databases {
			for role, limit := range map[string]int{d.Name: 2 * d.Connections, d.Name + "_owner": d.OwnerConnections} {
				if want := fmt.Sprintf("ALTER ROLE %s LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS CONNECTION LIMIT %d PASSWORD", role, limit); !strings.Contains(script, want) {
					t.Errorf("%s: no %q", design, want)
				}
			}
		}
	}
}

func TestReport40_GoMemoryLimitIsBelowTheMemoryLimitAndSetOnce(t *testing.T) {
	notGo := []string{"postgres", "prepare"}
	each(t, func(t *testing.T, r release) {
		for _, p := range pods(t, r) {
			for _, c := range p.containers() {
				if slices.Contains(notGo, c.Name) || strings.HasPrefix(p.owner, "Pod/") {
					continue
				}
				var set []string
				for _, e := range c.Env {
					if e.Name == "GOMEMLIMIT" {
						set = append(set, e.Value)
					}
				}
				if config := environmentOfConfigMaps(t, r, c)["GOMEMLIMIT"]; config != "" {
					set = append(set, config)
				}
				if len(set) != 1 {
					t.Errorf("%s: GOMEMLIMIT is set %d times: %v", p.owner, len(set), set)
					continue
				}
				limit := resource.MustParse(strings.TrimSuffix(set[0], "B"))
				share := float64(limit.Value()) / float64(c.Resources.Limits.Memory().Value())
				if share < 0.8 || share > 0.9 {
					t.Errorf("%s: GOMEMLIMIT %s is %.0f %% of %s", p.owner, set[0], 100*share, c.Resources.Limits.Memory())
				}
			}
		}
	})
}

func environmentOfConfigMaps(t *testing.T, r release, c corev1.Container) map[string]string {
	t.Helper()
	c.Env = nil
	return environment(t, r, c)
}

func TestReport43_EveryBudgetLetsAPodGo(t *testing.T) {
	each(t, func(t *testing.T, r release) {
		budgets := typed[policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget")
		guarded := map[string]bool{}
		for name, b := range budgets {
			if b.Spec.MinAvailable != nil || b.Spec.MaxUnavailable.String() != "1" {
				t.Errorf("%s: maxUnavailable %v, minAvailable %v; want 1 and none", name, b.Spec.MaxUnavailable, b.Spec.MinAvailable)
			}
			if b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
				t.Errorf("%s: pods that crash in a loop would keep a node from being drained", name)
			}
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pods(t, r) {
				if selector.Matches(labels.Set(p.Labels)) {
					if guarded[p.owner] {
						t.Errorf("%s has two budgets: none of its pods can be evicted", p.owner)
					}
					guarded[p.owner] = true
				}
			}
		}
		for _, p := range pods(t, r) {
			isService := strings.HasPrefix(p.owner, "Deployment/") || strings.HasPrefix(p.owner, "StatefulSet/")
			if isService && !guarded[p.owner] {
				t.Errorf("%s has no budget", p.owner)
			}
		}
	})
}

func TestReport44_NumbersStayStrings(t *testing.T) {
	r := render(t, chart.Values{"streamMaxBytes": 8589934592, "services": chart.Values{"checkout": chart.Values{"env": chart.Values{
		"POOL_SIZE": 7, "RELAY_BATCH": "0123", "STREAM_REPLICAS": 3.0, "RECS_BREAKER_RATIO": 0.25, "PPROF_ENABLED": true, "A_LARGE_NUMBER": 123456789012, "A_DATE": "2026-11-30",
	}}}})
	got := typed[corev1.ConfigMap](t, r, "ConfigMap")["checkout"].Data
	for name, want := range map[string]string{"POOL_SIZE": "7", "RELAY_BATCH": "0123", "STREAM_REPLICAS": "3", "RECS_BREAKER_RATIO": "0.25",
		"PPROF_ENABLED": "true", "A_LARGE_NUMBER": "123456789012", "STREAM_MAX_BYTES": "8589934592", "A_DATE": "2026-11-30"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	// As YAML has them: the typed ConfigMap would not have been decoded from anything but strings.
	each(t, func(t *testing.T, r release) {
		for _, o := range r.Objects {
			data, _ := o.Object["data"].(map[string]any)
			for key, value := range data {
				if _, isString := value.(string); !isString {
					t.Errorf("%s: %s is %T %v", o.ID(), key, value, value)
				}
			}
		}
	})
}

func TestReport45_PasswordsAreInSecretsOnly(t *testing.T) {
	values, err := chart.ReadValues(root + "/helm/watertight/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Each password its own marker, so that one that is used nowhere is found too.
	passwords := chart.Values{}
	var markers []string
	for group, users := range values["passwords"].(chart.Values) {
		marked := chart.Values{}
		for user := range users.(chart.Values) {
			marker := fmt.Sprintf("Marker-%s-%s-x", group, user)
			marked[user] = marker
			markers = append(markers, marker)
		}
		passwords[group] = marked
	}
	if len(markers) < 20 {
		t.Fatalf("only %d passwords: %v", len(markers), markers)
	}
	used := map[string]bool{}
	for name, values := range variants(t) {
		values = maps.Clone(values)
		values["passwords"] = passwords
		r := render(t, values)
		for _, o := range r.Objects {
			for _, marker := range markers {
				if !strings.Contains(o.Source, marker) {
					continue
				}
				used[marker] = true
				if o.GetKind() != "Secret" {
					t.Errorf("%s: %s contains %s", name, o.ID(), marker)
				}
			}
		}
		if strings.Contains(r.Notes, "Marker-") {
			t.Errorf("%s: the notes contain a password", name)
		}
	}
	for _, marker := range markers {
		if !used[marker] {
			t.Errorf("%s is used nowhere", marker)
		}
	}
}

// A variable that no program reads is a mistake in its name.
func TestConfigMaps_NameOnlyVariablesThatProgramsRead(t *testing.T) {
	known := variablesInSource(t)
	each(t, func(t *testing.T, r release) {
		for _, d := range deployments(t, r) {
			for variable := range environment(t, r, d.Spec.Template.Spec.Containers[0]) {
				if !known[variable] {
					t.Errorf("%s: %s is read by no program", d.Name, variable)
				}
			}
		}
	})
}

// variablesInSource are the names in env tags, with every prefix that there is.
func variablesInSource(t *testing.T) map[string]bool {
	t.Helper()
	tag, prefixTag := regexp.MustCompile(`env:"([A-Z][A-Z0-9_]*)`), regexp.MustCompile(`envPrefix:"([A-Z0-9_]+)"`)
	names, prefixes := map[string]bool{}, map[string]bool{"": true}
	for _, source := range goSources(t, "platform", "services", "gateway") {
		for _, match := range tag.FindAllStringSubmatch(source, -1) {
			names[match[1]] = true
		}
		for _, match := range prefixTag.FindAllStringSubmatch(source, -1) {
			prefixes[match[1]] = true
		}
	}
	// The Go runtime reads the first, OpenTelemetry's SDK the second; the third is there for the second.
	out := map[string]bool{"GOMEMLIMIT": true, "OTEL_RESOURCE_ATTRIBUTES": true, "NODE_NAME": true}
	for prefix := range prefixes {
		for name := range names {
			out[prefix+name] = true
		}
	}
	return out
}
