package index_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

// shop is a small catalog in which every product is there to be told from another.
func shop() []*searchv1.Product {
	return []*searchv1.Product{
		product("K-1", "Heart Lantern", "Home", "Tin lantern with a cut-out.", 50),
		product("K-2", "White Hanging Heart T-Light Holder", "Home", "Glass and wire.", 900),
		product("K-3", "Hanging Heart Basket", "Home", "Wicker.", 10),
		product("K-4", "Red Hearts Garland", "Party", "Paper, three metres.", 300),
		product("K-5", "Café au Lait Bowl", "Kitchen", "Stoneware; holds half a litre.", 40),
		product("K-6", "Mother's Day Card", "Cards", "With a heart on it.", 5),
		product("K-7", "Headphone Stand", "Office", "Oak.", 7),
		product("K-8", "Set of 3 Cake Tins Pantry Design", "Kitchen", "Stackable.", 70),
		product("K-9", "Cake Stand", "Kitchen", "Two tiers, hanging hook at the top.", 60),
		product("K-10", "Cake Stand Large", "Kitchen", "Three tiers.", 600),
		product("85123A", "Zinc Planter", "Garden", "For herbs.", 20),
		product("85123B", "Zinc Planter", "Garden", "For herbs.", 20),
		product("17", "The Box of Things", "Office", "85123A fits inside.", 0),
		product("K-11", "Wooden Box", "Office", "", 0),
		product("K-12", "Card", "Cards", "", 0),
		product("K-13", "Cart", "Garden", "", 0),
		product("K-14", "Boxcar Set", "Office", "", 999),
	}
}

func product(id, name, category, description string, popularity int64) *searchv1.Product {
	return &searchv1.Product{Id: id, Name: name, Category: category, Description: description, Popularity: popularity}
}

func TestSearch_RanksAsAPersonWouldExpect(t *testing.T) {
	x := build(t, shop())
	for _, test := range []struct{ about, query, want string }{
		{"all words in the name, what is asked for most first", "hanging heart", "K-2 K-3"},
		{"word order and case do not matter", "HEART hanging", "K-2 K-3"},
		{"a double word is one word", "heart heart lantern", "K-1"},
		{"the exact id comes first, in any case", "85123a", "85123A 17"},
		{"also with blanks around it", "  85123A ", "85123A 17"},
		{"the beginning of an id", "85123", "85123A 85123B 17"},
		{"two digits are not yet an id", "85", "17"},
		{"a wrong digit is another number", "85124A", ""},
		{"words that are only begun", "hang hea", "K-2 K-3"},
		{"the whole word before the begun one", "box", "K-11 17 K-14"},
		{"one letter, as the last word", "cake s", "K-10 K-8 K-9"},
		{"one letter, elsewhere, is a word of its own", "c stand", "K-10 K-9 K-7"},
		{"a letter missing", "hangng", "K-2 K-3 K-9"},
		{"a letter too many", "lanttern", "K-1"},
		{"a wrong letter", "lontern", "K-1"},
		{"the first letter wrong", "gantern", "K-1"},
		{"two letters swapped", "haert lantern", "K-1"},
		{"a typo in each of two words", "hangng haert", "K-2 K-3"},
		{"a typo in a plural", "haerts lantern", "K-1"},
		{"a right word is not taken for a typo", "cake", "K-10 K-8 K-9"},
		{"unless nothing is found with it", "garden card", "K-13"},
		{"three letters are too few to be mistyped", "tim", ""},
		{"two typos are too many", "luntorn", ""},
		{"the plural finds the singular", "lanterns", "K-1"},
		{"the singular finds the plural", "garland heart", "K-4"},
		{"the name weighs more than the description", "heart", "K-2 K-4 K-1 K-3 K-6"},
		{"words from the name and the description", "stand tiers", "K-10 K-9"},
		{"the category is searched as well", "garden zinc", "85123A 85123B"},
		{"a query that is a product's name", "cake stand", "K-9 K-10"},
		{"some words only when nothing has all", "lantern zebra", "K-1"},
		{"of some words the rare one counts more", "cake garland zebra", "K-4 K-10 K-8 K-9"},
		{"words without meaning are not required", "the lantern of a heart", "K-1"},
		{"unless there are no others", "the", "17 K-9"},
		{"accents do not matter", "cafe", "K-5"},
		{"in either direction", "cardé", "K-12 K-6"},
		{"nor does the possessive", "mothers day", "K-6"},
		{"or its apostrophe", "mother’s", "K-6"},
		{"parts of a hyphenated word", "t-light", "K-2"},
		{"nothing", "xylophone", ""},
		{"no word at all", "*** ??? \"", ""},
	} {
		t.Run(test.about, func(t *testing.T) {
			result := search(t, x, index.Query{Text: test.query, Limit: 100})
			if got := ids(result.Products); got != test.want {
				t.Errorf("%q: got %q, want %q", test.query, got, test.want)
			}
			if result.Total != len(result.Products) {
				t.Errorf("%q: got total %d of %d products", test.query, result.Total, len(result.Products))
			}
		})
	}
}

