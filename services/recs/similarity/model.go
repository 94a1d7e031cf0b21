package similarity

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
)

// MaxNeighbours is how many neighbours are kept of each product, and the most recommendations a Model can give.
const MaxNeighbours = 50

// Model answers from memory. It never changes once made, so any number of goroutines may read it. It takes about 8 bytes
// a neighbour and 40 a product.
type Model struct {
	totalBaskets int
	index        map[string]uint32 // folded id → product; nil once the model is packed
	byID         []uint32          // the products in the order of their folded ids: a tenth of what the index takes
	ids          []string          // by product
	baskets      []uint32          // by product: the baskets it is in
	neighbours   []neighbour       // list after list, each with the strongest first
	lists        []span            // by product: its neighbours
	popular      []neighbour       // most baskets first; one more than MaxNeighbours, for the product asked about may be in it
}

// span is a part of a Model's neighbours: those from begin on and before end.
type span struct{ begin, end uint32 }

// neighbour is 8 bytes because there are 50 a product; the score has four decimals, which float32 carries exactly enough.
type neighbour struct {
	product uint32
	score   float32
}

// Product is what a Model knows of one product, in a form fit to be stored.
type Product struct {
	// ID is the product's id as the baskets spell it.
	ID string
	// Baskets is the number of baskets that hold it.
	Baskets int
	// Neighbours are the ids of the products bought with it, strongest first, and Scores their similarities, in 0–1 with four decimals.
	Neighbours []string
	Scores     []float32
}

// Size is how much goes into a model. Baskets counts; the rest is what room is made for beforehand, and may be wrong.
type Size struct{ Baskets, Products, Neighbours int }

func newModel(size Size) *Model {
	return &Model{
		totalBaskets: size.Baskets, index: make(map[string]uint32, size.Products), ids: make([]string, 0, size.Products),
		baskets: make([]uint32, 0, size.Products), lists: make([]span, 0, size.Products), neighbours: make([]neighbour, 0, size.Neighbours),
	}
}

// Assemble puts a model together again from its Products. The Product yielded may be reused by the sequence; its first
// error is returned as it is.
func Assemble(size Size, products iter.Seq2[Product, error]) (*Model, error) {
	m := newModel(size)
	for p, err := range products {
		if err != nil {
			return nil, err
		}
		product, begin := m.intern(p.ID), len(m.neighbours)
		m.baskets[product] = uint32(p.Baskets)
		for i, id := range p.Neighbours {
			m.neighbours = append(m.neighbours, neighbour{m.intern(id), p.Scores[i]})
		}
		m.lists[product] = m.listFrom(begin)
	}
	m.finish()
	return m, nil
}

// Products lists what the model knows, for storing. Each Product has its own slices, never nil ones.
func (m *Model) Products() iter.Seq[Product] {
	return func(yield func(Product) bool) {
		for i, id := range m.ids {
			list := m.of(uint32(i))
			p := Product{ID: id, Baskets: int(m.baskets[i]), Neighbours: make([]string, 0, len(list)), Scores: make([]float32, 0, len(list))}
			for _, n := range list {
				p.Neighbours, p.Scores = append(p.Neighbours, m.ids[n.product]), append(p.Scores, n.score)
			}
			if !yield(p) {
				return
			}
		}
	}
}

// Baskets is the number of baskets the model was made from.
func (m *Model) Baskets() int { return m.totalBaskets }

// Recommendable is the number of products that have neighbours.
func (m *Model) Recommendable() (n int) {
	for _, l := range m.lists {
		if l.end > l.begin {
			n++
		}
	}
	return n
}

// Recommendation is one product with how strongly it is recommended, in 0–1.
type Recommendation struct {
	ProductID string
	Score     float64
}

// Similar lists the products bought together with the one named, with their similarity, strongest first, at most limit
// and MaxNeighbours of them and never the product itself. None when the product is unknown or has no neighbours.
func (m *Model) Similar(productID string, limit int) []Recommendation {
	product, ok := m.find(productID)
	if !ok {
		return nil
	}
	return m.take(m.of(product), product, limit)
}

