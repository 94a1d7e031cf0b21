package outbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a service tells of its events.
type metrics struct {
	oldest       atomic.Pointer[time.Time] // when it came about, by the clock here; nil when nothing waits
	published    prometheus.Counter
	batch        prometheus.Histogram
	publish      prometheus.Histogram
	duplicates   prometheus.Counter
	redeliveries prometheus.Counter
	dead         prometheus.Counter
	waiting      prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "watertight_" + name, Help: help})
	}
	m := &metrics{
		published: counter("outbox_published_total", "Events that the broker acknowledged."),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "watertight_outbox_batch_size",
			Help: "Events that were claimed and published together.", Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "watertight_outbox_publish_seconds",
			Help: "Time from handing a batch to the broker to its last acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}),
		duplicates:   counter("inbox_duplicates_total", "Events delivered again after their effect was committed."),
		redeliveries: counter("inbox_redeliveries_total", "Deliveries of events that had been delivered before."),
		dead:         counter("dead_letters_total", "Events given up: refused by the broker, or not to be handled here."),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "watertight_dead_letters_waiting",
			Help: "Events given up that are neither retried with success nor purged, whichever process gave them up; " +
				"counts up to 1000 that the broker refused and 1000 that were not to be handled."}),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "watertight_outbox_oldest_unpublished_seconds",
		Help: "Age of the oldest event that the broker does not have; 0 when it has all."}, m.oldestAge)
	var errs []error
	for _, c := range []prometheus.Collector{oldest, m.published, m.batch, m.publish, m.duplicates, m.redeliveries, m.dead, m.waiting} {
		errs = append(errs, registry.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register outbox metrics: %w", err)
	}
	return m, nil
}

// oldestAge goes on rising while the database cannot be asked.
func (m *metrics) oldestAge() float64 {
	created := m.oldest.Load()
	if created == nil {
		return 0
	}
	return max(time.Since(*created).Seconds(), 0)
}
