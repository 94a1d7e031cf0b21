package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
)

func openWithTable(t *testing.T, url string, more ...string) *pgxpool.Pool {
	t.Helper()
	pool := open(t, settings(t, url, more...))
	exec(t, pool, "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL)")
	exec(t, pool, "INSERT INTO counter VALUES (1, 0), (2, 0)")
	return pool
}

func add(ctx context.Context, tx pgx.Tx, id int) error {
	_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1 WHERE id = $1", id)
	return err
}

func TestInTx_AnErrorOrAPanicRollsBackAndKeepsTheConnection(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t), "DB_MAX_CONNS=1")
	oops := errors.New("oops")
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		if err := add(t.Context(), tx, 1); err != nil {
			t.Fatal(err)
		}
		return oops
	})
	if err != oops {
		t.Errorf("error: got %v, want the function's own", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if err := add(t.Context(), tx, 1); err != nil {
				t.Fatal(err)
			}
			panic("oops")
		})
	}()
	if got := count(t, pool, "SELECT sum(n) FROM counter"); got != 0 {
		t.Errorf("counted: got %d, want 0", got)
	}
	if got := pool.Stat().NewConnsCount(); got != 1 {
		t.Errorf("connections opened: got %d, want 1", got)
	}
}

func TestInTx_DeadlocksAreRunAgain(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	const rounds = 3 // each waits for the server's deadlock_timeout of a second
	for range rounds {
		var both, done sync.WaitGroup
		both.Add(2)
		for _, order := range [][2]int{{1, 2}, {2, 1}} {
			done.Go(func() {
				first := true
				err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					if err := add(t.Context(), tx, order[0]); err != nil {
						return err
					}
					if first { // both hold one row now, and want the other's
						first = false
						both.Done()
						both.Wait()
					}
					return add(t.Context(), tx, order[1])
				})
				if err != nil {
					t.Errorf("transaction: %v", err)
				}
			})
		}
		done.Wait()
	}
	if got, want := count(t, pool, "SELECT sum(n) FROM counter"), rounds*2*2; got != want {
		t.Errorf("counted: got %d, want %d", got, want)
	}
}

func TestInTx_SerializationFailuresAreRunAgain(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	const parallel = 6
	var done sync.WaitGroup
	for range parallel {
		done.Go(func() {
			err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
					return err
				}
				return add(t.Context(), tx, 1)
			})
			if err != nil {
				t.Errorf("transaction: %v", err)
			}
		})
	}
	done.Wait()
	if got := count(t, pool, "SELECT n FROM counter WHERE id = 1"); got != parallel {
		t.Errorf("counted: got %d, want %d", got, parallel)
	}
}

func TestInTx_ConflictsEndWithTheDeadline(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	attempts := 0
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		attempts++
		_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END $$")
		return err
	})
	if err == nil || attempts < 2 || attempts > 10 {
		t.Errorf("got error %v after %d attempts, want an error after 2 to 10", err, attempts)
	}
	if !postgres.Unavailable(err) {
		t.Errorf("got %v, want an error that is Unavailable", err)
	}
}

func TestInTx_TheCallerLeavingDoesNotCutTheCommit(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		err := add(ctx, tx, 1)
		cancel()
		return err
	})
	if err != nil {
		t.Errorf("got %v, want a commit", err)
	}
	if got := count(t, pool, "SELECT n FROM counter WHERE id = 1"); got != 1 {
		t.Errorf("counted: got %d, want 1", got)
	}
}

func TestInTx_TheCallerLeavingEarlierRollsBackAndKeepsTheConnection(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t), "DB_MAX_CONNS=1")
	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		if err := add(ctx, tx, 1); err != nil {
			return err
		}
		time.AfterFunc(30*time.Millisecond, cancel)
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	})
	if err == nil {
		t.Error("got no error, want one")
	}
	if got := count(t, pool, "SELECT sum(n) FROM counter"); got != 0 {
		t.Errorf("counted: got %d, want 0", got)
	}
	if got := pool.Stat().NewConnsCount(); got != 1 {
		t.Errorf("connections opened: got %d, want 1", got)
	}
}

// killOwnSession makes the server end the session it runs in while it commits: the answer never comes.
const killOwnSession = `
CREATE FUNCTION end_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON counter DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION end_session()`

func TestInTx_ALostAnswerToTheCommitIsAnUnknownOutcome(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	exec1(t, pool, killOwnSession)
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error { return add(t.Context(), tx, 1) })
	if !errors.Is(err, postgres.ErrOutcomeUnknown) || !postgres.Unavailable(err) {
		t.Errorf("InTx: got %v, want ErrOutcomeUnknown, which is Unavailable", err)
	}
	err = postgres.SendTx(t.Context(), pool, func(b *pgx.Batch) { b.Queue("UPDATE counter SET n = n + 1 WHERE id = $1", 1) })
	if !errors.Is(err, postgres.ErrOutcomeUnknown) || !postgres.Unavailable(err) {
		t.Errorf("SendTx: got %v, want ErrOutcomeUnknown, which is Unavailable", err)
	}
}

func TestInTx_ARefusedCommitIsAKnownOutcome(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	exec1(t, pool, "CREATE TABLE child (id int REFERENCES counter DEFERRABLE INITIALLY DEFERRED)")
	err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO child VALUES (99)")
		return err
	})
	if err == nil || errors.Is(err, postgres.ErrOutcomeUnknown) || postgres.Unavailable(err) {
		t.Errorf("got %v, want a plain error", err)
	}
}

func TestSendTx_IsAllOrNothing(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	for range 3 { // the first run also prepares the statements
		err := postgres.SendTx(t.Context(), pool, func(b *pgx.Batch) {
			b.Queue("UPDATE counter SET n = n + 1 WHERE id = $1", 1)
			b.Queue("INSERT INTO counter VALUES ($1, 0)", 2)
			b.Queue("UPDATE counter SET n = n + 1 WHERE id = $1", 2)
		})
		if err == nil || errors.Is(err, postgres.ErrOutcomeUnknown) {
			t.Fatalf("got %v, want the unique violation", err)
		}
	}
	if got := count(t, pool, "SELECT sum(n) FROM counter"); got != 0 {
		t.Errorf("counted after failures: got %d, want 0", got)
	}
	err := postgres.SendTx(t.Context(), pool, func(b *pgx.Batch) {
		b.Queue("UPDATE counter SET n = n + 1 WHERE id = $1", 1)
		b.Queue("INSERT INTO counter VALUES ($1, 1)", 3)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, pool, "SELECT sum(n) FROM counter"); got != 2 {
		t.Errorf("counted: got %d, want 2", got)
	}
}

func TestSendTx_TheCallerLeavingDoesNotCutIt(t *testing.T) {
	pool := openWithTable(t, pgtest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	err := postgres.SendTx(ctx, pool, func(b *pgx.Batch) {
		b.Queue("UPDATE counter SET n = n + 1 WHERE id = $1", 1)
		b.Queue("SELECT pg_sleep(0.1)")
		cancel()
	})
	if err != nil {
		t.Errorf("got %v, want a commit", err)
	}
	err = postgres.SendTx(ctx, pool, func(*pgx.Batch) { t.Error("built for a caller who had left") })
	if err == nil {
		t.Error("sent for a caller who had left")
	}
	if got := count(t, pool, "SELECT n FROM counter WHERE id = 1"); got != 1 {
		t.Errorf("counted: got %d, want 1", got)
	}
}

// exec1 runs several statements in one string, which needs the simple protocol.
func exec1(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
