package check

import (
	"context"
	"fmt"
	"time"
)

// route is who is to receive which of a service's events.
type route struct {
	from, to *snapshot
	until    time.Time
	subjects []string
}

// routes are the saga's. An inbox keeps ids for longer than an outbox keeps events, so that each event that is still in one
// can be asked for in the other.
func (e *examination) routes() []route {
	return []route{
		{e.checkout, e.inventory, e.since.checkout, []string{"orders.placed", "orders.cancelled"}},
		{e.checkout, e.payment, e.since.checkout, []string{"orders.payment_requested", "orders.cancelled"}},
		{e.inventory, e.checkout, e.since.inventory, []string{"inventory.reserved", "inventory.rejected"}},
		{e.payment, e.checkout, e.since.payment, []string{"payments.charged", "payments.declined"}},
	}
}

// examineRoutes looks for published events that never arrived. One that was given up where it arrived has arrived.
func (e *examination) examineRoutes(ctx context.Context) error {
	for _, r := range e.routes() {
		if err := e.examineRoute(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *examination) examineRoute(ctx context.Context, r route) error {
	published, err := open(ctx, r.from, scanSubject, findPublished, r.until, r.subjects)
	if err != nil {
		return err
	}
	defer published.close()
	received, err := open(ctx, r.to, scanID, findReceived)
	if err != nil {
		return err
	}
	defer received.close()
	for published.head() != nil {
		id := *published.head()
		subject := published.take(id)
		for received.head() != nil && compare(*received.head(), id) < 0 {
			received.take(*received.head())
		}
		e.tally.requiref(eventsReceived, received.take(id) != nil, "event %s on %s: never came to %s", id, *subject, r.to.name)
	}
	if err := published.err(); err != nil {
		return err
	}
	return received.err()
}

// examineOutboxes looks for events that were due before the check began and are still not published.
func (e *examination) examineOutboxes(ctx context.Context) error {
	for _, o := range []struct {
		of    *snapshot
		until time.Time
	}{{e.checkout, e.since.checkout}, {e.inventory, e.since.inventory}, {e.payment, e.since.payment}} {
		var all, waiting int64
		var oldest *string
		if err := o.of.tx.QueryRow(ctx, countWaiting, o.until).Scan(&all, &waiting, &oldest); err != nil {
			return fmt.Errorf("database of %s: %w", o.of.name, err)
		}
		r := e.tally.byName[eventsSent]
		r.Examined += all
		r.Violations += waiting
		if oldest != nil {
			r.Examples = append(r.Examples, fmt.Sprintf("%s: %d events wait, the first is %s", o.of.name, waiting, *oldest))
		}
	}
	return nil
}

// countDead counts the dead letters of both sides.
func (e *examination) countDead(ctx context.Context) error {
	for _, s := range []*snapshot{e.checkout, e.inventory, e.payment} {
		var n int64
		if err := s.tx.QueryRow(ctx, countDead).Scan(&n); err != nil {
			return fmt.Errorf("database of %s: %w", s.name, err)
		}
		e.dead[s.name] = n
	}
	return nil
}
