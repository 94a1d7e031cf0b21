package index

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/blevesearch/bleve/v2/index/scorch"
	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// The fields of a product.
const (
	nameField = iota
	// idField has the words of a product's id, as a rule one.
	idField
	// textField has the words of its description and category.
	textField
	fields
)

func fieldName(field int) string { return [fields]string{"name", "id", "text"}[field] }

// A part is one of the segments in which bleve keeps the products; a batch makes one.
type part struct {
	segment  segment.Segment
	ordinals []uint32 // by document number: bleve numbers the documents of a batch in no certain order
}

// readParts reads which document is which product.
func readParts(snapshot *scorch.IndexSnapshot) ([]part, error) {
	var parts []part
	for _, s := range snapshot.Segments() {
		p := part{s.Segment(), make([]uint32, s.Segment().Count())}
		for document := range p.ordinals {
			name, err := s.DocID(uint64(document))
			if err != nil {
				return nil, fmt.Errorf("name of document %d: %w", document, err)
			}
			ordinal, err := strconv.Atoi(string(name))
			if err != nil {
				return nil, fmt.Errorf("document %d is called %q", document, name)
			}
			p.ordinals[document] = uint32(ordinal)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// terms looks terms up, for one search at a time, in bleve's segments. A search asks for dozens of terms; bleve's own readers,
// which are made of the same parts, would start a goroutine for every list of terms and make a reader for every term, and
// that costs several times what looking them up does.
type terms struct {
	parts        []part
	dictionaries [][fields]dictionary // by part
	list         segment.PostingsList // these two are used again and again
	hits         segment.PostingsIterator
}

// dictionary is what bleve's in-memory segments can be asked. Nobody here needs the number of products that each term of a list
// has, which costs more than the term.
type dictionary interface {
	segment.TermDictionary
	AutomatonIteratorOmitCount(a segment.Automaton, startKeyInclusive, endKeyExclusive []byte) segment.DictionaryIterator
}

func newTerms(parts []part) (*terms, error) {
	t := &terms{parts: parts, dictionaries: make([][fields]dictionary, len(parts))}
	for i, p := range parts {
		for field := range fields {
			found, err := p.segment.Dictionary(fieldName(field))
			if err != nil {
				return nil, fmt.Errorf("read the words of field %s: %w", fieldName(field), err)
			}
			var ok bool
			if t.dictionaries[i][field], ok = found.(dictionary); !ok {
				return nil, fmt.Errorf("read the words of field %s: a %T cannot list them", fieldName(field), found)
			}
		}
	}
	return t, nil
}

// match is a product and what is wrong with it.
type match struct{ ordinal, wrong uint32 }

// with appends to found every product that has the term.
func (t *terms) with(found *[]match, field int, term string, wrong uint32) error {
	for i := range t.parts {
		if err := t.within(found, i, field, term, wrong); err != nil {
			return err
		}
	}
	return nil
}

func (t *terms) within(found *[]match, part, field int, term string, wrong uint32) error {
	list, err := t.dictionaries[part][field].PostingsList([]byte(term), nil, t.list)
	if err != nil || list.Count() == 0 {
		return err
	}
	iterator := list.Iterator(false, false, false, t.hits)
	t.list, t.hits = list, iterator
	hits, ok := iterator.(segment.OptimizablePostingsIterator)
	if !ok {
		return fmt.Errorf("a %T does not give its documents away", iterator)
	}
	ordinals, all := t.parts[part].ordinals, slices.Grow(*found, int(list.Count()))
	if document, only := hits.DocNum1Hit(); only {
		all = append(all, match{ordinals[document], wrong})
	} else {
		hits.ActualBitmap().Iterate(func(document uint32) bool {
			all = append(all, match{ordinals[document], wrong})
			return true
		})
	}
	*found = all
	return nil
}

// begun appends to found every product that has a longer term that begins like this.
func (t *terms) begun(found *[]match, field int, prefix string, wrong uint32) error {
	return t.like(found, field, startingWith(prefix), nil, func(term string) bool { return term != prefix }, wrong)
}

// span is the terms from start up to end, which is not one of them; nil is no bound.
type span struct{ start, end []byte }

func startingWith(prefix string) span {
	end := []byte(prefix)
	end[len(end)-1]++ // no overflow: terms are UTF-8, which has no byte of all ones
	return span{[]byte(prefix), end}
}

// like appends to found every product that has a wanted term of the span which the automaton, if there is one, accepts.
func (t *terms) like(found *[]match, field int, of span, accept segment.Automaton, wanted func(string) bool, wrong uint32) error {
	for i := range t.parts {
		list := t.dictionaries[i][field].AutomatonIteratorOmitCount(accept, of.start, of.end)
		for {
			entry, err := list.Next()
			if err != nil {
				return err
			}
			if entry == nil {
				break
			}
			if !wanted(entry.Term) {
				continue
			}
			if err := t.within(found, i, field, entry.Term, wrong); err != nil {
				return err
			}
		}
	}
	return nil
}
