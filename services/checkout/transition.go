package checkout

import "errors"

// This file is the saga's whole set of rules. It knows no database and no broker, so that every interleaving of what can
// happen to an order can be tried.
//
//	pending ──reserved──▶ awaiting_payment ──charged──▶ confirmed
//	   │ └────short────▶ rejected   │
//	   └─expired─▶ cancelled ◀──────┴─declined, expired
//
// Signals may come twice, late, and after the order has ended. An order that ended without success answers whatever
// reserves or charges for it with one more orders.cancelled, which releases and refunds: that is how money and stock that
// turn up late find their way back.

// signal is something that happens to an order once it is placed.
type signal string

const (
	stockReserved   signal = "stock reserved"
	stockRejected   signal = "stock rejected"
	paymentCharged  signal = "payment charged"
	paymentDeclined signal = "payment declined"
	expired         signal = "expired"
)

// step is what a signal makes of an order: the status it then has, which may be the one it had, and the subject of the
// event that tells of it, "" for none.
type step struct {
	to   orderStatus
	tell string
}

// errTooEarly says that the signal is to come again later: a charge is taken only once the reservation is known, because
// confirmed means both. Payment is asked for by the transaction that notes the reservation, so that a charge can overtake
// it only where one of the two was dead for a while.
var errTooEarly = errors.New("the payment is charged and the stock not known to be reserved yet")

// transition says what s makes of an order that is at a status.
func transition(at orderStatus, s signal) (step, error) {
	switch at {
	case pending:
		return fromPending(s)
	case awaitingPayment:
		return fromAwaitingPayment(s), nil
	case rejected, cancelled:
		if s == stockReserved || s == paymentCharged {
			return step{at, subjectCancelled}, nil
		}
	}
	return step{to: at}, nil
}

func fromPending(s signal) (step, error) {
	switch s {
	case stockReserved:
		return step{awaitingPayment, subjectPaymentRequested}, nil
	case stockRejected:
		return step{rejected, subjectRejected}, nil
	case paymentDeclined, expired:
		return step{cancelled, subjectCancelled}, nil
	case paymentCharged:
		return step{}, errTooEarly
	}
	return step{to: pending}, nil
}

func fromAwaitingPayment(s signal) step {
	switch s {
	case paymentCharged:
		return step{confirmed, subjectConfirmed}
	case paymentDeclined, expired, stockRejected: // the last contradicts what was said before; what is sold must be there
		return step{cancelled, subjectCancelled}
	}
	return step{to: awaitingPayment}
}
