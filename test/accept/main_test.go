//go:build unix

// Package accept holds the acceptance tests: they know the shop from outside only, over HTTP, gRPC, signals, logs and
// metrics, and run against one shop that `lab up` starts.
package accept

import (
	"fmt"
	"os"
	"testing"

	"example.com/watertight/test/cable"
	"example.com/watertight/test/shop"
)

// live is the shop, with what stands between its parts.
var live = newRig()

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

// rig is a shop whose gateway reaches checkout through a cable that can be cut, and whose traces come here.
type rig struct {
	*shop.Lazy
	checkout *cable.Cable
	traces   *collector
}

func newRig() *rig {
	r := &rig{}
	r.Lazy = shop.New(r.prepare)
	return r
}

func (r *rig) prepare(offset int) (shop.Settings, error) {
	var err error
	if r.checkout, err = cable.Lay(func() (string, error) { return fmt.Sprintf("127.0.0.1:%d", 50051+offset), nil }); err != nil {
		return shop.Settings{}, err
	}
	if r.traces, err = newCollector(); err != nil {
		return shop.Settings{}, err
	}
	return shop.Settings{
		Flags: []string{"--env", "gateway.CHECKOUT_ADDR=dns:///" + r.checkout.Address()},
		Environ: []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + r.traces.address(), "OTEL_BSP_SCHEDULE_DELAY=3000",
			"LOG_FORMAT=json",
		},
	}, nil
}
