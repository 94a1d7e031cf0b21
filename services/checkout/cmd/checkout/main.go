// Command checkout runs the checkout service.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/collector"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/service"
	"example.com/watertight/services/checkout"
)

const about = "checkout takes orders and tells what becomes of them."

type settings struct {
	Service   service.Config
	Outbox    outbox.Config
	Checkout  checkout.Config
	SyncCall  checkout.SyncCallConfig
	Collector collector.Config
}

func main() { lifecycle.Main("checkout", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[settings](about, args, environ, out)
	if err != nil {
		return err
	}
	cfg.Collector.Apply()
	base, err := service.New(ctx, "checkout", cfg.Service.BoundByDatabase(), checkout.Callers(), out)
	if err != nil {
		return err
	}
	events, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{
		Service: "checkout", Stream: checkout.Stream, Database: cfg.Service.Database, Conn: base.Broker, Log: base.Log,
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Registry: base.Telemetry.Registry,
		FaultsEnabled: cfg.Service.Faults.Enabled,
	})
	if err != nil {
		return err
	}
	call, err := checkout.NewSyncCall(cfg.SyncCall, rpc.ClientDeps{
		TracerProvider: base.Telemetry.TracerProvider, MeterProvider: base.Telemetry.MeterProvider, Propagator: base.Telemetry.Propagator, TLS: base.TLS,
	}, base.Telemetry.Registry)
	if err != nil {
		return err
	}
	base.Process.Closer("recs", call.Close)
	feature, err := checkout.New(cfg.Checkout, checkout.Deps{
		Pool: base.Pool, Database: cfg.Service.Database, Events: events, Log: base.Log, Registry: base.Telemetry.Registry, SyncCall: call,
	})
	if err != nil {
		return err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	base.Gauge("oldest_pending_seconds", feature.OldestPending)
	return base.Run(ctx)
}
