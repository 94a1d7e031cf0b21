package catalogue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"example.com/watertight/lab/catalog"
	"example.com/watertight/lab/retail"
)

// seedHi and seedLo make every run's products, baskets and queries the same.
const seedHi, seedLo = 0xca7a, 0x1065

// A stock makes catalogs of any size: the products of the shop's own catalog, or of a file in the Online Retail layout, and as
// many made-up ones behind them as are missing.
type stock struct{ known catalog.Catalog }

// openStock reads the file, if one is named.
func openStock(ctx context.Context, file string) (stock, error) {
	if file == "" {
		return stock{catalog.Authored()}, nil
	}
	data, err := retail.ReadFile(ctx, file, retail.Options{})
	if err != nil {
		return stock{}, err
	}
	return stock{data.Catalog}, nil
}

// catalog returns n products with baskets in which they are bought together.
func (s stock) catalog(n int) catalog.Catalog {
	random := rand.New(rand.NewPCG(seedHi, seedLo))
	c := catalog.Catalog{Currency: s.known.Currency, Products: slices.Clone(s.known.Products[:min(n, len(s.known.Products))])}
	words := newVocabulary(random)
	for i := len(c.Products); i < n; i++ {
		c.Products = append(c.Products, words.product(i))
	}
	c.Baskets = baskets(random, n)
	return c
}

// The baskets of a year: at least as many as a mid-size wholesaler's, and enough for twenty lines a product.
const (
	leastBaskets = 20_000
	basketSize   = 20
	themeSize    = 25
)

// baskets draws what is bought together: for the most part products of one theme, which are neighbours in the catalog, and
// some of the best sellers.
func baskets(random *rand.Rand, products int) []catalog.Basket {
	sellers := rand.NewZipf(random, 1.1, 30, uint64(products-1))
	all := make([]catalog.Basket, max(leastBaskets, products))
	for i := range all {
		theme := random.IntN(products) / themeSize * themeSize
		bought := make([]int32, 0, 2*basketSize)
		for range 2 + random.IntN(2*basketSize-2) {
			product := int32((theme + random.IntN(themeSize)) % products)
			if random.IntN(3) == 0 {
				product = int32(sellers.Uint64())
			}
			bought = append(bought, product)
		}
		slices.Sort(bought)
		all[i] = catalog.Basket{ID: fmt.Sprintf("B%d", i), Products: slices.Compact(bought)}
	}
	return all
}

// vocabulary is what names are made of. A few words come up again and again, as a catalog's do, and ranges have names that
// few products bear: how many different words there are grows with the catalog.
type vocabulary struct {
	random *rand.Rand
	ranges *rand.Zipf
	things [][2]string // and their categories
}

func newVocabulary(random *rand.Rand) *vocabulary {
	v := &vocabulary{random: random, ranges: rand.NewZipf(random, 1.05, 20, uint64(len(strings.Fields(syllables)))*400-1)}
	for line := range strings.Lines(things) {
		category, list, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for thing := range strings.SplitSeq(list, ", ") {
			v.things = append(v.things, [2]string{thing, category})
		}
	}
	return v
}

// syllables of the names of ranges: any three make one.
const syllables = "al be ca do el fi ga ho in jo ka lu mo na or pe ra sa ti ve"

const looks = `Red White Pink Blue Green Ivory Black Cream Silver Gold Vintage Retrospot Spotty Striped Rustic Antique Enamel Wooden
	Ceramic Glass Zinc Wicker Woollen Paper Felt Crystal Painted Folding Mini Jumbo Small Medium Large Hanging Assorted Decorative`

const motifs = `Heart Star Rose Bird Butterfly Owl Strawberry Daisy Polkadot Gingham Union Paisley Woodland Circus Dinosaur Soldier Apple
	Feather Fern Lavender Robin Reindeer Angel Baroque Regency Chevron Alphabet Skull Toadstool Hedgehog Seaside Botanical Tartan Lace Moon Poppy`

const things = `Kitchen: Cake Tin, Cookie Jar, Tea Towel, Apron, Mixing Bowl, Recipe Box, Egg Timer, Cake Cases, Jam Jar, Bread Bin
	Tableware: Tea Cup, Mug, Plate, Teapot, Tumbler, Coaster, Napkin Ring, Milk Jug, Cake Stand, Cutlery Set
	Lighting: Lantern, Night Light, Fairy Lights, Lampshade, Table Lamp, Torch
	Candles: T-Light Holder, Scented Candle, Candlestick, Candle Pot, Incense Holder, Reed Diffuser
	Garden: Plant Pot, Watering Can, Bird Feeder, Garden Sign, Herb Marker, Picnic Basket, Parasol
	Stationery: Notebook, Gift Wrap, Greeting Card, Pencil Case, Sticker Sheet, Photo Album, Wrapping Paper, Gift Tag
	Toys: Jigsaw Puzzle, Playing Cards, Wooden Train, Money Bank, Skittles, Spinning Top, Paint Set
	Bags: Lunch Bag, Jumbo Bag, Shopper, Coin Purse, Washbag, Rucksack, Suitcase
	Christmas: Bauble, Christmas Wreath, Advent Calendar, Stocking, Tree Decoration, Snow Globe
	Party: Bunting, Paper Chain, Balloon, Party Cones, Birthday Banner, Paper Lantern
	Textiles: Cushion Cover, Doormat, Hot Water Bottle, Quilt, Curtain, Hand Warmer
	Walls: Photo Frame, Wall Clock, Mirror, Metal Sign, Drawer Knob, Coat Hook`

// product makes the n-th product up.
func (v *vocabulary) product(n int) catalog.Product {
	thing := v.things[v.random.IntN(len(v.things))]
	name := strings.Join([]string{v.skewed(looks), v.skewed(motifs), thing[0]}, " ")
	switch v.random.IntN(4) {
	case 0:
		name = fmt.Sprintf("Set of %d %s", 2+v.random.IntN(11), name)
	case 1, 2:
		name = v.rangeName() + " " + name
	}
	return catalog.Product{
		ID: fmt.Sprintf("%d%c", 100_000+n, 'A'+n%4), Name: name, Category: thing[1],
		Description: fmt.Sprintf("From our %s range. Goes with %s %s and %s.", thing[1], v.skewed(looks), v.skewed(motifs), v.rangeName()),
		PriceMinor:  100 + v.random.Int64N(5000), Stock: 1000, Sold: int64(math.Exp(4 + 2*v.random.NormFloat64())),
	}
}

// skewed picks one of the words, the first the most.
func (v *vocabulary) skewed(list string) string {
	words := strings.Fields(list)
	return words[min(int(v.random.ExpFloat64()*float64(len(words))/3), len(words)-1)]
}

func (v *vocabulary) rangeName() string {
	parts, n := strings.Fields(syllables), int(v.ranges.Uint64())
	name := parts[n%20] + parts[n/20%20] + parts[n/400%20]
	return strings.ToUpper(name[:1]) + name[1:]
}
