package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxAttempts bounds how often a transaction that lost a conflict is run again, also for callers without a deadline.
	maxAttempts = 10
	// commitBound is how long a COMMIT may take, whatever the caller's context says.
	commitBound = 5 * time.Second
	// rollbackBound is how long a ROLLBACK may take before the connection is given up.
	rollbackBound = time.Second
)

// InTx runs fn in one READ COMMITTED transaction and commits it when fn returns nil, else rolls it back and returns fn's
// error. Whoever ends ctx during fn ends the transaction; once fn has returned nil the commit runs to its end, within
// 5 s, even if ctx ends. A transaction that lost a deadlock or a serialization conflict is run again, with jittered
// backoff, while ctx's deadline allows it: fn must be safe to repeat and must not keep tx. An error that Is
// ErrOutcomeUnknown says that the commit may have happened.
func InTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	return retryConflicts(ctx, func() error { return inTx(ctx, pool, fn) })
}

func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) error) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	// After a commit this does nothing. It must not depend on ctx: a connection that is left inside a transaction, or
	// closed for it, is one that the next caller has to open again.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackBound)
		defer cancel()
		_ = tx.Rollback(ctx) // the connection is closed on failure, and the server rolls back
	}()
	if err := fn(tx); err != nil {
		return err
	}
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitBound)
	defer cancel()
	return commitError(tx.Commit(commitCtx))
}

// SendTx runs the statements that queue adds to a batch as one transaction, in one round trip and with the rules of
// InTx: retried after conflicts, never cut by the end of ctx once it is sent (within 5 s), ErrOutcomeUnknown when the
// answer was lost. The server stops at the first statement that fails, and that is the error.
func SendTx(ctx context.Context, pool *pgxpool.Pool, queue func(*pgx.Batch)) error {
	return retryConflicts(ctx, func() error { return sendTx(ctx, pool, queue) })
}

func sendTx(ctx context.Context, pool *pgxpool.Pool, queue func(*pgx.Batch)) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	// Statements sent before one Sync message form one implicit transaction, which the Sync commits.
	batch := &pgx.Batch{}
	queue(batch)
	sendCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitBound)
	defer cancel()
	return commitError(conn.SendBatch(sendCtx, batch).Close())
}

func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", errNoConnection, err)
	}
	return nil, fmt.Errorf("acquire connection: %w", err)
}

// commitError marks the errors after which a commit may still have happened: all but those in which the server itself
// says that the transaction failed, and those from before anything was sent. A FATAL error does not say it: a session
// that is terminated while it waits for a standby has committed already.
func commitError(err error) error {
	if err == nil {
		return nil
	}
	server := serverError(err)
	if server != nil && server.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) {
		return fmt.Errorf("commit: %w", err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// retryConflicts runs attempt until it does not fail by a conflict.
func retryConflicts(ctx context.Context, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		server := serverError(err)
		if server == nil || !conflict(server.Code) || errors.Is(err, ErrOutcomeUnknown) || n == maxAttempts {
			return err
		}
		pause := backoff(n)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// backoff is a random time up to 5 ms × 2^n, at most 320 ms ("full jitter": those who collided spread out).
func backoff(n int) time.Duration {
	return rand.N(5 * time.Millisecond << min(n, 6))
}
