package similarity

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
)

// Settings bound what counts as evidence.
type Settings struct {
	// MinSupport is the least number of baskets that must hold both products before one is recommended with the other.
	MinSupport int
	// MaxBasket is the most products a basket may hold and still say something about pairs; larger ones count for
	// popularity only. It bounds the work to MaxBasket steps per line.
	MaxBasket int
}

// Compute works out the model of the baskets. The similarity of two products is the cosine of the sets of baskets they
// are in, |A∩B| / √(|A|·|B|) (Salton and McGill 1983; for items: Sarwar et al. 2001), over baskets of at most MaxBasket.
// The same baskets in any order give the same model. It needs memory in proportion to the lines, never to the pairs,
// because it counts one product's row of the pair matrix at a time. The error is ctx's.
func Compute(ctx context.Context, baskets *Baskets, settings Settings) (*Model, error) {
	ids, rank := baskets.ranked()
	small := newIncidence(baskets, rank, settings.MaxBasket)
	popularity := make([]uint32, len(ids))
	for _, product := range baskets.items {
		popularity[rank[product]]++
	}

	m := newModel(Size{Baskets: baskets.Len(), Products: len(ids)})
	for i, id := range ids {
		m.intern(id)
		m.baskets[i] = popularity[i]
	}
	row := rowCounter{incidence: small, together: make([]uint32, len(ids)), minSupport: uint32(max(settings.MinSupport, 1))}
	for i := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.setNeighbours(uint32(i), row.strongest(uint32(i)))
		// This is seconds of pure computing beside a server that answers in microseconds; on one core nobody else would
		// run for a scheduler's time slice of 10 ms.
		runtime.Gosched()
	}
	m.finish()
	return m, nil
}

// incidence is the products-by-baskets matrix, readable by row and by column.
type incidence struct {
	products  []uint32 // basket after basket
	basketEnd []uint32
	baskets   []uint32 // product after product
	endOf     []uint32 // by product: where its baskets end
}

// newIncidence leaves out baskets of more than maxBasket products. rank renumbers the products.
func newIncidence(b *Baskets, rank []uint32, maxBasket int) incidence {
	in := incidence{endOf: make([]uint32, len(rank))}
	start := uint32(0)
	for _, end := range b.ends {
		if items := b.items[start:end]; len(items) <= maxBasket {
			for _, product := range items {
				in.products = append(in.products, rank[product])
				in.endOf[rank[product]]++
			}
			in.basketEnd = append(in.basketEnd, uint32(len(in.products)))
		}
		start = end
	}
	total := uint32(0)
	for i, n := range in.endOf { // from sizes to starts; filling in moves each start to its end
		in.endOf[i] = total
		total += n
	}
	in.baskets = make([]uint32, len(in.products))
	for basket := range in.basketEnd {
		for _, product := range in.basket(uint32(basket)) {
			in.baskets[in.endOf[product]] = uint32(basket)
			in.endOf[product]++
		}
	}
	return in
}

func (in incidence) basket(i uint32) []uint32 {
	return in.products[before(in.basketEnd, i):in.basketEnd[i]]
}
func (in incidence) basketsOf(i uint32) []uint32 { return in.baskets[before(in.endOf, i):in.endOf[i]] }
func (in incidence) support(i uint32) float64    { return float64(in.endOf[i] - before(in.endOf, i)) }

// before is the end of what comes before i.
func before(ends []uint32, i uint32) uint32 {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

// rowCounter finds one product's neighbours after another's and keeps its scratch space between them.
type rowCounter struct {
	incidence
	minSupport uint32
	together   []uint32 // by product: baskets shared with the product in hand; all zero between calls
	touched    []uint32
	found      []candidate
}

type candidate struct {
	product uint32
	cosine  float64
}

// strongest returns the product's neighbours, at most MaxNeighbours, strongest first and equals in the order of ids. The
// slice is overwritten by the next call.
func (r *rowCounter) strongest(product uint32) []candidate {
	r.touched, r.found = r.touched[:0], r.found[:0]
	for _, basket := range r.basketsOf(product) {
		for _, other := range r.basket(basket) {
			if r.together[other] == 0 {
				r.touched = append(r.touched, other)
			}
			r.together[other]++
		}
	}
	for _, other := range r.touched {
		shared := r.together[other]
		r.together[other] = 0
		if other == product || shared < r.minSupport {
			continue
		}
		r.found = append(r.found, candidate{other, float64(shared) / math.Sqrt(r.support(product)*r.support(other))})
	}
	slices.SortFunc(r.found, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(y.cosine, x.cosine), cmp.Compare(x.product, y.product))
	})
	return r.found[:min(len(r.found), MaxNeighbours)]
}
