// Package catalog holds what a shop starts with: products with prices and stock, and baskets that show what is bought
// together. It also has one such catalog, written for this shop. It reads no files and talks to no service.
package catalog

// Product is one thing the shop sells.
type Product struct {
	ID          string
	Name        string
	Description string
	Category    string
	PriceMinor  int64 // minor units of the catalog's currency; more than zero
	Stock       int64 // pieces on hand
	Sold        int64 // pieces sold so far; a measure of how much it is asked for
}

// Basket is a set of products bought in one go.
type Basket struct {
	ID       string
	Products []int32 // indexes into the catalog's Products, ascending, each once
}

// Catalog is everything the shop needs to open.
type Catalog struct {
	Currency string // ISO 4217
	Products []Product
	Baskets  []Basket
}
