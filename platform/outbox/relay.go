package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/postgres"
)

const (
	// claimBound is how long one claim may take.
	claimBound = 10 * time.Second
	// settleBound is how long it may take to note what became of a batch. It is not cut when the process stops: what is not
	// noted is published again.
	settleBound = 2 * time.Second
	// maxDelay bounds the pause after a batch of which the broker took nothing, and how long its rows wait.
	maxDelay = 2 * time.Second
)

// relay publishes what is in the outbox. Any number of them may work on one.
type relay struct {
	cfg       Config
	deps      Deps
	metrics   *metrics
	crashes   crashes
	pool      *pgxpool.Pool
	publisher *publisher // nil without a broker
	woken     chan struct{}
	// delay is the pause in nanoseconds before the next claim: 0 unless the broker is not ready.
	delay atomic.Int64
}

func newRelay(o *Outbox) (*relay, error) {
	r := &relay{cfg: o.cfg, deps: o.deps, metrics: o.metrics, crashes: o.crashes, pool: o.relayPool, woken: make(chan struct{}, 1)}
	if r.deps.Conn == nil {
		return r, nil
	}
	var err error
	r.publisher, err = newPublisher(r.cfg, r.deps, r.metrics)
	return r, err
}

func (r *relay) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// run claims and publishes until ctx ends. What was claimed is seen through until work ends. While there is no connection
// to the broker nothing is claimed, so that its outage leaves no trace in the outbox.
func (r *relay) run(ctx, work context.Context) {
	if r.cfg.Mode == Tx {
		r.rounds(ctx, func() (more bool, err error) { return r.publishInTx(work) })
		return
	}
	l := newLeases(r)
	defer l.wait()
	r.rounds(ctx, func() (more bool, err error) { return l.round(ctx, work) })
}

// rounds runs round over and over, at once when it says that there may be more.
func (r *relay) rounds(ctx context.Context, round func() (more bool, err error)) {
	trouble := outage{log: r.deps.Log, what: "publish what is in the outbox"}
	for connected(ctx, r.deps.Conn) {
		more, err := round()
		trouble.report(ctx, err)
		r.pause(ctx, more && err == nil)
	}
}

// publishInTx claims, publishes and notes in one transaction. It says whether there may be more to publish.
func (r *relay) publishInTx(ctx context.Context) (full bool, err error) {
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
		v = r.publisher.publish(ctx, rows)
		r.crashes.at(afterPublish)
		batch := &pgx.Batch{}
		v.settle(batch, r.cfg, "", &buried)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return fmt.Errorf("note what was published: %w", err)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	r.account(ctx, v, buried)
	return full, nil
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

// account counts what was noted, and slows the relay down as long as the broker takes nothing.
func (r *relay) account(ctx context.Context, v verdicts, buried int) {
	r.metrics.published.Add(float64(len(v.published)))
	r.metrics.dead.Add(float64(buried))
	if buried > 0 {
		r.deps.Log.ErrorContext(ctx, "the broker refused events too often, they are dead letters", "events", buried, "error", v.reasons[0])
	}
	switch {
	case len(v.published)+len(v.refused) > 0:
		r.delay.Store(0)
	case len(v.unready) > 0:
		r.delay.Store(int64(min(max(2*time.Duration(r.delay.Load()), r.cfg.Poll), maxDelay)))
	}
}

// keepStream brings the stream to its settings, now and each time that the broker has come back.
func (r *relay) keepStream(ctx context.Context) {
	if r.publisher == nil {
		return
	}
	trouble := outage{log: r.deps.Log, what: "create or update the stream " + r.deps.Stream}
	back := r.deps.Conn.StatusChanged(nats.CONNECTED)
	defer r.deps.Conn.RemoveStatusListener(back)
	for connected(ctx, r.deps.Conn) {
		err := r.ensureStream(ctx)
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

// ensureStream leaves a stream alone that has its settings: each replica looks after each outage, and an update makes the
// broker write to the disk.
func (r *relay) ensureStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.PublishTimeout)
	defer cancel()
	want := r.cfg.stream(r.deps.Stream)
	if stream, err := r.publisher.js.Stream(ctx, want.Name); err == nil && settled(stream.CachedInfo().Config, want) {
		return nil
	}
	_, err := broker.EnsureStream(ctx, r.publisher.js, want)
	return err
}

// settled compares what Config.stream sets; the broker fills in the rest.
func settled(have, want jetstream.StreamConfig) bool {
	return slices.Equal(have.Subjects, want.Subjects) && have.Storage == want.Storage && have.Retention == want.Retention &&
		have.Discard == want.Discard && have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes && have.Replicas == want.Replicas &&
		have.Duplicates == want.Duplicates && have.AllowAtomicPublish == want.AllowAtomicPublish
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
