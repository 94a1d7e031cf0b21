package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	"example.com/watertight/services/checkout"
)

func TestPlaceOrder_StoresTheOrderAndItsEventInOneTransaction(t *testing.T) {
	s := open(t)
	s.list(t, "85123A", 255, "22423", 1275)
	req := wanted("k-1", "85123A", 2, "22423", 1, "85123A", 3)
	req.ExpectedTotal = proto.Int64(5*255 + 1275)
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{7}, TraceFlags: trace.FlagsSampled})
	resp, err := s.PlaceOrder(trace.ContextWithSpanContext(t.Context(), parent), req)
	must(t, err)

	got := resp.GetOrder()
	want := &checkoutv1.Order{
		Id: got.GetId(), CustomerId: "c-1", Status: checkoutv1.OrderStatus_ORDER_STATUS_PENDING,
		Total: &moneyv1.Money{Currency: "GBP", Minor: 2550}, CreatedAt: got.GetCreatedAt(), UpdatedAt: got.GetCreatedAt(),
		Lines: []*checkoutv1.OrderLine{
			{ProductId: "85123A", Name: "Name of 85123A", Quantity: 5, UnitPrice: 255, LineTotal: 1275},
			{ProductId: "22423", Name: "Name of 22423", Quantity: 1, UnitPrice: 1275, LineTotal: 1275},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || resp.GetReplayed() {
		t.Errorf("order (-want +got), replayed %t:\n%s", resp.GetReplayed(), diff)
	}
	if id, err := uuid.Parse(got.GetId()); err != nil || id.Version() != 7 {
		t.Errorf("order id: got %s, want a version 7 UUID", got.GetId())
	}
	if age := time.Since(got.GetCreatedAt().AsTime()); age < -time.Minute || age > time.Minute {
		t.Errorf("created at: got %v", got.GetCreatedAt().AsTime())
	}
	read, err := s.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: got.GetId()})
	must(t, err)
	if diff := cmp.Diff(got, read.GetOrder(), protocmp.Transform()); diff != "" {
		t.Errorf("the order as read (-placed +read):\n%s", diff)
	}

	var subject, kind, traceparent string
	var payload []byte
	must(t, s.pool.QueryRow(t.Context(), "SELECT subject, type, payload, traceparent FROM outbox").Scan(&subject, &kind, &payload, &traceparent))
	if subject != "orders.placed" || kind != "events.v1.OrderPlaced" {
		t.Errorf("event: got %s of type %s", subject, kind)
	}
	if !strings.HasPrefix(traceparent, "00-"+parent.TraceID().String()+"-") {
		t.Errorf("traceparent of the event: got %q, want trace %s", traceparent, parent.TraceID())
	}
	event := &eventsv1.OrderPlaced{}
	must(t, proto.Unmarshal(payload, event))
	wantEvent := &eventsv1.OrderPlaced{OrderId: got.GetId(), CustomerId: "c-1", Total: got.GetTotal(), PlacedAt: got.GetCreatedAt(),
		Items: []*eventsv1.Item{{ProductId: "85123A", Quantity: 5}, {ProductId: "22423", Quantity: 1}}}
	if diff := cmp.Diff(wantEvent, event, protocmp.Transform()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if got, want := s.rowsOfOrders(t), 1+2+1+1+1; got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

// Field reports 30 and 31, over gRPC.
func TestPlaceOrder_WhatBreaksALimitIsRefusedAndLeavesNothing(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200, "C", math.MaxInt64)
	_, err := s.imports(t, &checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("USD", "dollar thing", "USD", 5), priceOf("D", "almost", "GBP", math.MaxInt64-1)}})
	must(t, err)
	with := func(change func(*checkoutv1.PlaceOrderRequest)) *checkoutv1.PlaceOrderRequest {
		req := wanted("k", "A", 1)
		change(req)
		return req
	}
	many := func(n int) *checkoutv1.PlaceOrderRequest {
		req := wanted("k")
		for range n {
			req.Lines = append(req.Lines, &checkoutv1.NewLine{ProductId: "A", Quantity: 1})
		}
		return req
	}
	for name, tt := range map[string]struct {
		req    *checkoutv1.PlaceOrderRequest
		code   codes.Code
		reason string
		names  string
	}{
		"quantity -1":                   {wanted("k", "A", -1), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"quantity 0":                    {wanted("k", "A", 0), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"quantity 2^31":                 {wanted("k", "A", 1<<31), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"quantity 2^63-1":               {wanted("k", "A", math.MaxInt64), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"quantity -2^63":                {wanted("k", "A", math.MinInt64), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"quantity past the limit":       {wanted("k", "A", 100_001), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity"},
		"two lines past the limit":      {wanted("k", "A", 60_000, "B", 1, "A", 40_001), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[2].quantity"},
		"no lines":                      {wanted("k"), codes.InvalidArgument, rpcerr.InvalidArgument, "lines"},
		"1,201 lines":                   {many(1201), codes.InvalidArgument, rpcerr.InvalidArgument, "lines"},
		"line overflows":                {wanted("k", "A", 1, "C", 2), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[1]"},
		"total overflows":               {wanted("k", "D", 1, "A", 1), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[1]"},
		"overflow on a merged line":     {wanted("k", "A", 1, "C", 1, "B", 1, "C", 1), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[1]"},
		"unknown product":               {wanted("k", "A", 1, "nope", 1), codes.NotFound, rpcerr.NotFound, "product_id:nope"},
		"a product's id in other case":  {wanted("k", "a", 1), codes.NotFound, rpcerr.NotFound, "product_id:a"},
		"product of another currency":   {wanted("k", "A", 1, "USD", 1), codes.InvalidArgument, rpcerr.InvalidArgument, "currency"},
		"order in another currency":     {with(func(r *checkoutv1.PlaceOrderRequest) { r.Currency = "EUR" }), codes.InvalidArgument, rpcerr.InvalidArgument, "currency"},
		"currency in lower case":        {with(func(r *checkoutv1.PlaceOrderRequest) { r.Currency = "gbp" }), codes.InvalidArgument, rpcerr.InvalidArgument, "currency"},
		"another total expected":        {with(func(r *checkoutv1.PlaceOrderRequest) { r.ExpectedTotal = proto.Int64(99) }), codes.FailedPrecondition, rpcerr.PriceChanged, "total:100"},
		"a total of nothing expected":   {with(func(r *checkoutv1.PlaceOrderRequest) { r.ExpectedTotal = proto.Int64(0) }), codes.FailedPrecondition, rpcerr.PriceChanged, "total:100"},
		"a negative total expected":     {with(func(r *checkoutv1.PlaceOrderRequest) { r.ExpectedTotal = proto.Int64(-1) }), codes.InvalidArgument, rpcerr.InvalidArgument, "expected_total"},
		"no key":                        {with(func(r *checkoutv1.PlaceOrderRequest) { r.IdempotencyKey = "" }), codes.InvalidArgument, rpcerr.InvalidArgument, "idempotency_key"},
		"a key of 256 characters":       {with(func(r *checkoutv1.PlaceOrderRequest) { r.IdempotencyKey = strings.Repeat("k", 256) }), codes.InvalidArgument, rpcerr.InvalidArgument, "idempotency_key"},
		"NUL in the key":                {with(func(r *checkoutv1.PlaceOrderRequest) { r.IdempotencyKey = "k\x00" }), codes.InvalidArgument, rpcerr.InvalidArgument, "idempotency_key"},
		"no customer":                   {with(func(r *checkoutv1.PlaceOrderRequest) { r.CustomerId = "" }), codes.InvalidArgument, rpcerr.InvalidArgument, "customer_id"},
		"NUL in the customer":           {with(func(r *checkoutv1.PlaceOrderRequest) { r.CustomerId = "c\x00" }), codes.InvalidArgument, rpcerr.InvalidArgument, "customer_id"},
		"NUL in a product":              {wanted("k", "A\x00", 1), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].product_id"},
		"a product id of 65 characters": {wanted("k", strings.Repeat("A", 65), 1), codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].product_id"},
		"no payment token":              {with(func(r *checkoutv1.PlaceOrderRequest) { r.PaymentToken = "" }), codes.InvalidArgument, rpcerr.InvalidArgument, "payment_token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.PlaceOrder(t.Context(), tt.req)
			wantError(t, err, tt.code, tt.reason, tt.names)
		})
	}
	if got := s.rowsOfOrders(t); got != 0 {
		t.Errorf("rows after refused orders: got %d, want 0", got)
	}
	// The key of a refused order is as good as new.
	if resp := s.place(t, wanted("k", "A", 1)); resp.GetReplayed() {
		t.Error("the first order with the key is a replay")
	}
}

func TestPlaceOrder_TheLimitsThemselvesAreAllowed(t *testing.T) {
	s := open(t)
	var products []any
	var lines []any
	total := int64(0)
	for i := range 1000 {
		id := fmt.Sprintf("P%04d", i)
		products = append(products, id, i+1)
		lines = append(lines, id, 100_000)
		total += int64(i+1) * 100_000
	}
	s.list(t, products...)
	s.list(t, "rest", 7, strings.Repeat("ü", 64), 1)
	for range 199 {
		lines = append(lines, "rest", 1)
	}
	lines = append(lines, strings.Repeat("ü", 64), 1)
	got := s.place(t, wanted(strings.Repeat("k", 255), lines...)).GetOrder()
	if want := total + 199*7 + 1; got.GetTotal().GetMinor() != want || len(got.GetLines()) != 1002 {
		t.Errorf("got total %d of %d lines, want %d of 1002", got.GetTotal().GetMinor(), len(got.GetLines()), want)
	}
	for i, l := range got.GetLines()[:1000] {
		if want := fmt.Sprintf("P%04d", i); l.GetProductId() != want {
			t.Fatalf("line %d: got %s, want %s", i, l.GetProductId(), want)
		}
	}
}

func TestPlaceOrder_TheSameKeyAnswersWithTheSameOrder(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200)
	first := s.place(t, wanted("k", "A", 3, "B", 1))

	s.list(t, "A", 999) // what was ordered stays as it was
	s.exec(t, "DELETE FROM prices WHERE product_id = 'B'")
	for name, req := range map[string]*checkoutv1.PlaceOrderRequest{
		"as it was":        wanted("k", "A", 3, "B", 1),
		"in another order": wanted("k", "B", 1, "A", 3),
		"in more lines":    wanted("k", "A", 1, "B", 1, "A", 2),
	} {
		again := s.place(t, req)
		if diff := cmp.Diff(first.GetOrder(), again.GetOrder(), protocmp.Transform()); diff != "" || !again.GetReplayed() {
			t.Errorf("%s (-first +again), replayed %t:\n%s", name, again.GetReplayed(), diff)
		}
	}
	change := func(do func(*checkoutv1.PlaceOrderRequest)) *checkoutv1.PlaceOrderRequest {
		req := wanted("k", "A", 3, "B", 1)
		do(req)
		return req
	}
	for name, req := range map[string]*checkoutv1.PlaceOrderRequest{
		"another quantity":       wanted("k", "A", 4, "B", 1),
		"another product":        wanted("k", "A", 3, "C", 1),
		"one line less":          wanted("k", "A", 3),
		"another payment token":  change(func(r *checkoutv1.PlaceOrderRequest) { r.PaymentToken = "tok_other" }),
		"another currency":       change(func(r *checkoutv1.PlaceOrderRequest) { r.Currency = "EUR" }),
		"a total now expected":   change(func(r *checkoutv1.PlaceOrderRequest) { r.ExpectedTotal = proto.Int64(500) }),
		"a total of 0 expected":  change(func(r *checkoutv1.PlaceOrderRequest) { r.ExpectedTotal = proto.Int64(0) }),
		"a product with no name": wanted("k", "A", 3, "unlisted", 1),
	} {
		_, err := s.PlaceOrder(t.Context(), req)
		t.Run(name, func(t *testing.T) { wantError(t, err, codes.AlreadyExists, rpcerr.IdempotencyKeyReused) })
	}
	s.list(t, "A", 100, "B", 200)
	other := change(func(r *checkoutv1.PlaceOrderRequest) { r.CustomerId = "c-2" })
	if resp := s.place(t, other); resp.GetReplayed() || resp.GetOrder().GetId() == first.GetOrder().GetId() {
		t.Error("another customer's order under the same key is not an order of its own")
	}
	if got := s.count(t, "SELECT count(*) FROM orders"); got != 2 {
		t.Errorf("orders: got %d, want 2", got)
	}
}

// Field report 32.
func TestPlaceOrder_FiftyParallelCallsWithOneKeyMakeOneOrder(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200)
	for round := range 5 {
		key := fmt.Sprintf("k-%d", round)
		answers := make([]*checkoutv1.PlaceOrderResponse, 50)
		var calls sync.WaitGroup
		for i := range answers {
			calls.Go(func() {
				resp, err := s.PlaceOrder(t.Context(), wanted(key, "A", 1, "B", 2))
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				answers[i] = resp
			})
		}
		calls.Wait()
		fresh := 0
		for _, a := range answers {
			if diff := cmp.Diff(answers[0].GetOrder(), a.GetOrder(), protocmp.Transform()); diff != "" {
				t.Fatalf("answers differ:\n%s", diff)
			}
			if !a.GetReplayed() {
				fresh++
			}
		}
		if fresh != 1 {
			t.Errorf("answers that are no replay: got %d, want 1", fresh)
		}
	}
	if got, want := s.rowsOfOrders(t), 5*(1+2+1+1+1); got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

func TestPlaceOrder_ParallelCallsWithOneKeyAndOtherContent(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100)
	var calls sync.WaitGroup
	var mu sync.Mutex
	seen := map[codes.Code]int{}
	for i := range 20 {
		calls.Go(func() {
			_, err := s.PlaceOrder(t.Context(), wanted("k", "A", 1+i))
			mu.Lock()
			defer mu.Unlock()
			seen[status.Code(err)]++
		})
	}
	calls.Wait()
	if diff := cmp.Diff(map[codes.Code]int{codes.OK: 1, codes.AlreadyExists: 19}, seen); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

// Field report 34, with imports of the same prices beside it.
func TestPlaceOrder_OrdersOfTheSameProductsInAnyOrderDoNotMeet(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200)
	slots := make(chan struct{}, 32) // below the server's own limit
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			pairs := [][]any{{"A", 1, "B", 1}, {"B", 1, "A", 1}}[i%2]
			if _, err := s.PlaceOrder(t.Context(), wanted(fmt.Sprintf("k-%d", i), pairs...)); err != nil {
				t.Errorf("order %d: %v", i, err)
			}
			if i%4 > 1 {
				return
			}
			prices := []*checkoutv1.Price{priceOf("A", "a", "GBP", int64(100+i)), priceOf("B", "b", "GBP", int64(200+i))}
			for n := range 500 {
				prices = append(prices, priceOf(fmt.Sprintf("P%d", n), "p", "GBP", int64(1+i)))
			}
			if i%4 == 0 {
				slices.Reverse(prices)
			}
			if _, err := s.imports(t, &checkoutv1.ImportPricesRequest{Prices: prices}); err != nil {
				t.Errorf("import %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	if got := s.count(t, "SELECT count(*) FROM orders"); got != 200 {
		t.Errorf("orders: got %d, want 200", got)
	}
	// A session reports its deadlocks, also those that a second try has hidden, at its end at the latest.
	s.stop()
	must(t, <-s.ended)
	eventually(t, "the sessions of the process end", func() bool {
		return s.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'checkout'") == 0
	})
	if got := s.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); got != 0 {
		t.Errorf("deadlocks: got %d, want 0", got)
	}
}

func TestPlaceOrder_ACallerWhoLeavesNeverLeavesHalfAnOrder(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		_, _ = s.PlaceOrder(ctx, wanted(fmt.Sprintf("k-%d", i), "A", 1, "B", 1)) // any outcome is right, but whole
		cancel()
	}
	for i := range 60 {
		s.place(t, wanted(fmt.Sprintf("k-%d", i), "A", 1, "B", 1))
	}
	if got, want := s.rowsOfOrders(t), 60*(1+2+1+1+1); got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

func TestPlaceOrder_ACommitThatTheServerBreaksOffIsTriedAgain(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100)
	// Once, the server ends the session while it commits. The call must look again and place the order after all.
	s.exec(t, "CREATE SEQUENCE tries")
	s.exec(t, `CREATE FUNCTION end_first_session() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); END IF; RETURN NULL; END $$`)
	s.exec(t, `CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION end_first_session()`)
	resp := s.place(t, wanted("k", "A", 1))
	if resp.GetReplayed() {
		t.Error("the first order with its key says that it is a replay")
	}
	if got := s.count(t, "SELECT last_value FROM tries"); got != 2 {
		t.Errorf("commits tried: got %d, want 2", got)
	}
	if got, want := s.rowsOfOrders(t), 1+1+1+1+1; got != want {
		t.Errorf("rows: got %d, want %d", got, want)
	}
}

func TestGetOrder_UnknownOrMalformedIDs(t *testing.T) {
	s := open(t)
	_, err := s.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: uuid.NewString()})
	wantError(t, err, codes.NotFound, rpcerr.NotFound)
	for _, id := range []string{"", "1", "../x", strings.Repeat("-", 36), uuid.NewString() + "0"} {
		_, err := s.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: id})
		wantError(t, err, codes.InvalidArgument, rpcerr.InvalidArgument, "order_id")
	}
}

func TestImportPrices_ReplacesWhatIsSentAndKeepsTheRest(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100, "B", 200)
	for range 2 { // safe to repeat
		n, err := s.imports(t,
			&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("C", "c", "GBP", 1), priceOf("A", "first", "EUR", 5), priceOf("A", "new", "GBP", 150)}},
			&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("C", "c", "GBP", 300)}})
		must(t, err)
		if n != 4 {
			t.Errorf("prices counted: got %d, want 4", n)
		}
	}
	got := s.place(t, wanted("k", "A", 1, "B", 1, "C", 1)).GetOrder()
	if got.GetTotal().GetMinor() != 150+200+300 || got.GetLines()[0].GetName() != "new" {
		t.Errorf("order: got %v", got)
	}
}

