package search

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/platform/postgres"
	moneyv1 "example.com/watertight/proto/money/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

//go:embed migrations/*.sql
var migrations embed.FS

// store is the catalog in PostgreSQL.
type store struct{ db *pgxpool.Pool }

const (
	selectVersion = `-- name: catalog.version
SELECT version::text FROM catalog`

	selectProducts = `-- name: catalog.products
SELECT id, name, description, category, currency, minor, popularity FROM products`

	// Whoever changes the catalog holds this row, so that changes take turns and cannot deadlock.
	lockCatalog = `-- name: catalog.lock
SELECT FROM catalog FOR UPDATE`

	// Rows that are the same already are left alone, so that a repeated import writes nothing.
	upsertProducts = `-- name: catalog.upsert
INSERT INTO products (key, id, name, description, category, currency, minor, popularity)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
ON CONFLICT (key) DO UPDATE SET
    id = excluded.id, name = excluded.name, description = excluded.description, category = excluded.category,
    currency = excluded.currency, minor = excluded.minor, popularity = excluded.popularity
WHERE products IS DISTINCT FROM excluded`

	newVersion = `-- name: catalog.new_version
UPDATE catalog SET version = gen_random_uuid()`
)

// version identifies the state the catalog is in.
func (s store) version(ctx context.Context) (string, error) {
	var version string
	if err := s.db.QueryRow(ctx, selectVersion).Scan(&version); err != nil {
		return "", fmt.Errorf("read the catalog's version: %w", err)
	}
	return version, nil
}

// load reads the whole catalog, in one state, and the version of that state.
func (s store) load(ctx context.Context) (products []*searchv1.Product, version string, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.db, snapshot, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, selectVersion).Scan(&version); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, selectProducts)
		if err != nil {
			return err
		}
		products, err = pgx.CollectRows(rows, scanProduct(make(map[string]string)))
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("load the catalog: %w", err)
	}
	return products, version, nil
}

// scanProduct returns a row reader that keeps one copy of each text that many products share.
func scanProduct(shared map[string]string) pgx.RowToFunc[*searchv1.Product] {
	share := func(text string) string {
		if known, ok := shared[text]; ok {
			return known
		}
		shared[text] = text
		return text
	}
	return func(row pgx.CollectableRow) (*searchv1.Product, error) {
		p := &searchv1.Product{Price: &moneyv1.Money{}}
		err := row.Scan(&p.Id, &p.Name, &p.Description, &p.Category, &p.Price.Currency, &p.Price.Minor, &p.Popularity)
		p.Category, p.Price.Currency = share(p.GetCategory()), share(p.GetPrice().GetCurrency())
		return p, err
	}
}

// put adds or replaces the products, all or none. Of several with one id the last counts.
func (s store) put(ctx context.Context, products []*searchv1.Product) error {
	columns := columnsOf(products)
	err := postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockCatalog); err != nil {
			return err
		}
		changed, err := tx.Exec(ctx, upsertProducts, columns...)
		if err != nil || changed.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, newVersion)
		return err
	})
	if err != nil {
		return fmt.Errorf("store products: %w", err)
	}
	return nil
}

// columnsOf returns the arguments of upsertProducts, without the products that a later one replaces.
func columnsOf(products []*searchv1.Product) []any {
	last := make(map[string]int, len(products))
	for i, p := range products {
		last[index.Key(p.GetId())] = i
	}
	var keys, ids, names, descriptions, categories, currencies []string
	var minors, popularities []int64
	for i, p := range products {
		key := index.Key(p.GetId())
		if last[key] != i {
			continue
		}
		keys, ids, names = append(keys, key), append(ids, p.GetId()), append(names, p.GetName())
		descriptions, categories = append(descriptions, p.GetDescription()), append(categories, p.GetCategory())
		currencies, minors = append(currencies, p.GetPrice().GetCurrency()), append(minors, p.GetPrice().GetMinor())
		popularities = append(popularities, p.GetPopularity())
	}
	return []any{keys, ids, names, descriptions, categories, currencies, minors, popularities}
}
