package checkout

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's own numbers.
type metrics struct {
	orders *prometheus.CounterVec
	oldest atomic.Pointer[time.Time] // when the oldest open order was placed; nil when there is none
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{orders: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "watertight_orders_total", Help: "Orders that this process has brought to the status.",
	}, []string{"status"})}
	for _, s := range []orderStatus{pending, awaitingPayment, confirmed, rejected, cancelled} {
		m.orders.WithLabelValues(string(s))
	}
	// The age is computed when it is read: it goes on growing while the database is away.
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "watertight_order_oldest_pending_seconds", Help: "Age of the oldest order that has no final status; 0 without any.",
	}, m.oldestPending)
	for _, c := range []prometheus.Collector{m.orders, age} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// oldestPending is in seconds.
func (m *metrics) oldestPending() float64 {
	placed := m.oldest.Load()
	if placed == nil {
		return 0
	}
	return max(0, time.Since(*placed).Seconds())
}

func (m *metrics) setOldest(placed time.Time) {
	if placed.IsZero() {
		m.oldest.Store(nil)
		return
	}
	m.oldest.Store(&placed)
}