func TestImportPrices_AMessageIsAppliedWholeOrNotAtAll(t *testing.T) {
	s := open(t)
	for name, bad := range map[string]*checkoutv1.Price{
		"price of zero":     priceOf("bad", "x", "GBP", 0),
		"negative price":    priceOf("bad", "x", "GBP", -5),
		"no currency":       priceOf("bad", "x", "", 5),
		"no name":           priceOf("bad", "", "GBP", 5),
		"no id":             priceOf("", "x", "GBP", 5),
		"NUL in the name":   priceOf("bad", "x\x00", "GBP", 5),
		"no price":          {ProductId: "bad", Name: "x"},
		"name of 257 bytes": priceOf("bad", strings.Repeat("x", 257), "GBP", 5),
	} {
		t.Run(name, func(t *testing.T) {
			s.exec(t, "DELETE FROM prices")
			_, err := s.imports(t,
				&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("before", "x", "GBP", 1)}},
				&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("beside", "x", "GBP", 1), bad}},
				&checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("after", "x", "GBP", 1)}})
			wantError(t, err, codes.InvalidArgument, rpcerr.InvalidArgument, "prices[1]")
			if got := s.count(t, "SELECT count(*) FROM prices"); got != 1 {
				t.Errorf("prices: got %d, want the 1 of the message before", got)
			}
		})
	}
}

