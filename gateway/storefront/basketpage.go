package storefront

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strconv"

	"example.com/watertight/gateway/problem"
)

// maxForm is room for the largest basket, escaped.
const maxForm = 64 << 10

// basketLine is a line with its picture.
type basketLine struct {
	line
	Picture picture
}

type basketPage struct {
	Currency string
	Lines    []basketLine
	Total    int64
	Added    string // name of the product that just went in
	Trouble  string // why the last change was not made
}

// showBasket answers GET /basket.
func (s *Storefront) showBasket(w http.ResponseWriter, r *http.Request) error {
	b, damaged := readBasket(r)
	page := basketPage{}
	if damaged {
		keepBasket(w, r, basket{})
		page.Trouble = "Your basket could not be read, so it starts empty again."
	}
	if l, ok := b.find(r.URL.Query().Get("added")); ok {
		page.Added = l.Name
	}
	return s.renderBasket(w, r, http.StatusOK, b, page)
}

func (s *Storefront) renderBasket(w http.ResponseWriter, r *http.Request, status int, b basket, page basketPage) error {
	var symbols []template.HTML
	page.Currency, page.Total = b.Currency, b.total()
	page.Lines, symbols = s.basketLines(b)
	return s.render(w, r, status, "basket", view{Title: "Basket", Basket: b.pieces(), Pictures: symbols, Page: page})
}

func (s *Storefront) basketLines(b basket) ([]basketLine, []template.HTML) {
	lines, drawn := make([]basketLine, 0, len(b.Lines)), make([]picture, 0, len(b.Lines))
	for _, l := range b.Lines {
		drawn = append(drawn, s.pictures.of(l.ProductID, l.Name, ""))
		lines = append(lines, basketLine{l, drawn[len(drawn)-1]})
	}
	return lines, s.pictures.symbols(drawn)
}

// changeBasket answers POST /basket and sends the browser on to the basket, so that loading again changes nothing.
func (s *Storefront) changeBasket(w http.ResponseWriter, r *http.Request) error {
	form, err := readForm(w, r)
	if err != nil {
		return err
	}
	b := basketOf(r)
	productID, next := form.Get("product_id"), "/basket"
	var changed basket
	switch form.Get("action") {
	case "add":
		var l line
		if l, err = lineOf(form); err == nil {
			changed, err = b.add(form.Get("currency"), l)
		}
		next += "?" + url.Values{"added": {productID}}.Encode()
	case "set":
		quantity, _ := strconv.ParseInt(form.Get("quantity"), 10, 64) // what is no number is no quantity
		changed, err = b.set(productID, quantity)
	case "remove":
		changed = b.remove(productID)
	default:
		return problem.Invalid("action", "must be add, set or remove")
	}
	if err != nil {
		return s.renderBasket(w, r, http.StatusBadRequest, b, basketPage{Trouble: err.Error()})
	}
	keepBasket(w, r, changed)
	http.Redirect(w, r, next, http.StatusSeeOther)
	return nil
}

// lineOf reads a product from the form beside it. Its name and price come from the form, which was filled from the page: so
// a product can be put into the basket while search is away.
func lineOf(form url.Values) (line, error) {
	price, err := strconv.ParseInt(form.Get("price"), 10, 64)
	if err != nil {
		return line{}, errProduct
	}
	quantity, err := strconv.ParseInt(form.Get("quantity"), 10, 64)
	if err != nil || quantity < 1 || quantity > maxQuantity { // before it is added to what may be there
		return line{}, errQuantity
	}
	return line{ProductID: form.Get("product_id"), Name: form.Get("name"), Price: price, Quantity: quantity}, nil
}

func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return nil, problem.New(http.StatusRequestEntityTooLarge, "body_too_large", "the form is too large")
		}
		return nil, problem.Invalid("form", "cannot be read")
	}
	return r.PostForm, nil
}
