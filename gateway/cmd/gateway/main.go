// Command gateway is the shop's HTTP edge. It wires and nothing else.
package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"example.com/watertight/gateway"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/storefront"
	"example.com/watertight/platform/collector"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/mtls"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/shard"
	"example.com/watertight/platform/telemetry"
)

const about = "gateway: the shop's HTTP edge. It serves the JSON API under /api/v1, the storefront and the bridge; it calls checkout, search and recs."

// settings are all variables of the process.
type settings struct {
	HTTP       gateway.Config
	Upstreams  gateway.UpstreamsConfig
	Operations gateway.OperationsConfig
	Process    gateway.ProcessConfig
	Collector  collector.Config
	TLS        mtls.Config
	Telemetry  telemetry.Config
}

func main() { lifecycle.Main("gateway", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	shard.Register() // before the first channel, which may be that of the traces
	if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
		return config.Usage(out, about, settings{})
	}
	if len(args) > 0 {
		return fmt.Errorf("unknown argument %q: settings are environment variables, see --help", args[0])
	}
	cfg, err := config.Load[settings](environ)
	if err != nil {
		return err
	}
	cfg.Collector.Apply()
	log, err := telemetry.NewLogger(out, cfg.Process.LogLevel, cfg.Process.LogFormat, "gateway")
	if err != nil {
		return err
	}
	tel, err := telemetry.New(ctx, cfg.Telemetry, "gateway", log)
	if err != nil {
		return err
	}
	process, err := lifecycle.New(lifecycle.Config(cfg.Process), log, tel.Registry)
	if err != nil {
		return err
	}
	process.Closer("telemetry", tel.Shutdown)
	identity, err := mtls.Open(cfg.TLS)
	if err != nil {
		return err
	}
	process.Closer("certificates", identity.Close)
	upstreams, err := gateway.Connect(cfg.Upstreams, rpc.ClientDeps{
		TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider, Propagator: tel.Propagator, TLS: identity,
	}, tel.Registry)
	if err != nil {
		return err
	}
	process.Closer("upstreams", upstreams.Close)
	operations, err := gateway.JoinBroker(cfg.Operations, process, log)
	if err != nil {
		return err
	}

	behind, budgets := shop.New(upstreams.Backends(log)), cfg.Upstreams.Budgets()
	pages, err := storefront.New(behind, storefront.Budgets{Checkout: budgets.Checkout, Search: budgets.Search})
	if err != nil {
		return err
	}
	handler, err := gateway.NewHandler(cfg.HTTP, gateway.Deps{
		Shop: behind, Budgets: budgets, Upstreams: upstreams.Status, Suspects: upstreams.Suspects, Storefront: pages.Routes(), Operations: operations,
		Version: telemetry.Version(), Design: "split", Draining: process.Draining(), Worker: process.Worker,
		Log: log, TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider, Propagator: tel.Propagator,
	})
	if err != nil {
		return err
	}
	listener, err := lifecycle.Listen("HTTP_ADDR", cfg.HTTP.Addr)
	if err != nil {
		return err
	}
	process.Server("http", lifecycle.NewHTTPServer(listener, gateway.NewServer(cfg.HTTP, handler, log)))
	return process.Run(ctx)
}
