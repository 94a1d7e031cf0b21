// Package outbox carries events from one service's transactions to another's, through a broker, without losing one and
// without applying one twice. It knows nothing of what events mean.
//
// A transaction announces an event by [Append]: the row commits or vanishes with everything else in the transaction. The
// relay publishes committed rows to NATS JetStream, at least once. A consumer applies each event in one transaction with
// the event's id in the inbox, so that a second delivery has no second effect, and with the events that come of it in its
// own outbox.
//
// A service copies [Schema] into its migrations, and then:
//
//	events, err := outbox.New(ctx, cfg, outbox.Deps{Service: "inventory", Stream: "inventory", ...})
//	events.Consume("orders", map[string]outbox.Handler{"orders.placed": outbox.Decode(reserve)})
//	...
//	events.Run(ctx)  // in a worker, once the database is migrated
//
// where reserve is a func(ctx, tx, *eventsv1.OrderPlaced) error that does its work and appends its events in tx. After a
// commit of its own that appended something, a service calls events.Wake, so that the event leaves at once; nobody needs
// to wake for what a handler appends.
//
// A handler's error means "deliver it again, later"; wrapped by [Permanent], or after too many deliveries, it puts the
// event among the dead letters, where [DeadLetters], [Retry] and [Purge] find it, and later events go on. That the database
// is away never makes a dead letter. Events arrive in no particular order.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/postgres"
)

// scope names the spans' instrumentation.
const scope = "example.com/watertight/platform/outbox"

// stopGrace is how long what is under way may take to end when the process stops; less than the lifecycle waits for workers.
const stopGrace = 500 * time.Millisecond

// Deps is what an Outbox works with. Service, Database, Log and Registry are required.
type Deps struct {
	// Service is the name of the durable consumers and the source of the events.
	Service string
	// Stream is the stream that this service fills: all subjects that begin with it and a dot. The relay creates it or brings
	// it to its settings. Empty is a service that only consumes, and has no relay.
	Stream string
	// Database is where the events are; the pools of relay and consumers are the Outbox's own.
	Database postgres.Config
	// Conn is the broker's connection (broker.Connect); nil is a broker that never comes.
	Conn *nats.Conn
	Log  *slog.Logger
	// TracerProvider gets a PRODUCER span for each event sent and a CONSUMER span for each handled; nil for none.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the state of the pools; nil for none.
	MeterProvider metric.MeterProvider
	// Registry gets the metrics, once: two Outboxes in one process need two, or different labels.
	Registry prometheus.Registerer
	// FaultsEnabled lets CRASH_POINT work.
	FaultsEnabled bool
}

// Outbox is one service's part in the traffic of events: it publishes what the service's transactions append, applies the
// events that the service consumes, and removes what was kept long enough.
type Outbox struct {
	cfg           Config
	deps          Deps
	metrics       *metrics
	crashes       crashes
	relayPool     *pgxpool.Pool
	consumerPool  *pgxpool.Pool
	relay         *relay
	subscriptions []subscription
}

type subscription struct {
	stream   string
	handlers map[string]Handler
}

