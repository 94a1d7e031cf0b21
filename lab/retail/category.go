package retail

import "strings"

// OtherCategory is where products go whose names say nothing more.
const OtherCategory = "Home"

// A shelf is a category with the words and pairs of words that put a product there.
type shelf struct {
	category string
	words    string
}

// shelves are asked in order, pairs before single words; the first that knows one of a name's words gets the product.
// Words are in the singular.
func shelves() []shelf {
	return []shelf{
		// What hangs on a wall comes before the words on it.
		{"Walls", `sign doorsign frame photoframe mirror clock "wall art" print canvas picture "number tile" "wood letter"
			"wooden letter" "building block" wallhanging plaque`},
		{"Christmas", `christmas xmas advent bauble reindeer santa stocking snowman nativity holly wreath snowflake pannetone
			panettone mistletoe rudolph noel jingle sleigh gingerbread "feather tree"`},
		{"Jewellery", `necklace necklac neckl bracelet earring brooch pendant bangle diamante bling "phone charm" "bag charm"
			"hair grip" "hair tie" "hair band" "hair clip" "hair comb" hairband hairclip boudicca jewellery ring murano`},
		{"Bags", `bag handbag purse wallet shopper tote rucksack backpack suitcase luggage passport umbrella satchel washbag
			"coin purse" "card holder"`},
		{"Candles", `candle "t light" "tea light" candlestick candleholder candlepot votive incense wick diffuser "oil burner"
			tealight scented scent`},
		{"Lighting", `light lamp lampshade lantern chandelier torch led nightlight sunjar`},
		{"Party", `party birthday bunting balloon garland confetti invite easter wedding valentine honeycomb "cocktail parasol"
			celebration doily doilies "cake topper" cordon paperchain hawaiian feather`},
		{"Stationery", `card wrap notebook pencil pen paper sticker journal envelope ribbon tape rubber eraser sketchbook
			calendar stamp tag ruler diary planner memo magnet chalkboard "scrap book" scrapbook postcard notelet stationery
			"letter rack" "address book" "photo album" "pocket book" tissue book album bookmark "book mark" sharpener writing`},
		{"Toys", `toy jigsaw puzzle doll domino dominoe skittle "snake ladder" "playing card" puppet teddy dinosaur feltcraft
			knitting marble "money bank" "money box" skipping "spinning top" yoyo colouring helicopter robot monster
			rattle "rocking horse" inflatable game ludo backgammon "paint set" craft tattoo nursery soldier drawing glider
			child children childrens kid baby "iron on" plaster`},
		{"Garden", `garden plant planter watering trowel birdhouse birdbox "bird feeder" "bird table" "bird bath" seed herb flowerpot
			parasol hammock picnic beach gnome windmill outdoor potting shed thermometer "deck chair" deckchair bulb "fly swat"
			"grow your"`},
		{"Kitchen", `kitchen cake baking bake cookie biscuit oven apron pan jar pantry scale spoon jelly mould bread
			measuring recipe "lunch box" "snack box" bottle whisk sieve colander spice butter cutter "tea towel" "washing up"
			canister cannister flask popcorn cupcake toast casserole ladle peeler bin "ice cream" egg`},
		{"Tableware", `mug cup saucer plate bowl teapot tea teacup glass tumbler coaster placemat napkin cutlery tray jug cakestand
			champagne wine beaker dish sugar goblet decanter coffee dinner breakfast teatime chopstick "place setting"
			"place mat" snack dessert`},
		{"Textiles", `cushion towel throw quilt blanket curtain rug doormat "hot water" flannel tablecloth "table cloth" slipper
			scarf "filler pad" glove mitten "hand warmer" patchwork eyemask sock bathmat`},
	}
}

// exceptions are pairs that would mislead the single words in them.
func exceptions() []shelf {
	return []shelf{
		{"Bags", `"lunch bag" "jumbo bag" "party handbag"`},
		{"Party", `"party bag" "cake candle" "party candle" "birthday candle" "paper plate" "paper cup" "paper napkin" "paper lantern"`},
		{"Stationery", `"gift bag" "wrapping paper" "gift wrap" "gift tag" "birthday card" "greeting card" "bottle bag"`},
		{"Kitchen", `"cake case" "tea towel" "egg pan" "cake tin" "egg timer" "tea cosy" "coffee tin" "sugar tin" "cookie jar" "jam jar" "oven glove"`},
		{"Tableware", `"egg cup" "napkin ring" "napkin charm" "cake stand" "cake plate" "candy dish" "cake fork"`},
		{"Textiles", `"hot water" "hand warmer" "cushion cover"`},
		{"Candles", `"citronella candle" "jar candle"`},
		{"Garden", `"magic garden" "water can" "garden parasol"`},
		{"Toys", `"playing card" "sewing kit" "knitting kit" "card game" "colouring pencil" "paper doll" "paper craft" "money bank"`},
		{"Christmas", `"christmas card"`},
		{OtherCategory, `"key ring" "peg bag" "laundry bag" "hot plate" "tea chest" "drawer knob" "book end" "mirror ball"
			"disco ball" "toilet roll" "soap dish" "coat rack" "bathroom scale" "trinket box" "trinket pot"`},
	}
}

// sorter finds the category of a name.
type sorter struct {
	rank       map[string]int // word or pair → place in the order of asking
	categories []string       // by rank
}

func newSorter() *sorter {
	s := &sorter{rank: make(map[string]int)}
	for _, shelf := range append(exceptions(), shelves()...) {
		for _, term := range terms(shelf.words) {
			if _, taken := s.rank[term]; !taken {
				s.rank[term] = len(s.categories)
			}
		}
		s.categories = append(s.categories, shelf.category)
	}
	return s
}

// terms cuts a list into words and "quoted pairs".
func terms(list string) []string {
	var all []string
	for i, part := range strings.Split(list, `"`) {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}

func (s *sorter) category(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && r != '\''
	})
	best := len(s.categories)
	for i, word := range words {
		words[i] = strings.TrimSuffix(word, "s")
		s.try(words[i], &best)
		s.try(word, &best)
		if i > 0 {
			s.try(words[i-1]+" "+words[i], &best)
		}
	}
	if best == len(s.categories) {
		return OtherCategory
	}
	return s.categories[best]
}

func (s *sorter) try(term string, best *int) {
	if rank, known := s.rank[term]; known && rank < *best {
		*best = rank
	}
}
