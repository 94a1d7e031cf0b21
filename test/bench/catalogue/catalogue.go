// Package catalogue measures the search and recs services over catalogs of several sizes: their methods, called in this process.
// Search is compared with PostgreSQL's full text over the same products.
package catalogue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/platform/config"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/recs"
	"example.com/watertight/services/search"
	"example.com/watertight/test/bench/servers"
	"example.com/watertight/test/bench/suite"
	"example.com/watertight/test/bench/table"
)

const (
	pageSize = 20 // by the contract, when a request names none

	// standard is the size that the limits are for; it is that of a mid-size wholesaler's catalog.
	standard = 4_070
	large    = 100_000

	// peerShare is how many calls there are for one query of each client to PostgreSQL, which takes longer.
	peerShare = 20

	searchLimit = 5_000 // µs
	recsLimit   = 1_000 // µs
)

type rows struct {
	run   *suite.Run
	shops []*shop // the one of standard size first
}

// shop is search and recs with a catalog of one size.
type shop struct {
	size     int
	calls    int // of each method in a round
	search   *search.Service
	recs     *recs.Service
	products []catalog.Product
	queries  []query
	fullText *fullText // nil where it is not compared, as the next
	bleve    *bleveIndex
	peers    []peer
	rows     shopRows
	kept     kept
	closes   []func() error
}

// kept is what a shop costs before anybody asks it anything.
type kept struct {
	searchBytes, recsBytes float64
	indexing               time.Duration
}

// A peer answers the queries for whole words as well.
type peer struct {
	search func(context.Context, query) (products int, err error)
	rows   []*table.Row // by the number of clients less one
	turns  int          // how often it is asked the same, to take about as long as search
}

// searchTurns makes one measurement last long enough for a clock.
const searchTurns = 10

// shopRows may be nil where a shop has none.
type shopRows struct {
	p50, p99, recs, memory, recsMemory *table.Row
	fullTextMemory, fullTextIndexing   *table.Row
}

