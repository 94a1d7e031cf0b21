// Package postgres is how a service reaches its database: a pool that starts before the server does and survives its
// outages, migrations, transactions that are retried and committed safely, and the errors that mean "not now". It knows
// no tables, and refuses to wait without a bound.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"example.com/watertight/platform/telemetry/names"
)

// When the context of a running statement ends, pgx by default drops the connection and leaves the statement running on
// the server, so that a burst of departing clients multiplies the sessions there. Here the statement is cancelled
// instead and the connection kept: after cancelGrace, because most statements end by themselves sooner; and if the
// server has not answered after cancelBound, the connection is dropped after all.
const (
	cancelGrace = 20 * time.Millisecond
	cancelBound = time.Second
)

// statementCache is how many statements a connection keeps prepared, unless the connection string asks for fewer. A service has some forty.
// pgx's own 512 are set aside when a connection opens, twice: 105 kB of each connection's memory.
const statementCache = 100

// Deps is what a pool reports to. A nil provider switches that report off.
type Deps struct {
	// Name is the application_name of the pool's sessions, and the pool's name in its metrics.
	Name string
	// TracerProvider gets a span for each statement under a recording span.
	TracerProvider trace.TracerProvider
	// MeterProvider gets the durations and errors of operations and the state of the pool.
	MeterProvider metric.MeterProvider
}

// Open returns a pool for cfg.URL. The server need not be there: connections are opened when they are first needed, and
// again after an outage. An error is a mistake in cfg and names the variable. The caller closes the pool.
func Open(ctx context.Context, cfg Config, deps Deps) (*pgxpool.Pool, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.TracerProvider == nil {
		deps.TracerProvider = tracenoop.NewTracerProvider()
	}
	if deps.MeterProvider == nil {
		deps.MeterProvider = metricnoop.NewMeterProvider()
	}
	poolCfg, err := cfg.pool(deps)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolCfg)
	if err != nil {
		return nil, fmt.Errorf("create connection pool: %w", err)
	}
	err = otelpgx.RecordStats(pool, otelpgx.WithStatsMeterProvider(deps.MeterProvider),
		otelpgx.WithStatsAttributes(attribute.String("db.client.connection.pool.name", deps.Name)))
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("record pool metrics: %w", err)
	}
	return pool, nil
}

func (c Config) pool(deps Deps) (*pgxpool.Config, error) {
	pool, err := parse("DATABASE_URL", c.URL)
	if err != nil {
		return nil, err
	}
	pool.MaxConns = c.MaxConns
	pool.MinConns = 0
	pool.PingTimeout = c.ConnectTimeout
	pool.MaxConnLifetime = 30 * time.Minute
	pool.MaxConnLifetimeJitter = 5 * time.Minute
	pool.MaxConnIdleTime = 5 * time.Minute

	// Without this pgx takes a uuid.UUID for any driver.Valuer, and writes it as text on its way to the server.
	pool.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		pgxuuid.Register(conn.TypeMap())
		return nil
	}
	conn := pool.ConnConfig
	conn.ConnectTimeout = c.ConnectTimeout
	conn.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, CancelRequestDelay: cancelGrace, DeadlineDelay: cancelBound}
	}
	conn.StatementCacheCapacity = min(conn.StatementCacheCapacity, statementCache)
	conn.DescriptionCacheCapacity = min(conn.DescriptionCacheCapacity, statementCache)
	setDefault(conn.RuntimeParams, "application_name", deps.Name)
	setDefault(conn.RuntimeParams, "statement_timeout", milliseconds(c.StatementTimeout))
	setDefault(conn.RuntimeParams, "lock_timeout", milliseconds(c.LockTimeout))
	setDefault(conn.RuntimeParams, "idle_in_transaction_session_timeout", milliseconds(c.IdleInTransactionTimeout))
	tracer := newTracer(deps, statementName)
	prepare := newTracer(deps, func(sql string) string { return names.Prepare(statementName(sql)) })
	conn.Tracer = statements{tracer, batches{tracer}, prepare, tracer, tracer}
	return pool, nil
}

func newTracer(deps Deps, spanName func(sql string) string) *otelpgx.Tracer {
	return otelpgx.NewTracer(
		otelpgx.WithTracerProvider(deps.TracerProvider),
		otelpgx.WithMeterProvider(deps.MeterProvider),
		otelpgx.WithSpanNameFunc(spanName),
		otelpgx.WithMetricOperationName(otelpgx.SQLOperationName),
	)
}

// statements is what is traced of a pool: everything but taking a connection from it. For that otelpgx copies the pool's
// whole configuration each time, recorded or not; it was an eighth of what an order costs. RecordStats measures the waits.
type statements struct {
	pgx.QueryTracer
	pgx.BatchTracer
	pgx.PrepareTracer
	pgx.ConnectTracer
	pgx.CopyFromTracer
}

// batches leaves out a statement of a batch of which there is nothing to tell, neither a span nor an error: otelpgx would work
// out its name all the same. The batch as a whole is timed.
type batches struct{ *otelpgx.Tracer }

func (b batches) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil || trace.SpanFromContext(ctx).IsRecording() {
		b.Tracer.TraceBatchQuery(ctx, conn, data)
	}
}

// setDefault leaves what the connection string itself says.
func setDefault(params map[string]string, name, value string) {
	if _, set := params[name]; !set {
		params[name] = value
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// statementName is the name of a statement's span: NAME of a first line "-- name: NAME", else the SQL verb.
func statementName(sql string) string {
	if rest, ok := strings.CutPrefix(strings.TrimSpace(sql), "-- name: "); ok {
		name, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(name)
	}
	return otelpgx.SQLOperationName(context.Background(), sql)
}

// serverError returns the server's error, or nil when err has none.
func serverError(err error) *pgconn.PgError {
	server, _ := errors.AsType[*pgconn.PgError](err)
	return server
}
