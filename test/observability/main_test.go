//go:build unix

// Package observability holds what is made for those who watch the shop against what the shop's processes really show: the
// table of metrics in docs/metrics.md, the chart's alerts and its Grafana dashboards.
package observability

import (
	"os"
	"path/filepath"
	"testing"

	"example.com/watertight/test/shop"
)

const root = "../.."

// live is the shop whose metrics are looked at.
var live = shop.New(func(int) (shop.Settings, error) {
	return shop.Settings{Environ: []string{"LOG_FORMAT=json"}}, nil
})

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
