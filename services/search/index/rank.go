package index

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
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
func (x *Index) matches(t *tallies, text string) ([]key, error) {
	words, typed := x.words.query(text)
	if len(words) == 0 {
		return x.named(text, nil), nil
	}
	clues := t.clues(words)
	for forgive, enough := range []int{forgiveNone: fewMatches, forgiveUnknown: 1, forgiveAll: 1} {
		if err := x.count(t, clues, forgiveness(forgive)); err != nil {
			return nil, err
		}
		if keys := t.complete(x.nameSize, typed); len(keys) >= enough {
			return x.named(text, keys), nil
		}
	}
	if err := x.count(t, clues, forgiveUnknown); err != nil {
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
	*terms
	of    []tally  // by ordinal
	any   []uint32 // the ordinals that have any of the words
	word  []uint32 // the ordinals that have the word at hand
	total uint32   // the weight of all words
	asked []clue   // this and keys are kept for their memory
	keys  []key
}

type tally struct {
	best  uint32 // 1 + what is wrong with the best match of the word at hand; 0 for no match
	wrong uint32 // the sum of that for the words before
	found uint32 // the weight of the words it has
}

// tallies returns what a search needs, to be put back into x.scratch.
func (x *Index) tallies() (*tallies, error) {
	if t, ok := x.scratch.Get().(*tallies); ok {
		return t, nil
	}
	terms, err := newTerms(x.parts)
	if err != nil {
		return nil, err
	}
	return &tallies{terms: terms, of: make([]tally, len(x.products))}, nil
}

// clues returns the words, of which nothing is known yet.
func (t *tallies) clues(words []word) []clue {
	t.asked = slices.Grow(t.asked[:0], len(words))[:len(words)]
	for i, w := range words {
		t.asked[i] = clue{word: w, sure: t.asked[i].sure[:0], slips: t.asked[i].slips[:0]}
	}
	return t.asked
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

// add notes which products have the word at hand; of several matches the best counts.
func (t *tallies) add(found []match) {
	for _, m := range found {
		best := &t.of[m.ordinal].best
		if *best == 0 {
			t.word = append(t.word, m.ordinal)
		}
		if *best == 0 || m.wrong+1 < *best {
			*best = m.wrong + 1
		}
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

// complete returns the products that have all words. One that has them all in its name, whole, and nothing else there, is
// what the query names. The next call overwrites the result.
func (t *tallies) complete(nameSize []uint16, typed int) []key {
	t.keys = t.keys[:0]
	for _, ordinal := range t.any {
		of := t.of[ordinal]
		switch {
		case of.found < t.total:
		case of.wrong == 0 && int(nameSize[ordinal]) == typed:
			t.keys = append(t.keys, newKey(tierName, ordinal))
		default:
			t.keys = append(t.keys, newKey(tierRest|of.wrong, ordinal))
		}
	}
	return t.keys
}

// partial returns the products that have any of the words, in the same memory as complete.
func (t *tallies) partial() []key {
	t.keys = t.keys[:0]
	for _, ordinal := range t.any {
		of := t.of[ordinal]
		t.keys = append(t.keys, newKey(tierRest|of.wrong+(t.total-of.found)*missing, ordinal))
	}
	return t.keys
}

// clue is a word of a query and the products that have it. They are looked up once, however often they are counted.
type clue struct {
	word
	sure   []match // as it is or in another form, or begun
	known  bool    // some product has it whole
	slips  []match // mistyped
	looked struct{ sure, slips bool }
}

// count tallies the words.
func (x *Index) count(t *tallies, clues []clue, forgive forgiveness) error {
	t.reset()
	for i := range clues {
		c := &clues[i]
		if err := x.lookUp(t.terms, c, forgive); err != nil {
			return fmt.Errorf("look up %q: %w", c.text, err)
		}
		t.add(c.sure)
		if c.forgiven(forgive) {
			t.add(c.slips)
		}
		t.next()
	}
	return nil
}

// forgiven says whether the word may be mistyped.
func (c *clue) forgiven(forgive forgiveness) bool {
	return c.typo && (forgive == forgiveAll || forgive == forgiveUnknown && !c.known)
}

// lookUp finds the products that have the word, unless it has done so before.
func (x *Index) lookUp(t *terms, c *clue, forgive forgiveness) error {
	if !c.looked.sure {
		c.looked.sure = true
		if err := c.lookUpSure(t); err != nil {
			return err
		}
	}
	if c.looked.slips || !c.forgiven(forgive) {
		return nil
	}
	c.looked.slips = true
	return x.lookUpSlips(t, c)
}

// minIDPrefix is how much of an id must be typed to find it: nearly every product has one of its own, and thousands begin
// with the same digit.
const minIDPrefix = 3

// lookUpSure looks for the stem, which the products that have the word itself have as well, and for longer words. An id is
// as good as a name.
func (c *clue) lookUpSure(t *terms) error {
	stem := stemMark + c.stem
	err := errors.Join(t.with(&c.sure, nameField, stem, 0), t.with(&c.sure, idField, stem, 0), t.with(&c.sure, textField, stem, elsewhere))
	c.known = len(c.sure) > 0
	if c.prefix {
		err = errors.Join(err, t.begun(&c.sure, nameField, c.text, begun), t.begun(&c.sure, textField, c.text, begun+elsewhere))
	}
	if len(c.text) >= minIDPrefix {
		err = errors.Join(err, t.begun(&c.sure, idField, c.text, begun))
	}
	return err
}

// lookUpSlips looks for words one letter away, and for stems: "haerts" is a slip of "heart", though two letters away.
func (x *Index) lookUpSlips(t *terms, c *clue) error {
	word, err := x.slips.BuildDfa(c.text, 1)
	if err != nil {
		return err
	}
	stem, err := x.slips.BuildDfa(stemMark+c.stem, 1)
	if err != nil {
		return err
	}
	written := func(term string) bool { return !strings.HasPrefix(term, stemMark) }
	all := func(string) bool { return true }
	look := func(field int, wrong uint32) error {
		return errors.Join(t.like(&c.slips, field, span{}, word, written, wrong),
			t.like(&c.slips, field, startingWith(stemMark), stem, all, wrong))
	}
	return errors.Join(look(nameField, mistyped), look(textField, mistyped+elsewhere))
}
