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
	keys := x.list()
	if strings.TrimSpace(q.Text) != "" {
		var err error
		if keys, err = x.matches(q.Text); err != nil {
			return Result{}, err
		}
	}
	result := Result{Categories: x.countCategories(keys)}
	if q.Category != "" {
		keys = x.within(keys, q.Category)
	}
	slices.Sort(keys)
	result.Total = len(keys)
	start := x.start(keys, q.After)
	end := min(start+q.Limit, len(keys))
	for _, k := range keys[start:end] {
		result.Products = append(result.Products, x.products[k.ordinal()])
	}
	if end > start && end < len(keys) {
		result.Next = Position{ID: x.products[keys[end-1].ordinal()].GetId(), Offset: end}
	}
	return result, nil
}

// list returns the keys of all products in the order of their names.
func (x *Index) list() []key {
	keys := make([]key, len(x.byName))
	for i, ordinal := range x.byName {
		keys[i] = newKey(uint32(i), ordinal)
	}
	return keys
}

func (x *Index) within(keys []key, category string) []key {
	wanted, ok := slices.BinarySearch(x.categories, category)
	return slices.DeleteFunc(keys, func(k key) bool { return !ok || x.category[k.ordinal()] != uint32(wanted) })
}

// start returns where in keys, which are sorted, the page after p begins.
func (x *Index) start(keys []key, p Position) int {
	if p == (Position{}) {
		return 0
	}
	if ordinal, ok := x.byKey[Key(p.ID)]; ok {
		if i := slices.IndexFunc(keys, func(k key) bool { return k.ordinal() == ordinal }); i >= 0 {
			return i + 1
		}
	}
	return min(max(p.Offset-1, 0), len(keys))
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
