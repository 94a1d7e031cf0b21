package index

import (
	"cmp"
	"slices"
	"strings"

	searchv1 "example.com/watertight/proto/search/v1"
)

// maxCategories is how many categories a result counts, the fullest: a catalog in which every product has a category of
// its own must not make an answer greater than a message may be.
const maxCategories = 1000

// Query is what is looked for and which part of the result is wanted.
type Query struct {
	Text     string   // what the person typed; blank is everything
	Category string   // exact name; empty is every category
	After    Position // where the page before ended; the zero Position is the start
	Limit    int      // products wanted
}

// Position is a place in a result: behind the product with this id, the offset-th of the result when it was shown. While
// the catalog stays the same the id alone says it all, exactly. When the catalog has changed in between, the list goes on
// behind the product wherever it stands now; if it is no longer in the result at all, behind as many products as had been
// shown before it.
type Position struct {
	ID     string
	Offset int
}

// Result is one page of a search.
type Result struct {
	Products   []*searchv1.Product
	Total      int                       // in the result, all pages
	Categories []*searchv1.CategoryCount // of the query in every category, fullest first
	Next       Position                  // where the page ends; zero when it is the last
}

// Search returns one page of the products that match, best first; for a blank text all products, by name. An error is a
// fault of the index, never of the text.
func (x *Index) Search(q Query) (Result, error) {
	keys := x.list
	if strings.TrimSpace(q.Text) != "" {
		t, err := x.tallies()
		if err != nil {
			return Result{}, err
		}
		defer x.scratch.Put(t)
		if keys, err = x.matches(t, q.Text); err != nil {
			return Result{}, err
		}
	}
	result := Result{Categories: x.countCategories(keys)}
	if q.Category != "" {
		keys = x.within(keys, q.Category)
	}
	result.Total = len(keys)
	start, page := x.page(keys, q)
	result.Products = make([]*searchv1.Product, len(page))
	for i, k := range page {
		result.Products[i] = x.products[k.ordinal()]
	}
	if end := start + len(page); len(page) > 0 && end < len(keys) {
		result.Next = Position{ID: result.Products[len(page)-1].GetId(), Offset: end}
	}
	return result, nil
}

// within returns the keys of a category's products.
func (x *Index) within(keys []key, category string) []key {
	wanted, ok := slices.BinarySearch(x.categories, category)
	if !ok {
		return nil
	}
	inside := make([]key, 0, len(keys)/len(x.categories)+1)
	for _, k := range keys {
		if x.category[k.ordinal()] == uint32(wanted) {
			inside = append(inside, k)
		}
	}
	return inside
}

// page returns the least of keys behind q.After, in order, and how many come before them.
func (x *Index) page(keys []key, q Query) (start int, page []key) {
	last, found := x.keyOf(keys, q.After.ID)
	switch {
	case q.After == (Position{}):
		return 0, least(keys, q.Limit)
	case found:
		behind := make([]key, 0, len(keys))
		for _, k := range keys {
			if k > last {
				behind = append(behind, k)
			}
		}
		return len(keys) - len(behind), least(behind, q.Limit)
	}
	start = min(max(q.After.Offset-1, 0), len(keys))
	sorted := slices.Sorted(slices.Values(keys))
	return start, sorted[start:min(start+q.Limit, len(keys))]
}

// keyOf returns the key of the product with the id, if it is one of keys.
func (x *Index) keyOf(keys []key, id string) (key, bool) {
	ordinal, ok := x.byKey[Key(id)]
	if !ok {
		return 0, false
	}
	i := slices.IndexFunc(keys, func(k key) bool { return k.ordinal() == ordinal })
	if i < 0 {
		return 0, false
	}
	return keys[i], true
}

// least returns the n least keys, in order. A page is a small part of a result, so that few keys have to be moved; to sort all
// of them takes longer than to find them.
func least(keys []key, n int) []key {
	page := make([]key, 0, min(n, len(keys)))
	for _, k := range keys {
		if len(page) == n {
			if n == 0 || k > page[n-1] {
				continue
			}
			page = page[:n-1]
		}
		at, _ := slices.BinarySearch(page, k)
		page = slices.Insert(page, at, k)
	}
	return page
}

func (x *Index) countCategories(keys []key) []*searchv1.CategoryCount {
	counts := make([]int64, len(x.categories))
	for _, k := range keys {
		counts[x.category[k.ordinal()]]++
	}
	var found []*searchv1.CategoryCount
	for i, n := range counts {
		if n > 0 {
			found = append(found, &searchv1.CategoryCount{Category: x.categories[i], Products: n})
		}
	}
	slices.SortStableFunc(found, func(a, b *searchv1.CategoryCount) int { return cmp.Compare(b.GetProducts(), a.GetProducts()) })
	return found[:min(len(found), maxCategories)]
}
