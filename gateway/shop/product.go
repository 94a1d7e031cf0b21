package shop

import (
	"context"
	"errors"
	"math"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// PageRecommendations is how many recommendations a product page asks for.
const PageRecommendations = 8

// Money is an exact amount in minor units (pence for GBP) of an ISO 4217 currency.
type Money struct {
	Currency string `json:"currency"`
	Minor    int64  `json:"minor"`
}

// Product is one thing the shop sells. Its price is the one shown; checkout's own is charged.
type Product struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Category    string `json:"category"`
	Price       Money  `json:"price"`
}

// Recommendation is a product with how strongly it is recommended, between 0 and 1.
type Recommendation struct {
	Product
	Score float64 `json:"score"`
}

// Category is one value of the category facet, with the number of products that match in it.
type Category struct {
	Name     string
	Products int64
}

// Query asks for one page of products.
type Query struct {
	Text      string // what the person typed; empty lists everything
	Category  string // only this category; empty means all
	PageSize  int32  // 1 to 100; 0 means 20
	PageToken string // Results.NextPageToken of the page before; empty for the first
}

// Results is one page of products, best match first.
type Results struct {
	Products      []Product
	NextPageToken string // empty on the last page
	Total         int64
	Categories    []Category // by matching products, most first
}

// ProductPage is a product with what goes with it. Degraded names the upstreams whose part is missing; it is empty when
// the page is whole.
type ProductPage struct {
	Product         Product
	Recommendations []Recommendation
	Degraded        []string
}

// Recommendations lists recommended products, strongest first. Degraded names the upstreams that failed; the list is
// empty then.
type Recommendations struct {
	Products []Recommendation
	Degraded []string
}

// Search lists the products that match q.
func (s *Shop) Search(ctx context.Context, q Query) (Results, error) {
	if err := allUTF8(field{"q", q.Text}, field{"category", q.Category}, field{"page_token", q.PageToken}); err != nil {
		return Results{}, err
	}
	resp, err := s.b.Search.SearchProducts(ctx, &searchv1.SearchProductsRequest{
		Query: q.Text, Category: q.Category, PageSize: q.PageSize, PageToken: q.PageToken,
	})
	if err != nil {
		return Results{}, err
	}
	out := Results{Products: make([]Product, 0, len(resp.GetProducts())), NextPageToken: resp.GetNextPageToken(), Total: resp.GetTotal()}
	for _, p := range resp.GetProducts() {
		out.Products = append(out.Products, product(p))
	}
	for _, c := range resp.GetCategories() {
		out.Categories = append(out.Categories, Category{Name: c.GetCategory(), Products: c.GetProducts()})
	}
	return out, nil
}

// Products returns the products that exist among ids (at most 100, for a basket), in the order asked for.
func (s *Shop) Products(ctx context.Context, ids []string) ([]Product, error) {
	found, err := s.find(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]Product, 0, len(found))
	for _, p := range found {
		out = append(out, product(p))
	}
	return out, nil
}

// find is Products as search answers it.
func (s *Shop) find(ctx context.Context, ids []string) ([]*searchv1.Product, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	for _, id := range ids {
		if !utf8.ValidString(id) {
			return nil, notUTF8("id")
		}
	}
	resp, err := s.b.Search.GetProducts(ctx, &searchv1.GetProductsRequest{Ids: ids})
	return resp.GetProducts(), err
}

