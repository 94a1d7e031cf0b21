package checkout

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

var allSignals = []signal{stockReserved, stockRejected, paymentCharged, paymentDeclined, expired}

// TestTransition_EverySequenceOfSixSignalsEndsRight feeds an order every sequence of up to six signals, possible or not,
// with repeats. A signal that is too early comes again after the next one, as a redelivery does.
func TestTransition_EverySequenceOfSixSignalsEndsRight(t *testing.T) {
	sequences := 0
	var extend func(prefix []signal)
	extend = func(prefix []signal) {
		sequences++
		checkSequence(t, prefix)
		if len(prefix) == 6 {
			return
		}
		for _, s := range allSignals {
			extend(append(slices.Clip(prefix), s))
		}
	}
	extend(nil)
	if want := 1 + 5 + 25 + 125 + 625 + 3125 + 15625; sequences != want {
		t.Errorf("tried %d sequences, want %d", sequences, want)
	}
}

// history is what an order was told and told others.
type history struct {
	status  orderStatus
	heard   map[signal]int
	told    map[string]int
	undone  bool // orders.cancelled was told after everything that was reserved or charged
	waiting []signal
}

func checkSequence(t *testing.T, sequence []signal) {
	t.Helper()
	h := &history{status: pending, heard: map[signal]int{}, told: map[string]int{}, undone: true}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("after %v, status %s, told %v: %s", sequence, h.status, h.told, fmt.Sprintf(format, args...))
	}
	for _, s := range sequence {
		again := h.waiting
		h.waiting = nil
		if problem := h.hear(s); problem != "" {
			fail("%s", problem)
		}
		for _, early := range again {
			if problem := h.hear(early); problem != "" {
				fail("%s", problem)
			}
		}
	}
	for _, subject := range []string{subjectPaymentRequested, subjectConfirmed, subjectRejected} {
		if h.told[subject] > 1 {
			fail("%s was told twice", subject)
		}
	}
	if h.told[subjectPaymentRequested] > 0 && h.heard[stockReserved] == 0 {
		fail("payment was asked for without stock")
	}
	switch {
	case h.status == confirmed && (h.heard[stockReserved] == 0 || h.heard[paymentCharged] == 0 ||
		h.told[subjectConfirmed] != 1 || h.told[subjectCancelled] > 0):
		fail("confirmed without stock or money, or after it was given back")
	case h.status != confirmed && h.told[subjectConfirmed] > 0:
		fail("confirmed was told and is not so")
	case (h.status == rejected || h.status == cancelled) && !h.undone:
		fail("something stays reserved or charged")
	case h.status == cancelled && h.told[subjectCancelled] == 0:
		fail("nobody was told of the cancellation")
	}
}

// hear applies a signal, and says what is wrong with what came of it.
func (h *history) hear(s signal) string {
	next, err := transition(h.status, s)
	if errors.Is(err, errTooEarly) {
		h.waiting = append(h.waiting, s)
		return ""
	}
	if err != nil {
		return err.Error()
	}
	if h.status.final() && next.to != h.status {
		return fmt.Sprintf("%s ended a final status", s)
	}
	h.heard[s]++
	if s == stockReserved || s == paymentCharged {
		h.undone = false
	}
	if next.tell != "" {
		h.told[next.tell]++
	}
	if next.tell == subjectCancelled {
		h.undone = true
	}
	if same, err := transition(next.to, s); err == nil && same.to != next.to {
		return fmt.Sprintf("%s twice in a row makes %s, once %s", s, same.to, next.to)
	}
	h.status = next.to
	return ""
}

// The messages of the closed shop below.
const (
	msgPlaced = iota
	msgRequested
	msgCancelled2Inventory // one orders.cancelled goes to two consumers, each in its own time
	msgCancelled2Payment
	msgReserved
	msgRejected
	msgCharged
	msgDeclined
	messages
)

// Where the models of inventory, payment and provider stand.
type state uint8

const (
	none state = iota
	isReserved
	isRejected
	isReleased
	isPending
	isCharged
	isDeclined
	isRefunded
	isCancelled
	isCalledOff
)

// asked is where the one request is that payment has under way with the provider.
type asked uint8

const (
	idle asked = iota
	onItsWay
	answeredCharged
	answeredDeclined
)

