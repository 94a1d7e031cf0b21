package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const (
	firstMigratePause = 50 * time.Millisecond
	maxMigratePause   = time.Second
)

// Migrate brings the schema to the newest of the goose migrations in migrations (SQL files at its root), as the role of
// cfg.MigrateURL. Instances that start at once take turns by an advisory lock. While the server cannot be reached it
// tries again, at most a second apart, until ctx ends; a migration that fails is an error at once. The owner has to
// grant the service's role its privileges, best by ALTER DEFAULT PRIVILEGES when the database is made.
func Migrate(ctx context.Context, cfg Config, migrations fs.FS, log *slog.Logger) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	variable, url := "DATABASE_URL", cfg.URL
	if cfg.MigrateURL != "" {
		variable, url = "MIGRATE_DATABASE_URL", cfg.MigrateURL
	}
	owner, err := parse(variable, url)
	if err != nil {
		return err
	}
	owner.ConnConfig.ConnectTimeout = cfg.ConnectTimeout
	setDefault(owner.ConnConfig.RuntimeParams, "application_name", "migrate")
	// A migration that waits for a table lock makes everybody behind it wait as well: it gives up soon and comes back.
	setDefault(owner.ConnConfig.RuntimeParams, "lock_timeout", milliseconds(cfg.LockTimeout))

	pause := firstMigratePause
	for {
		err := migrateOnce(ctx, cfg.MigrateTimeout, owner.ConnConfig, migrations, log)
		if err == nil || ctx.Err() != nil || !Unavailable(err) {
			return err
		}
		log.WarnContext(ctx, "database is not ready to be migrated, trying again", "error", err, "in", pause.String())
		select {
		case <-ctx.Done():
			return fmt.Errorf("migrate: %w (last attempt: %w)", ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, maxMigratePause)
	}
}

func migrateOnce(ctx context.Context, bound time.Duration, conn *pgx.ConnConfig, migrations fs.FS, log *slog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	db := stdlib.OpenDB(*conn)
	defer func() { _ = db.Close() }() // nothing is pending on it
	provider, err := newProvider(db, migrations)
	if err != nil {
		return err
	}
	results, err := provider.Up(ctx)
	for _, r := range results {
		log.InfoContext(ctx, "migration applied", "version", r.Source.Version, "file", r.Source.Path, "took", r.Duration.String())
	}
	var partial *goose.PartialError
	if errors.As(err, &partial) && partial.Failed != nil {
		return fmt.Errorf("migrate: %s: %w", partial.Failed.Source.Path, partial.Err)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func newProvider(db *sql.DB, migrations fs.FS) (*goose.Provider, error) {
	// One try a second; the bound of the attempt ends the waiting, not this count.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	return provider, nil
}
