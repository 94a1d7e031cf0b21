package inventory_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/outbox"
	eventsv1 "example.com/watertight/proto/events/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

func TestReserve_AllItemsOrNone(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10), have("B", 2), have("C", 0))
	order, short, unknown := uuid.New(), uuid.New(), uuid.New()
	s.place(order, of("A", 3), of("B", 2))
	if got := s.answer(order, 1); got != "reserved" {
		t.Errorf("got %q, want reserved", got)
	}
	s.place(short, of("A", 1), of("C", 1), of("B", 1))
	if got := s.answer(short, 1); got != "rejected C" {
		t.Errorf("got %q, want rejected C: the first product that is short", got)
	}
	s.place(unknown, of("A", 1), of("unheard of", 1))
	if got := s.answer(unknown, 1); got != "rejected unheard of" {
		t.Errorf("got %q, want rejected unheard of", got)
	}
	r.wantLevel(t, "A", 7, 3)
	r.wantLevel(t, "B", 0, 2)
	r.wantLevel(t, "C", 0, 0)
}

func TestReserve_OneProductOnTwoLinesCountsAsTheirSum(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 5))
	fits, exceeds := uuid.New(), uuid.New()
	s.place(exceeds, of("A", 3), of("A", 3))
	if got := s.answer(exceeds, 1); got != "rejected A" {
		t.Errorf("got %q, want rejected A", got)
	}
	s.place(fits, of("A", 3), of("A", 2))
	if got := s.answer(fits, 1); got != "reserved" {
		t.Errorf("got %q, want reserved", got)
	}
	r.wantLevel(t, "A", 0, 5)
}

func TestReserve_AnOrderIsReservedOnceHoweverManyEventsPlaceIt(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10), have("B", 0))
	order, rejected := uuid.New(), uuid.New()
	for range 3 {
		s.place(order, of("A", 2))
		s.place(rejected, of("B", 1))
	}
	s.answer(order, 3)
	s.answer(rejected, 3)
	if diff := cmp.Diff([]string{"reserved", "reserved", "reserved"}, s.answers(order)); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	r.stock(t, have("B", 5)) // too late for the rejected order
	s.place(rejected, of("B", 1))
	if got := s.answer(rejected, 4); got != "rejected B" {
		t.Errorf("got %q, want rejected B as before", got)
	}
	r.wantLevel(t, "A", 8, 2)
	r.wantLevel(t, "B", 5, 0)
}

func TestRelease_GivesBackOnceHoweverManyEventsCancelTheOrder(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10), have("B", 10))
	order, other := uuid.New(), uuid.New()
	s.place(order, of("A", 2), of("B", 3))
	s.place(other, of("A", 1))
	s.answer(order, 1)
	s.answer(other, 1)
	s.cancel(order)
	s.cancel(order)
	if got := s.answer(order, 3); got != "released" {
		t.Errorf("got %q, want released", got)
	}
	r.wantLevel(t, "A", 9, 1)
	r.wantLevel(t, "B", 10, 0)
	if got := s.count("SELECT count(*) FROM reservation_lines"); got != 1 {
		t.Errorf("reservation lines: got %d, want those of the other order, 1", got)
	}
}

func TestRelease_ThatOvertakesItsReserveLeavesATombstone(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10))
	order := uuid.New()
	s.cancel(order)
	if got := s.answer(order, 1); got != "released" {
		t.Errorf("got %q, want released", got)
	}
	s.place(order, of("A", 2))
	if got := s.answer(order, 2); got != "released" {
		t.Errorf("the late reserve: got %q, want released", got)
	}
	r.wantLevel(t, "A", 10, 0)
}

func TestRelease_OfARejectedOrderGivesNothingBack(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 1))
	order := uuid.New()
	s.place(order, of("A", 2))
	s.answer(order, 1)
	s.cancel(order)
	if got := s.answer(order, 2); got != "released" {
		t.Errorf("got %q, want released", got)
	}
	r.wantLevel(t, "A", 1, 0)
}

func TestReport33_TenPiecesForAHundredOrdersOverTwoReplicas(t *testing.T) {
	s := openShop(t)
	r := s.start()
	s.start()
	r.stock(t, have("A", 10))
	orders := make([]uuid.UUID, 100)
	var placing sync.WaitGroup
	for i := range orders {
		orders[i] = uuid.New()
		placing.Go(func() { s.place(orders[i], of("A", 1)) })
	}
	placing.Wait()
	counts := map[string]int{}
	for _, order := range orders {
		counts[s.answer(order, 1)]++
	}
	if diff := cmp.Diff(map[string]int{"reserved": 10, "rejected A": 90}, counts); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	r.wantLevel(t, "A", 0, 10)
}

func TestReport34_OppositeOrdersOfProductsNeverDeadlock(t *testing.T) {
	s := openShop(t)
	r := s.start()
	s.start()
	r.stock(t, have("A", 1000), have("B", 1000))
	orders := make([]uuid.UUID, 200)
	var placing sync.WaitGroup
	for i := range orders {
		orders[i] = uuid.New()
		items := []*eventsv1.Item{of("A", 1), of("B", 1)}
		if i%2 == 1 {
			slices.Reverse(items)
		}
		placing.Go(func() {
			s.place(orders[i], items...)
			if i%4 == 3 {
				s.cancel(orders[i])
			}
		})
	}
	// Imports lock the same rows.
	for range 20 {
		stream, err := r.ImportStock(t.Context(), grpc.WaitForReady(true))
		must(t, err)
		must(t, stream.Send(&inventoryv1.ImportStockRequest{Counts: []*inventoryv1.StockCount{have("B", 1000), have("A", 1000)}}))
		_, err = stream.CloseAndRecv()
		must(t, err)
	}
	placing.Wait()
	for i, order := range orders {
		answers := 1
		if i%4 == 3 {
			answers = 2
		}
		s.answer(order, answers)
	}
	if got := r.level(t, "A"); got.Reserved != 150 {
		t.Errorf("reserved: got %d, want 150", got.Reserved)
	}
	if got := s.count("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); got != 0 {
		t.Errorf("deadlocks: got %d, want 0", got)
	}
}

