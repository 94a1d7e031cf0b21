package payment

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's own numbers.
type metrics struct {
	payments *prometheus.CounterVec
	unknown  prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		payments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "watertight_payments_total", Help: "Payments that this process has brought to the status.",
		}, []string{"status"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "watertight_payment_unknown_outcomes_total", Help: "Calls to the provider that ended without its answer.",
		}),
	}
	for _, s := range []status{charged, declined, refunded, cancelled} {
		m.payments.WithLabelValues(string(s))
	}
	if err := errors.Join(registry.Register(m.payments), registry.Register(m.unknown)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}
