// Package replay plays a day of real sales into the shop: each invoice is an order of the same customer with the same
// products and quantities, and they come in their real order, with the day's real lulls and rushes made shorter. It sends
// nothing but orders, and changes no invoice except that lines the shop cannot take are left out, and counted.
package replay

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"example.com/watertight/lab/load"
	"example.com/watertight/lab/retail"
)

// Day is the invoices of one day, in the order they were written.
type Day struct {
	Date     time.Time // midnight, UTC
	Invoices []retail.Invoice
}

// ErrNoInvoices is wrapped by the error for a day on which nothing was sold.
var ErrNoInvoices = errors.New("no invoices")

// Pick returns the invoices of a day; the zero date is the busiest day, the earlier one when there are two.
func Pick(invoices []retail.Invoice, date time.Time) (Day, error) {
	var best Day
	for rest := invoices; len(rest) > 0; {
		midnight := rest[0].At.Truncate(24 * time.Hour)
		end := slices.IndexFunc(rest, func(i retail.Invoice) bool { return !i.At.Truncate(24 * time.Hour).Equal(midnight) })
		if end < 0 {
			end = len(rest)
		}
		if date.Equal(midnight) || date.IsZero() && end > len(best.Invoices) {
			best = Day{midnight, rest[:end]}
		}
		rest = rest[end:]
	}
	if len(best.Invoices) > 0 {
		return best, nil
	}
	if len(invoices) == 0 {
		return Day{}, ErrNoInvoices
	}
	return Day{}, fmt.Errorf("%s: %w; the file has %s to %s", date.Format(time.DateOnly), ErrNoInvoices,
		invoices[0].At.Format(time.DateOnly), invoices[len(invoices)-1].At.Format(time.DateOnly))
}

// Plan is a day's orders, ready to be sent.
type Plan struct {
	Orders  []Order
	Summary Summary
}

// Order is an invoice as an order.
type Order struct {
	At    time.Duration // since the first invoice, compressed
	Key   string        // idempotency key
	Order load.Order
}

// Summary says what of the day is sent, and what is left out because the shop would not take it.
type Summary struct {
	Day              string  `json:"day"`
	Speed            float64 `json:"speed"`
	RunID            string  `json:"run_id"`
	Invoices         int     `json:"invoices"` // of the day
	Orders           int     `json:"orders"`   // of these, sent
	Lines            int     `json:"lines"`    // sent
	UnknownLines     int     `json:"unknown_lines"`
	UnknownProducts  int     `json:"unknown_products"`
	UnknownInvoices  int     `json:"unknown_invoices"` // left out: not one of their products is known
	OversizeInvoices int     `json:"oversize_invoices"`
	OversizeLines    int     `json:"oversize_lines"` // more pieces than an order line may have
}

// The contract's limits.
const (
	maxLines    = 1200
	maxQuantity = 100_000
)

// Replay is how a day is compressed.
type Replay struct {
	Speed float64 // how many times faster than it was
	RunID string  // added to each idempotency key, so that a day can be played again as new orders
}

// Plan makes the day's orders. Products are those of the file, by Line.Product; known says which the shop sells.
func (r Replay) Plan(day Day, productID func(int32) string, known map[string]bool) Plan {
	plan := Plan{Summary: Summary{Day: day.Date.Format(time.DateOnly), Speed: r.Speed, RunID: r.RunID, Invoices: len(day.Invoices)}}
	unknown := map[int32]bool{}
	at := spread(day.Invoices)
	for i, invoice := range day.Invoices {
		if len(invoice.Lines) > maxLines {
			plan.Summary.OversizeInvoices++
			continue
		}
		order := load.Order{CustomerID: customer(invoice), Currency: retail.Currency, PaymentToken: load.GoodToken}
		for _, line := range invoice.Lines {
			switch id := productID(line.Product); {
			case !known[id]:
				plan.Summary.UnknownLines++
				unknown[line.Product] = true
			case line.Quantity > maxQuantity:
				plan.Summary.OversizeLines++
			default:
				order.Lines = append(order.Lines, load.OrderLine{ProductID: id, Quantity: line.Quantity})
			}
		}
		if len(order.Lines) == 0 {
			plan.Summary.UnknownInvoices++
			continue
		}
		plan.Summary.Lines += len(order.Lines)
		since := at[i].Sub(day.Invoices[0].At)
		plan.Orders = append(plan.Orders, Order{
			At: time.Duration(float64(since) / r.Speed), Key: invoice.Number + "-" + r.RunID, Order: order,
		})
	}
	plan.Summary.UnknownProducts, plan.Summary.Orders = len(unknown), len(plan.Orders)
	return plan
}

// spread says when each invoice was written. The layout knows minutes only: those of one minute are spread over it evenly,
// in their order, or they would all start at once.
func spread(invoices []retail.Invoice) []time.Time {
	times := make([]time.Time, 0, len(invoices))
	for len(times) < len(invoices) {
		first := invoices[len(times)].At
		same := 1
		for len(times)+same < len(invoices) && invoices[len(times)+same].At.Equal(first) {
			same++
		}
		for i := range same {
			times = append(times, first.Add(time.Duration(i)*time.Minute/time.Duration(same)))
		}
	}
	return times
}

// customer is the invoice's own, or one of its own where the file does not know.
func customer(i retail.Invoice) string {
	if i.Customer == "" {
		return "guest-" + i.Number
	}
	return i.Customer
}

// Arrivals are the orders as requests to a target, in order of time.
func (p Plan) Arrivals(target load.Target) iter.Seq[load.Arrival] {
	return func(yield func(load.Arrival) bool) {
		for _, o := range p.Orders {
			if !yield(load.Arrival{At: o.At, Request: target.PlaceOrder(o.Key, o.Order)}) {
				return
			}
		}
	}
}
