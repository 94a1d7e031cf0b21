package retail

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
)

func TestPresent_MakesNamesReadable(t *testing.T) {
	for in, want := range map[string]string{
		"WHITE HANGING HEART T-LIGHT HOLDER":  "White Hanging Heart T-Light Holder",
		"SET/5 RED RETROSPOT LID GLASS BOWLS": "Set/5 Red Retrospot Lid Glass Bowls",
		"PACK OF 72 RETROSPOT CAKE CASES":     "Pack of 72 Retrospot Cake Cases",
		"CHILDREN'S SPACEBOY MUG":             "Children's Spaceboy Mug",
		"BAG 125g SWIRLY MARBLES":             "Bag 125g Swirly Marbles",
		"3 TRADITIONAl BISCUIT CUTTERS SET":   "3 Traditional Biscuit Cutters Set",
		"BLUE TV TRAY TABLE":                  "Blue TV Tray Table",
		"KEY FOB , GARAGE DESIGN":             "Key Fob, Garage Design",
		"ELEPHANT, BIRTHDAY CARD,":            "Elephant, Birthday Card",
		"SMALL POP BOX,FUNKY MONKEY":          "Small Pop Box, Funky Monkey",
		"*USB Office Mirror Ball":             "USB Office Mirror Ball",
		"GOLD M.O.P. ORBIT NECKLACE":          "Gold M.O.P. Orbit Necklace",
		"RETRO \"TEA FOR ONE\"":               "Retro \"Tea for One\"",
		"Dr. Jam's Arouzer Stress Ball":       "Dr. Jam's Arouzer Stress Ball",
		"THE KING GIFT BAG 25x24x12cm":        "The King Gift Bag 25x24x12cm",
	} {
		if got := present(in); got != want {
			t.Errorf("present(%q): got %q, want %q", in, got, want)
		}
	}
}

func TestPresent_KeepsToTheContractsLength(t *testing.T) {
	if got := len([]rune(present(strings.Repeat("É", 1000)))); got != maxName {
		t.Errorf("length: got %d, want %d", got, maxName)
	}
}

func TestSorter_PutsProductsWherePeopleWouldLook(t *testing.T) {
	s := newSorter()
	for name, want := range map[string]string{
		"White Hanging Heart T-Light Holder": "Candles",
		"Jumbo Bag Red Retrospot":            "Bags",
		"Lunch Bag Spaceboy Design":          "Bags",
		"Regency Cakestand 3 Tier":           "Tableware",
		"Pack of 72 Retrospot Cake Cases":    "Kitchen",
		"Red Retrospot Oven Glove":           "Kitchen",
		"Rabbit Night Light":                 "Lighting",
		"Wooden Owls Light Garland":          "Lighting",
		"Paper Chain Kit 50's Christmas":     "Christmas",
		"Party Bunting":                      "Party",
		"Set/10 Pink Polkadot Party Candles": "Party",
		"Card Circus Parade":                 "Stationery",
		"Watering Can Blue Elephant":         "Garden",
		"Vintage Snakes & Ladders":           "Toys",
		"Scottie Dog Hot Water Bottle":       "Textiles",
		"Pink Crystal Skull Phone Charm":     "Jewellery",
		"Gin + Tonic Diet Metal Sign":        "Walls",
		"Letter \"K\" Bling Key Ring":        OtherCategory,
		"Assorted Colour Bird Ornament":      OtherCategory,
		"":                                   OtherCategory,
	} {
		if got := s.category(name); got != want {
			t.Errorf("category(%q): got %s, want %s", name, got, want)
		}
	}
}

// On lines that encoding/csv takes for one record, the fields are the same.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`536365,85123A,"WHITE ""HEART"", LARGE",6,2010-12-01,2.55,17850.0,UK`))
	f.Add([]byte(`"",,"a",b`))
	f.Add([]byte(`15" TRAY,x`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\r\n") {
			return
		}
		want, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err != nil {
			return
		}
		fields := make([]field, len(want))
		if err := split(bytes.Clone(line), fields); err != nil {
			// Blanks around a quoted field are wrapped in text for encoding/csv, and in nothing here.
			if bytes.ContainsAny(line, " \t") {
				return
			}
			t.Fatalf("split(%q): %v, want %q", line, err, want)
		}
		for i := range fields {
			if got, want := string(fields[i]), string(trim([]byte(want[i]))); got != want {
				t.Errorf("split(%q) field %d: got %q, want %q", line, i, got, want)
			}
		}
	})
}
