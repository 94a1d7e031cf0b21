// Command payment runs the payment service with the sandbox provider.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/service"
	"example.com/watertight/services/payment"
	"example.com/watertight/services/payment/sandbox"
)

const about = "payment charges customers for orders and refunds what was cancelled."

type settings struct {
	Service service.Config
	Outbox  outbox.Config
	Payment payment.Config
	Sandbox sandbox.Config
}

func main() { lifecycle.Main("payment", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[settings](about, args, environ, out)
	if err != nil {
		return err
	}
	base, err := service.New(ctx, "payment", cfg.Service.BoundByDatabase(), payment.Callers(), out)
	if err != nil {
		return err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "payment", Stream: payment.Stream, Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log, Registry: base.Telemetry.Registry,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, FaultsEnabled: cfg.Service.Faults.Enabled,
	})
	if err != nil {
		return err
	}
	provider, err := sandbox.New(cfg.Sandbox, base.Pool)
	if err != nil {
		return err
	}
	feature, err := payment.New(cfg.Payment, payment.Deps{
		Pool: base.Pool, Database: cfg.Service.Database, Events: events, Provider: provider, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, Registry: base.Telemetry.Registry,
	})
	if err != nil {
		return err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	return base.Run(ctx)
}
