package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/test/manifests/chart"
)

// What promtool tests is what a cluster gets, but for the address of the runbooks.
func TestAlerts_AreThoseOfTheFileThatPromtoolReads(t *testing.T) {
	on := chart.Values{"enabled": true, "runbooks": "https://wiki.example.org/runbooks/"}
	r := render(t, chart.Values{"observability": chart.Values{"prometheusRules": on}})
	rule := typed[monitoringv1.PrometheusRule](t, r, "PrometheusRule")["watertight"]
	if rule == nil {
		t.Fatal("no PrometheusRule")
	}
	file := read(t, "helm/watertight/alerts/watertight.yaml")
	alerts := 0
	for _, group := range rule.Spec.Groups {
		for _, one := range group.Rules {
			if one.Alert == "" {
				continue
			}
			alerts++
			if !strings.Contains(file, "alert: "+one.Alert+"\n") {
				t.Errorf("%s is not in the file", one.Alert)
			}
			if page := one.Annotations["runbook_url"]; !strings.HasPrefix(page, "https://wiki.example.org/runbooks/") || strings.Contains(page, "//runbooks") {
				t.Errorf("%s: runbook_url %q, want it at the address in the values", one.Alert, page)
			}
		}
	}
	if want := strings.Count(file, "- alert: "); alerts != want || want == 0 {
		t.Errorf("%d alerts, and %d in the file", alerts, want)
	}
}

func TestDashboards_AreAllInAConfigMapThatGrafanaFinds(t *testing.T) {
	r := render(t, chart.Values{"observability": chart.Values{"dashboards": chart.Values{"enabled": true}}})
	config := typed[corev1.ConfigMap](t, r, "ConfigMap")["watertight-dashboards"]
	if config == nil || config.Labels["grafana_dashboard"] != "1" {
		t.Fatalf("no ConfigMap with the label grafana_dashboard: %+v", config)
	}
	files, err := filepath.Glob(filepath.Join(root, "helm/watertight/dashboards/*.json"))
	if err != nil || len(files) != len(config.Data) || len(files) == 0 {
		t.Errorf("%d dashboards, and %d files (%v)", len(config.Data), len(files), err)
	}
	for _, file := range files {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := config.Data["watertight-"+filepath.Base(file)]
		if strings.TrimSpace(got) != strings.TrimSpace(string(want)) || !json.Valid([]byte(got)) {
			t.Errorf("%s is not what the chart carries", file)
		}
	}
}

func TestTraces_GoToTheCollectorFirstAndThenToTheStore(t *testing.T) {
	on := chart.Values{"enabled": true}
	for name, c := range map[string]struct {
		observability chart.Values
		given, passed string
	}{
		"nobody keeps them":         {chart.Values{}, "", ""},
		"Jaeger":                    {chart.Values{"jaeger": on}, "http://jaeger:4317", ""},
		"Jaeger behind a collector": {chart.Values{"jaeger": on, "collector": on}, "http://collector:4317", "http://jaeger:4317"},
		"a store of theirs":         {chart.Values{"jaeger": on, "otlpEndpoint": "http://tempo.tracing:4317"}, "http://tempo.tracing:4317", ""},
		"theirs behind a collector": {chart.Values{"otlpEndpoint": "https://tempo.tracing:443", "collector": on}, "http://collector:4317", "https://tempo.tracing:443"},
	} {
		t.Run(name, func(t *testing.T) {
			r := render(t, chart.Values{"observability": c.observability})
			for process, d := range deployments(t, r) {
				if got := environment(t, r, d.Spec.Template.Spec.Containers[0])["OTEL_EXPORTER_OTLP_ENDPOINT"]; got != c.given {
					t.Errorf("%s sends its traces to %q, want %q", process, got, c.given)
				}
			}
			config := typed[corev1.ConfigMap](t, r, "ConfigMap")["collector"]
			if c.passed == "" {
				if config != nil {
					t.Error("a collector that nobody asked for")
				}
				return
			}
			if !strings.Contains(config.Data["config.yaml"], `endpoint: "`+c.passed+`"`) {
				t.Errorf("the collector does not send to %s:\n%s", c.passed, config.Data["config.yaml"])
			}
		})
	}
	if _, err := load(t).Render(chart.Values{"observability": chart.Values{"collector": on}}); err == nil || !strings.Contains(err.Error(), "collector") {
		t.Errorf("a collector with nowhere to send to: %v, want an error that says so", err)
	}
}
