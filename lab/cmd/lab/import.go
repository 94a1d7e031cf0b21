package main

import (
	"context"

	"example.com/watertight/lab/importer"
)

type importCommand struct {
	stateFlags
	importer.Command
}

// Help is the importer's; both embedded structs would have one otherwise.
func (c *importCommand) Help() string { return c.Command.Help() }

// Run imports into the shop that runs here, unless addresses say otherwise.
func (c *importCommand) Run(ctx context.Context, p process) error {
	c.Found(c.running())
	return c.Command.Run(ctx, p.out)
}

// running are the addresses of the shop that runs here; empty where none does.
func (f stateFlags) running() importer.Targets {
	_, dir, err := f.open()
	if err != nil {
		return importer.Targets{}
	}
	instance, err := dir.ReadInstance()
	if err != nil {
		return importer.Targets{} // the usual addresses, or those that were given
	}
	return importer.Targets{
		Checkout: instance.GRPC("checkout"), Search: instance.GRPC("search"), Recs: instance.GRPC("recs"), Inventory: instance.GRPC("inventory"),
	}
}
