package fault

import (
	"context"
	"net/http"

	"example.com/watertight/platform/fault"
)

// Switch makes the services behind a gateway sick, and well again. It may be used by several goroutines.
type Switch struct{ api *api }

// NewSwitch returns the switch of the gateway at the URL, which may have a path, and sends with the client.
func NewSwitch(gateway string, client *http.Client) (*Switch, error) {
	a, err := newAPI(gateway)
	if err != nil {
		return nil, err
	}
	a.client = *client
	return &Switch{a}, nil
}

// Set gives a service this fault, and no other.
func (s *Switch) Set(ctx context.Context, service string, request fault.Request) error {
	_, err := s.api.set(ctx, service, request)
	return err
}

// Clear makes a service well.
func (s *Switch) Clear(ctx context.Context, service string) error { return s.api.clear(ctx, service) }

// Services lists those that have a fault.
func (s *Switch) Services(ctx context.Context) ([]string, error) {
	list, err := s.api.list(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range list {
		names = append(names, f.Service)
	}
	return names, nil
}
