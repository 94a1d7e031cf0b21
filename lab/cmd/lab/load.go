package main

import (
	"context"

	"example.com/watertight/lab/load"
)

type loadCommand struct {
	stateFlags
	load.Flags
}

// Run plays the run.
func (c *loadCommand) Run(ctx context.Context, p process) error {
	return c.Execute(ctx, p.out, p.errOut, c.gateway())
}

// defaultGateway is where a shop listens unless it was told otherwise.
const defaultGateway = "http://127.0.0.1:8080"

// gateway is that of the shop that runs here, or else the usual one: a shop in a cluster behind a port-forward has no
// state folder.
func (f stateFlags) gateway() string {
	_, dir, err := f.open()
	if err != nil {
		return defaultGateway
	}
	instance, err := dir.ReadInstance()
	if err != nil || instance.Gateway == "" {
		return defaultGateway
	}
	return instance.Gateway
}
