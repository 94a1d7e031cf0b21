package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/telemetry/names"
)

const (
	// minBackoff is the pause before an event that failed once is delivered again.
	minBackoff = 100 * time.Millisecond
	// maxAckPending bounds how many events wait for their next delivery while later ones go on.
	maxAckPending = 2000
	// ensureBound is how long the broker may take to create or update the consumer.
	ensureBound = 5 * time.Second
	// pullExpiry is how long one request for events waits at the broker; without its heartbeats a lost one is not noticed.
	pullExpiry = 10 * time.Second
)

// errDuplicate says that the event's effect is committed already.
var errDuplicate = errors.New("the event was received before")

// consumer applies the events of one stream.
type consumer struct {
	cfg      Config
	deps     Deps
	metrics  *metrics
	crashes  crashes
	pool     *pgxpool.Pool
	stream   string
	handlers map[string]Handler
	tracer   trace.Tracer
	wake     func() // tells the relay of what handlers appended
}

func newConsumer(o *Outbox, s subscription) *consumer {
	return &consumer{cfg: o.cfg, deps: o.deps, metrics: o.metrics, crashes: o.crashes, pool: o.consumerPool, stream: s.stream,
		handlers: s.handlers, tracer: o.deps.TracerProvider.Tracer(scope), wake: o.relay.wake}
}

// settings are those of the durable consumer that all replicas share. The broker's own bound of deliveries is off: it would
// drop an event without a word. A single subject is the one filter: the request then goes to a subject that ends in it,
// and the broker's permissions can name it. Several are not to be seen in the request's subject.
func (c *consumer) settings() jetstream.ConsumerConfig {
	settings := jetstream.ConsumerConfig{
		Durable: c.deps.Service, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait: c.cfg.AckWait, MaxDeliver: -1, MaxAckPending: maxAckPending,
	}
	subjects := slices.Sorted(maps.Keys(c.handlers))
	if len(subjects) == 1 {
		settings.FilterSubject = subjects[0]
	} else {
		settings.FilterSubjects = subjects
	}
	return settings
}

// run consumes until ctx ends. Events under way are seen through until work ends.
func (c *consumer) run(ctx, work context.Context) {
	trouble := outage{log: c.deps.Log, what: "consume the stream " + c.stream}
	for connected(ctx, c.deps.Conn) {
		err := c.session(ctx, work, func() { trouble.report(ctx, nil) })
		trouble.report(ctx, err)
		// The stream may not be there yet; half a second at random spreads the replicas.
		sleep(ctx, 250*time.Millisecond+rand.N(250*time.Millisecond))
	}
}

// session consumes until ctx ends or the consumer has to be looked for again.
func (c *consumer) session(ctx, work context.Context, up func()) error {
	js, err := jetstream.New(c.deps.Conn)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, ensureBound)
	defer cancel()
	durable, err := broker.EnsureConsumer(bounded, js, c.stream, c.settings())
	if err != nil {
		return err
	}
	messages, err := durable.Messages(jetstream.PullMaxMessages(2*c.cfg.Concurrency), jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullExpiry/4), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	up()
	slots := make(chan struct{}, c.cfg.Concurrency)
	var handling sync.WaitGroup
	defer handling.Wait()
	defer giveBack(messages)
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if ctx.Err() != nil && err != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			_ = m.Nak() // else it comes again after AckWait
			return ctx.Err()
		}
		handling.Go(func() {
			defer func() { <-slots }()
			c.handle(work, m)
		})
	}
}

// giveBack has the events that were fetched and not begun delivered to another replica at once.
func giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		m, err := messages.Next()
		if err != nil {
			return
		}
		_ = m.Nak() // else it comes again after AckWait
	}
}

// handle applies one event and tells the broker what became of it.
func (c *consumer) handle(ctx context.Context, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		c.deps.Log.WarnContext(ctx, "a message without JetStream's metadata was left", "subject", m.Subject(), "error", err)
		return
	}
	if meta.NumDelivered > 1 {
		c.metrics.redeliveries.Inc()
	}
	r, err := delivered(m, meta)
	ctx, span := c.startSpan(ctx, r, meta.NumDelivered)
	defer span.End()
	if err == nil {
		err = c.apply(ctx, r)
	}
	switch {
	case err == nil:
		c.crashes.at(afterCommit)
		c.wake()
		err = m.Ack()
	case errors.Is(err, errDuplicate):
		c.metrics.duplicates.Inc()
		span.SetAttributes(names.EventDuplicate.Bool(true))
		err = m.Ack()
	case c.hopeless(err, meta.NumDelivered):
		err = c.giveUp(ctx, r, m, meta, err)
	default:
		pause := c.backoff(meta.NumDelivered)
		span.RecordError(err)
		span.AddEvent(names.RetryScheduled, trace.WithAttributes(names.RetryAfter.Float64(pause.Seconds())))
		span.SetStatus(codes.Error, "delivered again later")
		c.deps.Log.WarnContext(ctx, "event failed, it is delivered again", "event", r.ID, "subject", r.Subject, "delivery", meta.NumDelivered, "error", err)
		err = m.NakWithDelay(pause)
	}
	if err != nil {
		// The event is delivered again after AckWait; the inbox knows it.
		c.deps.Log.WarnContext(ctx, "event was not acknowledged", "event", r.ID, "subject", r.Subject, "error", err)
	}
}

// startSpan goes on with the trace in which the event came about. delivery counts from 1; 0 is a dead letter that is tried again.
func (c *consumer) startSpan(ctx context.Context, r row, delivery uint64) (context.Context, trace.Span) {
	//nolint:spancheck // the caller ends it
	return c.tracer.Start(r.creation(ctx), names.Process(r.Subject), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(r.attributes(), semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"),
			semconv.MessagingConsumerGroupName(c.deps.Service), semconv.CloudEventsEventSource(r.source),
			names.RetryAttempt.Int64(int64(delivery)),
			names.EventAge.Float64(max(time.Since(r.CreatedAt).Seconds(), 0)))...))
}

