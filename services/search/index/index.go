// Package index answers searches over one state of the catalog, from memory. An Index never changes after Build: a new
// state is a new Index, built from all products in one go, so that replicas with the same catalog give the same answers
// in the same order, whatever way they came to it. It knows no database and no network, and parses no query language.
//
// bleve holds the words: which there are, which begin or sound like what was typed, and which products have them; terms.go
// looks them up. The ranking is ours (rank.go): bleve adds up the parts of a score, while people expect a rule: all words before some,
// right before mistyped, in the name before in the description, whole before begun.
package index

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	bleve "github.com/blevesearch/bleve_index_api"
	"github.com/blevesearch/vellum/levenshtein"

	searchv1 "example.com/watertight/proto/search/v1"
)

// batchSize bounds what is held in memory twice while an index is built.
const batchSize = 20_000

// Index is one state of the catalog. Its methods may be called from any goroutine, but not after Close.
type Index struct {
	words    *analyzer
	queue    *bleve.AnalysisQueue
	store    bleve.Index
	reader   bleve.IndexReader // holds the parts
	parts    []part
	slips    *levenshtein.LevenshteinAutomatonBuilder
	products []*searchv1.Product // best first where a query does not tell them apart; the index here is the "ordinal"
	byKey    map[string]uint32   // ordinal by Key
	list     []key               // all products in the order of the whole list
	nameSize []uint16            // words in the name, by ordinal
	category []uint32            // index into categories, by ordinal
	// categories are the names, sorted.
	categories []string
	scratch    sync.Pool // of *tallies
}

// Key is what makes a product id unique: ids that differ only in case are one.
func Key(id string) string { return strings.ToLower(id) }

// Build indexes products, whose ids must be unique by Key. It keeps the products and hands them out: they must not be
// changed afterwards. The caller closes the index.
func Build(products []*searchv1.Product) (*Index, error) { return build(products, batchSize) }

func build(products []*searchv1.Product, batch int) (*Index, error) {
	words, err := newAnalyzer()
	if err != nil {
		return nil, fmt.Errorf("set up text analysis: %w", err)
	}
	slips, err := levenshtein.NewLevenshteinAutomatonBuilder(1, true)
	if err != nil {
		return nil, fmt.Errorf("set up the search for mistyped words: %w", err)
	}
	x := &Index{words: words, slips: slips, products: slices.Clone(products)}
	slices.SortFunc(x.products, byDemand)
	x.tabulate()
	x.queue = bleve.NewAnalysisQueue(2)
	// An empty path is bleve's word for "in memory": it writes and merges nothing.
	if x.store, err = scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, x.queue); err != nil {
		x.queue.Close()
		return nil, fmt.Errorf("create index: %w", err)
	}
	if err := x.fill(batch); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// byDemand orders products that match a query equally well: what is asked for most, then the shorter name, then the id.
func byDemand(a, b *searchv1.Product) int {
	return cmp.Or(
		cmp.Compare(b.GetPopularity(), a.GetPopularity()),
		cmp.Compare(utf8.RuneCountInString(a.GetName()), utf8.RuneCountInString(b.GetName())),
		cmp.Compare(Key(a.GetId()), Key(b.GetId())),
	)
}

// tabulate fills the tables that are looked up by ordinal.
func (x *Index) tabulate() {
	n := len(x.products)
	x.byKey = make(map[string]uint32, n)
	byName := make([]uint32, n)
	x.nameSize = make([]uint16, n)
	x.category = make([]uint32, n)
	folded := make([]string, n)
	numbers := make(map[string]uint32)
	for i, p := range x.products {
		x.byKey[Key(p.GetId())] = uint32(i)
		byName[i] = uint32(i)
		x.nameSize[i] = uint16(len(x.words.words(p.GetName())))
		folded[i] = strings.ToLower(p.GetName())
		numbers[p.GetCategory()] = 0
	}
	for name := range numbers {
		x.categories = append(x.categories, name)
	}
	slices.Sort(x.categories)
	for i, name := range x.categories {
		numbers[name] = uint32(i)
	}
	for i, p := range x.products {
		x.category[i] = numbers[p.GetCategory()]
	}
	slices.SortFunc(byName, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(folded[a], folded[b]), cmp.Compare(Key(x.products[a].GetId()), Key(x.products[b].GetId())))
	})
	x.list = make([]key, n)
	for i, ordinal := range byName {
		x.list[i] = newKey(uint32(i), ordinal)
	}
}

// fill hands the products' words to bleve.
func (x *Index) fill(size int) error {
	if err := x.store.Open(); err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	for start := 0; start < len(x.products); start += size {
		batch := bleve.NewBatch()
		for i := start; i < min(start+size, len(x.products)); i++ {
			batch.Update(x.document(i))
		}
		if err := x.store.Batch(batch); err != nil {
			return fmt.Errorf("index products: %w", err)
		}
	}
	var err error
	if x.reader, err = x.store.Reader(); err != nil {
		return fmt.Errorf("read index: %w", err)
	}
	snapshot, ok := x.reader.(*scorch.IndexSnapshot)
	if !ok {
		return fmt.Errorf("read index: a %T has no segments", x.reader)
	}
	x.parts, err = readParts(snapshot)
	return err
}

func (x *Index) document(ordinal int) bleve.Document {
	p := x.products[ordinal]
	field := func(field int, text string) document.Field {
		return document.NewTextFieldCustom(fieldName(field), nil, []byte(text), bleve.IndexField|bleve.SkipFreqNorm, x.words)
	}
	doc := document.NewDocument(strconv.Itoa(ordinal))
	doc.AddField(field(nameField, p.GetName()))
	doc.AddField(field(idField, p.GetId()))
	doc.AddField(field(textField, p.GetDescription()+"\n"+p.GetCategory()))
	return doc
}

// Close frees what runs for the index.
func (x *Index) Close() error {
	var err error
	if x.reader != nil {
		err = x.reader.Close()
	}
	err = errors.Join(err, x.store.Close())
	x.queue.Close()
	return err
}

// Size is how many products there are.
func (x *Index) Size() int { return len(x.products) }

// Get returns the product with the id, in any case, or nil when there is none.
func (x *Index) Get(id string) *searchv1.Product {
	ordinal, ok := x.byKey[Key(id)]
	if !ok {
		return nil
	}
	return x.products[ordinal]
}
