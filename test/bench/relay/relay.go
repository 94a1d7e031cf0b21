// Package relay compares the relay of the outbox with a bare loop of its statements, in an empty table and in a full one, and
// with Watermill's forwarder.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/test/bench/servers"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// The bare loop: the claim and the note of a relay that leases, and nothing else. Both must stay what platform/outbox does.
const (
	bareClaim = `UPDATE outbox SET lease_owner = $2, lease_expires_at = now() + $3::interval
WHERE id = ANY (ARRAY(
	SELECT id FROM outbox
	WHERE published_at IS NULL AND dead_at IS NULL AND next_attempt_at <= now()
	AND (lease_expires_at IS NULL OR lease_expires_at <= now())
	ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, type, subject, payload, traceparent, tracestate, created_at`
	bareMark = `UPDATE outbox SET published_at = now(), lease_owner = '', lease_expires_at = NULL
WHERE id = ANY ($1::uuid[]) AND published_at IS NULL`
)

// events inserts rows of about the size of an OrderPlaced; %[1]s is their type, %[2]s when they were published, %[3]d their number.
const events = `INSERT INTO outbox (id, type, subject, payload, traceparent, published_at)
SELECT gen_random_uuid(), '%[1]s', 'bench.happened', decode(repeat('ab', 150), 'hex'),
'00-01020000000000000000000000000000-0102000000000000-01', %[2]s FROM generate_series(1, %[3]d)`

// drainBound is how long a backlog may take.
const drainBound = 10 * time.Minute

type rows struct {
	servers *servers.Servers
	size    sizes
	cfg     outbox.Config
	conn    *nats.Conn
	js      jetstream.JetStream
	peer    *forwarding
	// The databases whose outbox holds nothing but the backlog, and published rows as well.
	empty, full                          *pgxpool.Pool
	bareEmpty, bareFull, flat, forwarder *table.Row
}

type sizes struct {
	backlog     int // rows that the relay and the bare loop drain each time
	published   int // published rows in the way, in the rows of the table that say so
	peerBacklog int // messages that Watermill's forwarder drains each time
}

