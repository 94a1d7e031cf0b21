// Command inventory runs the inventory service.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/service"
	"example.com/watertight/services/inventory"
)

const about = "inventory counts stock and reserves it for orders."

type settings struct {
	Service service.Config
	Outbox  outbox.Config
}

func main() { lifecycle.Main("inventory", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[settings](about, args, environ, out)
	if err != nil {
		return err
	}
	base, err := service.New(ctx, "inventory", cfg.Service.BoundByDatabase(), inventory.Callers(), out)
	if err != nil {
		return err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "inventory", Stream: inventory.Stream, Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Registry: base.Telemetry.Registry,
		FaultsEnabled: cfg.Service.Faults.Enabled,
	})
	if err != nil {
		return err
	}
	feature := inventory.New(inventory.Deps{Pool: base.Pool, Database: cfg.Service.Database, Events: events, Log: base.Log})
	feature.Register(base.Server)
	feature.Start(base.Process)
	return base.Run(ctx)
}