// ProductPage returns the product and its recommendations. It fails only when the product itself cannot be had (reason
// NOT_FOUND when there is none); recs is asked at the same time and can at most be missing.
func (s *Shop) ProductPage(ctx context.Context, id string) (ProductPage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an unknown product needs no recommendations: recs' call ends with ours
	recommended := s.recommendAside(ctx, id)

	found, err := s.find(ctx, []string{id})
	if err != nil {
		return ProductPage{}, err
	}
	if len(found) == 0 {
		return ProductPage{}, rpcerr.New(codes.NotFound, rpcerr.NotFound, "there is no product with this id", rpcerr.Meta("product_id", id))
	}
	page := ProductPage{Product: product(found[0]), Recommendations: []Recommendation{}, Degraded: []string{}}

	got := <-recommended
	if gone(ctx) {
		return ProductPage{}, status.FromContextError(ctx.Err()).Err()
	}
	if got.err != nil {
		page.Degraded = append(page.Degraded, s.degraded(ctx, Recs, got.err))
		return page, nil
	}
	page.Recommendations, page.Degraded = s.enrich(ctx, got.list)
	return page, nil
}

// Recommend lists at most limit (0 means 8) products that go with the one named, or popular ones when id is empty or unknown.
// The only errors are the caller's: a request that recs finds invalid, or a context that was cancelled.
func (s *Shop) Recommend(ctx context.Context, id string, limit int32) (Recommendations, error) {
	if err := allUTF8(field{"product_id", id}); err != nil {
		return Recommendations{}, err
	}
	list, err := s.recommend(ctx, id, limit)
	switch {
	case err == nil:
		out, missing := s.enrich(ctx, list)
		return Recommendations{Products: out, Degraded: missing}, nil
	case rpcerr.Reason(err) == rpcerr.InvalidArgument:
		return Recommendations{}, err
	case gone(ctx):
		return Recommendations{}, status.FromContextError(ctx.Err()).Err()
	}
	return Recommendations{Products: []Recommendation{}, Degraded: []string{s.degraded(ctx, Recs, err)}}, nil
}

type recommended struct {
	list []*recsv1.Recommendation
	err  error
}

var errRecommendPanicked = errors.New("the call to recs panicked")

// recommendAside asks recs in a goroutine of its own. The channel always yields one value, by the recs timeout.
func (s *Shop) recommendAside(ctx context.Context, id string) <-chan recommended {
	out := make(chan recommended, 1)
	rpc.Go(s.b.Log, "recommend", func() {
		got := recommended{err: errRecommendPanicked}
		defer func() { out <- got }()
		got.list, got.err = s.recommend(ctx, id, PageRecommendations)
	})
	return out
}

func (s *Shop) recommend(ctx context.Context, id string, limit int32) ([]*recsv1.Recommendation, error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.RecsTimeout)
	defer cancel()
	resp, err := s.b.Recs.Recommend(ctx, &recsv1.RecommendRequest{ProductId: id, Limit: limit})
	return resp.GetRecommendations(), err
}

// enrich turns recommended ids into products with one call to search; an id that search does not know is left out.
func (s *Shop) enrich(ctx context.Context, list []*recsv1.Recommendation) (out []Recommendation, missing []string) {
	out, missing = []Recommendation{}, []string{}
	ids := make([]string, 0, len(list))
	for _, r := range list {
		ids = append(ids, r.GetProductId())
	}
	found, err := s.find(ctx, ids)
	if err != nil {
		return out, append(missing, s.degraded(ctx, Search, err))
	}
	byID := make(map[string]*searchv1.Product, len(found))
	for _, p := range found {
		byID[strings.ToUpper(p.GetId())] = p // ids are unique without regard to case
	}
	out = make([]Recommendation, 0, len(list))
	for _, r := range list {
		p, ok := byID[strings.ToUpper(r.GetProductId())]
		if ok && !math.IsNaN(r.GetScore()) && !math.IsInf(r.GetScore(), 0) { // neither can be written as JSON
			out = append(out, Recommendation{Product: product(p), Score: r.GetScore()})
		}
	}
	return out, missing
}

// gone says that the caller went away, as opposed to running out of time: nobody waits for a fallback then.
func gone(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

func product(p *searchv1.Product) Product {
	return Product{
		ID: p.GetId(), Name: p.GetName(), Description: p.GetDescription(), Category: p.GetCategory(),
		Price: Money{Currency: p.GetPrice().GetCurrency(), Minor: p.GetPrice().GetMinor()},
	}
}
