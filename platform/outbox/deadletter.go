package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
)

// The sides on which an event is given up.
const (
	PublishedSide = "published" // the broker refused it
	ConsumedSide  = "consumed"  // it could not be handled here
)

// DeadLetter is an event that was given up.
type DeadLetter struct {
	Side      string // PublishedSide or ConsumedSide
	ID        uuid.UUID
	Subject   string
	Type      string
	Payload   []byte
	CreatedAt time.Time
	Attempts  int64
	LastError string
	DeadAt    time.Time
	Retrying  bool // an operator asked for it and the consumer has not got to it yet
}

// DeadLetters lists at most limit dead letters of the service that owns the database, those given up first coming first.
func DeadLetters(ctx context.Context, pool *pgxpool.Pool, limit int) ([]DeadLetter, error) {
	rows, _ := pool.Query(ctx, listDead, limit) // its error comes out of CollectRows
	letters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DeadLetter])
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// Retry has the dead letters with these ids, or all when there are none, published or handled again, and returns how many
// they are. The service does it within about a second, with as many attempts as for a new event on the side of the
// publisher and one on that of the consumer.
func Retry(ctx context.Context, pool *pgxpool.Pool, ids ...uuid.UUID) (int64, error) {
	return changeDead(ctx, pool, "retry", ids, retryPublished, retryConsumed)
}

// Purge removes the dead letters with these ids, or all when there are none, for good, and returns how many they were.
func Purge(ctx context.Context, pool *pgxpool.Pool, ids ...uuid.UUID) (int64, error) {
	return changeDead(ctx, pool, "purge", ids, dropPublished, dropConsumed)
}

// changeDead runs both statements, which take the ids or NULL for all, in one transaction.
func changeDead(ctx context.Context, pool *pgxpool.Pool, what string, ids []uuid.UUID, statements ...string) (changed int64, err error) {
	err = postgres.InTx(ctx, pool, func(tx pgx.Tx) error {
		changed = 0
		for _, statement := range statements {
			tag, err := tx.Exec(ctx, statement, ids)
			if err != nil {
				return err
			}
			changed += tag.RowsAffected()
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s dead letters: %w", what, err)
	}
	return changed, nil
}

// printable is what a text column takes of text from elsewhere: valid UTF-8 without NUL, and not without end.
func printable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), 4096)], "\x00", ""), "\uFFFD")
}
