package check

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// The invariants, in the order of the report.
const (
	acknowledgedExist       = "acknowledged_exist"
	ordersFinal             = "orders_final"
	confirmedChargedOnce    = "confirmed_charged_once"
	confirmedReservedOnce   = "confirmed_reserved_once"
	endedNothingReserved    = "ended_nothing_reserved"
	endedNothingCharged     = "ended_nothing_charged"
	providerChargedOnce     = "provider_charged_once"
	booksAgree              = "books_agree"
	noUnknownOrders         = "no_unknown_orders"
	stockNotNegative        = "stock_not_negative"
	stockCountsReservations = "stock_counts_reservations"
	reservedEqualsSold      = "reserved_equals_sold"
	eventsSent              = "events_sent"
	eventsReceived          = "events_received"
)

// invariants says what each of them means.
func invariants() []Result {
	return []Result{
		{Name: acknowledgedExist, Means: "every acknowledged order exists"},
		{Name: ordersFinal, Means: "every order is confirmed, rejected or cancelled"},
		{Name: confirmedChargedOnce, Means: "a confirmed order is charged once, its total"},
		{Name: confirmedReservedOnce, Means: "a confirmed order has its lines reserved, once"},
		{Name: endedNothingReserved, Means: "a rejected or cancelled order has nothing reserved"},
		{Name: endedNothingCharged, Means: "a rejected or cancelled order has as much refunded as charged"},
		{Name: providerChargedOnce, Means: "the provider has charged no order twice, nor refunded more than it charged"},
		{Name: booksAgree, Means: "payment's books say what the provider's say"},
		{Name: noUnknownOrders, Means: "nothing is reserved or charged for an order that does not exist"},
		{Name: stockNotNegative, Means: "no stock is negative"},
		{Name: stockCountsReservations, Means: "the reserved count of each product is the sum of its reservations"},
		{Name: reservedEqualsSold, Means: "the reservations of each product are what was sold of it"},
		{Name: eventsSent, Means: "no event waits to be published"},
		{Name: eventsReceived, Means: "every published event was received by whom it is for"},
	}
}

// maxExamples bounds the examples of one invariant.
const maxExamples = 5

// tally counts what was examined and what was found.
type tally struct {
	list   []Result
	byName map[string]*Result
}

func newTally() *tally {
	t := &tally{list: invariants(), byName: map[string]*Result{}}
	for i := range t.list {
		t.list[i].Examples = []string{}
		t.byName[t.list[i].Name] = &t.list[i]
	}
	return t
}

func (t *tally) examined(name string) { t.byName[name].Examined++ }

func (t *tally) violatedf(name, format string, args ...any) {
	r := t.byName[name]
	r.Violations++
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// requiref counts one thing as examined, and as a violation when it does not hold.
func (t *tally) requiref(name string, holds bool, format string, args ...any) {
	t.examined(name)
	if !holds {
		t.violatedf(name, format, args...)
	}
}

func (t *tally) results() []Result { return t.list }

// facts is all that is known of one order; what is nil is not there.
type facts struct {
	id           uuid.UUID
	acknowledged bool
	order        *order
	reservation  *reservation
	payment      *payment
}

// order is what checkout says; amounts are minor units.
type order struct {
	status, currency string
	total            int64
	old              bool // there when the check began
	lines            lines
}

// reservation is what inventory says.
type reservation struct {
	status string
	lines  lines
}

// payment is what payment says, status "" when it has no row, and what the provider says.
type payment struct {
	status, currency                           string
	amount, charged, refunded                  int64
	charges, providerCharged, providerRefunded int64
	providerCurrencies                         []string
}

// lines are products, sorted, and how many pieces of each.
type lines struct {
	products   []string
	quantities []int64
}

func (l lines) equal(other lines) bool {
	return slices.Equal(l.products, other.products) && slices.Equal(l.quantities, other.quantities)
}

func (l lines) addTo(pieces map[string]int64) {
	for i, product := range l.products {
		pieces[product] += l.quantities[i]
	}
}

// judge holds one order against the invariants. Each finding stands for itself: one wrong order may break several.
func (e *examination) judge(f facts) {
	if f.acknowledged {
		e.tally.requiref(acknowledgedExist, f.order != nil, "order %s: was acknowledged and does not exist", f.id)
	}
	if f.payment != nil {
		e.judgeBooks(f.id, *f.payment)
	}
	if f.reservation != nil || f.payment != nil {
		e.tally.examined(noUnknownOrders)
		if f.order == nil {
			e.strangers = append(e.strangers, f.id)
		}
	}
	if f.order == nil || !f.order.old && !f.acknowledged {
		return
	}
	e.orders[f.order.status]++
	final := f.order.status == "confirmed" || f.order.status == "rejected" || f.order.status == "cancelled"
	e.tally.requiref(ordersFinal, final, "order %s: is %s", f.id, f.order.status)
	if !final {
		return
	}
	if f.reservation != nil {
		f.reservation.lines.addTo(e.reserved)
	}
	if f.order.status == "confirmed" {
		f.order.lines.addTo(e.sold)
		e.judgeConfirmed(f)
		return
	}
	e.judgeEnded(f)
}

func (e *examination) judgeConfirmed(f facts) {
	var p payment
	if f.payment != nil {
		p = *f.payment
	}
	total := f.order.total
	once := p.status == "charged" && p.amount == total && p.charged == total && p.refunded == 0 && p.currency == f.order.currency &&
		p.charges == 1 && p.providerCharged == total && p.providerRefunded == 0 && slices.Equal(p.providerCurrencies, []string{f.order.currency})
	e.tally.requiref(confirmedChargedOnce, once, "order %s: confirmed for %d %s, %s", f.id, total, f.order.currency, p)
	var r reservation
	if f.reservation != nil {
		r = *f.reservation
	}
	e.tally.requiref(confirmedReservedOnce, r.status == "reserved" && r.lines.equal(f.order.lines),
		"order %s: confirmed for %v of %v, the reservation is %q for %v of %v",
		f.id, f.order.lines.quantities, f.order.lines.products, r.status, r.lines.quantities, r.lines.products)
}

func (e *examination) judgeEnded(f facts) {
	reserved := f.reservation != nil && (f.reservation.status == "reserved" || len(f.reservation.lines.products) > 0)
	e.tally.requiref(endedNothingReserved, !reserved, "order %s: is %s and still holds stock", f.id, f.order.status)
	var p payment
	if f.payment != nil {
		p = *f.payment
	}
	// A payment that is still asked for may yet become a charge.
	settled := p.charged == p.refunded && p.providerCharged == p.providerRefunded && p.status != "pending"
	e.tally.requiref(endedNothingCharged, settled, "order %s: is %s, %s", f.id, f.order.status, p)
}

// judgeBooks compares a payment with what the provider has done. While a payment is pending the provider may be ahead.
func (e *examination) judgeBooks(id uuid.UUID, p payment) {
	e.tally.requiref(providerChargedOnce, p.charges <= 1 && p.providerRefunded <= p.providerCharged, "order %s: %s", id, p)
	if p.status == "pending" {
		return
	}
	agree := p.charged == p.providerCharged && p.refunded == p.providerRefunded
	e.tally.requiref(booksAgree, agree, "order %s: %s", id, p)
}

// String says it in the words of an example.
func (p payment) String() string {
	if p.status == "" {
		p.status = "missing"
	}
	return fmt.Sprintf("the payment is %s: %d charged, %d refunded; the provider made %d charges: %d charged, %d refunded",
		p.status, p.charged, p.refunded, p.charges, p.providerCharged, p.providerRefunded)
}
