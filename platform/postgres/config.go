package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says which database to use and how patient to be with it. All durations are enforced by the server itself for
// every session of the pool, except ConnectTimeout.
type Config struct {
	// URL is the service's own role and database, as a postgres:// URL or key=value pairs.
	URL string `env:"DATABASE_URL,required" help:"database and role of the service, postgres://role:password@host:port/database"`
	// MigrateURL is the role that owns the tables; empty means URL.
	MigrateURL string `env:"MIGRATE_DATABASE_URL" help:"the same database with the role that owns its tables (default DATABASE_URL)"`
	// MaxConns bounds the pool.
	MaxConns int32 `env:"DB_MAX_CONNS" envDefault:"16" help:"connections in the pool"`
	// ConnectTimeout bounds one attempt to open a connection, and the check of one that was idle.
	ConnectTimeout time.Duration `env:"DB_CONNECT_TIMEOUT" envDefault:"2s" help:"time to open a connection"`
	// StatementTimeout ends a statement that runs longer.
	StatementTimeout time.Duration `env:"DB_STATEMENT_TIMEOUT" envDefault:"5s" help:"time one statement may run (0 = no limit)"`
	// LockTimeout ends a statement that waits longer for a lock.
	LockTimeout time.Duration `env:"DB_LOCK_TIMEOUT" envDefault:"2s" help:"time one statement may wait for a lock (0 = no limit)"`
	// IdleInTransactionTimeout ends a session that holds a transaction open without using it.
	IdleInTransactionTimeout time.Duration `env:"DB_IDLE_IN_TRANSACTION_TIMEOUT" envDefault:"10s" help:"time a transaction may sit idle (0 = no limit)"`
	// MigrateTimeout bounds one attempt to migrate, waiting for other instances that migrate included.
	MigrateTimeout time.Duration `env:"DB_MIGRATE_TIMEOUT" envDefault:"5m" help:"time one attempt to migrate may take"`
}

// Validate reports every setting that cannot work, each by the name of its variable.
func (c Config) Validate() error {
	var errs []error
	if _, err := parse("DATABASE_URL", c.URL); err != nil {
		errs = append(errs, err)
	}
	if c.MigrateURL != "" {
		if _, err := parse("MIGRATE_DATABASE_URL", c.MigrateURL); err != nil {
			errs = append(errs, err)
		}
	}
	if c.MaxConns < 1 {
		errs = append(errs, fmt.Errorf("DB_MAX_CONNS: must be at least 1, is %d", c.MaxConns))
	}
	for name, d := range map[string]time.Duration{"DB_CONNECT_TIMEOUT": c.ConnectTimeout, "DB_MIGRATE_TIMEOUT": c.MigrateTimeout} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s: must be more than 0, is %s", name, d))
		}
	}
	for name, d := range map[string]time.Duration{"DB_STATEMENT_TIMEOUT": c.StatementTimeout, "DB_LOCK_TIMEOUT": c.LockTimeout,
		"DB_IDLE_IN_TRANSACTION_TIMEOUT": c.IdleInTransactionTimeout} {
		// The server counts whole milliseconds in 32 bits, and takes 0 for "no limit": less than one must not become that.
		if d < 0 || d > 0 && d < time.Millisecond || d.Milliseconds() > 1<<31-1 {
			errs = append(errs, fmt.Errorf("%s: must be 0 or between 1ms and 596h, is %s", name, d))
		}
	}
	return errors.Join(errs...)
}

// parse reads a connection string. The library's own message may repeat parts of it, and so a password: it is left out.
func parse(variable, url string) (*pgxpool.Config, error) {
	if url == "" {
		return nil, fmt.Errorf("%s: must be set to the database's URL, postgres://role:password@host:port/database", variable)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%s: not a PostgreSQL connection string, expected postgres://role:password@host:port/database", variable)
	}
	return cfg, nil
}
