// Package index answers searches over one state of the catalog, from memory. An Index never changes after Build: a new
// state is a new Index, built from all products in one go, so that replicas with the same catalog give the same answers
// in the same order, whatever way they came to it. It knows no database and no network, and parses no query language.
//
// bleve holds the words: which there are, which begin or sound like what was typed, and which products have them. The
// ranking is ours (rank.go): bleve adds up the parts of a score, while people expect a rule: all words before some,
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

	searchv1 "example.com/watertight/proto/search/v1"
)

const (
	nameField = "name"
	// idField has the words of a product's id, as a rule one.
	idField = "id"
	// textField has the words of its description and category.
	textField = "text"
	// batchSize bounds what is held in memory twice while an index is built.
	batchSize = 20_000
)

// Index is one state of the catalog. Its methods may be called from any goroutine, but not after Close.
type Index struct {
	words    *analyzer
	queue    *bleve.AnalysisQueue
	terms    bleve.Index
	reader   reader
	products []*searchv1.Product // best first where a query does not tell them apart; the index here is the "ordinal"
	ordinals []uint32            // by bleve's document number
	byKey    map[string]uint32   // ordinal by Key
	byName   []uint32            // ordinals in the order of the whole list
	nameSize []uint16            // words in the name, by ordinal
	category []uint32            // index into categories, by ordinal
	// categories are the names, sorted.
	categories []string
	scratch    sync.Pool // of *tallies
}

// reader is what bleve's in-memory index can be asked.
type reader interface {
	bleve.IndexReader
	bleve.IndexReaderFuzzy
}

// Key is what makes a product id unique: ids that differ only in case are one.
func Key(id string) string { return strings.ToLower(id) }

// Build indexes products, whose ids must be unique by Key. It keeps the products and hands them out: they must not be
// changed afterwards. The caller closes the index.
func Build(products []*searchv1.Product) (*Index, error) {
	words, err := newAnalyzer()
	if err != nil {
		return nil, fmt.Errorf("set up text analysis: %w", err)
	}
	x := &Index{words: words, products: slices.Clone(products)}
	slices.SortFunc(x.products, byDemand)
	x.tabulate()
	x.queue = bleve.NewAnalysisQueue(2)
	// An empty path is bleve's word for "in memory": it writes and merges nothing.
	if x.terms, err = scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, x.queue); err != nil {
		x.queue.Close()
		return nil, fmt.Errorf("create index: %w", err)
	}
	if err := x.fill(); err != nil {
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
	x.byName = make([]uint32, n)
	x.nameSize = make([]uint16, n)
	x.category = make([]uint32, n)
	folded := make([]string, n)
	numbers := make(map[string]uint32)
	for i, p := range x.products {
		x.byKey[Key(p.GetId())] = uint32(i)
		x.byName[i] = uint32(i)
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
	slices.SortFunc(x.byName, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(folded[a], folded[b]), cmp.Compare(Key(x.products[a].GetId()), Key(x.products[b].GetId())))
	})
	x.scratch.New = func() any { return &tallies{of: make([]tally, n)} }
}

// fill hands the products' words to bleve and notes which document number each product got.
func (x *Index) fill() error {
	if err := x.terms.Open(); err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	for start := 0; start < len(x.products); start += batchSize {
		batch := bleve.NewBatch()
		for i := start; i < min(start+batchSize, len(x.products)); i++ {
			batch.Update(x.document(i))
		}
		if err := x.terms.Batch(batch); err != nil {
			return fmt.Errorf("index products: %w", err)
		}
	}
	opened, err := x.terms.Reader()
	if err != nil {
		return fmt.Errorf("read index: %w", err)
	}
	var ok bool
	if x.reader, ok = opened.(reader); !ok {
		return errors.Join(fmt.Errorf("read index: a %T does not find similar words", opened), opened.Close())
	}
	return x.number()
}

func (x *Index) document(ordinal int) bleve.Document {
	p := x.products[ordinal]
	field := func(name, text string) document.Field {
		return document.NewTextFieldCustom(name, nil, []byte(text), bleve.IndexField|bleve.SkipFreqNorm, x.words)
	}
	doc := document.NewDocument(strconv.Itoa(ordinal))
	doc.AddField(field(nameField, p.GetName()))
	doc.AddField(field(idField, p.GetId()))
	doc.AddField(field(textField, p.GetDescription()+"\n"+p.GetCategory()))
	return doc
}

// number reads which document is which product: bleve numbers the documents of a batch in no certain order.
func (x *Index) number() error {
	x.ordinals = make([]uint32, len(x.products))
	documents, err := x.reader.DocIDReaderAll()
	if err != nil {
		return fmt.Errorf("list documents: %w", err)
	}
	for {
		id, err := documents.Next()
		if err != nil {
			return errors.Join(fmt.Errorf("list documents: %w", err), documents.Close())
		}
		if id == nil {
			return documents.Close()
		}
		name, err := x.reader.ExternalID(id)
		if err != nil {
			return errors.Join(fmt.Errorf("name of a document: %w", err), documents.Close())
		}
		ordinal, err := strconv.Atoi(name)
		if err != nil || id.Value() >= uint64(len(x.ordinals)) {
			return errors.Join(fmt.Errorf("document %d is called %q", id.Value(), name), documents.Close())
		}
		x.ordinals[id.Value()] = uint32(ordinal)
	}
}

// Close frees what runs for the index.
func (x *Index) Close() error {
	var err error
	if x.reader != nil {
		err = x.reader.Close()
	}
	err = errors.Join(err, x.terms.Close())
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
