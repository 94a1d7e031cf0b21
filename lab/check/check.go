// Package check compares what the databases of checkout, inventory and payment say about the same orders, and counts where
// an order was lost, charged twice, or sold without stock. It only reads, knows the tables and no service, and gives each
// finding a name and an example; what to do about one is for people.
package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Databases are the URLs of the three, each with a role that may read all of its tables.
type Databases struct{ Checkout, Inventory, Payment string }

// Report is what was found.
type Report struct {
	Clean        bool             `json:"clean"`        // no invariant is broken
	Acknowledged int              `json:"acknowledged"` // orders that somebody was told are placed
	Orders       map[string]int64 `json:"orders"`       // those that were examined, by status
	Invariants   []Result         `json:"invariants"`
	// DeadLetters is how many events wait for an operator, by service. They break nothing by themselves.
	DeadLetters map[string]int64 `json:"dead_letters"`
}

// Result is how one invariant fared.
type Result struct {
	Name       string   `json:"name"`
	Means      string   `json:"means"`
	Examined   int64    `json:"examined"`
	Violations int64    `json:"violations"`
	Examples   []string `json:"examples"` // of violations, not all
}

// Broken lists the names of the broken invariants.
func (r Report) Broken() []string {
	var names []string
	for _, i := range r.Invariants {
		if i.Violations > 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

// Retry is the pause between two looks while something is still on its way.
const retry = 300 * time.Millisecond

// Run examines the orders that are there when it begins, and the acknowledged ones. What is broken is looked at again until
// it is well or wait is over: an order that moves, an event that is on its way, and a database that is away for a moment
// are no findings. Orders that come in meanwhile are none of its business, so that it can end on a busy shop.
func Run(ctx context.Context, databases Databases, acknowledged []uuid.UUID, wait time.Duration) (Report, error) {
	acknowledged = slices.Clone(acknowledged)
	slices.SortFunc(acknowledged, compare)
	acknowledged = slices.Compact(acknowledged)
	deadline := time.Now().Add(wait)
	var since *cutoffs
	for {
		report, began, err := look(ctx, databases, acknowledged, since)
		if since == nil {
			since = began
		}
		if err == nil && report.Clean || !time.Now().Before(deadline) || ctx.Err() != nil {
			return report, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(retry, time.Until(deadline))):
		}
	}
}

// cutoffs are the moments up to which things are examined, each by its own database's clock.
type cutoffs struct{ checkout, inventory, payment time.Time }

// look examines once. The cutoffs are now when there are none yet; it returns those it used.
func look(ctx context.Context, databases Databases, acknowledged []uuid.UUID, since *cutoffs) (Report, *cutoffs, error) {
	e := &examination{tally: newTally(), sold: map[string]int64{}, reserved: map[string]int64{}, orders: map[string]int64{}, dead: map[string]int64{}}
	defer e.close()
	// In this order: what has made an order final in checkout's snapshot was there before in the other two.
	for _, d := range []struct {
		name, url string
		into      **snapshot
	}{{"checkout", databases.Checkout, &e.checkout}, {"inventory", databases.Inventory, &e.inventory}, {"payment", databases.Payment, &e.payment}} {
		s, err := openSnapshot(ctx, d.name, d.url)
		if err != nil {
			return Report{}, since, err
		}
		*d.into = s
	}
	if since == nil {
		since = &cutoffs{e.checkout.at, e.inventory.at, e.payment.at}
	}
	e.since = *since
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return e.examineOrders(ctx, acknowledged) },
		e.examineStock, e.examineOutboxes, e.examineRoutes, e.countDead,
		e.examineStrangers, // the last, because it leaves checkout's snapshot
	} {
		if err := step(ctx); err != nil {
			return Report{}, since, err
		}
	}
	report := Report{Acknowledged: len(acknowledged), Orders: e.orders, Invariants: e.tally.results(), DeadLetters: e.dead}
	report.Clean = len(report.Broken()) == 0
	return report, since, nil
}

// snapshot is one database as it was at a moment.
type snapshot struct {
	name string
	conn *pgx.Conn
	tx   pgx.Tx
	at   time.Time
}

func openSnapshot(ctx context.Context, name, url string) (*snapshot, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("database of %s: %w", name, err)
	}
	s := &snapshot{name: name, conn: conn}
	s.tx, err = conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		err = s.tx.QueryRow(ctx, now).Scan(&s.at) // the snapshot is taken here
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database of %s: %w", name, err), conn.Close(ctx))
	}
	return s, nil
}