func TestSearch_AWordThatIsOnlyBegunMayBeMistypedAsWell(t *testing.T) {
	x := build(t, []*searchv1.Product{
		product("1", "Heart Box", "Home", "", 9), product("2", "Hartley Mug", "Home", "", 1), product("3", "Harp", "Home", "", 1), product("4", "Mug", "Home", "", 1),
	})
	if got, want := ids(search(t, x, index.Query{Text: "hart", Limit: 9}).Products), "2 1 3"; got != want {
		t.Errorf("hart: got %q, want %q: what begins so, then what it may have been meant for", got, want)
	}
	if got, want := ids(search(t, x, index.Query{Text: "harp", Limit: 9}).Products), "3"; got != want {
		t.Errorf("harp: got %q, want %q: a word that is there was not mistyped", got, want)
	}
}

func TestSearch_ReadsNoQuerySyntax(t *testing.T) {
	x := build(t, shop())
	plain := ids(search(t, x, index.Query{Text: "heart lantern", Limit: 100}).Products)
	for _, hostile := range []string{
		`"heart lantern"`, `heart AND lantern`, `+heart +lantern`, `heart* lantern?`, `heart^ lantern~`,
		`(heart || lantern)`, `/heart.*/ lantern`, `heart\ lantern`, `~heart ~lantern`, `heart & !lantern`, `heart:lantern`, `heart_lantern.`, "heart\x01lantern", `%heart%_lantern`,
	} {
		got := search(t, x, index.Query{Text: hostile, Limit: 100})
		if len(got.Products) == 0 || got.Products[0].GetId() != "K-1" {
			t.Errorf("%s: got %q, want K-1 first, as for the plain words (%q)", hostile, ids(got.Products), plain)
		}
	}
}

func TestSearch_OfNothingListsEverythingByName(t *testing.T) {
	x := build(t, shop())
	want := "K-14 K-5 K-9 K-10 K-12 K-13 K-3 K-7 K-1 K-6 K-4 K-8 17 K-2 K-11 85123A 85123B"
	for _, blank := range []string{"", "  ", "\t\n"} {
		if got := ids(search(t, x, index.Query{Text: blank, Limit: 100}).Products); got != want {
			t.Errorf("%q: got %q, want %q", blank, got, want)
		}
	}
}

func TestSearch_CountsCategoriesWhateverCategoryIsChosen(t *testing.T) {
	x := build(t, shop())
	want := []string{"Home 3", "Cards 1", "Party 1"}
	for category, products := range map[string]string{"": "K-2 K-4 K-1 K-3 K-6", "Home": "K-2 K-1 K-3", "Cards": "K-6", "home": "", "Nowhere": ""} {
		result := search(t, x, index.Query{Text: "heart", Category: category, Limit: 100})
		if got := ids(result.Products); got != products {
			t.Errorf("category %q: got %q, want %q", category, got, products)
		}
		var counts []string
		for _, c := range result.Categories {
			counts = append(counts, fmt.Sprint(c.GetCategory(), " ", c.GetProducts()))
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("category %q: counts (-want +got):\n%s", category, diff)
		}
	}
}

