// Command recs runs the recommendation service.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/service"
	"example.com/watertight/services/recs"
)

const about = "recs recommends products from what was bought together."

type settings struct {
	Service service.Config
	Outbox  outbox.Config
	Recs    recs.Config
}

func main() { lifecycle.Main("recs", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[settings](about, args, environ, out)
	if err != nil {
		return err
	}
	base, err := service.New(ctx, "recs", cfg.Service, recs.Callers(), out)
	if err != nil {
		return err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "recs", Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Registry: base.Telemetry.Registry,
		FaultsEnabled: cfg.Service.Faults.Enabled,
	})
	if err != nil {
		return err
	}
	feature, err := recs.New(cfg.Recs, recs.Deps{Pool: base.Pool, Database: cfg.Service.Database, Events: events, Log: base.Log})
	if err != nil {
		return err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	return base.Run(ctx)
}
