// Package similarity works out which products are bought together: from baskets to a Model, and from a Model to
// recommendations. It does no I/O and knows nothing of databases or calls. Ids are compared without regard to case.
package similarity

import (
	"slices"
	"strings"
)

// Baskets collects what was bought together, at about four bytes a line. The zero value is empty and ready to use; it is
// not safe for concurrent use.
type Baskets struct {
	spellings []spelling
	spelled   map[string]uint32 // exact spelling → index in spellings
	products  map[string]uint32 // folded id → product
	seenIn    []uint32          // by product: the last basket it was found in, counted from 1

	items []uint32 // products, basket after basket
	ends  []uint32 // by basket: where it ends in items
}

// spelling is one way a product's id was written.
type spelling struct {
	id      string
	product uint32
	seen    int
}

// Add adds one basket. A product named twice in it, in whatever case, counts once.
func (b *Baskets) Add(productIDs []string) {
	if b.spelled == nil {
		b.spelled, b.products = map[string]uint32{}, map[string]uint32{}
	}
	basket := uint32(len(b.ends) + 1)
	for _, id := range productIDs {
		product := b.product(id)
		if b.seenIn[product] == basket {
			continue
		}
		b.seenIn[product] = basket
		b.items = append(b.items, product)
	}
	b.ends = append(b.ends, uint32(len(b.items)))
}

// Len is the number of baskets.
func (b *Baskets) Len() int { return len(b.ends) }

// product returns the number of the product with the id, a new one when it was never seen.
func (b *Baskets) product(id string) uint32 {
	if s, ok := b.spelled[id]; ok {
		b.spellings[s].seen++
		return b.spellings[s].product
	}
	product, ok := b.products[fold(id)]
	if !ok {
		product = uint32(len(b.seenIn))
		b.products[fold(id)] = product
		b.seenIn = append(b.seenIn, 0)
	}
	b.spelled[id] = uint32(len(b.spellings))
	b.spellings = append(b.spellings, spelling{id: id, product: product, seen: 1})
	return product
}

// ids returns each product's id in its most usual spelling, the smallest of equals, so that the order in which baskets
// came plays no part.
func (b *Baskets) ids() []string {
	best := make([]spelling, len(b.seenIn))
	for _, s := range b.spellings {
		if cur := best[s.product]; s.seen > cur.seen || s.seen == cur.seen && s.id < cur.id {
			best[s.product] = s
		}
	}
	ids := make([]string, len(best))
	for i, s := range best {
		ids[i] = s.id
	}
	return ids
}

// ranked returns the products' ids in order, and by product its place in that order.
func (b *Baskets) ranked() (ids []string, rank []uint32) {
	byProduct := b.ids()
	order := make([]uint32, len(byProduct))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int { return strings.Compare(byProduct[x], byProduct[y]) })
	ids, rank = make([]string, len(order)), make([]uint32, len(order))
	for place, product := range order {
		ids[place], rank[product] = byProduct[product], uint32(place)
	}
	return ids, rank
}

// fold makes the key by which ids are compared. Upper case, because ids mostly are, and then it costs no allocation.
func fold(id string) string { return strings.ToUpper(id) }
