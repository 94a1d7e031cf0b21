package inventory

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/postgres"
	"example.com/watertight/platform/postgres/pgtest"
	eventsv1 "example.com/watertight/proto/events/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// shelf is the model: what there is, and what became of each order.
type shelf struct {
	available, reserved map[string]int64
	orders              map[uuid.UUID]*modelOrder
}

type modelOrder struct {
	status string
	lines  map[string]int64
}

func (m *shelf) place(id uuid.UUID, items []*eventsv1.Item) {
	if m.orders[id] != nil {
		return
	}
	want := map[string]int64{}
	for _, i := range items {
		want[i.GetProductId()] += i.GetQuantity()
	}
	order := &modelOrder{status: reserved, lines: want}
	m.orders[id] = order
	for product, quantity := range want {
		if m.available[product] < quantity {
			order.status, order.lines = rejected, nil
			return
		}
	}
	for product, quantity := range want {
		m.available[product] -= quantity
		m.reserved[product] += quantity
	}
}

func (m *shelf) cancel(id uuid.UUID) {
	order := m.orders[id]
	if order == nil {
		m.orders[id] = &modelOrder{status: released}
		return
	}
	if order.status != reserved {
		return
	}
	for product, quantity := range order.lines {
		m.available[product] += quantity
		m.reserved[product] -= quantity
	}
	order.status, order.lines = released, nil
}

// state is what can be seen of a shelf.
type state struct {
	Available, Reserved map[string]int64
	Orders              map[string]string
	Announced           int
}

func (m *shelf) state(announced int) state {
	orders := map[string]string{}
	for id, o := range m.orders {
		orders[id.String()] = o.status
	}
	return state{maps.Clone(m.available), maps.Clone(m.reserved), orders, announced}
}

// TestReservations_BehaveAsTheModelInEveryOrderOfEvents draws events for a few orders of a few products, with repeats and
// in any order, and compares the tables with the model after each.
func TestReservations_BehaveAsTheModelInEveryOrderOfEvents(t *testing.T) {
	pool := migratedPool(t)
	products := []string{"A", "B", "C"}
	rapid.Check(t, func(rt *rapid.T) {
		if _, err := pool.Exec(t.Context(), "TRUNCATE stock, reservations, reservation_lines, outbox"); err != nil {
			t.Fatal(err)
		}
		model := &shelf{available: map[string]int64{}, reserved: map[string]int64{}, orders: map[uuid.UUID]*modelOrder{}}
		stock := func(product string, count int64) {
			if err := (store{pool}).set(t.Context(), []*inventoryv1.StockCount{{ProductId: product, Available: count}}); err != nil {
				rt.Fatal(err)
			}
			model.available[product] = count
			model.reserved[product] += 0
		}
		for _, p := range products[:2] { // the third is unknown until it is imported
			stock(p, rapid.Int64Range(0, 6).Draw(rt, "stock of "+p))
		}
		items := map[uuid.UUID][]*eventsv1.Item{}
		var ids []uuid.UUID
		for n := range 4 {
			id := uuid.UUID{15: byte(n + 1)}
			ids = append(ids, id)
			for range rapid.IntRange(1, 3).Draw(rt, "lines") {
				items[id] = append(items[id], &eventsv1.Item{ProductId: rapid.SampledFrom(products).Draw(rt, "product"), Quantity: rapid.Int64Range(1, 4).Draw(rt, "quantity")})
			}
		}
		announced := 0
		for range rapid.IntRange(1, 12).Draw(rt, "events") {
			id := rapid.SampledFrom(ids).Draw(rt, "order")
			switch rapid.SampledFrom([]string{"place", "place", "cancel", "import"}).Draw(rt, "event") {
			case "place":
				apply(rt, pool, func(tx pgx.Tx) error {
					return reserve(t.Context(), tx, &eventsv1.OrderPlaced{OrderId: id.String(), Items: items[id]})
				})
				model.place(id, items[id])
				announced++
			case "cancel":
				apply(rt, pool, func(tx pgx.Tx) error {
					return release(t.Context(), tx, &eventsv1.OrderCancelled{OrderId: id.String()})
				})
				model.cancel(id)
				announced++
			case "import":
				stock(rapid.SampledFrom(products).Draw(rt, "imported"), rapid.Int64Range(0, 6).Draw(rt, "count"))
			}
			if diff := cmp.Diff(model.state(announced), observe(t.Context(), rt, pool)); diff != "" {
				rt.Fatalf("state (-model +database):\n%s", diff)
			}
		}
	})
}

func apply(rt *rapid.T, pool *pgxpool.Pool, do func(tx pgx.Tx) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := postgres.InTx(ctx, pool, do); err != nil {
		rt.Fatal(err)
	}
}

// observe reads the state, and checks that each product has as many pieces reserved as the orders' lines say.
func observe(ctx context.Context, rt *rapid.T, pool *pgxpool.Pool) state {
	s := state{Available: map[string]int64{}, Reserved: map[string]int64{}, Orders: map[string]string{}}
	each := func(sql string, scans []any, do func()) {
		rows, _ := pool.Query(ctx, sql)
		if _, err := pgx.ForEachRow(rows, scans, func() error { do(); return nil }); err != nil {
			rt.Fatal(err)
		}
	}
	var name, status string
	var available, inStock, inLines int64
	each(`SELECT product_id, available, reserved, (SELECT coalesce(sum(quantity), 0)::bigint FROM reservation_lines l WHERE l.product_id = s.product_id) FROM stock s`,
		[]any{&name, &available, &inStock, &inLines}, func() {
			s.Available[name], s.Reserved[name] = available, inStock
			if inStock != inLines {
				rt.Fatalf("%s: %d reserved, but the lines add up to %d", name, inStock, inLines)
			}
		})
	each("SELECT order_id::text, status FROM reservations", []any{&name, &status}, func() { s.Orders[name] = status })
	each("SELECT count(*) FROM outbox", []any{&s.Announced}, func() {})
	return s
}

func migratedPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg, err := config.Load[postgres.Config]([]string{"DATABASE_URL=" + pgtest.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	migrations, err := fs.Sub(embedded, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), cfg, migrations, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	pool, err := postgres.Open(t.Context(), cfg, postgres.Deps{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestParseItems_KeepsTheOrderInWhichProductsFirstCome(t *testing.T) {
	items, err := parseItems(uuid.Nil, []*eventsv1.Item{{ProductId: "B", Quantity: 1}, {ProductId: "A", Quantity: 2}, {ProductId: "B", Quantity: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(items), "[{B 4} {A 2}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