func TestSearch_CountsAtMostAThousandCategories(t *testing.T) {
	var products []*searchv1.Product
	for i := range 1500 {
		products = append(products, product(fmt.Sprintf("P%d", i), "Thing", fmt.Sprintf("Category %04d", i%1499), "", 0))
	}
	got := search(t, build(t, products), index.Query{Text: "thing", Limit: 1}).Categories
	if len(got) != 1000 || got[0].GetCategory() != "Category 0000" || got[0].GetProducts() != 2 {
		t.Errorf("got %d categories, first %v; want 1000, first the one with two products", len(got), got[0])
	}
}

func TestBuild_GivesTheSameOrderWhateverOrderTheProductsCameIn(t *testing.T) {
	products := wholesale(3000)
	first := build(t, products)
	shuffled := slices.Clone(products)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	second := build(t, shuffled)
	for _, text := range []string{"", "red", "red lantern", "lan", "lantren red", "zebra lantern"} {
		q := index.Query{Text: text, Limit: len(products)}
		if diff := cmp.Diff(ids(search(t, first, q).Products), ids(search(t, second, q).Products)); diff != "" {
			t.Errorf("%q: two replicas differ:\n%s", text, diff)
		}
	}
}

func TestSearch_WithoutProductsFindsNothing(t *testing.T) {
	x := build(t, nil)
	for _, text := range []string{"", "heart", "hea haert"} {
		if got := search(t, x, index.Query{Text: text, Limit: 20}); got.Total != 0 || len(got.Categories) != 0 || got.Next != (index.Position{}) {
			t.Errorf("%q: got %+v, want nothing", text, got)
		}
	}
}

func TestGet_FindsIDsInAnyCase(t *testing.T) {
	x := build(t, shop())
	for _, id := range []string{"85123A", "85123a"} {
		if got := x.Get(id).GetName(); got != "Zinc Planter" {
			t.Errorf("%s: got %q, want Zinc Planter", id, got)
		}
	}
	if got := x.Get("85123"); got != nil {
		t.Errorf("85123: got %v, want none", got)
	}
}

func build(t testing.TB, products []*searchv1.Product) *index.Index {
	t.Helper()
	x, err := index.Build(products)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func search(t testing.TB, x *index.Index, q index.Query) index.Result {
	t.Helper()
	result, err := x.Search(q)
	if err != nil {
		t.Fatalf("search %+v: %v", q, err)
	}
	return result
}

func ids(products []*searchv1.Product) string {
	out := make([]string, 0, len(products))
	for _, p := range products {
		out = append(out, p.GetId())
	}
	return strings.Join(out, " ")
}

// wholesale returns n products whose names repeat words as those of a real shop do: a few colours and things again and
// again, and a long tail of rare ones.
func wholesale(n int) []*searchv1.Product {
	words := strings.Fields(`red white pink blue green ivory black vintage retrospot set heart hanging lantern holder cake
		stand bag lunch box tin mug card gift wrap christmas decoration metal sign small large wooden wicker basket garland paper
		candle glass bowl tea light spot jumbo storage kitchen garden bird flower rose star baroque zinc drawer knob wall clock`)
	random := rand.New(rand.NewPCG(19, 7))
	pick := func() string {
		if i := int(random.ExpFloat64() * 15); i < len(words) {
			return words[i]
		}
		return fmt.Sprintf("%s%c%c", words[random.IntN(len(words))], 'a'+random.IntN(26), 'a'+random.IntN(26))
	}
	products := make([]*searchv1.Product, n)
	for i := range products {
		name := make([]string, 2+random.IntN(5))
		for j := range name {
			name[j] = pick()
		}
		products[i] = product(fmt.Sprintf("W%05d", i), strings.Join(name, " "), words[i%12], strings.Join([]string{pick(), pick(), pick(), pick(), pick(), pick()}, " "), int64(random.ExpFloat64()*100))
	}
	return products
}