// next moves an order to a status, as another process would.
func (s *shop) next(t testing.TB, id string, status, reason string) {
	t.Helper()
	s.exec(t, `WITH o AS (UPDATE orders SET status = $2, reason = $3, updated_at = now() WHERE id = $1 RETURNING id)
		INSERT INTO order_events (order_id, sequence, status, reason, at)
		SELECT id, (SELECT max(sequence) + 1 FROM order_events WHERE order_id = o.id), $2, $3, now() FROM o`, id, status, reason)
}

// watch collects "sequence status reason" of each change, and the error that ends the stream.
func (s *shop) watch(t testing.TB, id string, after int64) (<-chan string, <-chan error) {
	t.Helper()
	stream, err := s.WatchOrder(t.Context(), &checkoutv1.WatchOrderRequest{OrderId: id, AfterSequence: after})
	must(t, err)
	changes, end := make(chan string, 10), make(chan error, 1)
	go func() {
		defer close(changes)
		for {
			c, err := stream.Recv()
			if err != nil {
				end <- err
				return
			}
			changes <- strings.TrimSpace(fmt.Sprintf("%d %s %s", c.GetSequence(), strings.TrimPrefix(c.GetStatus().String(), "ORDER_STATUS_"), c.GetReason()))
		}
	}()
	return changes, end
}

