package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"example.com/watertight/lab/runner"
)

type downCommand struct {
	stateFlags
	Timeout time.Duration `default:"90s" placeholder:"90s" help:"Kill what has not ended by then."`
}

// Help is shown by lab down --help.
func (*downCommand) Help() string {
	return `Ends the services, then NATS, then PostgreSQL, whether lab up runs in the background or in another terminal. The data
are kept. When nothing runs there is nothing to do, which is no error.

Example:
  lab down`
}

// Run ends the shop.
func (c *downCommand) Run(ctx context.Context, out io.Writer) error {
	_, dir, err := c.open()
	if err != nil {
		return err
	}
	was, err := runner.Down(ctx, dir, c.Timeout)
	if err != nil {
		return err
	}
	if !was {
		_, err = fmt.Fprintln(out, "nothing runs here")
		return err
	}
	_, err = fmt.Fprintln(out, "the shop has ended; its data are kept in", dir.Path())
	return err
}
