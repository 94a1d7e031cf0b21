package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpcerr"
)

// settings reads the package's own defaults, as a process does.
func settings(t *testing.T, url string, more ...string) postgres.Config {
	t.Helper()
	cfg, err := config.Load[postgres.Config](append(more, "DATABASE_URL="+url))
	if err != nil {
		t.Fatalf("load config: %v", err)
	}
	return cfg
}

func open(t *testing.T, cfg postgres.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(t.Context(), cfg, postgres.Deps{Name: "postgres-test"})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func count(t *testing.T, pool *pgxpool.Pool, sql string) int {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// eventually waits until ok, for as long as a loaded machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestConfig_ErrorsNameTheVariableAndNeverShowAPassword(t *testing.T) {
	const password = "s3cr3tpass"
	for _, tt := range []struct{ env, variable string }{
		{"DATABASE_URL=", "DATABASE_URL"},
		{"DATABASE_URL=postgres://role:" + password + "@host:port/db", "DATABASE_URL"},
		{"DATABASE_URL=postgres://role:" + password + "%zz@host/db", "DATABASE_URL"},
		{"DATABASE_URL=host password=" + password, "DATABASE_URL"},
		{"DATABASE_URL=mysql://role:" + password + "@host/db", "DATABASE_URL"},
		{"MIGRATE_DATABASE_URL=postgres://role:" + password + "@host:port/db", "MIGRATE_DATABASE_URL"},
		{"DB_MAX_CONNS=0", "DB_MAX_CONNS"},
		{"DB_MAX_CONNS=-4", "DB_MAX_CONNS"},
		{"DB_CONNECT_TIMEOUT=0", "DB_CONNECT_TIMEOUT"},
		{"DB_MIGRATE_TIMEOUT=-1s", "DB_MIGRATE_TIMEOUT"},
		{"DB_STATEMENT_TIMEOUT=-1s", "DB_STATEMENT_TIMEOUT"},
		{"DB_LOCK_TIMEOUT=1us", "DB_LOCK_TIMEOUT"},
		{"DB_IDLE_IN_TRANSACTION_TIMEOUT=10000h", "DB_IDLE_IN_TRANSACTION_TIMEOUT"},
	} {
		t.Run(tt.env, func(t *testing.T) {
			// Of two lines for one variable the later one counts.
			_, err := config.Load[postgres.Config]([]string{"DATABASE_URL=postgres://role@host/db", tt.env})
			if err == nil || !strings.HasPrefix(err.Error(), tt.variable+":") {
				t.Errorf("got error %v, want one that starts with %s:", err, tt.variable)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestOpen_SessionsCarryNameAndTimeouts(t *testing.T) {
	url := pgtest.New(t)
	read := func(pool *pgxpool.Pool, setting string) (value string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	pool := open(t, settings(t, url, "DB_STATEMENT_TIMEOUT=3s", "DB_LOCK_TIMEOUT=1500ms", "DB_IDLE_IN_TRANSACTION_TIMEOUT=0"))
	for setting, want := range map[string]string{"application_name": "postgres-test", "statement_timeout": "3s",
		"lock_timeout": "1500ms", "idle_in_transaction_session_timeout": "0"} {
		if got := read(pool, setting); got != want {
			t.Errorf("%s: got %s, want %s", setting, got, want)
		}
	}
	own := open(t, settings(t, url+"&statement_timeout=7000"))
	if got := read(own, "statement_timeout"); got != "7s" {
		t.Errorf("statement_timeout of the connection string: got %s, want 7s", got)
	}
}

// What is kept for a hundred statements is a tenth of what is kept for pgx's 512.
func TestOpen_ConnectionsKeepAHundredStatementsOrFewer(t *testing.T) {
	for more, want := range map[string]int{"": 100, "?statement_cache_capacity=7": 7, "?statement_cache_capacity=1000": 100} {
		if got := open(t, settings(t, "postgres://role@host/db"+more)).Config().ConnConfig.StatementCacheCapacity; got != want {
			t.Errorf("%q: got a cache of %d statements, want %d", more, got, want)
		}
	}
}

func TestOpen_DoesNotNeedTheServerAndHealsByItself(t *testing.T) {
	server := pgtest.NewServer(t)
	cfg := settings(t, server.New())
	server.Stop()

	pool := open(t, cfg)
	_, err := pool.Exec(t.Context(), "SELECT 1")
	if !postgres.Unavailable(err) {
		t.Fatalf("server down: got %v, want an error that is Unavailable", err)
	}
	rpc := postgres.RPCError(t.Context(), fmt.Errorf("read the answer: %w", err))
	if got := status.Code(rpc); got != codes.Unavailable {
		t.Errorf("code: got %s, want Unavailable", got)
	}
	if got := rpcerr.Reason(rpc); got != rpcerr.Unavailable {
		t.Errorf("reason: got %q, want %q", got, rpcerr.Unavailable)
	}
	for _, leak := range []string{"dial", "socket", "postgres@", "SQLSTATE", "connect"} {
		if strings.Contains(rpc.Error(), leak) || strings.Contains(status.Convert(rpc).Message(), leak) {
			t.Errorf("the error for clients says %q: %v", leak, rpc)
		}
	}
	if !errors.Is(rpc, err) {
		t.Error("the cause cannot be found in the error")
	}

	server.Start()
	eventually(t, "a query after the server came up", func() bool {
		_, err := pool.Exec(t.Context(), "SELECT 1")
		return err == nil
	})
	server.Stop()
	server.Start()
	eventually(t, "a query after the server was restarted", func() bool {
		_, err := pool.Exec(t.Context(), "SELECT 1")
		if err != nil && !postgres.Unavailable(err) {
			t.Fatalf("got %v, want an error that is Unavailable", err)
		}
		return err == nil
	})
}

func TestOpen_ReportsPoolAndSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	metrics := sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	pool, err := postgres.Open(t.Context(), settings(t, pgtest.New(t)), postgres.Deps{Name: "orders",
		TracerProvider: tracers, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "parent")
	if _, err := pool.Exec(ctx, "-- name: AnswerQuestion\nSELECT 42"); err != nil {
		t.Fatal(err)
	}
	parent.End()

	var names []string
	for _, s := range spans.Ended() {
		names = append(names, s.Name())
	}
	if all := strings.Join(names, ","); !strings.Contains(all, "AnswerQuestion") {
		t.Errorf("spans: got %s, want one named AnswerQuestion", all)
	}
	var seen metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &seen); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(seen); !strings.Contains(text, "pgxpool.total_connections") || !strings.Contains(text, "orders") {
		t.Errorf("metrics: got %s, want pgxpool.total_connections of pool orders", text)
	}
}

// Of a batch, every statement has its span where somebody records, and its error is counted where nobody does.
func TestOpen_ReportsTheStatementsOfABatch(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	metrics := sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	pool, err := postgres.Open(t.Context(), settings(t, pgtest.New(t)), postgres.Deps{Name: "orders",
		TracerProvider: tracers, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	send := func(ctx context.Context, last string) error {
		batch := &pgx.Batch{}
		batch.Queue("-- name: AskFirst\nSELECT 42")
		batch.Queue(last)
		return pool.SendBatch(ctx, batch).Close()
	}
	ctx, parent := tracers.Tracer("test").Start(t.Context(), "parent")
	if err := send(ctx, "-- name: AskLast\nSELECT 43"); err != nil {
		t.Fatal(err)
	}
	parent.End()
	ended := map[string]bool{}
	for _, s := range spans.Ended() {
		ended[s.Name()] = true
	}
	if !ended["AskFirst"] || !ended["AskLast"] {
		t.Errorf("spans: got %v, want AskFirst and AskLast among them", ended)
	}

	if err := send(t.Context(), "-- name: Divide\nSELECT 1 / (SELECT 0)"); err == nil {
		t.Fatal("a division by zero: got no error")
	}
	var seen metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &seen); err != nil {
		t.Fatal(err)
	}
	if got := failedStatements(seen); got != 1 {
		t.Errorf("%d errors are counted for a SELECT, want 1:\n%v", got, seen)
	}
}

// failedStatements is how many errors are counted for statements that are SELECTs.
func failedStatements(seen metricdata.ResourceMetrics) (n int64) {
	for _, scope := range seen.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "db.client.operation.errors" {
				continue
			}
			for _, point := range sum.DataPoints {
				if name, _ := point.Attributes.Value("db.operation.name"); name.AsString() == "SELECT" {
					n += point.Value
				}
			}
		}
	}
	return n
}

// Field report 22.
func TestOpen_CancelledQueriesDoNotMultiplyConnections(t *testing.T) {
	url := pgtest.New(t)
	cfg := settings(t, url, "DB_MAX_CONNS=8")
	pool, observer := open(t, cfg), open(t, settings(t, url, "DB_MAX_CONNS=1"))

	var most atomic.Int64
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				var n int64
				err := observer.QueryRow(context.Background(),
					"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&n)
				if err != nil {
					t.Errorf("count sessions: %v", err)
					return
				}
				most.Store(max(most.Load(), n))
			}
		}
	})
	var calls sync.WaitGroup
	for range 1000 { // two seconds' worth, one every 2 ms
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			if _, err := pool.Exec(ctx, "SELECT pg_sleep(60)"); err == nil {
				t.Error("pg_sleep(60) returned within 30 ms")
			}
		})
		time.Sleep(2 * time.Millisecond)
	}
	calls.Wait()
	close(stop)
	watching.Wait()

	if got, limit := most.Load(), int64(cfg.MaxConns)+2; got > limit {
		t.Errorf("sessions on the server: got %d, want at most %d", got, limit)
	}
	if opened := pool.Stat().NewConnsCount(); opened > 4*int64(cfg.MaxConns) {
		t.Errorf("connections opened: got %d, want few more than the pool's %d", opened, cfg.MaxConns)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var normal sync.WaitGroup
	for range 4 * cfg.MaxConns {
		normal.Go(func() {
			if _, err := pool.Exec(ctx, "SELECT 1"); err != nil {
				t.Errorf("a query after the burst: %v", err)
			}
		})
	}
	normal.Wait()
}

func TestRPCError_AStatementCancelledByTheCallerIsTheCallersDoing(t *testing.T) {
	pool := open(t, settings(t, pgtest.New(t)))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := pool.Exec(ctx, "SELECT pg_sleep(60)")
	if got := status.Code(postgres.RPCError(ctx, err)); got != codes.Canceled {
		t.Errorf("cancelled: got %s (%v), want Canceled", got, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = pool.Exec(ctx, "SELECT pg_sleep(60)")
	if got := status.Code(postgres.RPCError(ctx, err)); got != codes.DeadlineExceeded {
		t.Errorf("timed out: got %s (%v), want DeadlineExceeded", got, err)
	}
}

func TestRPCError_TimeoutsOfTheServerAreUnavailable(t *testing.T) {
	pool := open(t, settings(t, pgtest.New(t), "DB_STATEMENT_TIMEOUT=50ms"))
	_, err := pool.Exec(t.Context(), "SELECT pg_sleep(60)")
	if got := status.Code(postgres.RPCError(t.Context(), err)); got != codes.Unavailable {
		t.Errorf("got %s (%v), want Unavailable", got, err)
	}
	_, err = pool.Exec(t.Context(), "SELECT no_such_column")
	if got := postgres.RPCError(t.Context(), err); got != err {
		t.Errorf("a mistake in the SQL: got %v, want it unchanged", got)
	}
}

func TestRPCError_AFullPoolIsUnavailableOrTheCallersDeadline(t *testing.T) {
	pool := open(t, settings(t, pgtest.New(t), "DB_MAX_CONNS=1"))
	holder, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	err = postgres.InTx(ctx, pool, func(pgx.Tx) error { t.Error("ran without a connection"); return nil })
	if !postgres.Unavailable(err) {
		t.Errorf("got %v, want an error that is Unavailable", err)
	}
}

func TestMigrate_WaitsForTheServerAndRunsOnce(t *testing.T) {
	server := pgtest.NewServer(t)
	cfg := settings(t, server.New())
	server.Stop()
	migrations := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id int);\n-- +goose Down\nDROP TABLE a;\n")}}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&syncWriter{w: &log}, nil))

	done := make(chan error, 3)
	for range cap(done) {
		go func() { done <- postgres.Migrate(t.Context(), cfg, migrations, logger) }()
	}
	select {
	case err := <-done:
		t.Fatalf("returned without a server: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	server.Start()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatalf("migrate: %v", err)
		}
	}
	if got := strings.Count(log.String(), "migration applied"); got != 1 {
		t.Errorf("migration applied: got %d times, want once\n%s", got, log.String())
	}
	if got := count(t, open(t, cfg), "SELECT count(*) FROM a"); got != 0 {
		t.Errorf("rows in the new table: got %d, want 0", got)
	}
}

func TestMigrate_AsTheOwnerForARoleThatMayNot(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	migrations := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id int);\n")}}
	if err := postgres.Migrate(t.Context(), settings(t, app), migrations, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("the service's role made a table")
	}
	cfg := settings(t, app, "MIGRATE_DATABASE_URL="+owner)
	if err := postgres.Migrate(t.Context(), cfg, migrations, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("migrate as the owner: %v", err)
	}
	exec(t, open(t, cfg), "INSERT INTO a VALUES (1)")
}

func TestMigrate_ABrokenMigrationIsAnErrorAtOnce(t *testing.T) {
	migrations := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABEL a (id int);\n")}}
	err := postgres.Migrate(t.Context(), settings(t, pgtest.New(t)), migrations, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "00001_a.sql") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

func TestMigrate_EndsWithItsContext(t *testing.T) {
	server := pgtest.NewServer(t)
	cfg := settings(t, server.New())
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	migrations := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id int);\n")}}
	if err := postgres.Migrate(ctx, cfg, migrations, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("got no error, want one")
	}
}

type syncWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
