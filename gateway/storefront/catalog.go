package storefront

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/query"
	"example.com/watertight/gateway/shop"
)

// productsPerPage fills rows of two, three and four.
const productsPerPage = 24

// card is a product as lists show it.
type card struct {
	shop.Product
	Picture picture
}

// facet is one category to narrow the list to.
type facet struct {
	Name     string
	Products int64
	Address  string
	Current  bool
}

type catalogPage struct {
	Query, Category string
	Total           int64
	Products        []card
	Facets          []facet
	First, Next     string // addresses; empty when there is no such page
}

// catalog answers GET /: what the search finds, or everything.
func (s *Storefront) catalog(w http.ResponseWriter, r *http.Request) error {
	params := query.Parse(r.URL.RawQuery)
	q := shop.Query{Text: params.Text("q"), Category: params.Text("category"), PageToken: params.Text("page_token"), PageSize: productsPerPage}
	if err := params.Err(); err != nil {
		if wrong, ok := errors.AsType[*query.Error](err); ok {
			return problem.Invalid(wrong.Param, wrong.Detail)
		}
		return err
	}
	results, err := s.shop.Search(r.Context(), q)
	if err != nil {
		return err
	}
	page := catalogPage{Query: q.Text, Category: q.Category, Total: results.Total, Products: s.cards(results.Products)}
	var all int64
	for _, c := range results.Categories {
		all += c.Products
		page.Facets = append(page.Facets, facet{c.Name, c.Products, catalogAddress(q.Text, c.Name, ""), c.Name == q.Category})
	}
	if len(page.Facets) > 0 {
		page.Facets = append([]facet{{"Everything", all, catalogAddress(q.Text, "", ""), q.Category == ""}}, page.Facets...)
	}
	if q.PageToken != "" {
		page.First = catalogAddress(q.Text, q.Category, "")
	}
	if results.NextPageToken != "" {
		page.Next = catalogAddress(q.Text, q.Category, results.NextPageToken)
	}
	title := "All products"
	switch {
	case q.Text != "":
		title = "Results for “" + q.Text + "”"
	case q.Category != "":
		title = q.Category
	}
	return s.render(w, r, http.StatusOK, "catalog", view{Title: title, Query: q.Text, Pictures: s.symbols(page.Products), Page: page})
}

func (s *Storefront) cards(products []shop.Product) []card {
	cards := make([]card, 0, len(products))
	for _, p := range products {
		cards = append(cards, card{p, s.pictures.of(p.ID, p.Name, p.Category)})
	}
	return cards
}

func (s *Storefront) symbols(cards []card) []template.HTML {
	drawn := make([]picture, 0, len(cards))
	for _, c := range cards {
		drawn = append(drawn, c.Picture)
	}
	return s.pictures.symbols(drawn)
}

func catalogAddress(text, category, token string) string {
	values := url.Values{}
	for name, value := range map[string]string{"q": text, "category": category, "page_token": token} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if len(values) == 0 {
		return "/"
	}
	return "/?" + values.Encode()
}