func TestEvents_ThatNoCheckoutMaySendAreDeadLettersAndChangeNothing(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10))
	for _, items := range [][]*eventsv1.Item{
		{}, {of("A", 0)}, {of("A", -1)}, {of("A", 1), of("", 1)}, {of("A", 1<<62), of("A", 1<<62)},
	} {
		s.place(uuid.New(), items...)
	}
	s.announce("orders.placed", &eventsv1.OrderPlaced{OrderId: "not a UUID", Items: []*eventsv1.Item{of("A", 1)}})
	s.announce("orders.placed", &eventsv1.OrderConfirmed{OrderId: uuid.NewString()})
	s.announce("orders.cancelled", &eventsv1.OrderCancelled{OrderId: ""})
	eventually(t, "eight dead letters", func() bool { return s.count("SELECT count(*) FROM dead_letters") == 8 })
	good := uuid.New()
	s.place(good, of("A", 1))
	if got := s.answer(good, 1); got != "reserved" {
		t.Errorf("got %q, want reserved", got)
	}
	r.wantLevel(t, "A", 9, 1)
	if got := s.count("SELECT count(*) FROM reservations"); got != 1 {
		t.Errorf("reservations: got %d, want 1", got)
	}
}

func TestSchema_RefusesWhatMustNeverBe(t *testing.T) {
	s := openShop(t)
	s.start().stock(t, have("A", 1))
	order := uuid.New()
	_, err := s.pool.Exec(t.Context(), "INSERT INTO reservations (order_id, status) VALUES ($1, 'reserved')", order)
	must(t, err)
	for statement, constraint := range map[string]string{
		"UPDATE stock SET available = -1":                                          "stock_available_check",
		"UPDATE stock SET reserved = -1":                                           "stock_reserved_check",
		"INSERT INTO reservation_lines SELECT order_id, 'A', 0 FROM reservations":  "reservation_lines_quantity_check",
		"INSERT INTO reservation_lines SELECT order_id, 'A', -1 FROM reservations": "reservation_lines_quantity_check",
	} {
		_, err := s.pool.Exec(t.Context(), statement)
		if err == nil || !strings.Contains(err.Error(), constraint) {
			t.Errorf("%s: got %v, want %s", statement, err, constraint)
		}
	}
}

func TestImportStock_SetsWhatIsAvailableAndLeavesReservations(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 10), have("A", 5), have("B", 1))
	order := uuid.New()
	s.place(order, of("A", 2))
	s.answer(order, 1)
	r.wantLevel(t, "A", 3, 2)
	for range 2 { // safe to repeat
		r.stock(t, have("A", 20), have("B", 0))
		r.wantLevel(t, "A", 20, 2)
		r.wantLevel(t, "B", 0, 0)
	}
}

func TestImportStock_AppliesEachMessageWholeOrNotAtAll(t *testing.T) {
	s := openShop(t)
	r := s.start()
	stream, err := r.ImportStock(t.Context(), grpc.WaitForReady(true))
	must(t, err)
	must(t, stream.Send(&inventoryv1.ImportStockRequest{Counts: []*inventoryv1.StockCount{have("A", 1)}}))
	must(t, stream.Send(&inventoryv1.ImportStockRequest{Counts: []*inventoryv1.StockCount{have("B", 1), have("C", -1)}}))
	if _, err := stream.CloseAndRecv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want INVALID_ARGUMENT", err)
	}
	resp, err := r.GetStock(t.Context(), &inventoryv1.GetStockRequest{ProductIds: []string{"C", "B", "A"}})
	must(t, err)
	if len(resp.GetLevels()) != 1 || resp.GetLevels()[0].GetProductId() != "A" {
		t.Errorf("got %v, want A only", resp)
	}
}

func TestGetStock_AnswersInTheOrderAskedForAndLeavesOutTheUnknown(t *testing.T) {
	s := openShop(t)
	r := s.start()
	r.stock(t, have("A", 1), have("B", 2), have("C", 3))
	resp, err := r.GetStock(t.Context(), &inventoryv1.GetStockRequest{ProductIds: []string{"C", "unknown", "A", "B"}})
	must(t, err)
	var got []string
	for _, l := range resp.GetLevels() {
		got = append(got, l.GetProductId())
	}
	if diff := cmp.Diff([]string{"C", "A", "B"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for _, bad := range [][]string{nil, {""}, {strings.Repeat("x", 65)}} {
		if _, err := r.GetStock(t.Context(), &inventoryv1.GetStockRequest{ProductIds: bad}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: got %v, want INVALID_ARGUMENT", bad, err)
		}
	}
}

func TestMigrations_HoldThePlatformsOutbox(t *testing.T) {
	got, err := os.ReadFile("migrations/00002_outbox.sql")
	must(t, err)
	if diff := cmp.Diff(outbox.Schema, string(got)); diff != "" {
		t.Errorf("outbox migration (-platform +ours):\n%s", diff)
	}
}