// New puts an Outbox together. It contacts nobody. An error names the variable at fault.
func New(ctx context.Context, cfg Config, deps Deps) (*Outbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// A lease must not run out under a batch that the broker is still taking.
	cfg.PublishTimeout = min(cfg.PublishTimeout, cfg.Lease/3)
	if deps.TracerProvider == nil {
		deps.TracerProvider = noop.NewTracerProvider()
	}
	crash := crashes{log: deps.Log}
	if deps.FaultsEnabled {
		probability, err := parseCrashPoints(cfg.CrashPoint)
		if err != nil {
			return nil, err
		}
		crash.probability = probability
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	o := &Outbox{cfg: cfg, deps: deps, metrics: m, crashes: crash}
	if o.relayPool, err = o.open(ctx, "relay", cfg.RelayConns); err != nil {
		return nil, err
	}
	if o.consumerPool, err = o.open(ctx, "consumer", cfg.ConsumerConns); err != nil {
		o.relayPool.Close()
		return nil, err
	}
	if o.relay, err = newRelay(o); err != nil {
		o.relayPool.Close()
		o.consumerPool.Close()
		return nil, err
	}
	return o, nil
}

func (o *Outbox) open(ctx context.Context, role string, conns int32) (*pgxpool.Pool, error) {
	cfg := o.deps.Database
	cfg.MaxConns = conns
	pool, err := postgres.Open(ctx, cfg, postgres.Deps{
		Name: o.deps.Service + "-" + role, TracerProvider: o.deps.TracerProvider, MeterProvider: o.deps.MeterProvider})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return pool, nil
}

// Consume has the events of stream handled, by subject; other subjects are not delivered. It is called before Run, once
// for each stream. All replicas of the service share one durable consumer, which is named after the service.
func (o *Outbox) Consume(stream string, handlers map[string]Handler) {
	o.subscriptions = append(o.subscriptions, subscription{stream, handlers})
}

// Wake tells the relay that a transaction which appended events has committed. It never blocks; events of which nobody
// tells leave within RELAY_POLL. Here is the crash point before-reply: a service calls Wake before it answers.
func (o *Outbox) Wake() {
	o.crashes.at(beforeReply)
	o.relay.wake()
}

// Answered tells that a party outside, which takes part in no transaction, has answered, and that nothing of it is stored
// yet. It is the crash point after-answer, and nothing else.
func (o *Outbox) Answered() { o.crashes.at(afterAnswer) }

// Run publishes, consumes and purges until ctx ends, then lets what is under way come to its end, within half a second.
// The tables have to be there. Database and broker may be away, at the start and later. It is called once and returns nil.
func (o *Outbox) Run(ctx context.Context) error {
	defer o.relayPool.Close()
	defer o.consumerPool.Close()
	// What is under way when ctx ends has a moment more.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cut) })()

	var loops sync.WaitGroup
	if o.deps.Stream != "" {
		loops.Go(func() { o.relay.run(ctx, work) })
		loops.Go(func() { o.relay.keepStream(ctx) })
		loops.Go(func() { o.repeat(ctx, "look for the oldest unpublished event", gaugePause, o.relay.measure) })
		loops.Go(func() {
			o.repeat(ctx, "purge the outbox", o.cfg.PurgePause, o.purge(o.relayPool, purgeOutbox, o.cfg.OutboxRetention))
		})
	}
	if len(o.subscriptions) > 0 {
		loops.Go(func() {
			o.repeat(ctx, "purge the inbox", o.cfg.PurgePause, o.purge(o.consumerPool, purgeInbox, o.cfg.InboxRetention))
		})
	}
	loops.Go(func() { o.repeat(ctx, "count the dead letters", gaugePause, o.measureDead) })
	for _, s := range o.subscriptions {
		c := newConsumer(o, s)
		loops.Go(func() { c.run(ctx, work) })
		loops.Go(func() { o.repeat(ctx, "retry dead letters", retryPause, c.retryDead) })
	}
	loops.Wait()
	return nil
}

const (
	gaugePause = time.Second // how often the oldest unpublished event is looked for, and the dead letters are counted
	retryPause = time.Second // how often consumers look for dead letters to retry
	// maxCounted is how many dead letters of either side are counted.
	maxCounted = 1000
	// roundBound is how long one round of a background loop may take.
	roundBound = 30 * time.Second
	// purgeBatch is how many rows one purging statement removes: few enough to hold no lock and no vacuum up.
	purgeBatch = 1000
)

// repeat runs do now and after each pause until ctx ends.
func (o *Outbox) repeat(ctx context.Context, what string, pause time.Duration, do func(context.Context) error) {
	trouble := outage{log: o.deps.Log, what: what}
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, roundBound)
		err := do(bounded)
		cancel()
		trouble.report(ctx, err)
		sleep(ctx, pause)
	}
}

// measureDead counts the dead letters of both sides, up to maxCounted of each. The number is the database's: a restart does not forget it, and
// every replica shows the same.
func (o *Outbox) measureDead(ctx context.Context) error {
	pool := o.relayPool
	if o.deps.Stream == "" {
		pool = o.consumerPool // which is in use anyway
	}
	var waiting float64
	if err := pool.QueryRow(ctx, countDead, maxCounted).Scan(&waiting); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	o.metrics.waiting.Set(waiting)
	return nil
}

// purge returns a round that removes what is older than retention, batch by batch, each a transaction of its own.
func (o *Outbox) purge(pool *pgxpool.Pool, statement string, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			tag, err := pool.Exec(ctx, statement, retention, purgeBatch)
			if err != nil {
				return fmt.Errorf("purge: %w", err)
			}
			if tag.RowsAffected() < purgeBatch {
				return nil
			}
		}
	}
}

// connected waits for the connection to the broker and says whether ctx goes on.
func connected(ctx context.Context, conn *nats.Conn) bool {
	return broker.Await(ctx, conn) == nil && ctx.Err() == nil
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// outage logs when something begins to fail and when it works again, not each failure between: with the broker or the
// database away, that would be all the log says. It is for one goroutine.
type outage struct {
	log     *slog.Logger
	what    string
	failing bool
}

func (o *outage) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case err != nil && !o.failing:
		o.failing = true
		o.log.WarnContext(ctx, "cannot work, trying on", "what", o.what, "error", err)
	case err == nil && o.failing:
		o.failing = false
		o.log.InfoContext(ctx, "works again", "what", o.what)
	}
}