// receive is the next change, "end" when there is none.
func receive(t testing.TB, changes <-chan string) string {
	t.Helper()
	select {
	case c, ok := <-changes:
		if !ok {
			return "end"
		}
		return c
	case <-time.After(30 * time.Second):
		t.Fatal("no change came")
		return ""
	}
}

func TestWatchOrder_SendsWhatWasAndWhatComesAndEndsAfterAFinalStatus(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100)
	id := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	first, firstEnd := s.watch(t, id, 0)
	late, lateEnd := s.watch(t, id, 1)
	if got, want := receive(t, first), "1 PENDING"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, step := range []struct{ status, reason, want string }{
		{"awaiting_payment", "", "2 AWAITING_PAYMENT"},
		{"cancelled", "the payment was declined", "3 CANCELLED the payment was declined"},
	} {
		s.next(t, id, step.status, step.reason)
		for _, changes := range []<-chan string{first, late} {
			if got := receive(t, changes); got != step.want {
				t.Errorf("got %q, want %q", got, step.want)
			}
		}
	}
	for _, end := range []<-chan error{firstEnd, lateEnd} {
		if err := <-end; !errors.Is(err, io.EOF) {
			t.Errorf("end: got %v, want OK", err)
		}
	}
	after, end := s.watch(t, id, 3)
	if got := receive(t, after); got != "end" {
		t.Errorf("after the final change: got %q, want the end", got)
	}
	if err := <-end; !errors.Is(err, io.EOF) {
		t.Errorf("end: got %v, want OK", err)
	}
}

