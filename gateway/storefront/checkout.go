package storefront

import (
	"crypto/rand"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/rpcerr"
)

const customerKept = 365 * 24 * time.Hour

// customerPattern is narrower than the contract: a cookie can carry such an id as it is.
const customerPattern = `[A-Za-z0-9._@\-]{1,64}`

var customerID = regexp.MustCompile(`^` + customerPattern + `$`)

// payment is one of the sandbox's payment tokens.
type payment struct {
	Token, Label, About string
}

func payments() []payment {
	return []payment{
		{"tok_ok", "Card that works", "The payment goes through at once."},
		{"tok_declined", "Card that is declined", "The order is cancelled and the stock goes back."},
		{"tok_slow", "Slow bank", "The payment goes through after a while."},
		{"tok_flaky", "Flaky bank", "Fails now and then, and is asked again."},
		{"tok_timeout", "Bank that does not answer", "The outcome stays unknown until the bank is asked again."},
	}
}

// checkoutForm is one order as its form holds it. It carries the lines: what is ordered is what was shown, whatever
// another tab did to the basket, and sending it twice sends the same order.
type checkoutForm struct {
	Key           string
	Customer      string
	Token         string
	Basket        basket
	ExpectedTotal int64
}

type checkoutPage struct {
	checkoutForm
	Lines    []basketLine
	Payments []payment
	Pattern  string
	Priced   bool  // the lines' prices add up to the total
	Was      int64 // total before the price changed, when it did
	Changed  bool
	Trouble  string // why the order was not taken
	Field    string // the field to mend: customer_id or payment_token
}

// showCheckout answers GET /checkout. Each form gets a key of its own: however often it is sent, it makes one order.
func (s *Storefront) showCheckout(w http.ResponseWriter, r *http.Request) error {
	b := basketOf(r)
	if len(b.Lines) == 0 {
		http.Redirect(w, r, "/basket", http.StatusSeeOther)
		return nil
	}
	form := checkoutForm{Key: newKey(), Customer: "guest-" + strings.ToLower(rand.Text()[:8]), Token: payments()[0].Token, Basket: b, ExpectedTotal: b.total()}
	if cookie, err := r.Cookie(exchange.CustomerCookie); err == nil && customerID.MatchString(cookie.Value) {
		form.Customer = cookie.Value
	}
	return s.renderCheckout(w, r, http.StatusOK, checkoutPage{checkoutForm: form})
}

func newKey() string { return "form-" + rand.Text() }

func (s *Storefront) renderCheckout(w http.ResponseWriter, r *http.Request, status int, page checkoutPage) error {
	var symbols []template.HTML
	page.Lines, symbols = s.basketLines(page.Basket)
	page.Payments, page.Pattern = payments(), customerPattern
	page.Priced = page.Basket.total() == page.ExpectedTotal
	return s.render(w, r, status, "checkout", view{Title: "Checkout", Pictures: symbols, Page: page})
}

// placeOrder answers POST /checkout.
func (s *Storefront) placeOrder(w http.ResponseWriter, r *http.Request) error {
	fields, err := readForm(w, r)
	if err != nil {
		return err
	}
	form, err := checkoutFormOf(fields)
	if err != nil {
		return err
	}
	if trouble, field := form.mend(); trouble != "" {
		return s.renderCheckout(w, r, http.StatusBadRequest, checkoutPage{checkoutForm: form, Trouble: trouble, Field: field})
	}
	keepCookie(w, r, exchange.CustomerCookie, form.Customer, customerKept)
	order, _, err := s.shop.PlaceOrder(r.Context(), form.Key, form.order())
	if err != nil {
		return s.refused(w, r, form, err)
	}
	keepBasket(w, r, basketOf(r).without(form.Basket))
	http.Redirect(w, r, orderAddress(order.ID), http.StatusSeeOther)
	return nil
}

