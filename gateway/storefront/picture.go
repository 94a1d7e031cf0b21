package storefront

import (
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"slices"
	"strings"
	"unicode"
)

//go:embed pictures
var pictureFiles embed.FS

// picture is how a product is drawn: a motif in one of a few colours, both found from what the product is, so that it looks
// the same wherever and whenever it is shown.
type picture struct {
	Motif string
	Hue   int // 0 to hues-1; the stylesheet knows the colours
}

// pictures holds the motifs as SVG symbols and the words that lead to them.
type pictures struct {
	byMotif    map[string]template.HTML
	byWord     map[string]string
	byCategory map[string]string
	byColour   map[string]int
}

const (
	hues         = 8
	anyMotif     = "parcel" // for what nothing is known about
	symbolPrefix = "picture-"
)

func loadPictures() (pictures, error) {
	p := pictures{byMotif: map[string]template.HTML{}, byWord: motifWords(), byCategory: motifCategories(), byColour: colourWords()}
	entries, err := pictureFiles.ReadDir("pictures")
	if err != nil {
		return p, fmt.Errorf("list pictures: %w", err)
	}
	for _, e := range entries {
		content, err := pictureFiles.ReadFile("pictures/" + e.Name())
		if err != nil {
			return p, fmt.Errorf("read a picture: %w", err)
		}
		motif := strings.TrimSuffix(e.Name(), ".svg")
		symbol := `<symbol id="` + symbolPrefix + motif + `" viewBox="0 0 120 90">` + strings.TrimSpace(string(content)) + `</symbol>`
		p.byMotif[motif] = template.HTML(symbol) //nolint:gosec // the file is part of the program and holds nobody's input
	}
	for _, table := range []map[string]string{p.byWord, p.byCategory, {"": anyMotif}} {
		for word, motif := range table {
			if _, ok := p.byMotif[motif]; !ok {
				return p, fmt.Errorf("%q is to be drawn as %q, but there is no such picture", word, motif)
			}
		}
	}
	return p, nil
}

// of finds the picture of a product. The last word of a name says what the thing is (a milk jug is a jug), so words are
// asked from the end; a name that says nothing leaves it to the category.
func (p pictures) of(id, name, category string) picture {
	found := picture{Motif: anyMotif}
	if motif, ok := p.byCategory[strings.ToLower(category)]; ok {
		found.Motif = motif
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) })
	for _, word := range slices.Backward(words) {
		if motif, ok := p.byWord[word]; ok {
			found.Motif = motif
			break
		}
		if motif, ok := p.byWord[strings.TrimSuffix(word, "s")]; ok {
			found.Motif = motif
			break
		}
	}
	hash := fnv.New32a()
	hash.Write([]byte(strings.ToUpper(id))) // ids are unique without regard to case
	found.Hue = int(hash.Sum32() % hues)
	for _, word := range words {
		if hue, ok := p.byColour[word]; ok {
			found.Hue = hue
			break
		}
	}
	return found
}

// symbols are the motifs that the pictures are drawn from, each once.
func (p pictures) symbols(drawn []picture) []template.HTML {
	var out []template.HTML
	seen := map[string]bool{}
	for _, d := range drawn {
		if !seen[d.Motif] {
			seen[d.Motif] = true
			out = append(out, p.byMotif[d.Motif])
		}
	}
	return out
}

// motifCategories draws what has no telling name.
func motifCategories() map[string]string {
	return map[string]string{
		"kitchen": "bowl", "tableware": "mug", "lighting": "lamp", "candles": "candle", "garden": "plant", "stationery": "notebook",
		"toys": "blocks", "bags": "bag", "jewellery": "ring", "christmas": "bauble", "party": "bunting", "textiles": "cushion",
		"walls": "frame", "home": "house",
	}
}

// motifWords leads from the noun of a name, in the singular or as it stands, to a motif.
func motifWords() map[string]string {
	return expand(map[string]string{
		"apron":    "apron",
		"bag":      "bag tote shopper purse backpack handbag",
		"balloons": "balloon",
		"bauble":   "bauble ornament decoration",
		"bear":     "toy teddy bear doll",
		"bird":     "bird feeder birdhouse",
		"blocks":   "block domino dominoes puzzle skittle jigsaw",
		"bowl":     "bowl dish",
		"bunting":  "bunting garland",
		"cake":     "cake cutter",
		"can":      "can",
		"candle":   "candle candlestick holder diffuser votive",
		"card":     "card set envelope letter",
		"clock":    "clock",
		"cloth":    "towel tablecloth napkin throw blanket",
		"cushion":  "cushion pillow",
		"frame":    "frame sign mirror picture print canvas plaque",
		"gift":     "gift wrap cracker",
		"glass":    "tumbler glass goblet",
		"glove":    "glove mitten",
		"heart":    "heart",
		"jar":      "jar bottle canister flask",
		"kite":     "kite",
		"lamp":     "lamp lampshade light nightlight",
		"lantern":  "lantern",
		"lights":   "lights",
		"mug":      "mug cup saucer beaker",
		"necklace": "necklace bracelet bangle",
		"notebook": "notebook book journal calendar diary",
		"pencils":  "pencil pen crayon tape",
		"plant":    "pot plant planter trowel seed",
		"plate":    "plate stand tray cakestand platter doormat coaster",
		"ring":     "ring earring brooch",
		"stocking": "stocking sock",
		"teapot":   "teapot jug kettle",
		"tin":      "tin box drum",
		"tree":     "tree topper wreath",
		"umbrella": "umbrella parasol",
	})
}

// colourWords leads from colours, and what is known by its colour, to one of the hues.
func colourWords() map[string]int {
	colours := map[string]int{}
	for hue, words := range []string{
		"cream ivory oat oats oatmeal natural sand beige linen undyed white chalk buttermilk pearl plain paper clear zinc cotton silver",
		"terracotta orange paprika rust brick coral copper burnt fox sunrise",
		"red pink rose cherry cranberry strawberry poppy berries heart blood crimson",
		"purple lilac lavender plum violet mauve",
		"blue navy denim indigo sky tide harbour ocean sea midnight cornflower inky slate whale",
		"teal turquoise petrol aqua mint eucalyptus retrospot",
		"green sage moss fern olive leaf ivy pine meadow laurel willow forest herb bracken garden fig hedgehog",
		"yellow mustard honey amber gold marigold sunflower lemon",
	} {
		for word := range strings.FieldsSeq(words) {
			colours[word] = hue
		}
	}
	return colours
}

func expand(wordsByMotif map[string]string) map[string]string {
	motifs := map[string]string{}
	for motif, words := range wordsByMotif {
		for word := range strings.FieldsSeq(words) {
			motifs[word] = motif
		}
	}
	return motifs
}
