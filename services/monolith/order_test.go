package monolith_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/watertight/platform/postgres/pgtest"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// openOneDatabase starts the shop with the tables of checkout and inventory in one database, and the stock given.
func openOneDatabase(t *testing.T, stock map[string]int64, environ ...string) (s *shop, tables *pgx.Conn) {
	t.Helper()
	dbs, owners := databases(t)
	app, owner := pgtest.NewRoles(t)
	tables, err := pgx.Connect(t.Context(), owner)
	must(t, err)
	t.Cleanup(func() { _ = tables.Close(context.Background()) }) // the database goes anyway
	role, err := pgx.ParseConfig(app)
	must(t, err)
	_, err = tables.Exec(t.Context(), `CREATE SCHEMA inventory; GRANT USAGE ON SCHEMA inventory TO `+pgx.Identifier{role.User}.Sanitize())
	must(t, err)
	inSchema := func(url string) string {
		if strings.Contains(url, "?") {
			return url + "&search_path=inventory"
		}
		return url + "?search_path=inventory"
	}
	s = run(t, append(append(dbs, "CHECKOUT_DATABASE_URL="+app, "CHECKOUT_MIGRATE_DATABASE_URL="+owner,
		"INVENTORY_DATABASE_URL="+inSchema(app), "INVENTORY_MIGRATE_DATABASE_URL="+inSchema(owner)), environ...)...)
	s.owners = owners
	s.fill(t)
	s.putStock(t, stock)
	return s, tables
}

func (s *shop) putStock(t *testing.T, stock map[string]int64) {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	message := &inventoryv1.ImportStockRequest{}
	for id, pieces := range stock {
		message.Counts = append(message.Counts, &inventoryv1.StockCount{ProductId: id, Available: pieces})
	}
	importAll(t, inventoryv1.NewInventoryServiceClient(conn).ImportStock, message)
}

type orderState struct{ ID, Status, Reason string }

// The thing the split had to give up.
func TestOneDatabase_PlacesAndReservesInOneTransaction(t *testing.T) {
	s, tables := openOneDatabase(t, map[string]int64{"P-1": 3})
	first := decode[orderState](t, s.order(t, "k1"))
	if first.Status != "awaiting_payment" {
		t.Errorf("an order that has its stock is %s, want awaiting_payment", first.Status)
	}
	second := decode[orderState](t, s.order(t, "k2"))
	if second.Status != "rejected" || second.Reason != "not enough of P-1 in stock" {
		t.Errorf("an order that has not is %s: %q; want rejected", second.Status, second.Reason)
	}
	var together bool
	must(t, tables.QueryRow(t.Context(), `SELECT o.xmin::text = r.xmin::text FROM orders o JOIN inventory.reservations r ON r.order_id = o.id WHERE o.id = $1`,
		first.ID).Scan(&together))
	if !together {
		t.Error("order and reservation were written by two transactions")
	}
	var subjects []string
	must(t, tables.QueryRow(t.Context(), `SELECT array_agg(subject ORDER BY created_at) FROM outbox`).Scan(&subjects))
	if diff := cmp.Diff([]string{"orders.payment_requested", "orders.rejected"}, subjects); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	again := s.order(t, "k1")
	if got := decode[orderState](t, again); got != first || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the first order again: %+v, want %+v", got, first)
	}
	var available, reserved int64
	must(t, tables.QueryRow(t.Context(), `SELECT available, reserved FROM inventory.stock WHERE product_id = 'P-1'`).Scan(&available, &reserved))
	if available != 1 || reserved != 2 {
		t.Errorf("stock: %d available, %d reserved; want 1 and 2", available, reserved)
	}
	if a := s.do(t, http.MethodGet, s.admin+"/metrics", ""); !strings.Contains(a.body, `watertight_orders_total{service="checkout",status="rejected"} 1`) {
		t.Error("the rejected order is not in the metrics")
	}
}

// Many customers want the same few pieces, in every order of products.
func TestOneDatabase_NeverSellsAPieceTwiceNorDeadlocks(t *testing.T) {
	s, tables := openOneDatabase(t, map[string]int64{"P-1": 10, "P-2": 10})
	var sold, refused atomic.Int64
	var buying sync.WaitGroup
	for i := range 60 {
		a, b := "P-1", "P-2"
		if i%2 == 0 {
			a, b = b, a
		}
		buying.Go(func() {
			body := fmt.Sprintf(`{"customer_id":"c-%d","currency":"GBP","lines":[{"product_id":%q,"quantity":1},{"product_id":%q,"quantity":1}],"payment_token":"tok_ok"}`, i, a, b)
			a, err := s.try(t.Context(), http.MethodPost, "/api/v1/orders", body, "Idempotency-Key", "k")
			switch {
			case err != nil || a.status != http.StatusCreated && a.status != http.StatusServiceUnavailable:
				t.Errorf("order %d: %v, %d %s", i, err, a.status, a.body)
			case strings.Contains(a.body, `"status":"awaiting_payment"`):
				sold.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	buying.Wait()
	var available, reserved int64
	must(t, tables.QueryRow(t.Context(), `SELECT sum(available), sum(reserved) FROM inventory.stock`).Scan(&available, &reserved))
	if sold.Load() != 10 || refused.Load() != 50 || available != 0 || reserved != 20 {
		t.Errorf("%d sold, %d refused, %d available, %d reserved; want 10, 50, 0, 20", sold.Load(), refused.Load(), available, reserved)
	}
}

// The order goes on by events, as anywhere: payment is asked, and what is declined gives its stock back.
func TestOrders_AreConfirmedOrGiveTheirStockBack(t *testing.T) {
	for name, shop := range map[string]func(t *testing.T, stock map[string]int64, environ ...string) *shop{
		"one database": func(t *testing.T, stock map[string]int64, environ ...string) *shop {
			t.Helper()
			s, _ := openOneDatabase(t, stock, environ...)
			return s
		},
		"two databases": func(t *testing.T, stock map[string]int64, environ ...string) *shop {
			t.Helper()
			s := open(t, environ...)
			s.putStock(t, stock)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := shop(t, map[string]int64{"P-1": 2}, brokerFor(t)...)
			await := func(id, status string) {
				t.Helper()
				eventually(t, "the order is "+status, func() bool { return decode[orderState](t, s.get(t, "/api/v1/orders/"+id)).Status == status })
			}
			declined := decode[orderState](t, s.do(t, http.MethodPost, "/api/v1/orders", strings.Replace(orderBody, "tok_ok", "tok_declined", 1), "Idempotency-Key", "k1"))
			await(declined.ID, "cancelled")
			var confirmed orderState
			eventually(t, "the stock is back", func() bool { // each try is an order of its own
				confirmed = decode[orderState](t, s.order(t, fmt.Sprint("again-", len(confirmed.ID), confirmed.ID)))
				eventually(t, "it is known whether there is stock", func() bool {
					confirmed = decode[orderState](t, s.get(t, "/api/v1/orders/"+confirmed.ID))
					return confirmed.Status != "pending"
				})
				return confirmed.Status != "rejected"
			})
			await(confirmed.ID, "confirmed")
		})
	}
}

func TestSettings_RefuseTwoServicesInTheSameTables(t *testing.T) {
	dbs, _ := databases(t)
	checkout, _ := strings.CutPrefix(dbs[0], "CHECKOUT_DATABASE_URL=")
	err := load(append(dbs, "INVENTORY_DATABASE_URL="+checkout))
	if err == nil || !strings.HasPrefix(err.Error(), "INVENTORY_DATABASE_URL") {
		t.Errorf("got %v, want an error that names INVENTORY_DATABASE_URL", err)
	}
}
