package gateway

import (
	"net/http"

	"example.com/watertight/gateway/report"
)

// status answers GET /api/v1/status with what this replica sees.
func (a *api) status(w http.ResponseWriter, _ *http.Request) error {
	return a.answerJSON(w, http.StatusOK, a.report())
}

// report gathers what this replica sees. It asks nobody, so that it is there however sick the rest is.
func (a *api) report() report.Status {
	r := report.Status{
		Version: a.Version, Design: a.Design, Upstreams: []report.Upstream{}, Services: a.Operations.services(), Faults: a.Operations.currentFaults(),
		Gateway: a.traffic.status(len(a.streams) + a.bridge.Streams()),
		Orders:  report.Orders{PerSecond: a.Shop.OrdersPerSecond(), OldestPendingSeconds: a.Operations.oldestPending()},
	}
	if a.Upstreams != nil {
		r.Upstreams = a.Upstreams()
	}
	if a.Suspects != nil {
		r.Suspects = a.Suspects()
	}
	return r
}
