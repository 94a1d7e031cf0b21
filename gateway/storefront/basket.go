package storefront

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	basketCookie = "basket"
	basketKept   = 30 * 24 * time.Hour
	// Browsers keep 4096 bytes a cookie, name and attributes included (RFC 6265, section 6.1).
	maxBasketCookie = 3800
	maxBasketLines  = 60
	// The contract's limits.
	maxQuantity  = 100_000
	maxIDRunes   = 64
	maxNameRunes = 60 // the contract has 256: the cookie keeps less
	// maxPrice is far above any price; with the two limits above, no total can pass 2^63.
	maxPrice = 1_000_000_000_000
)

// line is one product in the basket. Name and Price are what the visitor was shown: the basket needs no service to be
// looked at. They belong to the visitor, who may forge them and gains nothing: checkout charges its own price, and says
// so when the total that goes with the order is not the same.
type line struct {
	ProductID string `json:"i"`
	Name      string `json:"n"`
	Price     int64  `json:"p"` // minor units, one piece
	Quantity  int64  `json:"q"`
}

// Total is in minor units.
func (l line) Total() int64 { return l.Price * l.Quantity }

// basket is what a visitor means to order, at most once per product, all in one currency. Its limits hold for every basket
// that decodeBasket or add returned.
type basket struct {
	Currency string `json:"c"`
	Lines    []line `json:"l"`
}

// complaint is what is wrong with a basket, in words for the visitor.
type complaint string

func (c complaint) Error() string { return string(c) }

const (
	errQuantity complaint = "The quantity must be a whole number from 1 to 100,000."
	errCurrency complaint = "This product has a price in another currency. Please order it separately."
	errFull     complaint = "Your basket is full. Please order what is in it first."
	errProduct  complaint = "This product cannot be put into a basket."
)

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// add puts pieces of a product into the basket, on top of those that are there, and takes over its name and price.
func (b basket) add(currency string, l line) (basket, error) {
	if len(b.Lines) == 0 {
		b.Currency = currency
	}
	if b.Currency != currency {
		return b, errCurrency
	}
	if runes := []rune(l.Name); len(runes) > maxNameRunes {
		l.Name = string(runes[:maxNameRunes-1]) + "…"
	}
	out := basket{Currency: b.Currency}
	at := -1
	for i, old := range b.Lines {
		if strings.EqualFold(old.ProductID, l.ProductID) {
			l.ProductID, l.Quantity, at = old.ProductID, old.Quantity+l.Quantity, i
			old = l
		}
		out.Lines = append(out.Lines, old)
	}
	if at < 0 {
		out.Lines = append(out.Lines, l)
	}
	if err := out.validate(); err != nil {
		return b, err
	}
	if len(out.encode()) > maxBasketCookie {
		return b, errFull
	}
	return out, nil
}

// set changes how many pieces of a product are in the basket; a product that is not in it stays out.
func (b basket) set(productID string, quantity int64) (basket, error) {
	if quantity < 1 || quantity > maxQuantity {
		return b, errQuantity
	}
	out := basket{Currency: b.Currency}
	for _, l := range b.Lines {
		if strings.EqualFold(l.ProductID, productID) {
			l.Quantity = quantity
		}
		out.Lines = append(out.Lines, l)
	}
	return out, nil
}

// remove takes a product out.
func (b basket) remove(productID string) basket {
	out := basket{Currency: b.Currency}
	for _, l := range b.Lines {
		if !strings.EqualFold(l.ProductID, productID) {
			out.Lines = append(out.Lines, l)
		}
	}
	return out
}

// without takes out what was ordered. What went in meanwhile, in another tab, stays.
func (b basket) without(ordered basket) basket {
	for _, o := range ordered.Lines {
		for _, l := range b.Lines {
			if strings.EqualFold(l.ProductID, o.ProductID) && l.Quantity > o.Quantity {
				b, _ = b.set(l.ProductID, l.Quantity-o.Quantity) // below a quantity that was valid
			} else if strings.EqualFold(l.ProductID, o.ProductID) {
				b = b.remove(l.ProductID)
			}
		}
	}
	return b
}

// total is in minor units.
func (b basket) total() int64 {
	var sum int64
	for _, l := range b.Lines {
		sum += l.Total()
	}
	return sum
}

func (b basket) pieces() int64 {
	var sum int64
	for _, l := range b.Lines {
		sum += l.Quantity
	}
	return sum
}

// find returns the line of a product.
func (b basket) find(productID string) (line, bool) {
	for _, l := range b.Lines {
		if strings.EqualFold(l.ProductID, productID) {
			return l, true
		}
	}
	return line{}, false
}

// validate checks what came from outside: cookies and forms can hold anything.
func (b basket) validate() error {
	if len(b.Lines) == 0 {
		return nil
	}
	if len(b.Lines) > maxBasketLines {
		return errFull
	}
	if !currencyCode.MatchString(b.Currency) {
		return errProduct
	}
	seen := map[string]bool{}
	for _, l := range b.Lines {
		if !plainText(l.ProductID, maxIDRunes) || !plainText(l.Name, maxNameRunes) || l.Price < 0 || l.Price > maxPrice || seen[strings.ToUpper(l.ProductID)] {
			return errProduct
		}
		if l.Quantity < 1 || l.Quantity > maxQuantity {
			return errQuantity
		}
		seen[strings.ToUpper(l.ProductID)] = true
	}
	return nil
}

func plainText(text string, most int) bool {
	return text != "" && utf8.ValidString(text) && utf8.RuneCountInString(text) <= most && !strings.ContainsFunc(text, unicode.IsControl)
}

func (b basket) encode() string {
	content, err := json.Marshal(b)
	if err != nil {
		panic("storefront: " + err.Error()) // strings and integers and nothing else
	}
	return base64.RawURLEncoding.EncodeToString(content)
}

// decodeBasket reads a cookie's value; anything but a basket that could be ordered is an error.
func decodeBasket(value string) (basket, error) {
	if len(value) > maxBasketCookie {
		return basket{}, errFull
	}
	content, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return basket{}, fmt.Errorf("basket cookie: %w", err)
	}
	var b basket
	if err := json.Unmarshal(content, &b); err != nil {
		return basket{}, fmt.Errorf("basket cookie: %w", err)
	}
	return b, b.validate()
}

// readBasket reads the visitor's basket. damaged says that there was one and it cannot be read; it is empty then.
func readBasket(r *http.Request) (b basket, damaged bool) {
	cookie, err := r.Cookie(basketCookie)
	if err != nil {
		return basket{}, false
	}
	if b, err = decodeBasket(cookie.Value); err != nil {
		return basket{}, true
	}
	return b, false
}

func basketOf(r *http.Request) basket {
	b, _ := readBasket(r)
	return b
}

// keepBasket stores the basket with the visitor; an empty one is forgotten.
func keepBasket(w http.ResponseWriter, r *http.Request, b basket) {
	if len(b.Lines) == 0 {
		keepCookie(w, r, basketCookie, "", -time.Second)
		return
	}
	keepCookie(w, r, basketCookie, b.encode(), basketKept)
}

// keepCookie sets a cookie that scripts cannot read and that other sites' forms do not carry.
func keepCookie(w http.ResponseWriter, r *http.Request, name, value string, kept time.Duration) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure is set, just not always
		Name: name, Value: value, Path: "/", MaxAge: int(kept / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		// A proxy that ends TLS says so; a client that forges the header harms its own cookie only.
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	})
}
