package gameday

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	labfault "example.com/watertight/lab/fault"
	"example.com/watertight/platform/fault"
)

// Shop is a Target that is reached over its gateway. Who runs its processes restarts them, and knows how often they were.
type Shop struct {
	gateway string
	faults  *labfault.Switch
	client  *http.Client
	keeper  Keeper
}

// Keeper runs a shop's processes: lab up on this machine, or an orchestrator.
type Keeper interface {
	Restart(ctx context.Context, service string) error
	// Restarts is how often the processes of each service have been started again.
	Restarts(ctx context.Context) (map[string]int, error)
}

// NewShop is the shop behind gateway, a base URL.
func NewShop(gateway string, keeper Keeper) (*Shop, error) {
	client := &http.Client{Timeout: lookTimeout}
	faults, err := labfault.NewSwitch(gateway, client)
	if err != nil {
		return nil, err
	}
	return &Shop{gateway: gateway, faults: faults, keeper: keeper, client: client}, nil
}

var _ Target = (*Shop)(nil)

// Gateway is the base URL.
func (s *Shop) Gateway() string { return s.gateway }

// Set gives a service a fault.
func (s *Shop) Set(ctx context.Context, service string, request fault.Request) error {
	return s.faults.Set(ctx, service, request)
}

// Clear ends a service's fault.
func (s *Shop) Clear(ctx context.Context, service string) error { return s.faults.Clear(ctx, service) }

// Restart ships a service anew.
func (s *Shop) Restart(ctx context.Context, service string) error {
	return s.keeper.Restart(ctx, service)
}

// status is what is needed of GET /api/v1/status.
type status struct {
	Upstreams []struct {
		Name    string `json:"name"`
		Breaker string `json:"breaker"`
	} `json:"upstreams"`
	Orders struct {
		OldestPending *float64 `json:"oldest_pending_seconds"`
	} `json:"orders"`
	Faults []struct {
		Service string `json:"service"`
		Kind    string `json:"kind"`
	} `json:"faults"`
}

// Look asks the gateway, and whoever runs the processes.
func (s *Shop) Look(ctx context.Context) (View, error) {
	answer, err := s.status(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{Breakers: map[string]string{}, Faults: map[string]string{}}
	for _, u := range answer.Upstreams {
		v.Breakers[u.Name] = u.Breaker
	}
	for _, f := range answer.Faults {
		v.Faults[f.Service] = f.Kind
	}
	if age := answer.Orders.OldestPending; age != nil {
		v.OldestPending = time.Duration(*age * float64(time.Second))
	}
	v.Restarts, err = s.keeper.Restarts(ctx)
	return v, err
}

const maxStatus = 1 << 20

func (s *Shop) status(ctx context.Context) (answer status, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.gateway+"/api/v1/status", nil)
	if err != nil {
		return answer, fmt.Errorf("read the shop's status: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer, fmt.Errorf("the gateway does not answer (is the shop running? see lab up): %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("read the shop's status: the gateway answers %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxStatus)).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the shop's status: %w", err)
	}
	return answer, nil
}
