package similarity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func compute(t testing.TB, settings Settings, baskets ...[]string) *Model {
	t.Helper()
	var b Baskets
	for _, basket := range baskets {
		b.Add(basket)
	}
	m, err := Compute(context.Background(), &b, settings)
	if err != nil {
		t.Fatalf("Compute: %v", err)
	}
	return m
}

// bruteForce is the definition, set by set, with no care for cost: ids are folded to lower case and spelled as given.
func bruteForce(baskets [][]string, settings Settings, id string) []Recommendation {
	in := map[string]map[int]bool{} // small baskets only
	for i, basket := range baskets {
		distinct := map[string]bool{}
		for _, id := range basket {
			distinct[strings.ToLower(id)] = true
		}
		for id := range distinct {
			if in[id] == nil {
				in[id] = map[int]bool{}
			}
			if len(distinct) <= settings.MaxBasket {
				in[id][i] = true
			}
		}
	}
	type exact struct {
		id     string
		cosine float64
	}
	var all []exact
	for other, theirs := range in {
		shared := 0
		for i := range in[strings.ToLower(id)] {
			if theirs[i] {
				shared++
			}
		}
		if other != strings.ToLower(id) && shared >= max(settings.MinSupport, 1) {
			all = append(all, exact{other, float64(shared) / math.Sqrt(float64(len(in[strings.ToLower(id)])*len(theirs)))})
		}
	}
	slices.SortFunc(all, func(x, y exact) int { return cmp.Or(cmp.Compare(y.cosine, x.cosine), strings.Compare(x.id, y.id)) })
	var list []Recommendation
	for _, e := range all[:min(len(all), 50)] {
		list = append(list, Recommendation{e.id, math.Round(e.cosine*1e4) / 1e4})
	}
	return list
}

func genBaskets(t *rapid.T, spelling func(*rapid.T, string) string) [][]string {
	products := rapid.IntRange(1, 70).Draw(t, "products")
	id := rapid.Custom(func(t *rapid.T) string {
		return spelling(t, fmt.Sprintf("p%02d", rapid.IntRange(0, products-1).Draw(t, "product")))
	})
	return rapid.SliceOfN(rapid.SliceOfN(id, 1, 80), 0, 40).Draw(t, "baskets")
}

func asGiven(_ *rapid.T, id string) string { return id }

func genSettings(t *rapid.T) Settings {
	return Settings{MinSupport: rapid.IntRange(0, 5).Draw(t, "min support"), MaxBasket: rapid.IntRange(1, 60).Draw(t, "max basket")}
}

func TestCompute_AgreesWithTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		baskets, settings := genBaskets(t, asGiven), genSettings(t)
		var b Baskets
		seen := map[string]bool{"never bought": true}
		for _, basket := range baskets {
			b.Add(basket)
			for _, id := range basket {
				seen[id] = true
			}
		}
		m, err := Compute(context.Background(), &b, settings)
		if err != nil {
			t.Fatal(err)
		}
		for id := range seen {
			want := bruteForce(baskets, settings, id)
			if diff := gocmp.Diff(want, m.Similar(strings.ToUpper(id), 99)); diff != "" {
				t.Fatalf("similar to %s (-want +got):\n%s", id, diff)
			}
		}
	})
}

func TestCompute_OrderOfBasketsAndSpellingOfIdsPlayNoPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		baskets := genBaskets(t, func(t *rapid.T, id string) string {
			if rapid.Bool().Draw(t, "upper") {
				return strings.ToUpper(id)
			}
			return id
		})
		settings := genSettings(t)
		shuffled := rapid.Permutation(baskets).Draw(t, "shuffled")
		var a, b Baskets
		for i := range baskets {
			a.Add(baskets[i])
			b.Add(shuffled[i])
		}
		x, err := Compute(context.Background(), &a, settings)
		if err != nil {
			t.Fatal(err)
		}
		y, err := Compute(context.Background(), &b, settings)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(slices.Collect(x.Products()), slices.Collect(y.Products())); diff != "" {
			t.Fatalf("models differ:\n%s", diff)
		}
		for _, p := range slices.Collect(x.Products()) {
			var ignoringCase []Recommendation
			for _, r := range x.Similar(p.ID, 99) {
				ignoringCase = append(ignoringCase, Recommendation{strings.ToLower(r.ProductID), r.Score})
			}
			want := bruteForce(baskets, settings, p.ID)
			// Equals may stand in another order when their spellings sort otherwise.
			byID := func(x, y Recommendation) int {
				return cmp.Or(cmp.Compare(y.Score, x.Score), strings.Compare(x.ProductID, y.ProductID))
			}
			if len(want) == MaxNeighbours {
				continue // which of the equals at the end are kept depends on their spelling too
			}
			slices.SortFunc(ignoringCase, byID)
			slices.SortFunc(want, byID)
			if diff := gocmp.Diff(want, ignoringCase); diff != "" {
				t.Fatalf("similar to %s (-want +got):\n%s", p.ID, diff)
			}
		}
	})
}

func TestModel_IsTheSameAfterItWasStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Baskets
		for _, basket := range genBaskets(t, asGiven) {
			b.Add(basket)
		}
		m, err := Compute(context.Background(), &b, genSettings(t))
		if err != nil {
			t.Fatal(err)
		}
		stored := rapid.Permutation(slices.Collect(m.Products())).Draw(t, "stored order")
		back, err := Assemble(Size{Baskets: m.Baskets()}, func(yield func(Product, error) bool) {
			for _, p := range stored {
				if !yield(p, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := back.Recommendable(), m.Recommendable(); got != want {
			t.Fatalf("recommendable: got %d, want %d", got, want)
		}
		for _, p := range stored {
			if diff := gocmp.Diff(m.Similar(p.ID, 99), back.Similar(p.ID, 99)); diff != "" {
				t.Fatalf("similar to %s:\n%s", p.ID, diff)
			}
			if diff := gocmp.Diff(m.Popular(p.ID, 99), back.Popular(p.ID, 99)); diff != "" {
				t.Fatalf("popular except %s:\n%s", p.ID, diff)
			}
		}
	})
}

func TestModel_NeighboursAreNotJustTheBestSellers(t *testing.T) {
	var baskets [][]string
	for i := range 100 { // everybody buys bags; candles go with matches
		switch {
		case i < 20:
			baskets = append(baskets, []string{"bag", "candle", "matches"})
		default:
			baskets = append(baskets, []string{"bag", fmt.Sprintf("other-%d", i%10)})
		}
	}
	m := compute(t, Settings{MinSupport: 3, MaxBasket: 100}, baskets...)
	want := []Recommendation{{"matches", 1}, {"bag", 0.4472}} // 20/√(20·20) and 20/√(20·100)
	if diff := gocmp.Diff(want, m.Similar("candle", 99)); diff != "" {
		t.Errorf("similar to candle (-want +got):\n%s", diff)
	}
	if got := m.Popular("candle", 99)[0]; got != (Recommendation{"bag", 1}) {
		t.Errorf("most popular: got %v, want bag in every basket", got)
	}
}

func TestCompute_PairsBelowTheSupportFloorAreCoincidence(t *testing.T) {
	pairs := func(n int) (baskets [][]string) {
		for range n {
			baskets = append(baskets, []string{"a", "b"})
		}
		return baskets
	}
	if got := compute(t, Settings{MinSupport: 3, MaxBasket: 100}, pairs(2)...).Similar("a", 99); got != nil {
		t.Errorf("two baskets, floor 3: got %v, want nothing", got)
	}
	if got := compute(t, Settings{MinSupport: 3, MaxBasket: 100}, pairs(3)...).Similar("a", 99); !slices.Equal(got, []Recommendation{{"b", 1}}) {
		t.Errorf("three baskets, floor 3: got %v, want b", got)
	}
}

func TestCompute_GiantBasketCountsForPopularityOnly(t *testing.T) {
	giant := []string{"a", "b", "c"}
	m := compute(t, Settings{MinSupport: 1, MaxBasket: 2}, giant, []string{"a", "d"})
	if diff := gocmp.Diff([]Recommendation{{"d", 1}}, m.Similar("a", 99)); diff != "" {
		t.Errorf("similar to a (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]Recommendation{{"a", 1}, {"b", 0.5}, {"c", 0.5}, {"d", 0.5}}, m.Popular("", 99)); diff != "" {
		t.Errorf("popular (-want +got):\n%s", diff)
	}
}

func TestModel_SpellsIdsAsTheBasketsMostlyDo(t *testing.T) {
	m := compute(t, Settings{MinSupport: 1, MaxBasket: 9},
		[]string{"85123a", "x"}, []string{"85123A", "X"}, []string{"85123A", "x", "85123a"}, []string{"85123A"})
	if diff := gocmp.Diff([]Recommendation{{"85123A", 0.8660}}, m.Similar("X", 99)); diff != "" {
		t.Errorf("similar to X (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]Recommendation{{"x", 0.8660}}, m.Similar("85123a", 99)); diff != "" {
		t.Errorf("similar to 85123a (-want +got):\n%s", diff)
	}
	even := compute(t, Settings{MinSupport: 1, MaxBasket: 9}, []string{"y"}, []string{"Y"})
	if diff := gocmp.Diff([]Recommendation{{"Y", 1}}, even.Popular("", 99)); diff != "" {
		t.Errorf("as often one way as the other (-want +got):\n%s", diff)
	}
}

func TestModel_PopularLeavesOutTheProductAskedAboutAndStillFillsTheList(t *testing.T) {
	var baskets [][]string
	for i := range 60 {
		baskets = append(baskets, []string{fmt.Sprintf("p%02d", i)})
	}
	m := compute(t, Settings{MinSupport: 1, MaxBasket: 9}, baskets...)
	got := m.Popular("P00", 99)
	if len(got) != MaxNeighbours || got[0].ProductID != "p01" {
		t.Errorf("popular except p00: got %d from %v on, want %d from p01 on", len(got), got[0], MaxNeighbours)
	}
}

func TestCompute_OfNothingKnowsNothing(t *testing.T) {
	m := compute(t, Settings{MinSupport: 1, MaxBasket: 9})
	if got := append(m.Similar("a", 99), m.Popular("", 99)...); got != nil || m.Recommendable() != 0 {
		t.Errorf("got %v and %d products, want nothing", got, m.Recommendable())
	}
}

func TestCompute_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var b Baskets
	b.Add([]string{"a", "b"})
	if _, err := Compute(ctx, &b, Settings{MinSupport: 1, MaxBasket: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestCompute_LetsOthersRunOnASingleCore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const products = 2000
	var b Baskets
	for i := range products {
		b.Add([]string{fmt.Sprint(i), fmt.Sprint(i + 1)})
	}
	var turns atomic.Int64
	done := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	})
	_, err := Compute(context.Background(), &b, Settings{MinSupport: 1, MaxBasket: 9})
	got := turns.Load()
	close(done)
	other.Wait()
	if err != nil || got < products/2 {
		t.Errorf("another goroutine had %d turns, %v; want about one for each of %d products", got, err, products)
	}
}

func TestAssemble_PassesOnTheErrorOfTheSequence(t *testing.T) {
	broken := errors.New("connection lost")
	_, err := Assemble(Size{Baskets: 1}, func(yield func(Product, error) bool) {
		_ = yield(Product{ID: "a", Baskets: 1}, nil) && yield(Product{}, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// retailYear is made-up trade of the size of a real wholesaler's year: 4,070 products of very unequal popularity in 20,000
// baskets of 25 on average, of which a few are very large. Each basket leans to one of 200 themes.
func retailYear() *Baskets {
	const products, themes = 4070, 200
	random := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(random, 1.1, 30, products-1)
	var b Baskets
	var basket []string
	for range 20_000 {
		size := min(int(math.Exp(random.NormFloat64()*1.1+3.05))+1, 1200)
		theme := random.IntN(themes)
		basket = basket[:0]
		for range size {
			p := int(popular.Uint64())
			if random.IntN(2) == 0 {
				p = p/themes*themes + theme
			}
			basket = append(basket, fmt.Sprintf("%05d", min(p, products-1)))
		}
		b.Add(basket)
	}
	return &b
}

func BenchmarkCompute_RetailYear(b *testing.B) {
	baskets := retailYear()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compute(context.Background(), baskets, Settings{MinSupport: 3, MaxBasket: 100}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(baskets.items))/float64(baskets.Len()), "lines/basket")
}
