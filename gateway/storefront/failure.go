package storefront

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
)

// subject is what a page is about; it decides how an error is put into words.
type subject int

const (
	aboutAddress subject = iota
	aboutSearch
	aboutProduct
	aboutBasket
	aboutOrder
)

// failure is an error in words that a visitor can use. Nothing of the error's own text is in it.
type failure struct {
	Status        int
	Heading, Text string
	RequestID     string
	StillOrdering bool // the basket and the orders work all the same
}

func nothingHere(http.ResponseWriter, *http.Request) error {
	return problem.New(http.StatusNotFound, "not_found", "there is nothing at this address")
}

// fail answers with a page for the error.
func (s *Storefront) fail(w http.ResponseWriter, r *http.Request, about subject, err error) {
	p := exchange.Judge(r, err)
	if p.Status == http.StatusBadRequest && (about == aboutProduct || about == aboutOrder) {
		p.Status = http.StatusNotFound // an id that nothing can have, in an address, names nothing
	}
	f := describe(about, p)
	retryAfter(w, p)
	if err := s.render(w, r, f.Status, "failure", view{Title: f.Heading, Page: f}); err != nil {
		exchange.Fail(w, r, errors.Join(exchange.From(r.Context()).Failure, err))
	}
}

func describe(about subject, p problem.Problem) failure {
	f := failure{Status: p.Status}
	switch {
	case p.Status == http.StatusNotFound:
		switch about {
		case aboutProduct:
			f.Heading, f.Text = "We do not have this product", "It may have gone for good, or its address was mistyped. A search may find something like it."
		case aboutOrder:
			f.Heading, f.Text = "We do not know this order", "Please check the address: an order’s number has 36 letters, digits and dashes."
		default:
			f.Heading, f.Text = "There is nothing here", "This address leads nowhere. It may have been mistyped."
		}
	case p.Status == http.StatusTooManyRequests:
		f.Heading, f.Text = "That was a little fast", "Many requests came from your address in a short time. Please wait a moment, then load the page again."
	case p.Status >= http.StatusInternalServerError:
		f.RequestID, f.StillOrdering = p.RequestID, about == aboutSearch || about == aboutProduct
		switch about {
		case aboutSearch:
			f.Heading, f.Text = "Our search is taking a break", "We cannot show the shelves at the moment. Please try again shortly."
		case aboutProduct:
			f.Heading, f.Text = "We cannot show this product at the moment", "The catalogue is taking a break. Please try again shortly."
		case aboutOrder:
			f.Heading, f.Text = "We cannot look up your order at the moment", "Your order is safe. Please load this page again shortly."
		default:
			f.Heading, f.Text = "Something went wrong on our side", "It has been noted. Please try again in a moment."
		}
	case p.Status == http.StatusRequestEntityTooLarge:
		f.Heading, f.Text = "That is more than we can take", "The form that was sent is too large."
	default:
		f.Heading, f.Text = "We did not understand that", "Something in the address or the form is not as it should be. Going back to the start helps."
	}
	return f
}

// retryAfter tells when trying again is worth it: also for an answer that did not come in time.
func retryAfter(w http.ResponseWriter, p problem.Problem) {
	wait := p.RetryAfter
	if p.Status == http.StatusGatewayTimeout {
		wait = max(wait, time.Second)
	}
	if wait > 0 {
		seconds := max(int64((wait+time.Second-1)/time.Second), 1)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
}
