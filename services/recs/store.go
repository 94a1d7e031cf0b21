package recs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs/similarity"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() (fs.FS, error) { return fs.Sub(migrationFiles, "migrations") }

// The statements. Those that change baskets update the model's row first: its lock makes the order of received the order
// of the commits, so that whoever sees change N sees all before it, and two imports of the same baskets cannot deadlock.
const (
	countChange = `-- name: CountChange
UPDATE model SET received = received + 1`

	putBasket = `-- name: PutBasket
INSERT INTO baskets (id, product_ids) VALUES ($1, $2)
ON CONFLICT (id) DO UPDATE SET product_ids = excluded.product_ids
WHERE baskets.product_ids <> excluded.product_ids`

	readModelRow = `-- name: ReadModelRow
SELECT version, received, learned, baskets FROM model`

	readBaskets = `-- name: ReadBaskets
SELECT product_ids FROM baskets`

	readNeighbours = `-- name: ReadNeighbours
SELECT product_id, baskets, neighbour_ids, scores FROM neighbours`

	measureNeighbours = `-- name: MeasureNeighbours
SELECT count(*), coalesce(sum(cardinality(neighbour_ids)), 0) FROM neighbours`

	// One writer of the model at a time; imports, which need the model's row, do not wait for it.
	lockModel = `-- name: LockModel
SELECT pg_advisory_xact_lock(hashtext('recs.model'))`

	replaceModelRow = `-- name: ReplaceModelRow
UPDATE model SET version = version + 1, learned = $1, baskets = $2 WHERE learned <= $1 RETURNING version`

	deleteNeighbours = `-- name: DeleteNeighbours
DELETE FROM neighbours`

	// Reading or replacing everything takes longer than a request's statement may.
	allowMinutes = `-- name: AllowMinutes
SELECT set_config('statement_timeout', '2min', true), set_config('lock_timeout', '2min', true)`

	readOneSnapshot = `-- name: ReadOneSnapshot
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY`
)

// errNewerModel says that the database holds a model that knows more baskets than the one to be saved.
var errNewerModel = errors.New("a newer model is stored")

// store keeps the baskets and the model.
type store struct{ pool *pgxpool.Pool }

// modelRow is the row of the table model.
type modelRow struct{ version, received, learned, baskets int64 }

// stale says whether baskets came that the model does not know.
func (r modelRow) stale() bool { return r.received > r.learned }

func (s store) modelRow(ctx context.Context) (modelRow, error) { return scanModelRow(ctx, s.pool) }

func scanModelRow(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (row modelRow, err error) {
	err = db.QueryRow(ctx, readModelRow).Scan(&row.version, &row.received, &row.learned, &row.baskets)
	if err != nil {
		return row, fmt.Errorf("read model row: %w", err)
	}
	return row, nil
}

// put stores the baskets, replacing those with the same id, in one transaction.
func (s store) put(ctx context.Context, baskets []*recsv1.Basket) error {
	err := postgres.SendTx(ctx, s.pool, func(b *pgx.Batch) { queuePut(b, baskets) })
	if err != nil {
		return fmt.Errorf("store baskets: %w", err)
	}
	return nil
}

func queuePut(batch *pgx.Batch, baskets []*recsv1.Basket) {
	batch.Queue(countChange)
	for _, b := range baskets {
		batch.Queue(putBasket, b.GetId(), b.GetProductIds())
	}
}

// baskets reads all baskets, and the number of the last change among them.
func (s store) baskets(ctx context.Context) (*similarity.Baskets, int64, error) {
	var all *similarity.Baskets
	var row modelRow
	err := s.snapshot(ctx, func(tx pgx.Tx) (err error) {
		if row, err = scanModelRow(ctx, tx); err != nil {
			return err
		}
		all = &similarity.Baskets{}
		rows, _ := tx.Query(ctx, readBaskets) // its error comes out of ForEachRow
		var ids []string
		_, err = pgx.ForEachRow(rows, []any{&ids}, func() error { all.Add(ids); return nil })
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read baskets: %w", err)
	}
	return all, row.received, nil
}

// load reads the model and its version.
func (s store) load(ctx context.Context) (*similarity.Model, int64, error) {
	var model *similarity.Model
	var row modelRow
	err := s.snapshot(ctx, func(tx pgx.Tx) (err error) {
		if row, err = scanModelRow(ctx, tx); err != nil {
			return err
		}
		size := similarity.Size{Baskets: int(row.baskets)}
		if err := tx.QueryRow(ctx, measureNeighbours).Scan(&size.Products, &size.Neighbours); err != nil {
			return err
		}
		model, err = similarity.Assemble(size, products(ctx, tx))
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("load model: %w", err)
	}
	return model, row.version, nil
}

func products(ctx context.Context, tx pgx.Tx) iter.Seq2[similarity.Product, error] {
	return func(yield func(similarity.Product, error) bool) {
		rows, err := tx.Query(ctx, readNeighbours)
		if err != nil {
			yield(similarity.Product{}, err)
			return
		}
		defer rows.Close()
		var p similarity.Product
		for rows.Next() {
			err := rows.Scan(&p.ID, &p.Baskets, (*reused[string])(&p.Neighbours), (*reused[float32])(&p.Scores))
			if !yield(p, err) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(similarity.Product{}, err)
		}
	}
}

// reused takes an array into the slice that held the one of the row before.
type reused[T any] []T

// SetDimensions makes room for an array of one dimension, or of none, which is an empty one.
func (r *reused[T]) SetDimensions(dimensions []pgtype.ArrayDimension) error {
	n := 0
	if len(dimensions) > 0 {
		n = int(dimensions[0].Length)
	}
	*r = slices.Grow((*r)[:0], n)[:n]
	return nil
}

// ScanIndex is where the element goes.
func (r *reused[T]) ScanIndex(i int) any { return &(*r)[i] }

// ScanIndexType is the type of what ScanIndex returns.
func (*reused[T]) ScanIndexType() any { return new(T) }

// save replaces the stored model by one that knows the baskets up to the change learned, and returns its version.
func (s store) save(ctx context.Context, model *similarity.Model, learned int64) (version int64, err error) {
	err = postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		for _, statement := range []string{allowMinutes, lockModel, deleteNeighbours} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		next, stop := iter.Pull(model.Products())
		defer stop()
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"neighbours"}, []string{"product_id", "baskets", "neighbour_ids", "scores"},
			pgx.CopyFromFunc(func() ([]any, error) {
				p, ok := next()
				if !ok {
					return nil, nil
				}
				return []any{p.ID, p.Baskets, p.Neighbours, p.Scores}, nil
			}))
		if err != nil {
			return err
		}
		// Last, because imports wait for this row.
		err = tx.QueryRow(ctx, replaceModelRow, learned, model.Baskets()).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			return errNewerModel
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("save model: %w", err)
	}
	return version, nil
}

// snapshot runs fn in a transaction in which every statement sees the same state.
func (s store) snapshot(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return postgres.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		for _, statement := range []string{readOneSnapshot, allowMinutes} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}