// world is a whole shop with one order: checkout is the real transition, the others are models of what their contracts
// say, and the ledgers count what really happened. It is small and comparable, so that every state that can be reached at
// all can be visited.
type world struct { //nolint:recvcheck // a value is asked and its copy is changed
	order               orderStatus
	inventory           state
	reserves, releases  uint8 // the ledger of the stock
	payment             state
	calledOff           bool
	asking              asked
	straggler           bool // a request whose answer is no longer waited for, still on its way to the provider
	provider            state
	charges, refunds    uint8 // the ledger of the money
	inFlight            [messages]uint8
	copies, drops       uint8 // how many messages may yet be duplicated or lost for good
	expires             bool  // whether the order may expire
	confirms, rejecteds uint8 // how often each was told
}

type action struct {
	name string
	next world
}

func (w *world) send(kinds ...int) {
	for _, kind := range kinds {
		w.inFlight[kind]++
	}
}

// signal runs the real saga.
func (w *world) signal(s signal) error {
	next, err := transition(w.order, s)
	if err != nil {
		return err
	}
	w.order = next.to
	switch next.tell {
	case subjectPaymentRequested:
		w.send(msgRequested)
	case subjectCancelled:
		w.send(msgCancelled2Inventory, msgCancelled2Payment)
	case subjectConfirmed:
		w.confirms++
	case subjectRejected:
		w.rejecteds++
	}
	return nil
}

// actions are all that can happen next.
func (w world) actions(t *testing.T) []action {
	t.Helper()
	var all []action
	add := func(name string, change func(*world)) {
		next := w
		change(&next)
		all = append(all, action{name, next})
	}
	for kind := range messages {
		if w.inFlight[kind] == 0 {
			continue
		}
		for _, choice := range []bool{true, false} { // whether there is stock
			if kind != msgPlaced && !choice {
				continue
			}
			add(fmt.Sprintf("deliver %d (%t)", kind, choice), func(n *world) {
				n.inFlight[kind]--
				if err := n.deliver(kind, choice); err != nil {
					t.Fatalf("deliver %d to %+v: %v: the causes of a charge were said to come before it", kind, w, err)
				}
			})
		}
		if w.copies > 0 {
			add(fmt.Sprintf("copy %d", kind), func(n *world) { n.copies--; n.inFlight[kind]++ })
		}
		if w.drops > 0 && kind != msgCancelled2Inventory && kind != msgCancelled2Payment {
			add(fmt.Sprintf("lose %d", kind), func(n *world) { n.drops--; n.inFlight[kind]-- })
		}
	}
	if w.expires && !w.order.final() {
		add("expire", func(n *world) { _ = n.signal(expired) }) // of the statuses that are not final, none refuses it
	}
	return append(all, w.provide()...)
}

// deliver hands a message to the service it is for.
func (w *world) deliver(kind int, inStock bool) error {
	switch kind {
	case msgPlaced:
		w.reserve(inStock)
	case msgCancelled2Inventory:
		if w.inventory == isReserved {
			w.releases++
		}
		if w.inventory != isRejected {
			w.inventory = isReleased
		}
	case msgRequested:
		if w.payment == none {
			w.payment = isPending
		}
	case msgCancelled2Payment:
		switch w.payment {
		case none:
			w.payment = isCancelled
		case isPending, isCharged:
			w.calledOff = true
		}
	case msgReserved:
		return w.signal(stockReserved)
	case msgRejected:
		return w.signal(stockRejected)
	case msgCharged:
		return w.signal(paymentCharged)
	case msgDeclined:
		return w.signal(paymentDeclined)
	}
	return nil
}

func (w *world) reserve(inStock bool) {
	if w.inventory == none {
		w.inventory = isRejected
		if inStock {
			w.inventory = isReserved
			w.reserves++
		}
	}
	switch w.inventory { // answered as it stands
	case isReserved:
		w.send(msgReserved)
	case isRejected:
		w.send(msgRejected)
	}
}

// provide is what payment and its provider may do of themselves.
func (w world) provide() []action {
	var all []action
	add := func(name string, change func(*world)) {
		next := w
		change(&next)
		all = append(all, action{name, next})
	}
	if w.payment == isPending && !w.calledOff && w.asking == idle {
		add("ask to charge", func(n *world) { n.asking = onItsWay })
	}
	for _, has := range []bool{true, false} { // whether the customer has the money
		if w.asking == onItsWay {
			add(fmt.Sprintf("provider answers (%t)", has), func(n *world) { n.asking = n.charge(has) })
		}
		if w.straggler {
			add(fmt.Sprintf("straggler arrives (%t)", has), func(n *world) { n.straggler = false; n.charge(has) })
		}
	}
	if w.asking != idle && !w.straggler {
		add("answer lost", func(n *world) { n.straggler = w.asking == onItsWay; n.asking = idle })
	}
	if w.asking == answeredCharged || w.asking == answeredDeclined {
		add("note the answer", func(n *world) { n.note() })
	}
	if w.calledOff && (w.payment == isPending || w.payment == isCharged) {
		add("call off", func(n *world) { n.callOff(true) })
		add("call off, answer lost", func(n *world) { n.callOff(false) })
	}
	return all
}

