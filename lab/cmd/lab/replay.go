package main

import (
	"context"

	"example.com/watertight/lab/replay"
)

type replayCommand struct {
	stateFlags
	replay.Flags
}

// Run replays the day.
func (c *replayCommand) Run(ctx context.Context, p process) error {
	return c.Execute(ctx, p.out, p.errOut, c.gateway())
}
