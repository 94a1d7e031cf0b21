package gateway

import (
	"net/http"

	"example.com/watertight/gateway/poison"
	"example.com/watertight/platform/upstream"
)

// UpstreamStatus is how one upstream is doing, as this replica sees it.
type UpstreamStatus struct {
	Name     string            `json:"name"`
	Breaker  string            `json:"breaker"` // closed, half-open or open
	InFlight int               `json:"in_flight"`
	Queued   int               `json:"queued"`
	Limits   UpstreamLimits    `json:"limits"`
	Outcomes map[string]uint64 `json:"outcomes"` // calls by outcome, since the process started
}

// UpstreamLimits are the upstream's limits. Each replica of the gateway has them to itself: with n replicas the upstream may see n
// times as much, and Scope says so.
type UpstreamLimits struct {
	Scope string `json:"scope"`
	upstream.Limits
}

const limitsScope = "per gateway replica"

// ServiceStatus is one of the shop's processes: whether it takes traffic, and how often it started again.
type ServiceStatus struct {
	Name     string `json:"name"`
	Ready    bool   `json:"ready"`
	Restarts int    `json:"restarts"`
}

// OrdersStatus is how the orders go.
type OrdersStatus struct {
	PerSecond            float64  `json:"per_second"`             // placed through this replica, over the last ten seconds
	OldestPendingSeconds *float64 `json:"oldest_pending_seconds"` // null while nobody has said
}

// status answers GET /api/v1/status with what this replica sees. It asks nobody, so that it answers however sick the rest is.
func (a *api) status(w http.ResponseWriter, _ *http.Request) error {
	answer := struct {
		Version   string           `json:"version"`
		Design    string           `json:"design"`
		Upstreams []UpstreamStatus `json:"upstreams"`
		Orders    OrdersStatus     `json:"orders"`
		Services  []ServiceStatus  `json:"services"`
		Faults    []ServiceFault   `json:"faults"`
		Suspects  []poison.Suspect `json:"suspects,omitempty"` // only where there are any
	}{
		Version: a.Version, Design: a.Design, Upstreams: []UpstreamStatus{}, Services: a.Operations.services(), Faults: a.Operations.currentFaults(),
		Orders: OrdersStatus{PerSecond: a.Shop.OrdersPerSecond(), OldestPendingSeconds: a.Operations.oldestPending()},
	}
	if a.Upstreams != nil {
		answer.Upstreams = a.Upstreams()
	}
	if a.Suspects != nil {
		answer.Suspects = a.Suspects()
	}
	return answerJSON(w, http.StatusOK, answer)
}