// apply runs the handler once for the event, in one transaction with the event's id. It returns errDuplicate when that has
// been done before.
func (c *consumer) apply(ctx context.Context, r row) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AckWait/2)
	defer cancel()
	var asked *commits
	err := postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		ctx, collected := collectCommits(ctx)
		asked = collected
		return c.applyIn(ctx, tx, r)
	})
	if err == nil {
		asked.run()
	}
	return err
}

func (c *consumer) applyIn(ctx context.Context, tx pgx.Tx, r row) error {
	handler, ok := c.handlers[r.Subject]
	if !ok {
		return Permanent(fmt.Errorf("nothing here handles events on %s", r.Subject))
	}
	tag, err := tx.Exec(ctx, noteReceived, r.ID)
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return errDuplicate
	}
	if err := guarded(ctx, handler, tx, r.received()); err != nil {
		return err
	}
	c.crashes.at(afterEffect)
	return nil
}

// guarded turns a handler's panic into an error: one event must not end the process, and with it the handling of all.
func guarded(ctx context.Context, handler Handler, tx pgx.Tx, m Message) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler of %s panicked: %v\n%s", m.Subject, p, debug.Stack())
		}
	}()
	return handler(ctx, tx, m)
}

// hopeless says whether the event is given up after err. That the database was away, or the process about to stop, tells
// nothing of the event.
func (c *consumer) hopeless(err error, deliveries uint64) bool {
	if isPermanent(err) {
		return true
	}
	return deliveries >= uint64(c.cfg.MaxDeliveries) && !postgres.Unavailable(err) && !errors.Is(err, context.Canceled)
}

// giveUp puts the event among the dead letters.
func (c *consumer) giveUp(ctx context.Context, r row, m jetstream.Msg, meta *jetstream.MsgMetadata, cause error) error {
	span := trace.SpanFromContext(ctx)
	span.RecordError(cause)
	span.AddEvent(names.DeadLetter)
	span.SetStatus(codes.Error, names.DeadLetter)
	bounded, cancel := context.WithTimeout(ctx, c.cfg.AckWait/4)
	defer cancel()
	buried, err := c.bury(bounded, r, meta.NumDelivered, cause)
	if err != nil {
		c.deps.Log.WarnContext(ctx, "cannot keep a dead letter, it is delivered again", "event", r.ID, "subject", r.Subject, "error", err)
		return m.NakWithDelay(c.backoff(meta.NumDelivered))
	}
	if buried {
		c.metrics.dead.Inc()
		c.deps.Log.ErrorContext(ctx, "event given up, it is a dead letter", "event", r.ID, "subject", r.Subject,
			"deliveries", meta.NumDelivered, "error", cause)
	}
	return m.Ack()
}

// bury says whether the dead letter is new.
func (c *consumer) bury(ctx context.Context, r row, deliveries uint64, cause error) (bool, error) {
	tag, err := c.pool.Exec(ctx, bury, r.ID, c.stream, r.Subject, printable(r.Type), r.Payload,
		printable(r.Traceparent), printable(r.Tracestate), r.CreatedAt, deliveries, printable(cause.Error()))
	if err != nil {
		return false, fmt.Errorf("dead letter: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// backoff doubles with each delivery up to MaxBackoff, half of it at random.
func (c *consumer) backoff(deliveries uint64) time.Duration {
	d := min(minBackoff<<min(deliveries-1, 16), c.cfg.MaxBackoff)
	return d/2 + rand.N(d/2+1)
}

// retryDead handles the dead letters again that an operator asked for. One that fails is dead once more.
func (c *consumer) retryDead(ctx context.Context) error {
	for {
		found, err := c.retryOne(ctx)
		if err != nil || !found {
			return err
		}
	}
}

func (c *consumer) retryOne(ctx context.Context) (found bool, err error) {
	var id uuid.UUID
	var asked *commits
	err = postgres.InTx(ctx, c.pool, func(tx pgx.Tx) error {
		ctx, collected := collectCommits(ctx)
		asked = collected
		rows, _ := tx.Query(ctx, takeRetry, c.stream) // its error comes out of CollectRows
		taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil || len(taken) == 0 {
			return err
		}
		id = taken[0].ID
		return c.revive(ctx, tx, taken[0])
	})
	switch {
	case err == nil:
		asked.run()
		c.wake()
		return id != uuid.Nil, nil
	case id == uuid.Nil || postgres.Unavailable(err) || ctx.Err() != nil:
		return false, fmt.Errorf("retry dead letter: %w", err)
	}
	if _, err := c.pool.Exec(ctx, failRetry, id, printable(err.Error())); err != nil {
		return false, fmt.Errorf("note failed retry: %w", err)
	}
	c.metrics.dead.Inc()
	c.deps.Log.ErrorContext(ctx, "event failed again, it stays a dead letter", "event", id, "error", err)
	return true, nil
}

// revive applies a dead letter and removes it. It may have been applied meanwhile, by a delivery that came after all.
func (c *consumer) revive(ctx context.Context, tx pgx.Tx, r row) error {
	ctx, span := c.startSpan(ctx, r, 0)
	defer span.End()
	if err := c.applyIn(ctx, tx, r); err != nil && !errors.Is(err, errDuplicate) {
		span.RecordError(err)
		span.SetStatus(codes.Error, names.DeadLetter)
		return err
	}
	if _, err := tx.Exec(ctx, endRetry, r.ID); err != nil {
		return fmt.Errorf("remove dead letter: %w", err)
	}
	return nil
}