// examination is one look at everything.
type examination struct {
	checkout, inventory, payment *snapshot
	since                        cutoffs
	tally                        *tally
	orders, dead                 map[string]int64
	strangers                    []uuid.UUID      // reserved or charged for, and not in checkout's snapshot
	sold, reserved               map[string]int64 // pieces by product, of the orders that are examined and final
}

func (e *examination) close() {
	for _, s := range []*snapshot{e.checkout, e.inventory, e.payment} {
		if s != nil {
			_ = s.conn.Close(context.Background()) // nothing was written
		}
	}
}

// examineOrders goes through the three databases side by side in the order of the orders' ids, so that it holds one order
// at a time.
func (e *examination) examineOrders(ctx context.Context, acknowledged []uuid.UUID) (err error) {
	orders, err := open(ctx, e.checkout, scanOrder, findOrders, e.since.checkout)
	if err != nil {
		return err
	}
	defer orders.close()
	reservations, err := open(ctx, e.inventory, scanReservation, findReservations)
	if err != nil {
		return err
	}
	defer reservations.close()
	payments, err := open(ctx, e.payment, scanPayment, findPayments)
	if err != nil {
		return err
	}
	defer payments.close()
	for {
		id, more := lowest(acknowledged, orders.head(), reservations.head(), payments.head())
		if !more {
			return errors.Join(orders.err(), reservations.err(), payments.err())
		}
		f := facts{id: id}
		if len(acknowledged) > 0 && acknowledged[0] == id {
			f.acknowledged, acknowledged = true, acknowledged[1:]
		}
		f.order, f.reservation, f.payment = orders.take(id), reservations.take(id), payments.take(id)
		e.judge(f)
	}
}

// lowest returns the lowest id that is next anywhere; no more is when all have come to their end.
func lowest(acknowledged []uuid.UUID, heads ...*uuid.UUID) (id uuid.UUID, more bool) {
	if len(acknowledged) > 0 {
		heads = append(heads, &acknowledged[0])
	}
	for _, h := range heads {
		if h != nil && (!more || compare(*h, id) < 0) {
			id, more = *h, true
		}
	}
	return id, more
}

// examineStrangers asks checkout, as it is now, for the orders that its snapshot did not have: most are just newer.
func (e *examination) examineStrangers(ctx context.Context) error {
	if err := e.checkout.tx.Rollback(ctx); err != nil {
		return fmt.Errorf("database of checkout: %w", err)
	}
	for chunk := range slices.Chunk(e.strangers, 1000) {
		rows, _ := e.checkout.conn.Query(ctx, findKnown, chunk) // its error comes out of CollectRows
		known, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return fmt.Errorf("database of checkout: %w", err)
		}
		for _, id := range chunk {
			if !slices.Contains(known, id) {
				e.tally.violatedf(noUnknownOrders, "order %s: has a reservation or a payment and does not exist", id)
			}
		}
	}
	return nil
}

// examineStock compares the counts of stock with the reservations, and those with what was sold.
func (e *examination) examineStock(ctx context.Context) error {
	var product string
	var available, reserved, lines int64
	rows, _ := e.inventory.tx.Query(ctx, findStock) // its error comes out of ForEachRow
	_, err := pgx.ForEachRow(rows, []any{&product, &available, &reserved, &lines}, func() error {
		e.tally.examined(stockNotNegative)
		e.tally.examined(stockCountsReservations)
		if available < 0 || reserved < 0 {
			e.tally.violatedf(stockNotNegative, "product %s: %d available, %d reserved", product, available, reserved)
		}
		if reserved != lines {
			e.tally.violatedf(stockCountsReservations, "product %s: %d are reserved by its count, %d by the reservations", product, reserved, lines)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("database of inventory: %w", err)
	}
	products := map[string]bool{}
	for _, pieces := range []map[string]int64{e.sold, e.reserved} {
		for product := range pieces {
			products[product] = true
		}
	}
	for _, product := range slices.Sorted(maps.Keys(products)) {
		e.tally.examined(reservedEqualsSold)
		if e.reserved[product] != e.sold[product] {
			e.tally.violatedf(reservedEqualsSold, "product %s: %d reserved, %d in confirmed orders", product, e.reserved[product], e.sold[product])
		}
	}
	return nil
}
