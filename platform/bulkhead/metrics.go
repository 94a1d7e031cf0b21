package bulkhead

import "github.com/prometheus/client_golang/prometheus"

// metrics shows a bulkhead to Prometheus. Gauges and counters are read from Stats when scraped, so that only the two
// histograms cost anything per call.
type metrics struct {
	pool *Bulkhead

	inFlight, queued, limit, abandoned *prometheus.Desc
	rejected, lateSettles, panics      *prometheus.Desc

	queueWait, hold prometheus.Histogram
}

func newMetrics(b *Bulkhead) *metrics {
	// From a scheduler's hiccup to the longest time-out in use.
	seconds := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	pool := prometheus.Labels{"pool": b.name}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("watertight_bulkhead_"+name, help, labels, pool)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "watertight_bulkhead_" + name, Help: help, ConstLabels: pool, Buckets: seconds,
		})
	}
	return &metrics{
		pool:        b,
		inFlight:    desc("in_flight", "Slots taken."),
		queued:      desc("queued", "Callers waiting for a slot."),
		limit:       desc("limit", "Slots in all."),
		abandoned:   desc("abandoned", "Slots held by work whose caller has left."),
		rejected:    desc("rejected_total", "Callers turned away without a slot, by reason.", "reason"),
		lateSettles: desc("late_settles_total", "Pieces of work that settled after their caller had left."),
		panics:      desc("panics_total", "Pieces of work that panicked and were caught."),
		queueWait:   histogram("queue_wait_seconds", "Time in the queue, of callers that got a slot and of those that left; 0 when a slot was free."),
		hold:        histogram("hold_seconds", "Time from slot grant until the work settled."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.inFlight, m.queued, m.limit, m.abandoned, m.rejected, m.lateSettles, m.panics} {
		ch <- d
	}
	m.queueWait.Describe(ch)
	m.hold.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.pool.Stats()
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(m.inFlight, s.InFlight)
	gauge(m.queued, s.Queued)
	gauge(m.limit, s.Size)
	gauge(m.abandoned, s.Abandoned)
	count(m.rejected, s.RejectedFull, full.String())
	count(m.rejected, s.RejectedExpired, expired.String())
	count(m.rejected, s.RejectedCancelled, cancelled.String())
	count(m.lateSettles, s.LateSettles)
	count(m.panics, s.Panics)
	m.queueWait.Collect(ch)
	m.hold.Collect(ch)
}
