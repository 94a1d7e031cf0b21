package index

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	bleve "github.com/blevesearch/bleve_index_api"
)

// A key says where a product stands in a result, less is better: what the query finds wrong with it in the upper half,
// its ordinal in the lower. Keys are whole numbers and differ for each product, so every replica sorts them alike.
//
// The upper half, from its highest bit: 2 bits for the tier; 12 for the weight of the words that are missing; then 6 each
// for how many words are mistyped, how many are not in the name, and how many are only begun. Six bits hold maxWords, and
// twelve hold maxWords times the greatest weight.
type key uint64

const (
	begun     uint32 = 1
	elsewhere        = begun << 6
	mistyped         = elsewhere << 6
	missing          = mistyped << 6

	tierName uint32 = 1 << 30 // the query is the product's name
	tierRest uint32 = 2 << 30
)

func newKey(wrong, ordinal uint32) key { return key(wrong)<<32 | key(ordinal) }

func (k key) ordinal() uint32 { return uint32(k) }

// fewMatches is the size of a result that looks as if something were misspelt.
const fewMatches = 10

// forgiveness says which words may be mistyped.
type forgiveness int

const (
	forgiveNone    forgiveness = iota
	forgiveUnknown             // those that no product has
	forgiveAll
)

// matches finds the products for a query, in no order. Those that have all words come alone. When they are few, those
// that have a word one letter away from one that no product has join, below. When there are none at all, any word may be
// mistyped; and when that finds none either, the products with some of the words come instead. The product whose id was
// typed comes first in any case.
func (x *Index) matches(text string) ([]key, error) {
	words, typed := x.words.query(text)
	if len(words) == 0 {
		return x.named(text, nil), nil
	}
	t := x.scratch.Get().(*tallies) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	defer x.scratch.Put(t)
	for forgive, enough := range []int{forgiveNone: fewMatches, forgiveUnknown: 1, forgiveAll: 1} {
		if err := x.count(t, words, forgiveness(forgive)); err != nil {
			return nil, err
		}
		if keys := t.complete(x.nameSize, typed); len(keys) >= enough {
			return x.named(text, keys), nil
		}
	}
	if err := x.count(t, words, forgiveUnknown); err != nil {
		return nil, err
	}
	return x.named(text, t.partial()), nil
}

// named moves the product whose id is the whole text to the top of keys, or adds it there.
func (x *Index) named(text string, keys []key) []key {
	ordinal, ok := x.byKey[Key(strings.TrimSpace(text))]
	if !ok {
		return keys
	}
	for i, k := range keys {
		if k.ordinal() == ordinal {
			keys[i] = newKey(0, ordinal)
			return keys
		}
	}
	return append(keys, newKey(0, ordinal))
}

// tallies is what is known of each product while the words of a query are looked up one after the other.
type tallies struct {
	of    []tally  // by ordinal
	any   []uint32 // the ordinals that have any of the words
	word  []uint32 // the ordinals that have the word at hand
	total uint32   // the weight of all words
}

type tally struct {
	best  uint32 // 1 + what is wrong with the best match of the word at hand; 0 for no match
	wrong uint32 // the sum of that for the words before
	found uint32 // the weight of the words it has
}

func (t *tallies) reset() {
	for _, ordinal := range t.any {
		t.of[ordinal] = tally{}
	}
	for _, ordinal := range t.word {
		t.of[ordinal] = tally{}
	}
	t.any, t.word, t.total = t.any[:0], t.word[:0], 0
}

// add notes that a product has the word at hand; of several matches the best counts.
func (t *tallies) add(ordinal, wrong uint32) {
	best := &t.of[ordinal].best
	if *best == 0 {
		t.word = append(t.word, ordinal)
	}
	if *best == 0 || wrong+1 < *best {
		*best = wrong + 1
	}
}

// next ends the word at hand. A word weighs by how rare it is, in bits of information rounded up to at least one:
// log2(N/n), the measure that is known as inverse document frequency.
func (t *tallies) next() {
	weight := 1 + uint32(bits.Len(uint(len(t.of)/(len(t.word)+1))))
	t.total += weight
	for _, ordinal := range t.word {
		of := &t.of[ordinal]
		if of.found == 0 {
			t.any = append(t.any, ordinal)
		}
		of.wrong += of.best - 1
		of.found += weight
		of.best = 0
	}
	t.word = t.word[:0]
}

