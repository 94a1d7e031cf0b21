package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/outbox"
)

// backlog is how many events each benchmark drains.
const backlog = 100_000

// BenchmarkRelay_DrainsABacklog compares, in one run, on one server and in one table: a loop of nothing but the claim's and
// the mark's update, and the relay with a real broker that syncs to the disk; without and with a million published rows in
// the way. "ratio" is the relay's rate as a share of the bare loop's.
func BenchmarkRelay_DrainsABacklog(b *testing.B) {
	for _, published := range []int{0, 1_000_000} {
		for _, batch := range []int{200, 1000} {
			b.Run(fmt.Sprintf("published=%d/batch=%d", published, batch), func(b *testing.B) {
				pool, owner := migratedWithOwner(b)
				execute(b, owner, fmt.Sprintf(`INSERT INTO outbox (id, type, subject, payload, created_at, published_at)
					SELECT gen_random_uuid(), 'test.v1.Happened', 'test.happened', decode(repeat('ab', 150), 'hex'), now(), now() FROM generate_series(1, %d)`, published))
				server := brokertest.Start(b)
				var bare, relay float64
				for range b.N {
					fill(b, owner)
					bare += rate(func() { drainBare(b, pool, batch) })
					fill(b, owner)
					relay += rate(func() { drain(b, pool, server, batch) })
				}
				b.ReportMetric(bare/float64(b.N), "bare_rows/s")
				b.ReportMetric(relay/float64(b.N), "relay_rows/s")
				b.ReportMetric(relay/bare, "ratio")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func rate(drain func()) float64 {
	start := time.Now()
	drain()
	return backlog / time.Since(start).Seconds()
}

func execute(b *testing.B, url, sql string) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(b.Context()) }()
	for _, statement := range []string{sql, "VACUUM ANALYZE outbox"} {
		if _, err := conn.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
}

func fill(b *testing.B, owner string) {
	b.Helper()
	execute(b, owner, fmt.Sprintf(`INSERT INTO outbox (id, type, subject, payload, traceparent)
		SELECT gen_random_uuid(), 'test.v1.Happened', 'test.happened', decode(repeat('ab', 150), 'hex'),
		'00-01020000000000000000000000000000-0102000000000000-01' FROM generate_series(1, %d)`, backlog))
}

// drainBare claims and marks until nothing is left.
func drainBare(b *testing.B, pool *pgxpool.Pool, batch int) {
	b.Helper()
	statements := outbox.LoopStatements()
	for {
		rows, _ := pool.Query(b.Context(), statements["lease_batch"].SQL, batch, "bare", 30*time.Second)
		ids, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
			return id, row.Scan(&id, nil, nil, nil, nil, nil, nil)
		})
		if err != nil {
			b.Fatal(err)
		}
		if len(ids) == 0 {
			return
		}
		if _, err := pool.Exec(b.Context(), statements["mark_published"].SQL, ids); err != nil {
			b.Fatal(err)
		}
	}
}

// drain runs a relay until nothing is left.
func drain(b *testing.B, pool *pgxpool.Pool, server *brokertest.Server, batch int) {
	b.Helper()
	o, err := outbox.New(b.Context(), settings(b, fmt.Sprintf("RELAY_BATCH=%d", batch)), outbox.Deps{
		Service: "test", Stream: "test", Database: database(b, pool.Config().ConnString()), Conn: connect(b, server.URL()),
		Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = o.Run(ctx) }()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var waiting bool
		if err := pool.QueryRow(b.Context(), "SELECT EXISTS (SELECT FROM outbox WHERE published_at IS NULL AND dead_at IS NULL)").Scan(&waiting); err != nil {
			b.Fatal(err)
		}
		if !waiting {
			break
		}
		if time.Now().After(deadline) {
			b.Fatal("not drained within ten minutes")
		}
	}
	cancel()
	<-ended
}
