// Command monolith runs the shop, or some of its features, in one process. It wires and does nothing else.
package main

import (
	"context"
	"io"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/lifecycle"
	"example.com/watertight/services/monolith"
)

const about = `monolith runs the whole shop in one process: the JSON API, the storefront's pages, and the features behind them. With
FEATURES it is one role of several: it calls the features that it lacks over gRPC, and serves those it has.`

func main() { lifecycle.Main("monolith", run) }

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	cfg, err := config.Read[monolith.Settings](about, args, environ, out)
	if err != nil {
		return err
	}
	shop, err := monolith.New(ctx, cfg, out)
	if err != nil {
		return err
	}
	return shop.Run(ctx)
}
