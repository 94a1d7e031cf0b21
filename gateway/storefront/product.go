package storefront

import (
	"net/http"
	"strings"

	"example.com/watertight/gateway/shop"
)

// degradedHeader is the edge's header for answers that go without an upstream's part.
const degradedHeader = "Watertight-Degraded"

type productPage struct {
	Product  card
	Category string // address of its category
	Together []card // bought with it
	Degraded bool   // recommendations could not be had
}

// product answers GET /products/{id}. It never fails because recommendations do.
func (s *Storefront) product(w http.ResponseWriter, r *http.Request) error {
	found, err := s.shop.ProductPage(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	together := make([]shop.Product, 0, len(found.Recommendations))
	for _, rec := range found.Recommendations {
		together = append(together, rec.Product)
	}
	page := productPage{
		Product: s.cards([]shop.Product{found.Product})[0], Category: catalogAddress("", found.Product.Category, ""),
		Together: s.cards(together), Degraded: len(found.Degraded) > 0,
	}
	if page.Degraded {
		w.Header().Set(degradedHeader, strings.Join(found.Degraded, ", "))
	}
	return s.render(w, r, http.StatusOK, "product", view{
		Title: found.Product.Name, Pictures: s.symbols(append(page.Together, page.Product)), Page: page,
	})
}
