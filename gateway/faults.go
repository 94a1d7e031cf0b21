package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/report"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/strictjson"
	"example.com/watertight/platform/fault"
)

// faultsBudget bounds the wait for the broker.
const faultsBudget = 3 * time.Second

// faultTargets are the services that can be made sick. The edge itself is not one of them: it is where faults are cleared.
func faultTargets() []string {
	return []string{shop.Checkout, shop.Search, shop.Recs, "inventory", "payment"}
}

// faultRoutes are there only while faults are enabled; else nothing is at these addresses.
func (a *api) faultRoutes() []route.Route {
	if !a.canFault() {
		return nil
	}
	return []route.Route{
		{Method: http.MethodGet, Path: "/api/v1/faults", Budget: faultsBudget, Handler: endpoint(a.faults)},
		{Method: http.MethodPut, Path: "/api/v1/faults/{service}", Budget: faultsBudget, Handler: endpoint(a.setFault)},
		{Method: http.MethodDelete, Path: "/api/v1/faults/{service}", Budget: faultsBudget, Handler: endpoint(a.clearFault)},
	}
}

func (a *api) canFault() bool { return a.Operations != nil && a.Operations.faults != nil }

// faults answers GET /api/v1/faults with what is in force, asked of the broker.
func (a *api) faults(w http.ResponseWriter, r *http.Request) error {
	all, err := a.Operations.faults.Get(r.Context(), faultTargets())
	if err != nil {
		return switchAway(r.Context(), err)
	}
	return a.answerJSON(w, http.StatusOK, struct {
		Faults []report.Fault `json:"faults"`
	}{sortedFaults(all)})
}

// setFault answers PUT /api/v1/faults/{service}: the service has this fault from now on, and no other.
func (a *api) setFault(w http.ResponseWriter, r *http.Request) error {
	service, err := faultTarget(r)
	if err != nil {
		return err
	}
	var body fault.Request
	if err := strictjson.Decode(w, r, &body); err != nil {
		return invalidBody(err)
	}
	f, err := body.Fault(time.Now())
	if wrong := new(fault.FieldError); errors.As(err, &wrong) {
		return problem.Invalid(wrong.Field, wrong.Detail)
	}
	if err != nil {
		return err
	}
	if err := a.Operations.faults.Put(r.Context(), service, f); err != nil {
		return switchAway(r.Context(), err)
	}
	return a.answerJSON(w, http.StatusOK, report.Fault{Service: service, Fault: f})
}

// clearFault answers DELETE /api/v1/faults/{service}: the service has no fault from now on, whether it had one or not.
func (a *api) clearFault(w http.ResponseWriter, r *http.Request) error {
	service, err := faultTarget(r)
	if err != nil {
		return err
	}
	if err := a.Operations.faults.Clear(r.Context(), service); err != nil {
		return switchAway(r.Context(), err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func faultTarget(r *http.Request) (string, error) {
	service := r.PathValue("service")
	if slices.Contains(faultTargets(), service) {
		return service, nil
	}
	detail := "there is no such service; there are " + strings.Join(faultTargets(), ", ")
	p := problem.New(http.StatusNotFound, "not_found", "service: "+detail)
	p.Errors = []problem.Field{{Field: "service", Detail: detail}}
	return "", p
}

// switchAway is the 503 for a broker that does not answer, with the cause for the log.
func switchAway(ctx context.Context, err error) error {
	if !errors.Is(err, fault.ErrAway) && ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", problem.New(http.StatusServiceUnavailable, "unavailable", "faults cannot be read or changed at the moment"), err)
}

// currentFaults lists the faults as they were last heard of, for the status.
func (o *Operations) currentFaults() []report.Fault {
	if o == nil || o.faults == nil {
		return []report.Fault{}
	}
	return sortedFaults(o.faults.Seen())
}

func sortedFaults(all map[string]fault.Fault) []report.Fault {
	out := make([]report.Fault, 0, len(all))
	for service, f := range all {
		out = append(out, report.Fault{Service: service, Fault: f})
	}
	slices.SortFunc(out, func(a, b report.Fault) int { return cmp.Compare(a.Service, b.Service) })
	return out
}
