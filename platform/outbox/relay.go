package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/postgres"
)

const (
	// claimBound is how long one claim may take.
	claimBound = 10 * time.Second
	// settleBound is how long it may take to note what became of a batch. It is not cut when the process stops: what is not
	// noted is published again.
	settleBound = 2 * time.Second
	// maxGathered is the size in bytes of payloads above which no further batch is claimed before they are published.
	maxGathered = 1 << 20
	// maxDelay bounds the pause after a batch of which the broker took nothing, and how long its rows wait.
	maxDelay = 2 * time.Second
)

// relay publishes what is in the outbox. Any number of them may work on one.
type relay struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	pool    *pgxpool.Pool
	owner   string // of the leases; no two relays have the same
	woken   chan struct{}
	// delay is the pause in nanoseconds before the next claim: 0 unless the broker is not ready.
	delay atomic.Int64
}

func newRelay(cfg Config, deps Deps, m *metrics, pool *pgxpool.Pool) *relay {
	return &relay{cfg: cfg, deps: deps, metrics: m, pool: pool, owner: rand.Text(), woken: make(chan struct{}, 1)}
}

func (r *relay) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// run claims and publishes until ctx ends. Batches that were claimed are seen through until work ends. While there is no
// connection to the broker nothing is claimed, so that its outage leaves no trace in the outbox.
func (r *relay) run(ctx, work context.Context) {
	claims := outage{log: r.deps.Log, what: "claim events in the outbox"}
	publisher, err := r.connect(ctx)
	if err != nil {
		return // ctx has ended
	}
	var stream sync.WaitGroup
	defer stream.Wait()
	stream.Go(func() { r.keepStream(ctx, publisher) })

	slots := make(chan struct{}, r.cfg.InFlight)
	var batches sync.WaitGroup
	defer batches.Wait()
	for connected(ctx, r.deps.Conn) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		full := false
		done := func() { <-slots }
		if r.cfg.Mode == Tx {
			full, err = r.publishInTx(work, publisher)
			done()
		} else {
			var rows []row
			if rows, full, err = r.gather(ctx); len(rows) == 0 {
				done()
			} else {
				batches.Go(func() {
					defer done()
					r.publishLeased(work, publisher, rows)
				})
			}
		}
		claims.report(ctx, err)
		r.pause(ctx, full && err == nil)
	}
}

// connect waits for the first connection, without which there is no publisher.
func (r *relay) connect(ctx context.Context) (*publisher, error) {
	if err := broker.Await(ctx, r.deps.Conn); err != nil {
		return nil, err
	}
	return newPublisher(r.cfg, r.deps, r.metrics)
}

// keepStream brings the stream to its settings, now and each time that the broker has come back.
func (r *relay) keepStream(ctx context.Context, p *publisher) {
	trouble := outage{log: r.deps.Log, what: "create or update the stream " + r.deps.Stream}
	back := r.deps.Conn.StatusChanged(nats.CONNECTED)
	defer r.deps.Conn.RemoveStatusListener(back)
	for connected(ctx, r.deps.Conn) {
		bounded, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
		_, err := broker.EnsureStream(bounded, p.js, r.cfg.stream(r.deps.Stream))
		cancel()
		trouble.report(ctx, err)
		if err != nil {
			sleep(ctx, time.Second)
			continue
		}
		select {
		case <-back:
		case <-ctx.Done():
		}
	}
}

// pause waits until there may be something to claim.
func (r *relay) pause(ctx context.Context, more bool) {
	delay := time.Duration(r.delay.Load())
	switch {
	case delay > 0:
		sleep(ctx, delay)
	case !more:
		select {
		case <-ctx.Done():
		case <-r.woken:
		case <-time.After(r.cfg.Poll):
		}
	}
}

// gather claims what is published together: a batch, and when there is a backlog several, each in a short transaction of its
// own, up to what the broker takes at once. It says whether there may be more.
func (r *relay) gather(ctx context.Context) (rows []row, full bool, err error) {
	bytes := 0
	for {
		batch, err := r.lease(ctx)
		rows = append(rows, batch...)
		full := len(batch) == r.cfg.Batch
		for _, b := range batch {
			bytes += len(b.Payload)
		}
		if err != nil || !full || len(rows)+r.cfg.Batch > maxBatch || bytes > maxGathered {
			return rows, full, err
		}
	}
}

// lease claims a batch in a short transaction.
func (r *relay) lease(ctx context.Context) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, claimBound)
	defer cancel()
	claimed, _ := r.pool.Query(ctx, leaseBatch, r.cfg.Batch, r.owner, r.cfg.Lease) // its error comes out of CollectRows
	rows, err := pgx.CollectRows(claimed, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err) // what was claimed all the same is free when the lease ends
	}
	return rows, nil
}

// publishLeased publishes rows with no transaction open and notes what became of them.
func (r *relay) publishLeased(ctx context.Context, p *publisher, rows []row) {
	v := p.publish(ctx, rows)
	r.deps.Hooks.afterPublish()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	buried := 0
	err := postgres.SendTx(ctx, r.pool, func(b *pgx.Batch) {
		buried = 0
		v.settle(b, r.cfg, r.owner, &buried)
	})
	if err != nil {
		// The rows are published again when their lease ends, with the same ids.
		r.deps.Log.WarnContext(ctx, "cannot note what was published", "events", len(rows), "error", err)
		return
	}
	r.account(v, buried)
}

// publishInTx claims, publishes and notes in one transaction. It says whether there may be more to publish.
func (r *relay) publishInTx(ctx context.Context, p *publisher) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimBound+r.cfg.PublishTimeout+settleBound)
	defer cancel()
	var v verdicts
	buried := 0
	err = postgres.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		v, buried = verdicts{}, 0
		locked, _ := tx.Query(ctx, lockBatch, r.cfg.Batch) // its error comes out of CollectRows
		rows, err := pgx.CollectRows(locked, pgx.RowToStructByPos[row])
		if err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		full = len(rows) == r.cfg.Batch
		if len(rows) == 0 {
			return nil
		}
		v = p.publish(ctx, rows)
		r.deps.Hooks.afterPublish()
		batch := &pgx.Batch{}
		v.settle(batch, r.cfg, "", &buried)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("note what was published: %w", err)
		}
		return nil
	})
	if err == nil {
		r.account(v, buried)
	}
	return full, err
}

// account counts what was noted, and slows the relay down as long as the broker takes nothing.
func (r *relay) account(v verdicts, buried int) {
	r.metrics.published.Add(float64(len(v.published)))
	r.metrics.dead.Add(float64(buried))
	switch {
	case len(v.published)+len(v.refused) > 0:
		r.delay.Store(0)
	case len(v.unready) > 0:
		r.delay.Store(int64(min(max(2*time.Duration(r.delay.Load()), r.cfg.Poll), maxDelay)))
	}
}

// measure looks for the oldest event that the broker does not have.
func (r *relay) measure(ctx context.Context) error {
	var age *float64 // NULL when there is none
	if err := r.pool.QueryRow(ctx, oldestAge).Scan(&age); err != nil {
		return fmt.Errorf("oldest unpublished event: %w", err)
	}
	if age == nil {
		r.metrics.oldest.Store(nil)
		return nil
	}
	created := time.Now().Add(-time.Duration(*age * float64(time.Second)))
	r.metrics.oldest.Store(&created)
	return nil
}
