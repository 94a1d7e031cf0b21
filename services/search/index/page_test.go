package index_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

// smallWords make random queries match, in whole, begun and mistyped, and random names collide.
var smallWords = []string{"heart", "hearts", "hear", "haert", "lantern", "lan", "red", "rad", "card", "cart", "t", "the", "85123a", "zebra", "★"}

func genText(most int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(smallWords), 0, most).Draw(t, "words"), " ")
	})
}

func genProducts(t *rapid.T) []*searchv1.Product {
	products := make([]*searchv1.Product, rapid.IntRange(0, 80).Draw(t, "products"))
	for i := range products {
		products[i] = product(fmt.Sprintf("ID%d", i), genText(4).Draw(t, "name"),
			rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "category"), genText(3).Draw(t, "description"),
			rapid.Int64Range(0, 2).Draw(t, "popularity"))
	}
	return products
}

// walk reads a result page by page and returns the ids in the order shown.
func walk(t *rapid.T, x *index.Index, q index.Query, size func() int) []string {
	var shown []string
	for pages := 0; ; pages++ {
		q.Limit = size()
		page, err := x.Search(q)
		if err != nil {
			t.Fatalf("search %+v: %v", q, err)
		}
		for _, p := range page.Products {
			shown = append(shown, p.GetId())
		}
		if page.Next == (index.Position{}) {
			return shown
		}
		if len(page.Products) != q.Limit || pages > x.Size() {
			t.Fatalf("page %d: %d products of %d and more to come", pages, len(page.Products), q.Limit)
		}
		q.After = page.Next
	}
}

func TestSearch_PagesOfAnySizesAddUpToTheWholeResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, err := index.Build(genProducts(t))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		q := index.Query{Text: genText(3).Draw(t, "query"), Category: rapid.SampledFrom([]string{"", "A", "B", "Z"}).Draw(t, "chosen")}
		whole := q
		whole.Limit = x.Size() + 1
		want, err := x.Search(whole)
		if err != nil {
			t.Fatal(err)
		}
		shown := walk(t, x, q, func() int { return rapid.IntRange(1, 10).Draw(t, "page size") })
		if diff := cmp.Diff(ids(want.Products), strings.Join(shown, " ")); diff != "" {
			t.Fatalf("%+v: pages (-whole +pages):\n%s", q, diff)
		}
		if want.Total != len(shown) {
			t.Fatalf("%+v: total %d, shown %d", q, want.Total, len(shown))
		}
		seen := map[string]bool{}
		for _, id := range shown {
			if seen[id] {
				t.Fatalf("%+v: %s is shown twice in %v", q, id, shown)
			}
			seen[id] = true
		}
	})
}

func TestSearch_GoesOnBehindTheLastProductShownWhenTheCatalogHasChanged(t *testing.T) {
	before := []*searchv1.Product{
		product("A", "Red Lamp", "Home", "", 90), product("B", "Red Lamp", "Home", "", 80),
		product("C", "Red Lamp", "Home", "", 70), product("D", "Red Lamp", "Home", "", 60),
	}
	q := index.Query{Text: "red lamp", Limit: 2}
	first := search(t, build(t, before), q)
	if got := ids(first.Products); got != "A B" {
		t.Fatalf("first page: got %q, want A B", got)
	}
	q.After = first.Next
	for _, test := range []struct {
		about string
		now   []*searchv1.Product
		want  string
	}{
		{"nothing has changed", before, "C D"},
		{"a product came in before", append([]*searchv1.Product{product("N", "Red Lamp", "Home", "", 99)}, before...), "C D"},
		{"a product came in behind", append([]*searchv1.Product{product("N", "Red Lamp", "Home", "", 65)}, before...), "C N"},
		{"the one before the last shown is no match any more", append([]*searchv1.Product{product("A", "Blue Chair", "Home", "", 90)}, before[1:]...), "C D"},
		{"the last shown is no match any more", []*searchv1.Product{before[0], product("B", "Blue Chair", "Home", "", 80), before[2], before[3]}, "C D"},
		{"nothing is left", []*searchv1.Product{product("Z", "Chair", "Home", "", 0)}, ""},
	} {
		if got := ids(search(t, build(t, test.now), q).Products); got != test.want {
			t.Errorf("%s: got %q, want %q", test.about, got, test.want)
		}
	}
}

func TestSearch_TakesAnyPosition(t *testing.T) {
	x := build(t, shop())
	for _, p := range []index.Position{{ID: "nobody", Offset: 1 << 30}, {ID: "nobody", Offset: -5}, {Offset: 3}, {ID: "K-1", Offset: -1}} {
		for _, text := range []string{"", "heart"} {
			got := search(t, x, index.Query{Text: text, After: p, Limit: 100})
			if len(got.Products) > got.Total {
				t.Errorf("%+v: got %d products of %d", p, len(got.Products), got.Total)
			}
		}
	}
}

func FuzzSearch(f *testing.F) {
	x := build(f, shop())
	for _, seed := range []string{
		"hanging heart", `name:heart^10 text:lantern~2`, `"`, `\`, "*", "?", "~heart~", "heart\x00lantern", "\xff\xfe", strings.Repeat("a", 5000),
		strings.Repeat("a b c d e f g h i j k l m n o p q r s t u v w x y z ", 4), "ﷺ Å ẞ İ 漢字 かな 🂡", "85123A", "it''s ''' ’s 's", "1.2.3,4",
	} {
		f.Add(seed, "", "K-1", 1)
	}
	f.Fuzz(func(t *testing.T, text, category, after string, offset int) {
		got, err := x.Search(index.Query{Text: text, Category: category, After: index.Position{ID: after, Offset: offset}, Limit: 5})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if len(got.Products) > 5 || got.Total > x.Size() || len(got.Products) > got.Total {
			t.Fatalf("%q: %d products of %d", text, len(got.Products), got.Total)
		}
		if again := search(t, x, index.Query{Text: text, Category: category, After: index.Position{ID: after, Offset: offset}, Limit: 5}); ids(again.Products) != ids(got.Products) {
			t.Fatalf("%q: %q, then %q", text, ids(got.Products), ids(again.Products))
		}
	})
}
