package catalogue

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/watertight/lab/catalog"
)

func TestStock_MakesTheSameCatalogEveryTimeOfProductsThatTheContractAllows(t *testing.T) {
	from := stock{catalog.Authored()}
	const size = 5_000
	made, again := from.catalog(size), from.catalog(size)
	sameBasket := func(a, b catalog.Basket) bool { return a.ID == b.ID && slices.Equal(a.Products, b.Products) }
	if !slices.Equal(made.Products, again.Products) || !slices.EqualFunc(made.Baskets, again.Baskets, sameBasket) {
		t.Fatal("two catalogs of one size differ")
	}
	ids := make(map[string]bool)
	for _, p := range made.Products {
		ids[strings.ToLower(p.ID)] = true
		if p.ID == "" || p.Name == "" || p.Category == "" || p.PriceMinor <= 0 || p.Sold < 0 || len(p.Name) > 256 || len(p.ID) > 64 {
			t.Errorf("not a product that can be imported: %+v", p)
		}
	}
	if len(ids) != size || len(made.Products) != size {
		t.Errorf("got %d products with %d ids, want %d", len(made.Products), len(ids), size)
	}
	for _, b := range made.Baskets {
		if !slices.IsSorted(b.Products) || len(slices.Compact(slices.Clone(b.Products))) != len(b.Products) || b.Products[len(b.Products)-1] >= size {
			t.Fatalf("not a set of products: %v", b.Products)
		}
	}
}

func TestQueries_AreOfEveryKindAndFindTheirWordsInTheCatalog(t *testing.T) {
	c := stock{catalog.Authored()}.catalog(2_000)
	var names strings.Builder
	for _, p := range c.Products {
		names.WriteString(p.Name + "\n")
	}
	seen := make(map[kind]int)
	for _, q := range queries(c, 2_000) {
		seen[q.kind]++
		if !utf8.ValidString(q.GetQuery()) || len(q.GetQuery()) > 200 || (q.GetQuery() == "") != (q.kind == listing) {
			t.Errorf("%s: %q is no query", q.kind, q.GetQuery())
		}
		found := strings.Contains(names.String(), q.GetQuery())
		if q.whole() && q.kind != twoWords && !found || q.kind == noHit && found {
			t.Errorf("%s: %q is in the names: %v", q.kind, q.GetQuery(), found)
		}
	}
	for _, k := range mix() {
		if seen[k] == 0 {
			t.Errorf("no query of kind %q among %v", k, seen)
		}
	}
}
