package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

// tables is the relay in outboxes that keep more and more published rows. The first keeps none.
type tables struct {
	rows  *rows
	sizes []tableSize
}

type tableSize struct {
	pool *pgxpool.Pool
	row  *table.Row
}

// StartTables prepares the part: a curve over what the outbox keeps, against an outbox that keeps nothing, in the same round.
func StartTables(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	cfg, err := config.Load[outbox.Config](r.Environ)
	if err != nil {
		return nil, err
	}
	published, backlog := []int{0, 100_000, 1_000_000}, 50_000
	if r.Quick {
		published, backlog = []int{0, 100_000}, 5_000
	}
	s, err := r.Servers(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(s.NATS)
	if err != nil {
		return nil, err
	}
	t := &tables{rows: &rows{servers: s, size: sizes{backlog: backlog}, cfg: cfg, conn: conn}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.rows.js, err = jetstream.New(conn); err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	for _, n := range published {
		what := "relay with " + table.Number(float64(n)) + " published rows in its table"
		target, against := table.AtLeast(0.7), "with none"
		if n == 0 {
			target, against = table.None(), "the same again"
		}
		pool, err := t.rows.database(ctx, fmt.Sprintf("published_%d", n), n)
		if err != nil {
			return nil, err
		}
		t.sizes = append(t.sizes, tableSize{pool, r.Row("curves", what, against, "rows/s", target)})
	}
	return t, nil
}

// Close ends the part's connections.
func (t *tables) Close() error {
	for _, s := range t.sizes {
		s.pool.Close()
	}
	t.rows.conn.Close()
	return nil
}

// Round drains the same backlog from each, and once more from the one that keeps nothing: what that differs by is the machine's.
func (t *tables) Round(ctx context.Context, n int) error {
	pools := []*pgxpool.Pool{t.sizes[0].pool}
	for _, s := range t.sizes {
		pools = append(pools, s.pool)
	}
	rates := make([]float64, len(pools))
	for turn := range pools {
		i := turn
		if n%2 == 1 { // everyone is early in some rounds and late in others
			i = len(pools) - 1 - turn
		}
		var err error
		if rates[i], err = t.rows.rate(ctx, pools[i], t.rows.drainRelay); err != nil {
			return err
		}
	}
	for i, s := range t.sizes {
		s.row.Add(rates[i+1], rates[0])
	}
	return nil
}
