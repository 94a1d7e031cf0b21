package outbox

import "context"

type commitKey struct{}

// commits are what is to be done once a handler's transaction is committed.
type commits struct{ todo []func() }

// OnCommit has do called as soon as the transaction of the handler that was given ctx is committed: once, and not at all
// when it is rolled back or the process dies in between. It is for what only hastens or counts: waking a worker, a metric.
// With the context of anything but a handler it does nothing.
func OnCommit(ctx context.Context, do func()) {
	if c, ok := ctx.Value(commitKey{}).(*commits); ok {
		c.todo = append(c.todo, do)
	}
}

// collectCommits returns the context for one attempt at a transaction, and what the handler asked for under it.
func collectCommits(ctx context.Context) (context.Context, *commits) {
	c := &commits{}
	return context.WithValue(ctx, commitKey{}, c), c
}

func (c *commits) run() {
	for _, do := range c.todo {
		do()
	}
}
