package storefront

import (
	"html/template"
	"net/http"

	"example.com/watertight/gateway/shop"
)

// withoutScripts is after how many seconds a browser without scripts asks again how the order stands.
const withoutScripts = 3

// step is one station on an order's way.
type step struct {
	Name  string
	State string // done, current, failed or ahead
}

// orderLine is a line with its picture.
type orderLine struct {
	shop.OrderLine
	Picture picture
}

type orderPage struct {
	shop.Order
	Lines  []orderLine // in place of the order's own
	Steps  []step
	Text   string // the status, for people
	Events string // address of its changes; empty when none will come
}

// order answers GET /orders/{id}. A script follows the order's changes; without scripts the page loads again until the
// order is final.
func (s *Storefront) order(w http.ResponseWriter, r *http.Request) error {
	o, err := s.shop.Order(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	page := orderPage{Order: o, Steps: steps(o.Status), Text: statusText(o.Status)}
	var symbols []template.HTML
	page.Lines, symbols = s.orderLines(o)
	v := view{Title: "Your order", Pictures: symbols}
	if !o.Status.Final() {
		page.Events = "/api/v1" + orderAddress(o.ID) + "/events"
		v.Script, v.Refresh = "order.js", withoutScripts
	}
	v.Page = page
	return s.render(w, r, http.StatusOK, "order", v)
}

func (s *Storefront) orderLines(o shop.Order) ([]orderLine, []template.HTML) {
	lines, drawn := make([]orderLine, 0, len(o.Lines)), make([]picture, 0, len(o.Lines))
	for _, l := range o.Lines {
		drawn = append(drawn, s.pictures.of(l.ProductID, l.Name, ""))
		lines = append(lines, orderLine{l, drawn[len(drawn)-1]})
	}
	return lines, s.pictures.symbols(drawn)
}

func steps(status shop.Status) []step {
	all := []step{{"Received", "done"}, {"Stock set aside", "ahead"}, {"Paid and confirmed", "ahead"}}
	switch status {
	case shop.Pending:
		all[1].State = "current"
	case shop.AwaitingPayment:
		all[1].State, all[2].State = "done", "current"
	case shop.Confirmed:
		all[1].State, all[2].State = "done", "done"
	case shop.Rejected:
		all[1] = step{"Not enough in stock", "failed"}
	case shop.Cancelled:
		all = []step{{"Received", "done"}, {"Cancelled", "failed"}} // before or after stock was set aside: the order does not say
	}
	return all
}

func statusText(status shop.Status) string {
	switch status {
	case shop.Pending:
		return "We have your order and are setting everything aside for you."
	case shop.AwaitingPayment:
		return "Everything is set aside. We are waiting for your payment."
	case shop.Confirmed:
		return "Thank you! Your order is paid and on its way."
	case shop.Rejected:
		return "We are sorry: there is not enough in stock. Nothing was charged."
	case shop.Cancelled:
		return "Your order was cancelled. Nothing stays charged."
	default:
		return "Your order is being looked after."
	}
}
