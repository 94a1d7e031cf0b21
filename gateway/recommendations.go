package gateway

import (
	"net/http"

	"example.com/watertight/gateway/query"
	"example.com/watertight/gateway/shop"
)

// maxRecommendations is the contract's limit.
const maxRecommendations = 50

// recommendations answers GET /api/v1/recommendations: 200 and an empty list when recs fails.
func (a *api) recommendations(w http.ResponseWriter, r *http.Request) error {
	params := query.Parse(r.URL.RawQuery)
	id, limit := params.Text("product_id"), params.Int("limit", shop.PageRecommendations, 1, maxRecommendations)
	if err := params.Err(); err != nil {
		return invalidQuery(err)
	}
	list, err := a.Shop.Recommend(r.Context(), id, limit)
	if err != nil {
		return err
	}
	markDegraded(w, list.Degraded)
	return a.answerJSON(w, http.StatusOK, struct {
		Recommendations []shop.Recommendation `json:"recommendations"`
		Degraded        []string              `json:"degraded"`
	}{list.Products, list.Degraded})
}
