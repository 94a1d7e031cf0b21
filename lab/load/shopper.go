package load

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// shopper draws what is asked for, one request after the other. The same seed draws the same from the same products.
type shopper struct {
	config Config
	draw   *rand.Rand
	words  []string
	placed int
}

// maxOrderLines is how many products an order has at most.
const maxOrderLines = 3

func newShopper(c Config) *shopper {
	return &shopper{config: c, draw: stream(c.Seed, streamRequests), words: words(c.Products)}
}

func (s *shopper) request() Request {
	t, mix := s.config.Target, s.config.Mix
	customer := "c-" + strconv.Itoa(1+s.draw.IntN(s.config.Customers))
	switch at := s.draw.Float64() * mix.sum(); {
	case at < mix.Checkout:
		s.placed++
		return t.PlaceOrder(s.config.RunID+"-"+strconv.Itoa(s.placed), s.order(customer))
	case at < mix.Checkout+mix.Search:
		return t.SearchProducts(s.words[s.draw.IntN(len(s.words))], customer)
	case at < mix.Checkout+mix.Search+mix.Page:
		return t.ProductPage(s.product().ID, customer)
	default:
		return t.Recommend(s.product().ID, customer)
	}
}

func (s *shopper) product() Product { return s.config.Products[s.draw.IntN(len(s.config.Products))] }

// order picks up to three products, of one currency: a product of another, or one picked twice, makes a shorter order.
func (s *shopper) order(customer string) Order {
	first := s.product()
	order := Order{CustomerID: customer, Currency: first.Currency, PaymentToken: GoodToken, Lines: []OrderLine{{first.ID, 1}}}
	for range s.draw.IntN(maxOrderLines) {
		if p := s.product(); p.Currency == first.Currency {
			order.Lines = append(order.Lines, OrderLine{p.ID, 1})
		}
	}
	return order
}

// words are what customers search for: those of the products' names, which all find something.
func words(products []Product) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range products {
		for word := range strings.FieldsSeq(strings.ToLower(p.Name)) {
			word = strings.Trim(word, `.,;:!?"'()-/`)
			if len(word) > 2 && !seen[word] {
				seen[word] = true
				out = append(out, word)
			}
		}
	}
	if len(out) == 0 {
		return []string{""} // browsing: all products
	}
	return out
}
