package gateway

import "net/http"

// order answers GET /api/v1/orders/{id}.
func (a *api) order(w http.ResponseWriter, r *http.Request) error {
	order, err := a.Shop.Order(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return a.answerJSON(w, http.StatusOK, order)
}