func TestWatchOrder_UnknownOrders(t *testing.T) {
	s := open(t)
	_, end := s.watch(t, uuid.NewString(), 0)
	wantError(t, <-end, codes.NotFound, rpcerr.NotFound)
	_, end = s.watch(t, "x", 0)
	wantError(t, <-end, codes.InvalidArgument, rpcerr.InvalidArgument, "order_id")
	_, end = s.watch(t, uuid.NewString(), -1)
	wantError(t, <-end, codes.InvalidArgument, rpcerr.InvalidArgument, "after_sequence")
}

func TestWatchOrder_EndsWhenTheProcessDrains(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100)
	changes, end := s.watch(t, s.place(t, wanted("k", "A", 1)).GetOrder().GetId(), 0)
	receive(t, changes)
	s.stop()
	wantError(t, <-end, codes.Unavailable, rpcerr.Draining)
	if err := <-s.ended; err != nil {
		t.Errorf("process: %v", err)
	}
}

func TestWatchOrder_StreamsAreCapped(t *testing.T) {
	s := open(t, "MAX_STREAMS=2")
	s.list(t, "A", 100)
	id := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	for range 2 {
		changes, _ := s.watch(t, id, 0)
		receive(t, changes)
	}
	_, end := s.watch(t, id, 0)
	wantError(t, <-end, codes.ResourceExhausted, rpcerr.BulkheadFull)
}

