package main

import (
	"context"

	"example.com/watertight/lab/natsserver"
)

type natsServerCommand struct {
	Config string `required:"" help:"Configuration file of nats-server." type:"existingfile"`
}

// Help is shown by lab nats-server --help.
func (*natsServerCommand) Help() string {
	return `Example:
  lab nats-server --config .watertight/nats/nats.conf`
}

// Run serves until the process is told to end.
func (c *natsServerCommand) Run(ctx context.Context) error { return natsserver.Run(ctx, c.Config) }
