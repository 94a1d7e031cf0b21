// Command search runs the search service. It wires and does nothing else.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/platform/service"
	"example.com/watertight/services/search"
)

const about = "search finds and shows the shop's products over gRPC (search.v1), from an index in memory."

type settings struct {
	Service service.Config
	Search  search.Config
}

func main() { lifecycle.Main("search", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[settings](about, args, environ, out)
	if err != nil {
		return err
	}
	base, err := service.New(ctx, "search", cfg.Service, search.Callers(), out)
	if err != nil {
		return err
	}
	feature, err := search.New(cfg.Search, search.Deps{Pool: base.Pool, Database: cfg.Service.Database, Log: base.Log, Registry: base.Telemetry.Registry})
	if err != nil {
		return err
	}
	feature.Register(base.Server)
	feature.Start(base.Process)
	return base.Run(ctx)
}
