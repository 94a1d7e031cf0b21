package gateway

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// RetryConfig is where retries are made. The default is one layer, in the channel, under a budget of about a tenth of the calls;
// none is for a proxy that makes them instead, and more is for showing a retry storm, never for service.
type RetryConfig struct {
	Budget string `env:"BUDGET" envDefault:"on" help:"on, or off to see a retry storm: the channels then retry however many calls fail"`
	Layers int    `env:"LAYERS" envDefault:"1" help:"1; 0 where a proxy retries; 2 shows a storm grow: recs and search are tried 3 x 3 times"`
}

// Validate checks the choices.
func (c RetryConfig) Validate() error {
	var errs []error
	if c.Budget != "on" && c.Budget != "off" {
		errs = append(errs, fmt.Errorf("BUDGET: must be on or off, got %q", c.Budget))
	}
	if c.Layers < 0 || c.Layers > 2 {
		errs = append(errs, fmt.Errorf("LAYERS: must be 0, 1 or 2, got %d", c.Layers))
	}
	return errors.Join(errs...)
}

// layerTries is how often the second layer makes each call.
const layerTries = 3

// retryAgain is the second layer. It does what many clients do: it tries at once, knows nothing of the layer below, and has no
// budget. Tries multiply. It runs inside the guard, whose breaker sees one call and still ends the storm.
func retryAgain(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	var err error
	for range layerTries {
		if err = invoker(ctx, method, req, reply, cc, opts...); status.Code(err) != codes.Unavailable {
			return err
		}
	}
	return err
}
