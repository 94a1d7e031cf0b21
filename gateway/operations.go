package gateway

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go"

	"example.com/watertight/gateway/report"
	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/lifecycle"
)

// OperationsConfig is what the edge needs to show who runs and to make services sick on purpose.
type OperationsConfig struct {
	Broker        broker.Config
	FaultsEnabled bool `env:"FAULTS_ENABLED" envDefault:"false" help:"serve /api/v1/faults, where faults are set; false leaves nothing of it in the process"`
}

// Operations is the edge's view of the shop's processes, over the broker. No request of a customer needs it, and without a
// broker it just knows nothing.
type Operations struct {
	fleet  *broker.Fleet
	faults *fault.Store // nil: faults are disabled
}

// JoinBroker connects the process, announces it, and follows what is told there for as long as the process runs. It does not
// wait for the broker.
func JoinBroker(cfg OperationsConfig, process *lifecycle.Process, log *slog.Logger) (*Operations, error) {
	conn, err := broker.Connect(cfg.Broker, "gateway", log)
	if err != nil {
		return nil, err
	}
	process.Closer("broker", func(ctx context.Context) error { return broker.Close(ctx, conn) })
	announcer, err := broker.NewAnnouncer(cfg.Broker, conn, "gateway", log)
	if err != nil {
		return nil, err
	}
	process.Server("announcer", announcer)
	return Operate(conn, cfg.FaultsEnabled, process, log), nil
}

// Operate follows what is told over a connection that the process has already; nil is a broker that never comes.
func Operate(conn *nats.Conn, faultsEnabled bool, process *lifecycle.Process, log *slog.Logger) *Operations {
	o := &Operations{fleet: broker.NewFleet(conn, log)}
	process.Worker("fleet", o.fleet.Run)
	if faultsEnabled {
		o.faults = fault.NewStore(conn, log)
		process.Worker("faults", o.faults.Run)
	}
	return o
}

// oldestPending is the age in seconds of the oldest open order, as checkout says; nil while nobody has said.
func (o *Operations) oldestPending() *float64 {
	if o == nil {
		return nil
	}
	if age, said := o.fleet.Gauge("checkout", "oldest_pending_seconds"); said {
		return &age
	}
	return nil
}

// services lists what is known of the shop's processes; a service is ready when one of its instances is.
func (o *Operations) services() []report.Service {
	out := []report.Service{}
	if o == nil {
		return out
	}
	for _, s := range o.fleet.Services() {
		out = append(out, report.Service{Name: s.Name, Ready: s.Ready > 0, Restarts: s.Restarts})
	}
	return out
}
