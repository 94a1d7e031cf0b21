package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Product is what the load needs to know of one.
type Product struct {
	ID       string
	Name     string
	Currency string // ISO 4217
}

// Limits of one page of products.
const (
	productsPerPage = 100
	pageTimeout     = 10 * time.Second
	maxPageBytes    = 8 << 20
)

type productPage struct {
	Products []struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Price struct {
			Currency string `json:"currency"`
		} `json:"price"`
	} `json:"products"`
	NextPageToken string `json:"next_page_token"`
}

// Products reads what the shop sells, at most limit; 0 is all.
func (t Target) Products(ctx context.Context, limit int) ([]Product, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: pageTimeout}
	var products []Product
	for token := ""; ; {
		page, err := t.productPage(ctx, client, token)
		if err != nil {
			return nil, fmt.Errorf("read the products of %s (is the shop running? see lab up): %w", t, err)
		}
		for _, p := range page.Products {
			products = append(products, Product{ID: p.ID, Name: p.Name, Currency: p.Price.Currency})
			if len(products) == limit {
				return products, nil
			}
		}
		if page.NextPageToken == "" || len(page.Products) == 0 {
			return products, nil
		}
		token = page.NextPageToken
	}
}

func (t Target) productPage(ctx context.Context, client *http.Client, token string) (productPage, error) {
	var page productPage
	address := t.base.JoinPath("api", "v1", "products")
	address.RawQuery = url.Values{"page_size": {fmt.Sprint(productsPerPage)}, "page_token": {token}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return page, err
	}
	request.Header.Set("User-Agent", userAgent)
	response, err := client.Do(request)
	if err != nil {
		return page, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxPageBytes))
	if err != nil {
		return page, err
	}
	if response.StatusCode != http.StatusOK {
		return page, fmt.Errorf("it answers %d %s", response.StatusCode, problemCode(content))
	}
	if err := json.Unmarshal(content, &page); err != nil {
		return page, fmt.Errorf("the answer is not that of a gateway: %w", err)
	}
	return page, nil
}
