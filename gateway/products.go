package gateway

import (
	"errors"
	"net/http"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/query"
	"example.com/watertight/gateway/shop"
)

const (
	defaultPageSize = 20
	maxPageSize     = 100
)

// products answers GET /api/v1/products.
func (a *api) products(w http.ResponseWriter, r *http.Request) error {
	params := query.Parse(r.URL.RawQuery)
	q := shop.Query{
		Text: params.Text("q"), Category: params.Text("category"), PageToken: params.Text("page_token"),
		PageSize: params.Int("page_size", defaultPageSize, 1, maxPageSize),
	}
	if err := params.Err(); err != nil {
		return invalidQuery(err)
	}
	results, err := a.Shop.Search(r.Context(), q)
	if err != nil {
		return err
	}
	return a.answerJSON(w, http.StatusOK, struct {
		Products      []shop.Product `json:"products"`
		NextPageToken string         `json:"next_page_token"`
	}{results.Products, results.NextPageToken})
}

func invalidQuery(err error) problem.Problem {
	var wrong *query.Error
	if errors.As(err, &wrong) && wrong.Param != "" {
		return problem.Invalid(wrong.Param, wrong.Detail)
	}
	return problem.New(http.StatusBadRequest, "invalid_argument", err.Error())
}
