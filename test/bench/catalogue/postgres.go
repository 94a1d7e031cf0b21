package catalogue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/watertight/test/bench/servers"
)

// fullText is PostgreSQL's own search over the same products, as a service without an index of its own would use it: the words in a
// generated column with a GIN index, a name's words before a description's, the best page of a query by rank and demand. It
// says neither how many products match nor in which categories, as the search service does.
type fullText struct {
	pool     *pgxpool.Pool
	indexing time.Duration // how long it took to make
}

const (
	copyProducts = `
CREATE TABLE fulltext AS SELECT id, name, description, category, currency, minor, popularity FROM products`

	makeFullText = `
ALTER TABLE fulltext ADD COLUMN words tsvector GENERATED ALWAYS AS (
    setweight(to_tsvector('english', name || ' ' || id), 'A') || setweight(to_tsvector('english', description || ' ' || category), 'B')) STORED;
CREATE INDEX fulltext_words ON fulltext USING gin (words)`

	selectPage = `
SELECT id, name, description, category, currency, minor, popularity
FROM fulltext, websearch_to_tsquery('english', $1) AS query
WHERE words @@ query AND ($2 = '' OR category = $2)
ORDER BY ts_rank(words, query) DESC, popularity DESC, id
LIMIT 20 OFFSET $3`

	selectMatches = `
SELECT id FROM fulltext WHERE words @@ websearch_to_tsquery('english', $1)`

	selectSize = `
SELECT pg_total_relation_size('fulltext')`
)

// openFullText makes the table from the search service's own, with the settings that PostgreSQL comes with.
func openFullText(ctx context.Context, s *servers.Servers, database string) (*fullText, error) {
	if err := s.Execute(ctx, database, copyProducts); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.Execute(ctx, database, makeFullText); err != nil {
		return nil, err
	}
	took := time.Since(start)
	if err := s.Execute(ctx, database, "VACUUM (FULL, ANALYZE) fulltext"); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, s.URL(database))
	if err != nil {
		return nil, fmt.Errorf("full text: %w", err)
	}
	return &fullText{pool, took}, nil
}

// search returns how many products the query's page shows.
func (f *fullText) search(ctx context.Context, q query) (int, error) {
	rows, err := f.pool.Query(ctx, selectPage, q.GetQuery(), q.GetCategory(), q.offset())
	if err != nil {
		return 0, err
	}
	page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		ID, Name, Description, Category, Currency string
		Minor, Popularity                         int64
	}])
	return len(page), err
}

// matches returns the ids of all products that have the words.
func (f *fullText) matches(ctx context.Context, words string) ([]string, error) {
	rows, err := f.pool.Query(ctx, selectMatches, words)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// size is how many bytes the table and its index take.
func (f *fullText) size(ctx context.Context) (float64, error) {
	var bytes int64
	err := f.pool.QueryRow(ctx, selectSize).Scan(&bytes)
	return float64(bytes), err
}
