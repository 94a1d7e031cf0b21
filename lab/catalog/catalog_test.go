package catalog_test

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"example.com/watertight/lab/catalog"
)

func TestAuthored_HasTheSizeThatIsPromised(t *testing.T) {
	c := catalog.Authored()
	categories := map[string]int{}
	for _, p := range c.Products {
		categories[p.Category]++
	}
	if got, want := len(c.Products), 336; got != want {
		t.Errorf("products: got %d, want %d", got, want)
	}
	if got, want := len(categories), 12; got != want {
		t.Errorf("categories: got %d, want %d: %v", got, want, categories)
	}
	for category, products := range categories {
		if products < 20 {
			t.Errorf("category %s: got %d products, want at least 20", category, products)
		}
	}
	if got, want := len(c.Baskets), 3000; got != want {
		t.Errorf("baskets: got %d, want %d", got, want)
	}
	if c.Currency != "GBP" {
		t.Errorf("currency: got %q, want GBP", c.Currency)
	}
}

func TestAuthored_IsTheSameEveryTime(t *testing.T) {
	if diff := gocmp.Diff(catalog.Authored(), catalog.Authored()); diff != "" {
		t.Errorf("two calls differ (-first +second):\n%s", diff)
	}
}

func TestAuthored_EveryProductCouldBeOnAShelf(t *testing.T) {
	id := regexp.MustCompile(`^[A-Z]{3}-\d{4}$`)
	ids, names := map[string]bool{}, map[string]bool{}
	for _, p := range catalog.Authored().Products {
		name := strings.ToLower(p.Name)
		switch {
		case !id.MatchString(p.ID) || ids[p.ID]:
			t.Errorf("%s: id is malformed or repeated", p.ID)
		case names[name]:
			t.Errorf("%s: name %q is repeated", p.ID, p.Name)
		case p.PriceMinor < 200 || p.PriceMinor > 6000:
			t.Errorf("%s %s: price %d p is not one for such a shop", p.ID, p.Name, p.PriceMinor)
		case p.Stock < 100:
			t.Errorf("%s: stock got %d, want at least 100", p.ID, p.Stock)
		case len(p.Description) < 50 || !strings.HasSuffix(p.Description, "."):
			t.Errorf("%s: description %q is not a sentence", p.ID, p.Description)
		case strings.Contains(p.Name+p.Description, "%"):
			t.Errorf("%s: a placeholder is left in %q / %q", p.ID, p.Name, p.Description)
		}
		ids[p.ID], names[name] = true, true
	}
}

func TestAuthored_BasketsAreSetsOfKnownProducts(t *testing.T) {
	c := catalog.Authored()
	ids := map[string]bool{}
	sold := make([]int64, len(c.Products))
	for _, b := range c.Baskets {
		if ids[b.ID] {
			t.Errorf("basket id %s is repeated", b.ID)
		}
		ids[b.ID] = true
		if len(b.Products) < 2 || !slices.IsSorted(b.Products) || len(slices.Compact(slices.Clone(b.Products))) != len(b.Products) {
			t.Errorf("basket %s: %v is not an ascending set of at least two", b.ID, b.Products)
		}
		for _, p := range b.Products {
			sold[p]++
		}
	}
	for i, n := range sold {
		if n != c.Products[i].Sold {
			t.Errorf("%s: sold got %d, is in %d baskets", c.Products[i].Name, c.Products[i].Sold, n)
		}
		if n < 5 {
			t.Errorf("%s is in %d baskets, too few to learn from", c.Products[i].Name, n)
		}
	}
}

// What is bought with a thing, by cosine similarity of the baskets, must be what a person would pick for it.
func TestAuthored_BoughtTogetherMakesSense(t *testing.T) {
	c := catalog.Authored()
	sensible := map[string]string{
		"Cornflower Teapot":             "Cup and Saucer|Mug|Milk Jug|Cake Stand|Side Plates|Tea Towel|Napkins",
		"Glazed Olive Plant Pot":        "Watering Can|Trowel|Gloves|Seed Tin|Bird Feeder|Doormat|Cushion|Lampshade|Lantern|Lamp|Storage Jar|Bath Towel",
		"Set of 6 Ruby Baubles":         "Topper|Stocking|Wreath|Fairy Lights|Advent|Christmas Cards|Gift Wrap|Crackers|Candle|Candlestick|Tablecloth|Napkins|Tumblers",
		"Lapis Pendant Necklace":        "Earrings|Bracelet|Ring|Trinket Dish|Brooch|Purse",
		"Woodland Wooden Puzzle":        "Soft Toy|Dominoes|Colouring|Blocks|Skittles|Kite|Night Light",
		"Set of 5 Heart Cookie Cutters": "Mixing Bowl|Cake Tin|Apron|Oven Glove|Tea Towel|Storage Jar|Cake Stand",
	}
	for name, pattern := range sensible {
		for _, neighbour := range neighbours(t, c, name)[:4] {
			if !regexp.MustCompile(pattern).MatchString(neighbour) {
				t.Errorf("with %s: got %s, want one of %s", name, neighbour, pattern)
			}
		}
	}
}

func neighbours(t *testing.T, c catalog.Catalog, name string) []string {
	t.Helper()
	at := int32(slices.IndexFunc(c.Products, func(p catalog.Product) bool { return p.Name == name }))
	if at < 0 {
		t.Fatalf("no product is named %q", name)
	}
	count, together := map[int32]float64{}, map[int32]float64{}
	for _, b := range c.Baskets {
		with := slices.Contains(b.Products, at)
		for _, p := range b.Products {
			count[p]++
			if with && p != at {
				together[p]++
			}
		}
	}
	type scored struct {
		name  string
		score float64
	}
	var all []scored
	for p, n := range together {
		all = append(all, scored{c.Products[p].Name, n / math.Sqrt(count[p]*count[at])})
	}
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return names
}

func ExampleAuthored() {
	p := catalog.Authored().Products[0]
	fmt.Println(p.ID, p.Name, p.PriceMinor)
	fmt.Println(p.Description)
	// Output:
	// KIT-0001 Speckled Oat Mixing Bowl 1450
	// A 24 cm stoneware mixing bowl in speckled oat, heavy enough to stay put while you whisk. Dishwasher safe.
}
