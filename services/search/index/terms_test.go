package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	searchv1 "example.com/watertight/proto/search/v1"
)

func TestSearch_FindsTheSameInBatchesOfAnySize(t *testing.T) {
	text := rapid.Custom(func(t *rapid.T) string {
		words := rapid.SliceOfN(rapid.SampledFrom(strings.Fields("heart hearts lantern red hanging bowl bowls card cart hrat lamtern b")), 0, 4)
		return strings.Join(words.Draw(t, "words"), " ")
	})
	rapid.Check(t, func(t *rapid.T) {
		products := make([]*searchv1.Product, rapid.IntRange(0, 60).Draw(t, "products"))
		for i := range products {
			products[i] = &searchv1.Product{Id: fmt.Sprint("card", i), Name: text.Draw(t, "name"), Description: text.Draw(t, "about"), Category: "A"}
		}
		one, many := open(t, products, len(products)+1), open(t, products, rapid.IntRange(1, 20).Draw(t, "batch"))
		defer one.Close()
		defer many.Close()
		for range 5 {
			q := Query{Text: text.Draw(t, "query"), Limit: 10}
			want, err := one.Search(q)
			if err != nil {
				t.Fatal(err)
			}
			got, err := many.Search(q)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Products, want.Products) || got.Total != want.Total {
				t.Fatalf("%q in %d parts: got %v of %d, want %v of %d", q.Text, len(many.parts), got.Products, got.Total, want.Products, want.Total)
			}
		}
	})
}

func open(t *rapid.T, products []*searchv1.Product, batch int) *Index {
	x, err := build(products, batch)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