// Popular lists the products in most baskets, with their share of all baskets, most first, at most limit and
// MaxNeighbours of them, leaving out the product named, if it is one.
func (m *Model) Popular(exceptID string, limit int) []Recommendation {
	except, ok := m.find(exceptID)
	if !ok {
		except = math.MaxUint32
	}
	return m.take(m.popular, except, min(limit, MaxNeighbours))
}

// find returns the number of the product with the id.
func (m *Model) find(id string) (product uint32, ok bool) {
	i, ok := slices.BinarySearchFunc(m.byID, fold(id), func(p uint32, key string) int { return strings.Compare(fold(m.ids[p]), key) })
	if !ok {
		return 0, false
	}
	return m.byID[i], true
}

// of returns the product's neighbours.
func (m *Model) of(product uint32) []neighbour {
	l := m.lists[product]
	return m.neighbours[l.begin:l.end]
}

func (m *Model) take(list []neighbour, except uint32, limit int) []Recommendation {
	limit = min(limit, len(list))
	if limit <= 0 {
		return nil
	}
	taken := make([]Recommendation, 0, limit)
	for _, n := range list {
		if n.product == except {
			continue
		}
		taken = append(taken, Recommendation{m.ids[n.product], fourDecimals(float64(n.score))})
		if len(taken) == limit {
			break
		}
	}
	return taken
}

// intern returns the number of the product with the id, which it adds when need be.
func (m *Model) intern(id string) uint32 {
	key := fold(id)
	if product, ok := m.index[key]; ok {
		return product
	}
	product := uint32(len(m.ids))
	m.index[key] = product
	m.ids, m.baskets, m.lists = append(m.ids, id), append(m.baskets, 0), append(m.lists, span{})
	return product
}

func (m *Model) setNeighbours(product uint32, strongest []candidate) {
	begin := len(m.neighbours)
	for _, c := range strongest {
		m.neighbours = append(m.neighbours, neighbour{c.product, float32(fourDecimals(c.cosine))})
	}
	m.lists[product] = m.listFrom(begin)
}

// listFrom is where the neighbours from begin on stand.
func (m *Model) listFrom(begin int) span { return span{uint32(begin), uint32(len(m.neighbours))} }

// finish makes the model fit to be asked; it runs once, when all products are known.
func (m *Model) finish() {
	m.rankPopular()
	m.pack()
}

// pack copies what is kept into few pieces of the right size. The ids have come one by one among many that are not kept, and each would
// keep the page that it lies on.
func (m *Model) pack() {
	m.ids, m.baskets, m.lists, m.neighbours = exact(m.ids), exact(m.baskets), exact(m.lists), exact(m.neighbours)
	m.byID = make([]uint32, len(m.ids))
	all := strings.Join(m.ids, "")
	for i, id := range m.ids {
		m.byID[i] = uint32(i)
		m.ids[i], all = all[:len(id)], all[len(id):]
	}
	slices.SortFunc(m.byID, func(x, y uint32) int { return strings.Compare(fold(m.ids[x]), fold(m.ids[y])) })
	m.index = nil
}

func exact[T any](s []T) []T {
	if len(s) == cap(s) {
		return s
	}
	return slices.Clone(s)
}

// rankPopular fills the list of popular products.
func (m *Model) rankPopular() {
	order := make([]uint32, len(m.ids))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(m.baskets[y], m.baskets[x]), cmp.Compare(m.ids[x], m.ids[y]))
	})
	for _, product := range order[:min(len(order), MaxNeighbours+1)] {
		share := float64(m.baskets[product]) / float64(m.totalBaskets)
		m.popular = append(m.popular, neighbour{product, float32(fourDecimals(share))})
	}
}

// fourDecimals keeps float32 digits that mean nothing out of what people read.
func fourDecimals(x float64) float64 { return math.Round(x*1e4) / 1e4 }