func TestWatchOrder_ManyWatchersShareOnePoll(t *testing.T) {
	s := open(t)
	s.list(t, "A", 100)
	id := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	var all []<-chan string
	for range 100 {
		changes, _ := s.watch(t, id, 0)
		receive(t, changes)
		all = append(all, changes)
	}
	s.next(t, id, "confirmed", "")
	for _, changes := range all {
		if got, want := receive(t, changes), "2 CONFIRMED"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Field report 17.
func TestService_OutlivesItsDatabase(t *testing.T) {
	server := pgtest.NewServer(t)
	owner := server.New()
	server.Stop()
	s := start(t, owner, "DATABASE_URL="+owner)
	if live, ready := s.code(t, "/livez"), s.code(t, "/readyz"); live != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("before the database: got livez %d and readyz %d, want 200 and 503", live, ready)
	}
	server.Start()
	s.waitReady(t)
	s.list(t, "A", 100)
	placed := s.place(t, wanted("k", "A", 1)).GetOrder()

	server.Stop()
	for name, call := range map[string]func() error{
		"PlaceOrder": func() error { _, err := s.PlaceOrder(t.Context(), wanted("k2", "A", 1)); return err },
		"GetOrder": func() error {
			_, err := s.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: placed.GetId()})
			return err
		},
		"WatchOrder": func() error { _, end := s.watch(t, placed.GetId(), 0); return <-end },
		"ImportPrices": func() error {
			_, err := s.imports(t, &checkoutv1.ImportPricesRequest{Prices: []*checkoutv1.Price{priceOf("A", "a", "GBP", 1)}})
			return err
		},
	} {
		err := call()
		t.Run(name, func(t *testing.T) {
			wantError(t, err, codes.Unavailable, rpcerr.Unavailable)
			for _, leak := range []string{"dial", "SQLSTATE", "socket", "pgtest", "postgres"} {
				if strings.Contains(status.Convert(err).Message(), leak) {
					t.Errorf("the error says %q: %v", leak, err)
				}
			}
		})
	}
	if live, ready := s.code(t, "/livez"), s.code(t, "/readyz"); live != http.StatusOK || ready != http.StatusOK {
		t.Errorf("without the database: got livez %d and readyz %d, want 200 and 200", live, ready)
	}
	server.Start()
	eventually(t, "orders are taken again", func() bool {
		_, err := s.PlaceOrder(t.Context(), wanted("k2", "A", 1))
		return err == nil
	})
}

