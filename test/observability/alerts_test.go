//go:build unix

package observability

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const (
	alertsFile = "helm/watertight/alerts/watertight.yaml"
	pages      = "https://example.com/watertight/docs/runbooks/"
)

type rule struct {
	Alert       string            `json:"alert"`
	Record      string            `json:"record"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("no rules in %s", alertsFile)
	}
	return all
}

func TestAlerts_FireWhenTheyMustAndOnlyThen(t *testing.T) {
	promtool := findPromtool(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tests, err := filepath.Glob("testdata/*.test.yaml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests of alerts: %v", err)
	}
	if out, err := exec.CommandContext(ctx, promtool, append([]string{"test", "rules"}, tests...)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// findPromtool skips the test where there is none; in CI it must be there.
func findPromtool(t *testing.T) string {
	t.Helper()
	own, err := filepath.Abs(filepath.Join(root, ".watertight/tools/promtool"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); err == nil {
		return own
	}
	path, err := exec.LookPath("promtool")
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") != "":
		t.Fatal("no promtool: scripts/install-promtool.sh could not get it")
	}
	t.Skip("no promtool on this machine (Debian, Ubuntu: scripts/install-promtool.sh; macOS: brew install prometheus)")
	return ""
}

func TestAlerts_EachHasATestARunbookAndASeverity(t *testing.T) {
	var tests strings.Builder
	files, err := filepath.Glob("testdata/*.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		tests.WriteString(read(t, filepath.Join("test/observability", file)))
	}
	index := read(t, "docs/runbooks/README.md")
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		// A case in which it fires names it and is not followed by "exp_alerts: []".
		if !regexp.MustCompile(`alertname: ` + r.Alert + `\n`).MatchString(tests.String()) {
			t.Errorf("%s: no test in which it fires", r.Alert)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q, want critical or warning", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: it says neither what nor how much", r.Alert)
		}
		name, ok := strings.CutPrefix(r.Annotations["runbook_url"], pages)
		if _, err := os.Stat(filepath.Join(root, "docs/runbooks", name)); !ok || err != nil {
			t.Errorf("%s: runbook_url %q leads nowhere (%v)", r.Alert, r.Annotations["runbook_url"], err)
		}
		if !strings.Contains(index, r.Alert) {
			t.Errorf("%s: not in docs/runbooks/README.md", r.Alert)
		}
	}
}

// fromElsewhere are metrics of what is no process of ours: kube-state-metrics, Envoy, the container runtime.
func fromElsewhere(name string) bool {
	return strings.HasPrefix(name, "kube_") || strings.HasPrefix(name, "envoy_") || strings.HasPrefix(name, "container_")
}

func TestAlerts_AskForMetricsThatThereAre(t *testing.T) {
	metrics, recorded := scrape(t), map[string]bool{}
	for _, r := range rules(t) {
		recorded[r.Record] = true
	}
	for _, r := range rules(t) {
		for _, s := range selectors(t, r.Alert+r.Record, r.Expr) {
			if !recorded[s.Name] && !fromElsewhere(s.Name) {
				known(t, r.Alert+r.Record, s, metrics)
			}
		}
	}
}

// selectors are what a query reads.
func selectors(t *testing.T, where, query string) (found []*parser.VectorSelector) {
	t.Helper()
	parsed, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, query)
		return nil
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			found = append(found, s)
		}
		return nil
	})
	return found
}

// fromScraping are the labels that a series has from Prometheus and not from the process.
var fromScraping = map[string]bool{"namespace": true, "job": true, "pod": true, "instance": true, "container": true, "le": true, "__name__": true}

// known checks that a selector's metric exists, with its labels and, where it names one exactly, the value.
func known(t *testing.T, where string, s *parser.VectorSelector, metrics map[string]*metric) {
	t.Helper()
	m := metrics[s.Name]
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(s.Name, suffix); m == nil && ok {
			m = metrics[base]
		}
	}
	if m == nil {
		m = rare()[s.Name]
	}
	if m == nil {
		t.Errorf("%s: no process shows %s", where, s.Name)
		return
	}
	for _, matcher := range s.LabelMatchers {
		if fromScraping[matcher.Name] || strings.HasPrefix(matcher.Value, "$") {
			continue
		}
		if values, there := m.labels[matcher.Name]; !there {
			t.Errorf("%s: %s has no label %s", where, s.Name, matcher.Name)
		} else if matcher.Type.String() == "=" && m.own() && !values[matcher.Value] {
			t.Errorf("%s: %s is never %s=%q", where, s.Name, matcher.Name, matcher.Value)
		}
	}
}
