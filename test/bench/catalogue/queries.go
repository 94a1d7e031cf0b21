package catalogue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/watertight/lab/catalog"
	searchv1 "example.com/watertight/proto/search/v1"
)

// A kind is a way to ask.
type kind string

const (
	oneWord   kind = "one word"
	twoWords  kind = "two words"
	begun     kind = "begun"     // the last word is still being typed
	misspelt  kind = "misspelt"  // a letter is wrong
	filtered  kind = "filtered"  // one word within a category
	laterPage kind = "next page" // the second page for one word
	byID      kind = "id"
	noHit     kind = "no hit"
	listing   kind = "listing" // everything, or a category: nothing was typed
)

// mix is how often each kind comes in twenty queries.
func mix() []kind {
	return []kind{
		oneWord, oneWord, oneWord, oneWord, twoWords, twoWords, twoWords, twoWords, twoWords, begun, begun, begun, misspelt, misspelt,
		filtered, filtered, laterPage, byID, noHit, listing,
	}
}

// whole says whether a kind is for words that are in the catalog as they are: PostgreSQL's full text and bleve's match query find
// nothing for the other kinds, or would have to be asked in another way.
func (k kind) whole() bool {
	switch k {
	case oneWord, twoWords, filtered, laterPage:
		return true
	}
	return false
}

// A query is a request of a kind.
type query struct {
	kind
	*searchv1.SearchProductsRequest
}

// offset is how many products come before the page asked for.
func (q query) offset() int {
	if q.kind == laterPage {
		return pageSize
	}
	return 0
}

// queries returns n queries in random order, with what names products of the catalog. The second pages have no token yet.
func queries(c catalog.Catalog, n int) []query {
	random := rand.New(rand.NewPCG(seedHi, uint64(len(c.Products))))
	kinds := mix()
	asked := make([]query, n)
	for i := range asked {
		p := c.Products[random.IntN(len(c.Products))]
		asked[i] = query{kinds[i%len(kinds)], &searchv1.SearchProductsRequest{}}
		asked[i].fill(p, random)
	}
	random.Shuffle(n, func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	return asked
}

// fill asks for a product.
func (q query) fill(p catalog.Product, random *rand.Rand) {
	words := wordsOf(p.Name)
	at := random.IntN(len(words))
	q.Query = words[at]
	switch q.kind {
	case oneWord, laterPage:
	case twoWords:
		q.Query = twoOf(words, at)
	case begun:
		letters := []rune(twoOf(words, at))
		q.Query = string(letters[:max(2, len(letters)-1-random.IntN(4))])
	case misspelt:
		q.Query = slip(words, random)
	case filtered:
		q.Category = p.Category
	case byID:
		q.Query = p.ID
	case noHit:
		q.Query = "zz" + words[at] + "q"
	case listing:
		q.Query = ""
		if random.IntN(2) == 0 {
			q.Category = p.Category
		}
	}
}

// leastWord is how long a word is that somebody looks for.
const leastWord = 3

// wordsOf returns the words of a name that say something, or the whole name if none does.
func wordsOf(name string) []string {
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) })
	words = slices.DeleteFunc(words, func(word string) bool { return utf8.RuneCountInString(word) < leastWord })
	if len(words) == 0 {
		return []string{name}
	}
	return words
}

// twoOf returns the word there and the next, or the one before if it is the last.
func twoOf(words []string, at int) string {
	at = max(0, min(at, len(words)-2))
	return strings.Join(words[at:min(at+2, len(words))], " ")
}

// slip changes places of two letters of the longest word, or leaves one out.
func slip(words []string, random *rand.Rand) string {
	word := []rune(slices.MaxFunc(words, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
	if len(word) < leastWord {
		return string(word)
	}
	at := 1 + random.IntN(len(word)-2)
	if random.IntN(2) == 0 {
		return string(slices.Delete(word, at, at+1))
	}
	word[at], word[at+1] = word[at+1], word[at]
	return string(word)
}
