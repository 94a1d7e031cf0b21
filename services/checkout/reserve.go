package checkout

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/platform/postgres"
	eventsv1 "example.com/watertight/proto/events/v1"
)

// Reserve reserves all that an order wants, in the transaction that places it, or says why it cannot; then it has changed
// nothing. It is for a process in whose database the stock is, too: services with databases of their own cannot have it.
type Reserve func(ctx context.Context, tx pgx.Tx, placed *eventsv1.OrderPlaced) (rejection string, err error)

// putReserved stores an order, reserves its stock and takes it to its next status in one transaction. The order is never
// seen pending, and nobody is told that it was placed: what they would do has been done.
func (s *Service) putReserved(ctx context.Context, o order, wanted wantedOrder) (order, error) {
	var moved move
	err := postgres.InTx(ctx, s.deps.Pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		queueOrder(batch, o, wanted.key, wanted.fingerprint())
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		rejection, err := s.deps.Reserve(ctx, tx, placedMessage(o))
		if err != nil {
			return fmt.Errorf("reserve: %w", err)
		}
		outcome := stockReserved
		if rejection != "" {
			outcome = stockRejected
		}
		moved, err = take(ctx, tx, o, outcome, rejection)
		return err
	})
	if err := insertError(err); err != nil {
		return order{}, err
	}
	s.noteMove(moved)
	return s.store.order(ctx, o.id)
}