// Start prepares the part. RELAY_BATCH and others of the run's environment set both the relay and the bare loop.
func Start(ctx context.Context, r *suite.Run) (suite.Part, error) {
	cfg, err := config.Load[outbox.Config](r.Environ)
	if err != nil {
		return nil, err
	}
	size := sizes{backlog: 100_000, published: 1_000_000, peerBacklog: 5000}
	if r.Quick {
		size = sizes{backlog: 20_000, published: 200_000, peerBacklog: 1000}
	}
	s, err := r.Servers(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(s.NATS)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	b := &rows{servers: s, size: size, cfg: cfg, conn: conn, js: js}
	behind := fmt.Sprintf("relay, %s published rows in the table", table.Number(float64(size.published)))
	b.bareEmpty = r.Row("relay", "relay, "+table.Number(float64(size.backlog))+" rows", "bare claim and mark", "rows/s", table.AtLeast(0.5))
	b.bareFull = r.Row("relay", behind, "bare claim and mark", "rows/s", table.AtLeast(0.5))
	b.flat = r.Row("relay", behind, "relay without them", "rows/s", table.AtLeast(0.7))
	b.forwarder = r.Row("relay", "relay", "watermill-sql's forwarder", "rows/s", table.AtLeast(5))
	if b.empty, err = b.database(ctx, "empty", 0); err != nil {
		return nil, err
	}
	if b.full, err = b.database(ctx, "filled", size.published); err != nil {
		return nil, err
	}
	b.peer, err = newForwarding(ctx, s, js)
	return b, err
}

func (b *rows) database(ctx context.Context, name string, published int) (*pgxpool.Pool, error) {
	if err := b.servers.Create(ctx, name, "template0"); err != nil {
		return nil, err
	}
	up, _, _ := strings.Cut(outbox.Schema, "-- +goose Down")
	if err := b.servers.Execute(ctx, name, up, fmt.Sprintf(events, "bench.v1.Before", "now()", published)); err != nil {
		return nil, err
	}
	return pgxpool.New(ctx, b.servers.URL(name))
}

// Close ends the part's connections.
func (b *rows) Close() error {
	b.empty.Close()
	b.full.Close()
	b.peer.close()
	b.conn.Close()
	return nil
}

// Round drains a backlog of each side.
func (b *rows) Round(ctx context.Context, n int) error {
	bare, relay, err := b.both(ctx, b.empty, n)
	if err != nil {
		return err
	}
	peer, err := b.peer.rate(ctx, b.size.peerBacklog)
	if err != nil {
		return fmt.Errorf("watermill: %w", err)
	}
	bareBehind, relayBehind, err := b.both(ctx, b.full, n)
	if err != nil {
		return err
	}
	b.bareEmpty.Add(relay, bare)
	b.bareFull.Add(relayBehind, bareBehind)
	b.flat.Add(relayBehind, relay)
	b.forwarder.Add(relay, peer)
	return nil
}

// both returns the rates of the bare loop and of the relay with the same backlog. They take turns at being first.
func (b *rows) both(ctx context.Context, pool *pgxpool.Pool, n int) (bare, relay float64, err error) {
	sides := []func() error{
		func() (err error) { bare, err = b.rate(ctx, pool, b.drainBare); return err },
		func() (err error) { relay, err = b.rate(ctx, pool, b.drainRelay); return err },
	}
	for i := range sides {
		if err := sides[(i+n)%len(sides)](); err != nil {
			return 0, 0, err
		}
	}
	return bare, relay, nil
}

// rate replaces the last backlog by a new one and times its drain.
func (b *rows) rate(ctx context.Context, pool *pgxpool.Pool, drain func(context.Context, *pgxpool.Pool) error) (float64, error) {
	err := b.servers.Execute(ctx, pool.Config().ConnConfig.Database, "DELETE FROM outbox WHERE type = 'bench.v1.Happened'", "VACUUM outbox",
		fmt.Sprintf(events, "bench.v1.Happened", "NULL", b.size.backlog), "VACUUM ANALYZE outbox", "CHECKPOINT")
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := drain(ctx, pool); err != nil {
		return 0, err
	}
	return float64(b.size.backlog) / time.Since(start).Seconds(), nil
}

// drainBare claims and marks until nothing is left.
func (b *rows) drainBare(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		claimed, _ := pool.Query(ctx, bareClaim, b.cfg.Batch, "bare", b.cfg.Lease) // its error comes out of CollectRows
		ids, err := pgx.CollectRows(claimed, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
			return id, row.Scan(&id, nil, nil, nil, nil, nil, nil)
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err := pool.Exec(ctx, bareMark, ids); err != nil {
			return err
		}
	}
}

// drainRelay runs a relay, from its start, until every row is noted as published.
func (b *rows) drainRelay(ctx context.Context, pool *pgxpool.Pool) error {
	database, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + pool.Config().ConnString()})
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	conn, err := broker.Connect(broker.Config{URL: b.servers.NATS, Heartbeat: time.Second}, "bench", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	o, err := outbox.New(ctx, b.cfg, outbox.Deps{
		Service: "bench", Stream: "bench", Database: database, Conn: conn, Log: log, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- o.Run(running) }()
	err = servers.Await(ctx, drainBound, func(ctx context.Context) error { return drained(ctx, pool) })
	stop()
	return errors.Join(err, <-ended, purge(context.WithoutCancel(ctx), b.js, "bench"))
}

func drained(ctx context.Context, pool *pgxpool.Pool) error {
	var waiting bool
	err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL)").Scan(&waiting)
	if err == nil && waiting {
		err = errors.New("rows are waiting")
	}
	return err
}

// purge empties a stream, so that the next drain finds it as this one did.
func purge(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	return stream.Purge(ctx)
}
