package catalogue

import (
	"context"
	"fmt"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	blevequery "github.com/blevesearch/bleve/v2/search/query"

	"example.com/watertight/lab/catalog"
)

// bleveIndex is bleve as its guide shows it, in memory, with no more kept than these queries need. The search service uses the
// same kind of index and asks it in another way.
type bleveIndex struct{ bleve.Index }

// openBleve indexes the products.
func openBleve(products []catalog.Product) (*bleveIndex, error) {
	document := bleve.NewDocumentStaticMapping()
	for name, analyzer := range map[string]string{"words": en.AnalyzerName, "category": keyword.Name} {
		field := bleve.NewTextFieldMapping()
		field.Analyzer, field.Store, field.IncludeTermVectors, field.IncludeInAll, field.DocValues = analyzer, false, false, false, false
		document.AddFieldMappingsAt(name, field)
	}
	mapping := bleve.NewIndexMapping()
	mapping.DefaultMapping = document
	index, err := bleve.NewUsing("", mapping, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, err
	}
	all := index.NewBatch()
	for _, p := range products {
		err := all.Index(p.ID, map[string]string{
			"words": p.Name + " " + p.ID + " " + p.Description + " " + p.Category, "category": p.Category,
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ID, err)
		}
	}
	if err := index.Batch(all); err != nil {
		return nil, err
	}
	return &bleveIndex{index}, nil
}

// search returns how many products the query's page shows.
func (b bleveIndex) search(ctx context.Context, q query) (int, error) {
	words := bleve.NewMatchQuery(q.GetQuery())
	words.SetField("words")
	words.SetOperator(blevequery.MatchQueryOperatorAnd)
	wanted := blevequery.Query(words)
	if q.GetCategory() != "" {
		category := bleve.NewTermQuery(q.GetCategory())
		category.SetField("category")
		wanted = bleve.NewConjunctionQuery(words, category)
	}
	page, err := b.SearchInContext(ctx, bleve.NewSearchRequestOptions(wanted, pageSize, q.offset(), false))
	if err != nil {
		return 0, err
	}
	return len(page.Hits), nil
}