func TestService_PurgesExpiredKeysOnly(t *testing.T) {
	s := open(t, "IDEMPOTENCY_RETENTION=1h", "IDEMPOTENCY_PURGE=10ms")
	s.list(t, "A", 100)
	s.place(t, wanted("old", "A", 1))
	s.place(t, wanted("young", "A", 1))
	s.exec(t, `INSERT INTO idempotency_keys (customer_id, key, fingerprint, order_id, created_at)
		SELECT 'c-' || i, 'k', '', gen_random_uuid(), now() - interval '2 hours' FROM generate_series(1, 2500) AS i`)
	s.exec(t, "UPDATE idempotency_keys SET created_at = now() - interval '61 minutes' WHERE key = 'old'")
	eventually(t, "one key is left", func() bool { return s.count(t, "SELECT count(*) FROM idempotency_keys") == 1 })
	if !s.place(t, wanted("young", "A", 1)).GetReplayed() {
		t.Error("a young key was forgotten")
	}
	if s.place(t, wanted("old", "A", 1)).GetReplayed() {
		t.Error("an expired key was remembered")
	}
	if got := s.count(t, "SELECT count(*) FROM orders"); got != 3 {
		t.Errorf("orders: got %d, want 3", got)
	}
}

func TestService_CountsOrdersAndTheAgeOfTheOldest(t *testing.T) {
	s := open(t, "METRICS_POLL=10ms")
	s.list(t, "A", 100)
	metric := func(name string) string {
		_, page := s.get(t, "/metrics")
		for line := range strings.Lines(page) {
			if value, ok := strings.CutPrefix(line, name+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return "missing"
	}
	if got := metric("watertight_order_oldest_pending_seconds"); got != "0" {
		t.Errorf("oldest without orders: got %s, want 0", got)
	}
	id := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	s.place(t, wanted("k", "A", 1))
	for status, want := range map[string]string{"pending": "1", "confirmed": "0", "cancelled": "0"} {
		if got := metric(`watertight_orders_total{status="` + status + `"}`); got != want {
			t.Errorf("orders %s: got %s, want %s", status, got, want)
		}
	}
	s.exec(t, "UPDATE orders SET created_at = created_at - interval '1 hour'")
	eventually(t, "the order's age shows", func() bool {
		var age float64
		_, err := fmt.Sscan(metric("watertight_order_oldest_pending_seconds"), &age)
		return err == nil && age >= 3600 && age < 4000
	})
	s.next(t, id, "confirmed", "")
	eventually(t, "no order waits", func() bool { return metric("watertight_order_oldest_pending_seconds") == "0" })
}

func TestConfig_ErrorsNameTheVariable(t *testing.T) {
	for _, line := range []string{"IDEMPOTENCY_RETENTION=0s", "IDEMPOTENCY_PURGE=-1s", "WATCH_POLL=0", "METRICS_POLL=0s", "ORDER_EXPIRY=0s", "EXPIRY_POLL=0s"} {
		name, _, _ := strings.Cut(line, "=")
		if _, err := config.Load[checkout.Config]([]string{line}); err == nil || !strings.HasPrefix(err.Error(), name+":") {
			t.Errorf("%s: got %v, want an error that starts with %s:", line, err, name)
		}
	}
}

func TestMigrations_HoldTheOutboxAsThePlatformDefinesIt(t *testing.T) {
	got, err := os.ReadFile("migrations/00002_outbox.sql")
	must(t, err)
	if diff := cmp.Diff(outbox.Schema, string(got)); diff != "" {
		t.Errorf("outbox migration (-platform +ours):\n%s", diff)
	}
}
