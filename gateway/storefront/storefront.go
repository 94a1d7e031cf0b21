// Package storefront is the shop as people see it: pages rendered on the server that work without JavaScript. It owns no data
// and decides nothing about orders; the basket lives in the visitor's cookie, so that filling it and looking at it needs
// no service. It relies on the edge for methods, deadlines, security headers and for refusing forms that another site
// sends; a page fails only when the one service that it is about does.
package storefront

import (
	"context"
	"errors"
	"net/http"
	"time"

	"example.com/watertight/gateway/page"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/shop"
)

// Shop is what the pages ask; *shop.Shop is one.
type Shop interface {
	Search(ctx context.Context, q shop.Query) (shop.Results, error)
	ProductPage(ctx context.Context, id string) (shop.ProductPage, error)
	PlaceOrder(ctx context.Context, key string, o shop.NewOrder) (order shop.Order, replayed bool, err error)
	Order(ctx context.Context, id string) (shop.Order, error)
}

// Budgets are the longest that pages about search and about checkout may take, from the arrival of the request.
type Budgets struct {
	Checkout, Search time.Duration
}

// Storefront serves the pages. Its methods may be called from any goroutine.
type Storefront struct {
	shop     Shop
	budgets  Budgets
	assets   assets
	pictures pictures
	pages    pages
	style    page.Inline
	policy   string
}

// New prepares the pages. An error means that an embedded template or file is broken.
func New(s Shop, b Budgets) (*Storefront, error) {
	if s == nil {
		return nil, errors.New("storefront: a shop is missing")
	}
	assets, err := loadAssets()
	if err != nil {
		return nil, err
	}
	pictures, err := loadPictures()
	if err != nil {
		return nil, err
	}
	pages, err := parsePages(assets)
	if err != nil {
		return nil, err
	}
	style := page.Style(page.BaseStyle() + shopStyle)
	return &Storefront{
		shop: s, budgets: b, assets: assets, pictures: pictures, pages: pages, style: style, policy: page.Policy([]page.Inline{style}, nil),
	}, nil
}

// Routes are all addresses of the storefront. The basket and the form to order need no service.
func (s *Storefront) Routes() []route.Route {
	search, checkout := s.budgets.Search, s.budgets.Checkout
	return []route.Route{
		{Method: http.MethodGet, Path: "/{$}", Feature: shop.Search, Budget: search, Handler: s.page(aboutSearch, s.catalog)},
		{Method: http.MethodGet, Path: "/products/{id}", Feature: shop.Search, Budget: search, Handler: s.page(aboutProduct, s.product)},
		{Method: http.MethodGet, Path: "/basket", Handler: s.page(aboutBasket, s.showBasket)},
		{Method: http.MethodPost, Path: "/basket", Handler: s.page(aboutBasket, s.changeBasket)},
		{Method: http.MethodGet, Path: "/checkout", Handler: s.page(aboutBasket, s.showCheckout)},
		{Method: http.MethodPost, Path: "/checkout", Feature: shop.Checkout, Budget: checkout, Handler: s.page(aboutBasket, s.placeOrder)},
		{Method: http.MethodGet, Path: "/orders/{id}", Feature: shop.Checkout, Budget: checkout, Handler: s.page(aboutOrder, s.order)},
		{Method: http.MethodGet, Path: "/static/{file}", Handler: s.page(aboutAddress, s.static)},
		{Method: http.MethodGet, Path: "/", Handler: s.page(aboutAddress, nothingHere)},
	}
}

// page answers a handler's error with a page of its own. The handler returns an error only before it has written anything.
func (s *Storefront) page(about subject, h func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, about, err)
		}
	})
}
