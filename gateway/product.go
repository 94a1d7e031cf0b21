package gateway

import (
	"net/http"

	"example.com/watertight/gateway/shop"
)

// product answers GET /api/v1/products/{id}. It never fails because recs does.
func (a *api) product(w http.ResponseWriter, r *http.Request) error {
	page, err := a.Shop.ProductPage(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	markDegraded(w, page.Degraded)
	return a.answerJSON(w, http.StatusOK, struct {
		Product         shop.Product          `json:"product"`
		Recommendations []shop.Recommendation `json:"recommendations"`
		Degraded        []string              `json:"degraded"`
	}{page.Product, page.Recommendations, page.Degraded})
}
