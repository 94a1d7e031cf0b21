package catalog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	variantsPerKind = 4
	authoredBaskets = 3000
	// The seed is part of the catalog: the same one gives the same stock and baskets for ever.
	seedHi, seedLo = 0x5ea_1ab, 0xc0ffee
)

// A department is one category with its kinds of product.
type department struct {
	prefix   string // of the product ids
	category string
	kinds    []kind
}

// A kind is one sort of thing, made in four variants. The position of a variant is its look (0 plain, 1 blue, 2 leafy,
// 3 warm), so that things of one look go together across kinds and are bought together.
type kind struct {
	key      string // how occasions name it
	name     string // %s is the variant
	price    int64  // pence
	about    string // %s is the variant in lower case
	variants [variantsPerKind]string
}

// An occasion is a reason to shop and the kinds that go into its baskets. The first kinds are bought most.
type occasion struct {
	weight int
	kinds  []string
}

// Authored returns the shop's own catalog: 12 categories, four variants of each kind, prices in pounds sterling, and
// baskets drawn from the occasions people shop for. Every call returns the same catalog, in a copy of its own.
func Authored() Catalog {
	draw := rand.New(rand.NewPCG(seedHi, seedLo))
	c := Catalog{Currency: "GBP"}
	first := make(map[string]int32) // a kind's first product
	var kinds []string
	for _, d := range departments() {
		for i, k := range d.kinds {
			first[k.key] = int32(len(c.Products))
			kinds = append(kinds, k.key)
			for v, variant := range k.variants {
				c.Products = append(c.Products, Product{
					ID:          fmt.Sprintf("%s-%04d", d.prefix, i*variantsPerKind+v+1),
					Name:        fmt.Sprintf(k.name, variant),
					Description: strings.ReplaceAll(k.about, "%s", strings.ToLower(variant)),
					Category:    d.category,
					PriceMinor:  k.price,
					Stock:       200 + 10*draw.Int64N(81),
				})
			}
		}
	}
	shoppers := newShoppers(draw, first, kinds)
	for i := range authoredBaskets {
		c.Baskets = append(c.Baskets, Basket{ID: fmt.Sprintf("AUTHORED-%04d", i+1), Products: shoppers.basket()})
		for _, p := range c.Baskets[i].Products {
			c.Products[p].Sold++
		}
	}
	return c
}

// shoppers draws baskets.
type shoppers struct {
	draw      *rand.Rand
	first     map[string]int32
	kinds     []string
	occasions []occasion
	weights   int
}

func newShoppers(draw *rand.Rand, first map[string]int32, kinds []string) *shoppers {
	s := &shoppers{draw: draw, first: first, kinds: kinds, occasions: occasions()}
	for _, o := range s.occasions {
		s.weights += o.weight
	}
	return s
}

// basket draws two to six products of one occasion, mostly of one look. One basket in eight holds something unrelated,
// as real ones do: recommendations must not be thrown by it.
func (s *shoppers) basket() []int32 {
	kinds := slices.Clone(s.occasion().kinds)
	look := s.draw.Int32N(variantsPerKind)
	size := 2 + s.draw.IntN(5)
	var products []int32
	for len(products) < size && len(kinds) > 0 {
		// The smaller of two draws favours the front of the list.
		at := min(s.draw.IntN(len(kinds)), s.draw.IntN(len(kinds)))
		products = append(products, s.first[kinds[at]]+s.variant(look))
		kinds = slices.Delete(kinds, at, at+1)
	}
	if s.draw.IntN(8) == 0 {
		stray := s.kinds[s.draw.IntN(len(s.kinds))]
		products = append(products, s.first[stray]+s.draw.Int32N(variantsPerKind))
	}
	slices.Sort(products)
	return slices.Compact(products)
}

func (s *shoppers) occasion() occasion {
	at := s.draw.IntN(s.weights)
	for _, o := range s.occasions {
		if at < o.weight {
			return o
		}
		at -= o.weight
	}
	panic("catalog: a draw below the sum of the weights falls into one of them")
}

// variant keeps to the basket's look three times in four.
func (s *shoppers) variant(look int32) int32 {
	if s.draw.IntN(4) == 0 {
		return s.draw.Int32N(variantsPerKind)
	}
	return look
}
