package search

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the service reports of its index.
type metrics struct {
	products prometheus.Gauge
	build    prometheus.Gauge
	failures prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		products: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "watertight_search_products", Help: "Products in the index."}),
		build: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "watertight_search_index_build_seconds", Help: "Time the index that answers took to build."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "watertight_search_refresh_failures_total", Help: "Times the catalog could not be looked up in the database."}),
	}
	for _, c := range []prometheus.Collector{m.products, m.build, m.failures} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) built(products int, took time.Duration) {
	m.products.Set(float64(products))
	m.build.Set(took.Seconds())
}

func (m *metrics) failed() { m.failures.Inc() }
