//go:build unix

package observability

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "write docs/metrics.md instead of holding it up to date")

const page = "docs/metrics.md"

// rare are shown only after something that a scrape need not come after, and so are described here.
func rare() map[string]*metric {
	return map[string]*metric{
		"db_client_operation_errors_total": {
			name: "db_client_operation_errors_total", kind: dto.MetricType_COUNTER, help: "Statements that failed; there is none before the first.",
			labels:    map[string]map[string]bool{"db_operation_name": {}, "db_system_name": {}, "pgx_operation_type": {}},
			processes: map[string]bool{"checkout": true, "search": true, "recs": true, "inventory": true, "payment": true},
		},
	}
}

// meanings are given in place of what a library says.
func meanings() map[string]string {
	return map[string]string{
		"http_server_request_duration_seconds": "Requests to the gateway: its count is their rate, its status codes are their errors.",
		"rpc_server_call_duration_seconds":     "gRPC calls as they were handled: rate, errors, duration.",
		"rpc_client_call_duration_seconds":     "gRPC calls as they were made, each attempt by itself.",
		"db_client_operation_duration_seconds": "Statements, batches and connects, by the SQL verb.",
	}
}

// sections are the parts of the page, by the beginning of a metric's name; the first that fits has it.
var sections = [...]struct{ title, prefixes string }{
	{"Calls to other services", "watertight_upstream_"},
	{"Pools", "watertight_bulkhead_"},
	{"Orders, events and payments", "watertight_order watertight_outbox watertight_inbox watertight_dead watertight_payment"},
	{"The rest of the shop's own", "watertight_"},
	{"Requests and calls", "http_ rpc_"},
	{"Database", "db_ pgxpool_"},
	{"Go runtime and process", ""},
}

// manyValues is how many values a label may have and still be listed with them.
const manyValues = 10

func TestMetrics_AreDocumented(t *testing.T) {
	metrics := maps.Clone(scrape(t))
	maps.Copy(metrics, rare())
	want := document(metrics)
	if got, err := os.ReadFile(filepath.Join(root, page)); err == nil && string(got) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the processes show; run go test ./test/observability -run AreDocumented -update, and look at the difference", page)
	}
	if err := os.WriteFile(filepath.Join(root, page), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func document(metrics map[string]*metric) string {
	var b strings.Builder
	b.WriteString(`# Metrics

Every process shows these for Prometheus at ` + "`/metrics`" + ` of its admin port: 9090 in a pod; under ` + "`make up`" + ` 9080 for the gateway and 9081 to
9085 for the services. A client can make no series: labels have a fixed set of values, routes are patterns, methods are those of
the contract.

Made by ` + "`go test ./test/observability -run AreDocumented -update`" + ` from what the running processes of the split show; the monolith shows the
same under one address, and its pools by their names. A change here is lost. Alerts on them are in ` + "`helm/watertight/alerts`" + `, dashboards in
` + "`helm/watertight/dashboards`" + `, and [the runbooks](runbooks) say what to do about a number.
`)
	left := slices.Sorted(maps.Keys(metrics))
	for _, section := range sections {
		var rows []string
		left = slices.DeleteFunc(left, func(name string) bool {
			fits := section.prefixes == "" || slices.ContainsFunc(strings.Fields(section.prefixes), func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if fits {
				rows = append(rows, metrics[name].row())
			}
			return fits
		})
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | unit | meaning | process |\n|---|---|---|---|---|---|\n%s", section.title, strings.Join(rows, ""))
	}
	return b.String()
}

func (m *metric) row() string {
	meaning := m.help
	if own := meanings()[m.name]; own != "" {
		meaning = own
	}
	escape := strings.NewReplacer("|", `\|`, "\n", " ")
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", m.name, strings.ToLower(m.kind.String()), m.labelColumn(), m.unit(), escape.Replace(meaning), m.who())
}

func (m *metric) labelColumn() string {
	var out []string
	for _, label := range slices.Sorted(maps.Keys(m.labels)) {
		text := "`" + label + "`"
		if values := slices.Sorted(maps.Keys(m.labels[label])); m.own() && len(values) > 0 && len(values) <= manyValues {
			text += ": " + strings.Join(values, " ")
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (m *metric) own() bool { return strings.HasPrefix(m.name, "watertight_") }

// unit follows from the name, as Prometheus has it.
func (m *metric) unit() string {
	name := strings.TrimSuffix(m.name, "_total")
	for _, unit := range []string{"nanoseconds", "seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}

func (m *metric) who() string {
	if len(m.processes) == 6 {
		return "all"
	}
	return strings.Join(slices.Sorted(maps.Keys(m.processes)), ", ")
}
