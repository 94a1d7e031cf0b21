package storefront

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMoney_FollowsTheCurrency(t *testing.T) {
	for _, tc := range []struct {
		currency string
		minor    int64
		want     string
	}{
		{"GBP", 0, "£0.00"}, {"GBP", 5, "£0.05"}, {"GBP", 255, "£2.55"}, {"GBP", 123456789, "£1,234,567.89"}, {"EUR", 100000, "€1,000.00"},
		{"USD", 99999, "$999.99"}, {"JPY", 1234, "1,234\u00a0JPY"}, {"KWD", 1, "0.001\u00a0KWD"}, {"XYZ", 1, "0.01\u00a0XYZ"}, {"", -5, "0.00\u00a0"},
		{"GBP", 9223372036854775807, "£92,233,720,368,547,758.07"},
	} {
		if got := money(tc.currency, tc.minor); got != tc.want {
			t.Errorf("money(%q, %d): got %q, want %q", tc.currency, tc.minor, got, tc.want)
		}
	}
}

func TestPictures_SayWhatAThingIsAndNeverChange(t *testing.T) {
	p, err := loadPictures()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, category, motif string }{
		{"Tide Blue Stoneware Mug", "Tableware", "mug"}, {"Buttermilk Milk Jug", "Tableware", "teapot"}, {"Set of 4 Ocean Tumblers", "Tableware", "glass"},
		{"Warm Amber Festoon Lights", "Lighting", "lights"}, {"Moon Night Light", "Lighting", "lamp"}, {"WHITE HANGING HEART T-LIGHT HOLDER", "Candles", "candle"},
		{"Something Odd", "Garden", "plant"}, {"Something Odd", "Nobody Knows", "parcel"}, {"", "", "parcel"},
	} {
		got := p.of("X-1", tc.name, tc.category)
		if got.Motif != tc.motif {
			t.Errorf("%q in %s: got %s, want %s", tc.name, tc.category, got.Motif, tc.motif)
		}
		if again := p.of("x-1", tc.name, tc.category); again != got {
			t.Errorf("%q: %+v, then %+v", tc.name, got, again)
		}
		if len(p.symbols([]picture{got, got})) != 1 {
			t.Errorf("%q: its symbol is not there once", tc.name)
		}
	}
	if a, b := p.of("1", "Sky Blue Milk Jug", ""), p.of("2", "Mint Milk Jug", ""); a.Hue == b.Hue {
		t.Errorf("blue and mint have the same hue %d", a.Hue)
	}
	seen := map[int]bool{}
	for id := range strings.FieldsSeq("85123A 71053 84406B 84029G 84029E 22752 21730 22633 22632 84879 22745 22748 22749 22310 84969 22623") {
		hue := p.of(id, "thing", "").Hue
		if hue < 0 || hue >= hues {
			t.Errorf("%s: hue %d", id, hue)
		}
		seen[hue] = true
	}
	if len(seen) < 4 {
		t.Errorf("16 ids share %d hues", len(seen))
	}
}

func TestBasket_WithoutWhatWasOrdered(t *testing.T) {
	full := basket{Currency: "GBP", Lines: []line{{"A", "a", 1, 3}, {"B", "b", 2, 1}, {"C", "c", 3, 1}}}
	got := full.without(basket{Currency: "GBP", Lines: []line{{"a", "a", 9, 1}, {"B", "b", 2, 5}, {"D", "d", 1, 1}}})
	want := basket{Currency: "GBP", Lines: []line{{"A", "a", 1, 2}, {"C", "c", 3, 1}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("left in the basket (-want +got):\n%s", diff)
	}
}

// A cookie is whatever a client sends: a basket that is read from it must be one that can be shown, kept and ordered.
func FuzzDecodeBasket(f *testing.F) {
	for _, b := range []basket{{}, {Currency: "GBP", Lines: []line{{"85123A", "Lantern", 255, 2}}}, {Currency: "GBP", Lines: []line{{"A", "a", maxPrice, maxQuantity}, {"a", "b", 0, 1}}}} {
		f.Add(b.encode())
	}
	f.Add("eyJjIjoiR0JQIn0")
	f.Fuzz(func(t *testing.T, value string) {
		b, err := decodeBasket(value)
		if err != nil {
			return
		}
		if b.total() < 0 || b.pieces() < 0 {
			t.Fatalf("total %d, pieces %d of %+v", b.total(), b.pieces(), b)
		}
		for _, l := range b.Lines {
			if l.Quantity < 1 || l.Quantity > maxQuantity || l.Price < 0 || l.ProductID == "" {
				t.Fatalf("line %+v", l)
			}
		}
		again, err := decodeBasket(b.encode())
		if err != nil && len(b.encode()) <= maxBasketCookie {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if err == nil {
			before, _ := json.Marshal(b)
			after, _ := json.Marshal(again)
			if string(before) != string(after) {
				t.Fatalf("%s became %s", before, after)
			}
		}
	})
}
