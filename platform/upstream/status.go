package upstream

import "github.com/prometheus/client_golang/prometheus"

// Status is one upstream's part of the status page. Its numbers are those of this process alone.
type Status struct {
	Name     string            `json:"name"`
	Breaker  string            `json:"breaker"` // closed, half-open or open
	InFlight int               `json:"in_flight"`
	Queued   int               `json:"queued"`
	Limits   Limits            `json:"limits"`
	Outcomes map[string]uint64 `json:"outcomes"` // since the start of the process
}

// Limits are an upstream's bounds, as configured.
type Limits struct {
	MaxInFlight int   `json:"max_in_flight"`
	MaxQueue    int   `json:"max_queue"`
	MaxStreams  int   `json:"max_streams"`
	TimeoutMS   int64 `json:"timeout_ms"`
}

// Status returns the present state.
func (u *Upstream) Status() Status {
	pool := u.pool.Stats()
	s := Status{
		Name: u.name, Breaker: u.breaker.state().String(), InFlight: pool.InFlight, Queued: pool.Queued,
		Limits: Limits{
			MaxInFlight: u.cfg.MaxInFlight, MaxQueue: u.cfg.MaxQueue, MaxStreams: u.cfg.MaxStreams,
			TimeoutMS: u.cfg.Timeout.Milliseconds(),
		},
		Outcomes: make(map[string]uint64, outcomes),
	}
	for o := range outcomes {
		s.Outcomes[o.String()] = u.counts[o].Load()
	}
	return s
}

// register shows the counts and the breaker's state, read when scraped. Every outcome is there from the start, at 0, so
// that a rate over it is right from its first event.
func (u *Upstream) register(reg prometheus.Registerer) error {
	for o := range outcomes {
		err := reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "watertight_upstream_requests_total",
			Help:        "Calls by outcome; degraded counts answers served with a fallback, on top of their call's own outcome.",
			ConstLabels: prometheus.Labels{"upstream": u.name, "outcome": o.String()},
		}, func() float64 { return float64(u.counts[o].Load()) }))
		if err != nil {
			return err
		}
	}
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "watertight_upstream_breaker_state",
		Help:        "Circuit breaker: 0 closed, 1 half-open, 2 open.",
		ConstLabels: prometheus.Labels{"upstream": u.name},
	}, func() float64 { return float64(u.breaker.state()) }))
}
