// Package dblock is what the fault db-lock does to a PostgreSQL database: it locks the service's tables and takes the
// connections that the server still gives to the service's role. It reads and changes no data, and takes nothing that the
// role may not have.
package dblock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lockWait bounds the wait for the tables, which a transaction of the service may hold.
const lockWait = 2 * time.Second

// closeTimeout bounds the goodbye to one connection; the server drops what it holds when the socket closes in any case.
const closeTimeout = time.Second

// New returns the hook for fault.Deps: it holds the pool's database over connections of its own, up to so many besides the
// one that holds the locks, and as many as the server or the role's CONNECTION LIMIT grants.
func New(pool *pgxpool.Pool, connections int) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		config := pool.Config().ConnConfig
		config.RuntimeParams["application_name"] = "fault db-lock"
		config.Tracer = nil
		h := &hold{config: config}
		locked := h.lock(ctx)
		h.occupy(ctx, connections)
		if len(h.conns) == 0 {
			return nil, errors.Join(locked, errors.New("no connection to hold"))
		}
		return h.release, nil
	}
}

// hold is what is held.
type hold struct {
	config *pgx.ConnConfig
	conns  []*pgx.Conn
}

// tables lists the tables that the role may lock against everybody.
const tables = `-- name: LockableTables
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname = ANY (current_schemas(false)) AND has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE')
ORDER BY 1`

// lock keeps a transaction open that has locked every table. Its error leaves connections to be taken all the same: another
// replica may have the locks already.
func (h *hold) lock(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, h.config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if err := lockTables(ctx, conn); err != nil {
		goodbye(conn)
		return err
	}
	h.conns = append(h.conns, conn)
	return nil
}

func lockTables(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, tables)
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string]) // quoted as needed, by regclass
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	statements := []string{
		"BEGIN",
		// The session idles in its transaction for as long as the fault lasts.
		"SET LOCAL idle_in_transaction_session_timeout = 0",
		fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds()),
	}
	if len(names) > 0 {
		statements = append(statements, "LOCK TABLE "+strings.Join(names, ", ")+" IN ACCESS EXCLUSIVE MODE")
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("lock tables: %w", err)
		}
	}
	return nil
}

// occupy opens connections until one is refused: that is the end it looks for.
func (h *hold) occupy(ctx context.Context, most int) {
	for range most {
		conn, err := pgx.ConnectConfig(ctx, h.config)
		if err != nil {
			return
		}
		h.conns = append(h.conns, conn)
	}
}

func (h *hold) release() {
	for _, conn := range h.conns {
		goodbye(conn)
	}
}

func goodbye(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx) // the socket is closed whatever it says
}
