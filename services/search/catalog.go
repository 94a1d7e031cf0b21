package search

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	"example.com/watertight/services/search/index"
)

// refreshTimeout ends a look-up whose connection has gone silent.
const refreshTimeout = 30 * time.Second

// catalog is the catalog in memory: the index that answers, replaced whole when the database has another version.
type catalog struct {
	store   store
	log     *slog.Logger
	metrics *metrics
	turn    chan struct{} // holds one token: who has it may refresh

	mu      sync.RWMutex // held for reading while an index answers, so that it is not closed under it
	current *index.Index // nil until the first load
	version string       // of current; written by who refreshes
}

func newCatalog(s store, log *slog.Logger, m *metrics) *catalog {
	c := &catalog{store: s, log: log, metrics: m, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// read calls use with the index. Before the first load it is UNAVAILABLE.
func (c *catalog) read(use func(*index.Index) error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.current == nil {
		return rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "the catalog is being loaded", rpcerr.RetryAfter(time.Second))
	}
	return use(c.current)
}

// refresh loads the catalog if it has changed. When it returns nil, the index has everything that was committed before
// the call.
func (c *catalog) refresh(ctx context.Context) error {
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	version, err := c.store.version(ctx)
	if err != nil || version == c.version {
		return err
	}
	products, version, err := c.store.load(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	next, err := index.Build(products)
	if err != nil {
		return err
	}
	took := time.Since(start)
	c.metrics.built(next.Size(), took)
	c.log.InfoContext(ctx, "catalog indexed", "products", next.Size(), "took", took.String())
	err = c.replace(next, version)
	// Building leaves garbage of several times the index's size, and a service at rest would keep it for minutes.
	debug.FreeOSMemory()
	return err
}

func (c *catalog) replace(next *index.Index, version string) error {
	c.mu.Lock()
	old := c.current
	c.current, c.version = next, version
	c.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.Close() // nobody reads it: readers hold the lock, and new ones get the next
}

// Close frees the index. Later reads are UNAVAILABLE.
func (c *catalog) Close() error {
	c.mu.Lock()
	old := c.current
	c.current = nil
	c.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.Close()
}

// follow refreshes every interval until ctx ends, and calls loaded after each success. A database that is away is logged
// when it goes and when it comes back, and what is in memory goes on answering. Building an index is left no more than a
// fifth of the time, however often the catalog changes.
func (c *catalog) follow(ctx context.Context, interval time.Duration, loaded func()) error {
	failing := false
	for {
		pause, start := interval, time.Now()
		err := c.refreshWithin(ctx, refreshTimeout)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is the end of the work, and err only its echo
		case err != nil:
			c.metrics.failed()
			if !failing {
				c.log.WarnContext(ctx, "catalog cannot be refreshed; trying again", "error", err)
			}
		default:
			loaded()
			pause = max(interval, 4*time.Since(start))
			if failing {
				c.log.InfoContext(ctx, "catalog is refreshed again")
			}
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (c *catalog) refreshWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.refresh(ctx)
}