// checkoutFormOf reads a form that this package made; an error means that it is not one.
func checkoutFormOf(fields url.Values) (checkoutForm, error) {
	form := checkoutForm{Key: fields.Get("idempotency_key"), Customer: strings.TrimSpace(fields.Get("customer_id")), Token: fields.Get("payment_token")}
	ids, names, prices, quantities := fields["product_id"], fields["name"], fields["price"], fields["quantity"]
	if len(ids) == 0 || len(ids) != len(names) || len(ids) != len(prices) || len(ids) != len(quantities) {
		return form, problem.Invalid("product_id", "each line needs product_id, name, price and quantity")
	}
	form.Basket.Currency = fields.Get("currency")
	for i := range ids {
		price, wrongPrice := strconv.ParseInt(prices[i], 10, 64)
		quantity, wrongQuantity := strconv.ParseInt(quantities[i], 10, 64)
		if wrongPrice != nil || wrongQuantity != nil {
			return form, problem.Invalid("quantity", "price and quantity must be whole numbers")
		}
		form.Basket.Lines = append(form.Basket.Lines, line{ProductID: ids[i], Name: names[i], Price: price, Quantity: quantity})
	}
	if err := form.Basket.validate(); err != nil {
		return form, problem.Invalid("basket", err.Error())
	}
	total, err := strconv.ParseInt(fields.Get("expected_total"), 10, 64)
	if err != nil || total < 0 {
		return form, problem.Invalid("expected_total", "must be a whole number")
	}
	if !plainText(form.Key, 255) {
		return form, problem.Invalid("idempotency_key", "must be 1 to 255 characters")
	}
	form.ExpectedTotal = total
	return form, nil
}

// mend says what the visitor has to mend, and in which field.
func (f checkoutForm) mend() (trouble, field string) {
	if !customerID.MatchString(f.Customer) {
		return "The customer number must have 1 to 64 letters, digits, dots, dashes or underscores.", "customer_id"
	}
	if !slices.ContainsFunc(payments(), func(p payment) bool { return p.Token == f.Token }) {
		return "Please choose how to pay.", "payment_token"
	}
	return "", ""
}

func (f checkoutForm) order() shop.NewOrder {
	o := shop.NewOrder{CustomerID: f.Customer, Currency: f.Basket.Currency, ExpectedTotal: &f.ExpectedTotal, PaymentToken: f.Token}
	for _, l := range f.Basket.Lines {
		o.Lines = append(o.Lines, shop.NewLine{ProductID: l.ProductID, Quantity: l.Quantity})
	}
	return o
}

// refused shows the form again with what became of the order. Where that is not known the key stays: sent again, the form
// finds the order instead of making a second one.
func (s *Storefront) refused(w http.ResponseWriter, r *http.Request, form checkoutForm, err error) error {
	p := exchange.Judge(r, err)
	page := checkoutPage{checkoutForm: form}
	if p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests {
		page.Key = newKey()
	}
	switch {
	case p.Code == strings.ToLower(rpcerr.PriceChanged):
		now, wrong := strconv.ParseInt(p.Metadata["total"], 10, 64)
		if wrong != nil {
			return errors.Join(err, wrong)
		}
		page.Changed, page.Was, page.ExpectedTotal = true, form.ExpectedTotal, now
	case p.Status == http.StatusNotFound:
		page.Trouble = "One of the products is no longer sold. Please take it out of the basket."
		if l, ok := form.Basket.find(p.Metadata["product_id"]); ok {
			page.Trouble = "“" + l.Name + "” is no longer sold. Please take it out of the basket."
		}
	case p.Code == strings.ToLower(rpcerr.IdempotencyKeyReused):
		page.Trouble = "This form was used for another order before. Please check what it says and send it again."
	case p.Status >= http.StatusInternalServerError || p.Status == http.StatusTooManyRequests:
		page.Trouble = "We could not take the order just now. Please send it again in a moment: however often you do, it is ordered once."
	default:
		page.Trouble = "The order could not be taken as it is. Please check it."
	}
	retryAfter(w, p)
	return s.renderCheckout(w, r, p.Status, page)
}