// charge is the provider's own rule: once for a key, and the same answer ever after.
func (w *world) charge(hasMoney bool) asked {
	if w.provider == none {
		w.provider = isDeclined
		if hasMoney {
			w.provider = isCharged
			w.charges++
		}
	}
	if w.provider == isCharged {
		return answeredCharged
	}
	return answeredDeclined
}

func (w *world) note() {
	answer := w.asking
	w.asking = idle
	if w.payment != isPending {
		return
	}
	if answer == answeredCharged {
		w.payment = isCharged
		w.send(msgCharged)
		return
	}
	w.payment = isDeclined
	w.send(msgDeclined)
}

func (w *world) callOff(answered bool) {
	if w.provider == isCharged {
		w.refunds++
	}
	if w.provider == isCharged || w.provider == none {
		w.provider = isCalledOff
	}
	switch {
	case !answered:
	case w.refunds > 0:
		w.payment = isRefunded
	default:
		w.payment = isCancelled
	}
}

// always is what may never be otherwise, also while messages are under way.
func (w world) always() string {
	switch {
	case w.charges > 1 || w.reserves > 1:
		return "charged or reserved twice"
	case w.refunds > w.charges || w.releases > w.reserves:
		return "more given back than was taken"
	case w.confirms+w.rejecteds > 1:
		return "two ends were told"
	case w.order == confirmed && (w.charges != 1 || w.refunds != 0 || w.reserves != 1 || w.releases != 0):
		return "confirmed, and not charged once and reserved once"
	}
	return ""
}

// atRest is what must be so once nothing is left to happen.
func (w world) atRest() string {
	switch {
	case !w.order.final():
		return "the order never ends"
	case w.order != confirmed && (w.reserves != w.releases || w.charges != w.refunds):
		return "the order failed, and stock or money is not given back"
	}
	return ""
}

// explore visits every world that can come of start.
func explore(t *testing.T, start world) (visited int, ends map[orderStatus]int) {
	t.Helper()
	type from struct {
		before world
		by     string
	}
	seen := map[world]from{start: {}}
	ends = map[orderStatus]int{}
	story := func(w world) (lines []string) {
		for w != start {
			f := seen[w]
			lines = append(lines, f.by)
			w = f.before
		}
		slices.Reverse(lines)
		return lines
	}
	for open := []world{start}; len(open) > 0; {
		w := open[0]
		open = open[1:]
		if problem := w.always(); problem != "" {
			t.Fatalf("%s: %+v\nafter %v", problem, w, story(w))
		}
		next := w.actions(t)
		if len(next) == 0 {
			if problem := w.atRest(); problem != "" {
				t.Fatalf("%s: %+v\nafter %v", problem, w, story(w))
			}
			ends[w.order]++
		}
		for _, a := range next {
			if _, known := seen[a.next]; !known {
				seen[a.next] = from{w, a.name}
				open = append(open, a.next)
			}
		}
	}
	return len(seen), ends
}

// TestSaga_NoInterleavingLosesMoneyOrStock tries, for one order, every order of deliveries, answers lost and late, an
// expiry at any moment, messages delivered again, and messages lost for good: all but a cancellation's, which is what
// everything else is undone by.
func TestSaga_NoInterleavingLosesMoneyOrStock(t *testing.T) {
	for name, c := range map[string]struct {
		copies, drops uint8
		expires       bool
		ends          []orderStatus
	}{
		"every message arrives once":          {0, 0, false, []orderStatus{confirmed, rejected, cancelled}},
		"three arrive again":                  {3, 0, false, []orderStatus{confirmed, rejected, cancelled}},
		"the order may expire":                {0, 0, true, []orderStatus{confirmed, rejected, cancelled}},
		"it may expire, and two arrive again": {2, 0, true, []orderStatus{confirmed, rejected, cancelled}},
		"two are lost, and one arrives again": {1, 2, true, []orderStatus{confirmed, rejected, cancelled}},
	} {
		t.Run(name, func(t *testing.T) {
			start := world{order: pending, copies: c.copies, drops: c.drops, expires: c.expires}
			start.send(msgPlaced)
			visited, ends := explore(t, start)
			for _, end := range c.ends {
				if ends[end] == 0 {
					t.Errorf("no way leads to %s", end)
				}
			}
			t.Logf("%d states, ends %v", visited, ends)
		})
	}
}