// complete returns the products that have all words. One that has them all in its name, whole, and nothing else there,
// is what the query names.
func (t *tallies) complete(nameSize []uint16, typed int) []key {
	var keys []key
	for _, ordinal := range t.any {
		of := t.of[ordinal]
		switch {
		case of.found < t.total:
		case of.wrong == 0 && int(nameSize[ordinal]) == typed:
			keys = append(keys, newKey(tierName, ordinal))
		default:
			keys = append(keys, newKey(tierRest|of.wrong, ordinal))
		}
	}
	return keys
}

// partial returns the products that have any of the words.
func (t *tallies) partial() []key {
	keys := make([]key, 0, len(t.any))
	for _, ordinal := range t.any {
		of := t.of[ordinal]
		keys = append(keys, newKey(tierRest|of.wrong+(t.total-of.found)*missing, ordinal))
	}
	return keys
}

// count looks the words up.
func (x *Index) count(t *tallies, words []word, forgive forgiveness) error {
	t.reset()
	for _, w := range words {
		if err := x.lookUp(t, w, forgive); err != nil {
			return fmt.Errorf("look up %q: %w", w.text, err)
		}
		t.next()
	}
	return nil
}

// minIDPrefix is how much of an id must be typed to find it: nearly every product has one of its own, and thousands begin
// with the same digit.
const minIDPrefix = 3

// lookUp adds the products that have the word: as it is or in another form, begun, mistyped. An id is as good as a name.
func (x *Index) lookUp(t *tallies, w word, forgive forgiveness) error {
	err := errors.Join(x.whole(t, nameField, w, 0), x.whole(t, idField, w, 0), x.whole(t, textField, w, elsewhere))
	known := len(t.word) > 0
	if w.prefix {
		err = errors.Join(err, x.begun(t, nameField, w, begun), x.begun(t, textField, w, begun+elsewhere))
	}
	if len(w.text) >= minIDPrefix {
		err = errors.Join(err, x.begun(t, idField, w, begun))
	}
	if w.typo && (forgive == forgiveAll || forgive == forgiveUnknown && !known) {
		err = errors.Join(err, x.mistyped(t, nameField, w, mistyped), x.mistyped(t, textField, w, mistyped+elsewhere))
	}
	return err
}

// whole looks for the stem alone: the products that have the word itself have its stem as well.
func (x *Index) whole(t *tallies, field string, w word, wrong uint32) error {
	return x.addTerm(t, field, stemMark+w.stem, wrong)
}

func (x *Index) begun(t *tallies, field string, w word, wrong uint32) error {
	longer, err := x.reader.FieldDictPrefix(field, []byte(w.text))
	if err != nil {
		return err
	}
	return x.addTerms(t, field, other{longer, w.text}, wrong)
}

// mistyped looks for the stem as well: "haerts" is a slip of "heart", though two letters away.
func (x *Index) mistyped(t *tallies, field string, w word, wrong uint32) error {
	similar, err := x.reader.FieldDictFuzzy(field, w.text, 1, "")
	if err != nil {
		return err
	}
	if err := x.addTerms(t, field, written{similar}, wrong); err != nil {
		return err
	}
	similar, err = x.reader.FieldDictFuzzy(field, stemMark+w.stem, 1, stemMark)
	if err != nil {
		return err
	}
	return x.addTerms(t, field, similar, wrong)
}

// other leaves one term, which was looked up already, out of a list of terms.
type other struct {
	bleve.FieldDict
	than string
}

func (d other) Next() (*bleve.DictEntry, error) {
	entry, err := d.FieldDict.Next()
	if err == nil && entry != nil && entry.Term == d.than {
		return d.FieldDict.Next()
	}
	return entry, err
}

// written leaves the stems out of a list of terms.
type written struct{ bleve.FieldDict }

func (d written) Next() (*bleve.DictEntry, error) {
	for {
		entry, err := d.FieldDict.Next()
		if err != nil || entry == nil || !strings.HasPrefix(entry.Term, stemMark) {
			return entry, err
		}
	}
}

func (x *Index) addTerms(t *tallies, field string, terms bleve.FieldDict, wrong uint32) (err error) {
	defer func() { err = errors.Join(err, terms.Close()) }()
	for {
		entry, err := terms.Next()
		if err != nil || entry == nil {
			return err
		}
		if err := x.addTerm(t, field, entry.Term, wrong); err != nil {
			return err
		}
	}
}

func (x *Index) addTerm(t *tallies, field, term string, wrong uint32) (err error) {
	products, err := x.reader.TermFieldReader(context.Background(), []byte(term), field, false, false, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, products.Close()) }()
	var hit bleve.TermFieldDoc
	for {
		next, err := products.Next(hit.Reset())
		if err != nil || next == nil {
			return err
		}
		t.add(x.ordinals[next.ID.Value()], wrong)
	}
}
