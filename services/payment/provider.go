package payment

import (
	"context"

	"github.com/google/uuid"
)

// Provider moves the money. Every call names the payment's key, under which the provider does it at most once however
// often it is asked, and answers the same each time. An error means that the outcome is unknown: the provider may have
// done it or not, and has to be asked again. Its methods may be called from any goroutine, also for one key at once.
type Provider interface {
	// Charge charges the customer under the key, unless it was declined or called off under that key before.
	Charge(ctx context.Context, key uuid.UUID, c Charge) (Answer, error)
	// CallOff sees to it that nothing stays charged under the key: it gives back what was charged, in full, and has every
	// later charge under the key declined. It returns how much was given back under the key, in minor units.
	CallOff(ctx context.Context, key uuid.UUID) (refunded int64, err error)
}

// Charge is what a customer is to be charged.
type Charge struct {
	CustomerID string
	Token      string // the provider's own, opaque
	Currency   string // ISO 4217
	Minor      int64  // minor units, more than 0
}

// Answer is a provider's final word on a charge.
type Answer struct {
	Charged bool
	Reason  string // why it was declined, for people
}