// Start prepares the part.
func Start(ctx context.Context, r *suite.Run) (_ suite.Part, err error) {
	cfg, err := config.Load[struct {
		File string `env:"ONLINE_RETAIL_FILE"`
	}](r.Environ)
	if err != nil {
		return nil, err
	}
	from, err := openStock(ctx, cfg.File)
	if err != nil {
		return nil, err
	}
	s, err := r.Servers(ctx)
	if err != nil {
		return nil, err
	}
	c := &rows{run: r}
	calls, sizes := 20_000, []int{standard, 1_000, 10_000, 30_000, large}
	if r.Quick {
		calls, sizes = 4_000, sizes[:1]
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for _, size := range sizes {
		// A large catalog's queries take longer, and there is time for fewer.
		opened := &shop{size: size, calls: min(calls, calls*standard/size)}
		c.shops = append(c.shops, opened)
		if err := opened.open(ctx, s, from.catalog(size)); err != nil {
			return nil, fmt.Errorf("%d products: %w", size, err)
		}
		opened.declare(r)
	}
	return c, c.compareHits(ctx)
}

func (s *shop) open(ctx context.Context, on *servers.Servers, c catalog.Catalog) error {
	database := fmt.Sprintf("search_%d", s.size)
	if err := on.Create(ctx, database, "template0"); err != nil {
		return err
	}
	feature, p, bytes, err := openSearch(ctx, on, database, c)
	if err != nil {
		return err
	}
	s.closes = append(s.closes, p.close)
	s.search, s.kept.searchBytes = feature, bytes
	if s.kept.indexing, err = p.indexing(); err != nil {
		return err
	}
	if err := s.openPeers(ctx, on, database, c.Products); err != nil {
		return err
	}
	database = fmt.Sprintf("recs_%d", s.size)
	if err := on.Create(ctx, database, "template0"); err != nil {
		return err
	}
	learned, p, bytes, err := openRecs(ctx, on, database, c)
	if err != nil {
		return err
	}
	s.closes = append(s.closes, p.close)
	s.recs, s.kept.recsBytes = learned, bytes
	s.products, s.queries = c.Products, queries(c, s.calls)
	return s.turnPages(ctx)
}

// openPeers gives PostgreSQL the products of the two sizes that have a name, and bleve those of the standard one.
func (s *shop) openPeers(ctx context.Context, on *servers.Servers, database string, products []catalog.Product) (err error) {
	if s.size != standard && s.size != large {
		return nil
	}
	if s.fullText, err = openFullText(ctx, on, database); err != nil {
		return err
	}
	s.closes = append(s.closes, func() error { s.fullText.pool.Close(); return nil })
	if s.size != standard {
		return nil
	}
	if s.bleve, err = openBleve(products); err != nil {
		return fmt.Errorf("bleve: %w", err)
	}
	s.closes = append(s.closes, s.bleve.Close)
	return nil
}

// turnPages gives the queries for a second page the token of the first. Those that have no second page stay with the first.
func (s *shop) turnPages(ctx context.Context) error {
	for _, q := range s.queries {
		if q.kind != laterPage {
			continue
		}
		resp, err := s.search.SearchProducts(ctx, q.SearchProductsRequest)
		if err != nil {
			return err
		}
		q.PageToken = resp.GetNextPageToken()
	}
	return nil
}

// declare adds the shop's rows to the table.
func (s *shop) declare(r *suite.Run) {
	row := func(what, against, unit string, target table.Target) *table.Row {
		return r.Row("catalogue", fmt.Sprintf("%s, %s products", what, table.Number(float64(s.size))), against, unit, target)
	}
	usual := table.Number(standard) + " products"
	if s.size == standard {
		s.rows.p99 = row("search p99", "limit", "µs", table.Within())
		s.rows.recs = row("recs p99", "limit", "µs", table.Within())
	} else {
		s.rows.p50 = row("search p50", usual, "µs", table.None())
		s.rows.p99 = row("search p99", usual, "µs", table.None())
		s.rows.recs = row("recs p99", usual, "µs", table.None())
		s.rows.memory = row("search, memory a product", usual, "KiB", table.None())
		s.rows.recsMemory = row("recs, memory a product", usual, "KiB", table.None())
	}
	if s.fullText != nil {
		s.rows.fullTextMemory = row("search, memory a product", "PostgreSQL's table and index", "KiB", table.None())
		s.rows.fullTextIndexing = row("search, indexing", "PostgreSQL's", "ms", table.None())
		s.peers = append(s.peers, peer{s.fullText.search, clients(row, "PostgreSQL full text", table.AtLeast(1.5)), 1})
	}
	if s.bleve != nil {
		s.peers = append(s.peers, peer{s.bleve.search, clients(row, "bleve's match query", table.AtLeast(0.8)), searchTurns})
	}
}

// clients returns a row for one client and one for two.
func clients(row func(what, against, unit string, target table.Target) *table.Row, against string, target table.Target) []*table.Row {
	return []*table.Row{row("search, 1 client", against, "queries/s", target), row("search, 2 clients", against, "queries/s", target)}
}

// Close ends the services.
func (c *rows) Close() (err error) {
	for _, s := range c.shops {
		for _, end := range slices.Backward(s.closes) {
			err = errors.Join(err, end())
		}
	}
	return err
}

// Round measures every shop.
func (c *rows) Round(ctx context.Context, n int) error {
	var usual times
	for _, s := range c.shops {
		if n == 0 {
			if err := s.weigh(ctx, c.shops[0]); err != nil {
				return err
			}
		}
		found, err := s.measure(ctx)
		if err != nil {
			return err
		}
		if n == 0 {
			fmt.Fprintf(c.run.Notes, "%d products, p50/p99 in µs: %s; memory a product: search %.2f KiB, recs %.2f KiB\n",
				s.size, found.kinds, s.kib(s.kept.searchBytes), s.kib(s.kept.recsBytes))
		}
		if s.size == standard {
			usual = found
			s.rows.p99.Add(found.p99, searchLimit)
			s.rows.recs.Add(found.recs, recsLimit)
		} else {
			s.rows.p50.Add(found.p50, usual.p50)
			s.rows.p99.Add(found.p99, usual.p99)
			s.rows.recs.Add(found.recs, usual.recs)
		}
		if err := s.compare(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// weigh notes what does not change from round to round.
func (s *shop) weigh(ctx context.Context, usual *shop) error {
	if s != usual {
		s.rows.memory.Add(s.kib(s.kept.searchBytes), usual.kib(usual.kept.searchBytes))
		s.rows.recsMemory.Add(s.kib(s.kept.recsBytes), usual.kib(usual.kept.recsBytes))
	}
	if s.fullText == nil {
		return nil
	}
	bytes, err := s.fullText.size(ctx)
	if err != nil {
		return err
	}
	s.rows.fullTextMemory.Add(s.kib(s.kept.searchBytes), s.kib(bytes))
	s.rows.fullTextIndexing.Add(float64(s.kept.indexing.Milliseconds()), float64(s.fullText.indexing.Milliseconds()))
	return nil
}

// kib returns how many KiB of so many bytes there are for each product.
func (s *shop) kib(bytes float64) float64 { return bytes / 1024 / float64(s.size) }

// times are what a round finds of a shop, in µs a call.
type times struct {
	p50, p99, recs float64
	kinds          string // by kind of query
}

// measure calls search with each query and recs for as many products, one call after the other.
func (s *shop) measure(ctx context.Context) (times, error) {
	took, byKind := make([]float64, len(s.queries)), make(map[kind][]float64)
	for i, q := range s.queries {
		start := time.Now()
		if _, err := s.search.SearchProducts(ctx, q.SearchProductsRequest); err != nil {
			return times{}, err
		}
		took[i] = micros(start)
		byKind[q.kind] = append(byKind[q.kind], took[i])
	}
	found := times{p50: percentile(took, 50), p99: percentile(took, 99)}
	found.kinds = fmt.Sprintf("%.0f/%.0f", found.p50, found.p99)
	for _, k := range slices.Compact(mix()) {
		found.kinds += fmt.Sprintf(", %s %.0f/%.0f", k, percentile(byKind[k], 50), percentile(byKind[k], 99))
	}
	for i := range took {
		req := &recsv1.RecommendRequest{ProductId: s.products[i*7919%len(s.products)].ID}
		start := time.Now()
		if _, err := s.recs.Recommend(ctx, req); err != nil {
			return times{}, err
		}
		took[i] = micros(start)
	}
	found.recs = percentile(took, 99)
	return found, nil
}

func micros(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1000 }

// percentile returns the time that percent of the calls did not take.
func percentile(took []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// compare has one and two clients ask search and each peer the queries that both can answer.
func (s *shop) compare(ctx context.Context, n int) error {
	var asked []query
	for _, q := range s.queries {
		if q.whole() && len(asked) < s.calls/peerShare {
			asked = append(asked, q)
		}
	}
	ours := func(q query) error { _, err := s.search.SearchProducts(ctx, q.SearchProductsRequest); return err }
	for _, p := range s.peers {
		theirs := func(q query) error { _, err := p.search(ctx, q); return err }
		for i, row := range p.rows {
			var rates [2]float64
			steps := []func() error{
				func() (err error) { rates[0], err = ask(asked, i+1, searchTurns, ours); return err },
				func() (err error) { rates[1], err = ask(asked, i+1, p.turns, theirs); return err },
			}
			if n%2 == 1 { // each is first in some rounds
				slices.Reverse(steps)
			}
			for _, step := range steps {
				if err := step(); err != nil {
					return err
				}
			}
			row.Add(rates[0], rates[1])
		}
	}
	return nil
}

// ask returns how many queries a second the clients get answered, when each asks all of them so many times.
func ask(queries []query, clients, turns int, one func(query) error) (float64, error) {
	var group errgroup.Group
	start := time.Now()
	for c := range clients {
		group.Go(func() error {
			for i := range turns * len(queries) {
				if err := one(queries[(i+c*len(queries)/clients)%len(queries)]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(clients*turns*len(queries)) / time.Since(start).Seconds(), err
}

// compareHits says how far both sides find the same for two words: a check that they do comparable work.
func (c *rows) compareHits(ctx context.Context) error {
	s := c.shops[0]
	var both, ours, theirs int
	for _, q := range s.queries[:min(len(s.queries), 1000)] {
		if q.kind != twoWords {
			continue
		}
		found, err := s.all(ctx, q.GetQuery())
		if err != nil {
			return err
		}
		matches, err := s.fullText.matches(ctx, q.GetQuery())
		if err != nil {
			return err
		}
		ours, theirs = ours+len(found), theirs+len(matches)
		for _, id := range matches {
			if found[id] {
				both++
			}
		}
	}
	fmt.Fprintf(c.run.Notes, "for two words, %d products: search finds %d products, PostgreSQL %d, of which search finds %d\n", s.size, ours, theirs, both)
	return nil
}

// all returns the ids of every page's products.
func (s *shop) all(ctx context.Context, text string) (map[string]bool, error) {
	found := make(map[string]bool)
	req := &searchv1.SearchProductsRequest{Query: text, PageSize: 100}
	for {
		resp, err := s.search.SearchProducts(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, p := range resp.GetProducts() {
			found[p.GetId()] = true
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return found, nil
		}
	}
}
