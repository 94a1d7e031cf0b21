package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/platform/postgres"
)

// maxGathered is the size in bytes of payloads above which no further batch is claimed before they are published.
const maxGathered = 1 << 20

// leases is the relay's mode that holds no transaction open while the broker works: rows are claimed for a time, published,
// and noted as published. A few batches are under way at once, so that the database works while the broker does.
type leases struct {
	*relay
	owner   string // no two relays have the same
	slots   chan struct{}
	batches sync.WaitGroup
	// astray says that rows may be leased to this relay of which it does not know, or that it could not note the end of.
	astray atomic.Bool
}

func newLeases(r *relay) *leases {
	return &leases{relay: r, owner: rand.Text(), slots: make(chan struct{}, r.cfg.InFlight)}
}

func (l *leases) wait() { l.batches.Wait() }

// round claims rows and has them published in the background. It says whether there may be more.
func (l *leases) round(ctx, work context.Context) (more bool, err error) {
	if err := l.recover(ctx); err != nil {
		return false, err
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	rows, more, err := l.gather(ctx)
	if len(rows) == 0 {
		<-l.slots
		return false, err
	}
	l.batches.Go(func() {
		defer func() { <-l.slots }()
		l.publish(work, rows)
	})
	return more, err
}

// gather claims what is published together: a batch, and when there is a backlog several, each in a short transaction of its
// own, up to what the broker takes at once.
func (l *leases) gather(ctx context.Context) (rows []row, more bool, err error) {
	bytes := 0
	for {
		batch, err := l.claim(ctx)
		rows = append(rows, batch...)
		for _, r := range batch {
			bytes += len(r.Payload)
		}
		more := len(batch) == l.cfg.Batch
		if err != nil || !more || len(rows)+l.cfg.Batch > maxBatch || bytes > maxGathered {
			return rows, more, err
		}
	}
}

func (l *leases) claim(ctx context.Context) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	claimed, _ := l.pool.Query(ctx, leaseBatch, l.cfg.Batch, l.owner, l.cfg.Lease) // its error comes out of CollectRows
	rows, err := pgx.CollectRows(claimed, pgx.RowToStructByPos[row])
	if err != nil {
		l.astray.Store(true) // it may have been committed all the same
		return nil, fmt.Errorf("claim: %w", err)
	}
	return rows, nil
}

// publish publishes rows with no transaction open and notes what became of them.
func (l *leases) publish(ctx context.Context, rows []row) {
	v := l.publisher.publish(ctx, rows)
	l.crashes.at(afterPublish)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	buried := 0
	err := postgres.SendTx(ctx, l.pool, func(b *pgx.Batch) {
		buried = 0
		v.settle(b, l.cfg, l.owner, &buried)
	})
	if err != nil {
		l.astray.Store(true)
		l.deps.Log.WarnContext(ctx, "cannot note what was published; it is published again, with the same ids", "events", len(rows), "error", err)
		return
	}
	l.account(ctx, v, buried)
}

// recover ends the leases of rows that went astray, which nobody would publish until they run out.
func (l *leases) recover(ctx context.Context) error {
	if !l.astray.Load() {
		return nil
	}
	l.batches.Wait() // all that is leased to this relay is astray now
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	if _, err := l.pool.Exec(ctx, endLeases, l.owner); err != nil {
		return fmt.Errorf("end leases: %w", err)
	}
	l.astray.Store(false)
	return nil
}
