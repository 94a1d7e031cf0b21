package trials

import (
	"fmt"
	"time"

	"example.com/watertight/lab/size"
)

// Why explains an outcome with Little's law: slots wanted = calls a second × seconds that each holds its slot.
func (s Setup) Why(t Trial, o Outcome) string {
	rate := 2.0 / 3 / s.Every.Seconds()
	held := min(s.RecsTime, t.Timeout, s.Deadline)
	slots := s.Slots
	if !t.Shared {
		slots = s.Slots - s.CheckoutSlots
	}
	lead := ""
	if t.Deaf && s.RecsTime > held {
		lead = fmt.Sprintf("the time-out after %v only signals, and a slot stays taken until its work is over; ", held)
		held = s.RecsTime
	}
	wanted := size.Busy(rate, held)
	sum := fmt.Sprintf("%srecs wants %.0f/s x %v = %.1f of %d slots", lead, rate, held, wanted, slots)
	switch {
	case !t.Shared:
		return fmt.Sprintf("%s, but these are its own: checkout wants %.1f of %d others", sum,
			size.Busy(rate/2, s.CheckoutTime), s.CheckoutSlots)
	case o.Checkout.Failed == 0:
		return sum + ": checkout always finds one"
	}
	return fmt.Sprintf("%s: they and the queue are full after %v, %d checkouts are turned away at once and %d wait in vain", sum,
		time.Duration(max(o.FirstFull-1, 0))*s.Every, o.Checkout.Full, o.Checkout.Failed-o.Checkout.Full)
}
