package index

import (
	"strings"
	"unicode"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/char/asciifolding"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/analysis/token/lowercase"
	unicodewords "github.com/blevesearch/bleve/v2/analysis/tokenizer/unicode"
)

// stemMark starts the terms that are word stems. No word contains it, so that stems never answer for words: the word
// begun and the word mistyped are looked for among what was written, and "hearts" finds "heart" by the stem they share.
const stemMark = "~"

// analyzer turns text into words. It is used for products and for queries alike, as plain values: no registry, and no
// query syntax that a person could type by accident.
type analyzer struct {
	fold      analysis.CharFilter
	tokenizer analysis.Tokenizer
	filters   []analysis.TokenFilter
	stemmer   analysis.TokenFilter
	stopWords analysis.TokenMap
}

func newAnalyzer() (*analyzer, error) {
	stopWords, err := en.TokenMapConstructor(nil, nil)
	if err != nil {
		return nil, err
	}
	return &analyzer{
		fold:      asciifolding.New(),
		tokenizer: unicodewords.NewUnicodeTokenizer(),
		filters:   []analysis.TokenFilter{lowercase.NewLowerCaseFilter(), en.NewPossessiveFilter()},
		stemmer:   en.NewEnglishStemmerFilter(),
		stopWords: stopWords,
	}, nil
}

// words returns the words of text in order: split by the rules of Unicode, lower case, without accents and without 's.
func (a *analyzer) words(text string) []string {
	tokens := a.tokenizer.Tokenize(a.fold.Filter([]byte(text)))
	for _, f := range a.filters {
		tokens = f.Filter(tokens)
	}
	words := make([]string, 0, len(tokens))
	for _, t := range tokens {
		words = append(words, split(string(t.Term))...)
	}
	return words
}

// split takes apart what Unicode holds together for languages that are not spoken here: "name:heart", "heart.lantern",
// "heart_lantern". Numbers keep their points.
func split(token string) []string {
	inside := "'"
	if strings.ContainsFunc(token, unicode.IsDigit) {
		inside = "'.,"
	}
	return strings.FieldsFunc(token, func(r rune) bool {
		return !unicode.In(r, unicode.Letter, unicode.Mark, unicode.Digit) && !strings.ContainsRune(inside, r)
	})
}

// stem returns what a word's forms have in common. Words with digits have no forms.
func (a *analyzer) stem(word string) string {
	if strings.ContainsFunc(word, unicode.IsDigit) {
		return word
	}
	return string(a.stemmer.Filter(analysis.TokenStream{{Term: []byte(word)}})[0].Term)
}

// Analyze makes the terms of a field: each word, and beside it its stem.
func (a *analyzer) Analyze(text []byte) analysis.TokenStream {
	words := a.words(string(text))
	stream := make(analysis.TokenStream, 0, 2*len(words))
	for i, w := range words {
		stream = append(stream,
			&analysis.Token{Term: []byte(w), Position: i + 1},
			&analysis.Token{Term: []byte(stemMark + a.stem(w)), Position: i + 1})
	}
	return stream
}

// maxWords is how many different words of a query count. It is more than a name of the longest query's length has; a
// text of single letters must not cost more than a search.
const maxWords = 32

// A typo is forgiven in words of minTypo letters up to maxTypo bytes: shorter ones are one letter away from too many others,
// and the automaton that finds what is similar grows with the word.
const (
	minTypo = 4
	maxTypo = 64
)

// A word is one word of a query and how it may be matched.
type word struct {
	text   string
	stem   string
	prefix bool // also the beginning of a longer word
	typo   bool // also a word one letter away
}

// query splits what a person typed. Words that carry no meaning ("the", "of") are left out while others remain. typed is
// how many words there were, all told.
func (a *analyzer) query(text string) (words []word, typed int) {
	all := a.words(text)
	kept := make([]string, 0, len(all))
	for _, w := range all {
		if !a.stopWords[w] {
			kept = append(kept, w)
		}
	}
	if len(kept) == 0 {
		kept = all
	}
	seen := make(map[string]bool, len(kept))
	for i, w := range kept {
		if seen[w] || len(words) == maxWords {
			continue
		}
		seen[w] = true
		letters := len([]rune(w))
		words = append(words, word{
			text: w,
			stem: a.stem(w),
			// A single letter is the beginning of everything: it says something only as the word being typed.
			prefix: letters > 1 || i == len(kept)-1,
			// A wrong digit is another number, not a slip.
			typo: letters >= minTypo && len(w) <= maxTypo && !strings.ContainsFunc(w, unicode.IsDigit),
		})
	}
	return words, len(all)
}
