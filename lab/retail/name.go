package retail

import (
	"slices"
	"strings"
	"unicode"
)

// A description is what one text in the Description column is good for.
type description struct {
	kind descriptionKind
	name string // as the shop shows it; set for the two kinds of name
}

type descriptionKind int

const (
	properName descriptionKind = iota
	poorName                   // all lower case: looks like a note, and is the name only if there is no better one
	blankDescription
	nonProduct
	stockNote
)

func describe(f field) description {
	s := tidy(text(f))
	switch {
	case s == "":
		return description{kind: blankDescription}
	case isNonProductName(s):
		return description{kind: nonProduct}
	case isStockNote(s):
		return description{kind: stockNote}
	case !strings.ContainsFunc(s, unicode.IsUpper):
		return description{poorName, present(s)}
	}
	return description{properName, present(s)}
}

// tidy makes one line of a text: control characters and runs of blanks become one blank.
func tidy(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	}), " ")
}

// isNonProductCode knows the codes that are used for things other than products: postage (POST, DOT, C2, C3), discount,
// manual entries, samples, fees, adjustments, tests and vouchers. An edition of the data has been checked for each.
func isNonProductCode(code string) bool {
	switch code {
	case "POST", "DOT", "C2", "C3", "D", "M", "S", "B", "PADS", "CRUK", "AMAZONFEE", "BANK CHARGES",
		"ADJUST", "ADJUST2", "SP1002", "GIFT":
		return true
	}
	return strings.HasPrefix(code, "GIFT_") || strings.HasPrefix(code, "TEST0")
}

// isNonProductName finds what hides behind an ordinary code (23444 is Next Day Carriage). Whole texts only where a real
// product could hold the word.
func isNonProductName(s string) bool {
	s = strings.ToLower(s)
	switch s {
	case "postage", "dotcom postage", "carriage", "next day carriage", "discount", "manual", "samples", "show samples",
		"bank charges", "amazon fee", "packing charge", "adjustment", "high resolution image":
		return true
	}
	for _, part := range []string{"gift voucher", "bad debt", "cruk commission", "adjustment by"} {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// isStockNote finds remarks of the warehouse. A single word is one in any case; a longer text only when it is written
// like a sentence, because "LOST IN SPACE PUZZLE" and "Wet Weather Hat" may well be for sale.
func isStockNote(s string) bool {
	if !strings.ContainsFunc(s, unicode.IsLetter) {
		return true
	}
	lower := strings.ToLower(s)
	word := strings.TrimFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) })
	switch word {
	case "check", "damaged", "damages", "damage", "dagamed", "faulty", "found", "lost", "missing", "broken", "breakages",
		"crushed", "cracked", "smashed", "mouldy", "wet", "display", "showroom", "counted", "test", "returned", "adjust",
		"adjustment", "amazon", "dotcom", "ebay", "mailout", "incorrect", "barcode":
		return true
	}
	if !isSentence(s) {
		return false
	}
	for _, part := range []string{"damage", "thrown away", "throw away", "given away", "unsaleable", "mouldy", "rusty",
		"crushed", "smudges", "missing", "lost??", "found", "adjust", "counted", "stock", "barcode", "wrong", "incorrect",
		"credit", "sold as", "sold in", "dotcom", "amazon", "ebay", "mailout", "showroom", "put aside", "mix up", "mixed up",
		"can't find", "marked", "coded", "wet pallet", "wet boxes", "wet/", "oops", "sale error", "online retail orders"} {
		if strings.Contains(lower, part) {
			return true
		}
	}
	return false
}

// isSentence says whether a text is written as notes are: no word after the first starts with a capital.
func isSentence(s string) bool {
	words := strings.Fields(s)
	return len(words) > 0 && !slices.ContainsFunc(words[1:], func(word string) bool {
		return unicode.IsUpper([]rune(word)[0])
	}) && strings.ContainsFunc(s, unicode.IsLower)
}

// present makes a name that is pleasant to read of one in capitals: WHITE HANGING HEART T-LIGHT HOLDER becomes White
// Hanging Heart T-Light Holder. Words that already have lower-case letters stay as they are, punctuation is set straight.
func present(s string) string {
	s = strings.Trim(s, " *,")
	s = strings.NewReplacer(" ,", ",", ",", ", ").Replace(s)
	words := strings.Fields(s)
	for i, word := range words {
		words[i] = presentWord(word, i == 0)
	}
	name := []rune(strings.Join(words, " "))
	return strings.TrimSpace(string(name[:min(len(name), maxName)]))
}

func presentWord(word string, first bool) string {
	switch {
	case mostlyLower(word) || isAbbreviation(word):
		return word
	case !first && isSmallWord(word):
		return strings.ToLower(word)
	}
	var b strings.Builder
	start := true
	for _, r := range word {
		if start {
			b.WriteRune(r)
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
		// An apostrophe and a digit keep the word going: Children's, 30cm.
		start = !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\''
	}
	return b.String()
}

func mostlyLower(word string) bool {
	balance := 0
	for _, r := range word {
		switch {
		case unicode.IsLower(r):
			balance++
		case unicode.IsUpper(r):
			balance--
		}
	}
	return balance > 0
}

func isAbbreviation(word string) bool {
	switch strings.Trim(word, `.,()"'*+&!?-`) {
	case "LED", "TV", "USB", "UK", "USA", "US", "VIP", "CD", "DVD", "BBQ", "DIY", "3D", "ABC", "A4", "A5", "A6", "II", "III":
		return true
	}
	return false
}

func isSmallWord(word string) bool {
	switch word {
	case "A", "AN", "AND", "AT", "BY", "DE", "DU", "FOR", "FROM", "IN", "OF", "ON", "OR", "THE", "TO", "WITH":
		return true
	}
	return false
}
