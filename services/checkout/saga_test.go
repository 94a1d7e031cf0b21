package checkout_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/postgres/pgtest"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	eventsv1 "example.com/watertight/proto/events/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
)

// others are inventory and payment, as far as checkout sees them: the test says what they say.
type others struct {
	js jetstream.JetStream
}

func newOthers(t testing.TB, server *brokertest.Server) *others {
	t.Helper()
	o := &others{server.JetStream()}
	for _, name := range []string{"inventory", "payments"} {
		_, err := o.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		must(t, err)
	}
	return o
}

// say publishes an event, under a new id unless one is given.
func (o *others) say(t testing.TB, subject string, message proto.Message, id ...string) {
	t.Helper()
	payload, err := proto.Marshal(message)
	must(t, err)
	m := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{
		jetstream.MsgIDHeader: {strings.Join(append(id, uuid.NewString())[:1], "")},
		"ce-type":             {string(message.ProtoReflect().Descriptor().FullName())},
	}}
	_, err = o.js.PublishMsg(t.Context(), m)
	must(t, err)
}

func (o *others) reserved(t testing.TB, order string, id ...string) {
	t.Helper()
	o.say(t, "inventory.reserved", &eventsv1.StockReserved{OrderId: order}, id...)
}

func (o *others) short(t testing.TB, order string) {
	t.Helper()
	o.say(t, "inventory.rejected", &eventsv1.StockRejected{OrderId: order, ProductId: "A", Reason: "not enough of A in stock"})
}

func (o *others) charged(t testing.TB, order string) {
	t.Helper()
	o.say(t, "payments.charged", &eventsv1.PaymentCharged{OrderId: order, Amount: &moneyv1.Money{Currency: "GBP", Minor: 100}})
}

func (o *others) declined(t testing.TB, order string) {
	t.Helper()
	o.say(t, "payments.declined", &eventsv1.PaymentDeclined{OrderId: order, Reason: "insufficient funds"})
}

// openWithBroker is open, with a broker and the streams of the others.
func openWithBroker(t testing.TB, more ...string) (*shop, *others) {
	t.Helper()
	server := brokertest.Start(t)
	return open(t, append(more, "NATS_URL="+server.URL())...), newOthers(t, server)
}

// story is what an order has been through and told others, in short.
func (s *shop) story(t testing.TB, order string) string {
	t.Helper()
	var story string
	must(t, s.pool.QueryRow(t.Context(), `SELECT
		(SELECT string_agg(trim(status || ' ' || reason), ' > ' ORDER BY sequence) FROM order_events WHERE order_id = $1)
		|| ' | ' || (SELECT string_agg(substr(subject, 8), ', '
			ORDER BY array_position(ARRAY['orders.placed', 'orders.payment_requested', 'orders.confirmed', 'orders.rejected', 'orders.cancelled'], subject))
			FROM outbox WHERE position($2 in payload) > 0)`,
		order, []byte(order)).Scan(&story))
	return story
}

func (s *shop) becomes(t testing.TB, order, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("order %s: last seen %s, want %s", order, got, want)
		}
	}()
	eventually(t, want, func() bool { got = s.story(t, order); return got == want })
}

// told returns the event that the order has told on the subject, decoded into message.
func told[M proto.Message](t testing.TB, s *shop, order, subject string, message M) M {
	t.Helper()
	var payload []byte
	const find = "SELECT payload FROM outbox WHERE subject = $1 AND position($2 in payload) > 0"
	must(t, s.pool.QueryRow(t.Context(), find, subject, []byte(order)).Scan(&payload))
	must(t, proto.Unmarshal(payload, message))
	return message
}

const (
	toAwaiting  = "pending > awaiting_payment | placed, payment_requested"
	toConfirmed = "pending > awaiting_payment > confirmed | placed, payment_requested, confirmed"
	toRejected  = "pending > rejected not enough of A in stock | placed, rejected"
	toDeclined  = "pending > awaiting_payment > cancelled payment declined: insufficient funds | placed, payment_requested, cancelled"
	toExpired   = "pending > cancelled expired | placed, cancelled"
)

func TestSaga_AnOrderIsReservedChargedAndConfirmed(t *testing.T) {
	s, o := openWithBroker(t)
	s.list(t, "A", 100, "B", 55)
	order := s.place(t, wanted("k", "A", 1, "B", 2)).GetOrder()
	changes, end := s.watch(t, order.GetId(), 0)
	o.reserved(t, order.GetId())
	s.becomes(t, order.GetId(), toAwaiting)
	request := told(t, s, order.GetId(), "orders.payment_requested", &eventsv1.PaymentRequested{})
	if diff := cmp.Diff(&eventsv1.PaymentRequested{OrderId: order.GetId(), CustomerId: "c-1", PaymentToken: "tok_ok",
		Amount: &moneyv1.Money{Currency: "GBP", Minor: 210}}, request, protocmp.Transform()); diff != "" {
		t.Errorf("payment request (-want +got):\n%s", diff)
	}
	o.charged(t, order.GetId())
	s.becomes(t, order.GetId(), toConfirmed)
	confirmed := told(t, s, order.GetId(), "orders.confirmed", &eventsv1.OrderConfirmed{})
	if diff := cmp.Diff(&eventsv1.OrderConfirmed{OrderId: order.GetId(), CustomerId: "c-1",
		Items: []*eventsv1.Item{{ProductId: "A", Quantity: 1}, {ProductId: "B", Quantity: 2}}}, confirmed, protocmp.Transform()); diff != "" {
		t.Errorf("confirmation (-want +got):\n%s", diff)
	}
	for _, want := range []string{"1 PENDING", "2 AWAITING_PAYMENT", "3 CONFIRMED", "end"} {
		if got := receive(t, changes); got != want {
			t.Errorf("watching: got %q, want %q", got, want)
		}
	}
	if err := <-end; err.Error() != "EOF" {
		t.Errorf("the stream ended with %v, want EOF", err)
	}
	now, err := s.GetOrder(t.Context(), &checkoutv1.GetOrderRequest{OrderId: order.GetId()})
	must(t, err)
	if got := now.GetOrder(); got.GetStatus() != checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED || got.GetReason() != "" ||
		!got.GetUpdatedAt().AsTime().After(order.GetUpdatedAt().AsTime()) {
		t.Errorf("got %s, want it confirmed without a reason and updated later than %s", protojson.Format(got), order.GetUpdatedAt().AsTime())
	}
	eventually(t, "both steps are counted", func() bool {
		_, page := s.get(t, "/metrics")
		return strings.Contains(page, `watertight_orders_total{status="awaiting_payment"} 1`) &&
			strings.Contains(page, `watertight_orders_total{status="confirmed"} 1`)
	})
}

func TestSaga_EveryOtherEndAndWhatComesAfterIt(t *testing.T) {
	s, o := openWithBroker(t, "CONSUMER_MAX_BACKOFF=100ms")
	s.list(t, "A", 100)
	expire := func(t testing.TB, order string) {
		t.Helper()
		s.exec(t, "UPDATE orders SET created_at = created_at - interval '1 hour' WHERE id = $1", order)
	}
	for name, steps := range map[string][]any{
		"no stock":             {o.short, toRejected},
		"no stock, said twice": {o.short, toRejected, o.short},
		"declined":             {o.reserved1, toAwaiting, o.declined, toDeclined, o.declined},
		"expired":              {expire, toExpired},
		"expired while waiting for payment": {o.reserved1, toAwaiting, expire,
			"pending > awaiting_payment > cancelled expired | placed, payment_requested, cancelled"},
		"stock comes after the expiry": {expire, toExpired, o.reserved1, toExpired + ", cancelled"},
		"the charge comes after the expiry": {o.reserved1, toAwaiting, expire,
			"pending > awaiting_payment > cancelled expired | placed, payment_requested, cancelled", o.charged,
			"pending > awaiting_payment > cancelled expired | placed, payment_requested, cancelled, cancelled"},
		"everything twice":                     {o.reserved1, o.reserved1, toAwaiting, o.charged, o.charged, toConfirmed, o.reserved1},
		"the charge overtakes the reservation": {o.charged, o.reserved1, toConfirmed},
		"a decline after the charge":           {o.reserved1, toAwaiting, o.charged, toConfirmed, o.declined, o.short},
	} {
		t.Run(name, func(t *testing.T) {
			order := s.place(t, wanted(name, "A", 1)).GetOrder().GetId()
			last := ""
			for _, step := range steps {
				switch step := step.(type) {
				case string:
					s.becomes(t, order, step)
					last = step
				case func(testing.TB, string):
					step(t, order)
				default:
					t.Fatalf("not a step: %T", step)
				}
			}
			o.consumed(t)
			if got := s.story(t, order); got != last {
				t.Errorf("in the end: got %s, want %s", got, last)
			}
		})
	}
}

// reserved1 is reserved in the shape of the others.
func (o *others) reserved1(t testing.TB, order string) {
	t.Helper()
	o.reserved(t, order)
}

// consumed waits until checkout has worked on all that was said.
func (o *others) consumed(t testing.TB) {
	t.Helper()
	eventually(t, "all events are consumed", func() bool {
		for _, name := range []string{"inventory", "payments"} {
			stream, err := o.js.Stream(t.Context(), name)
			must(t, err)
			said, err := stream.Info(t.Context())
			must(t, err)
			consumer, err := stream.Consumer(t.Context(), "checkout")
			if err != nil {
				return false
			}
			heard, err := consumer.Info(t.Context())
			if err != nil || heard.AckFloor.Stream < said.State.LastSeq {
				return false
			}
		}
		return true
	})
}

func TestSaga_TheSameEventHasItsEffectOnce(t *testing.T) {
	s, o := openWithBroker(t)
	s.list(t, "A", 100)
	order := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	s.next(t, order, "cancelled", "by hand")
	id := uuid.NewString()
	o.reserved(t, order, id)
	o.reserved(t, order, strings.ToUpper(id)) // the same id, and the broker does not see it
	o.reserved(t, order)
	o.consumed(t)
	if got, want := s.story(t, order), "pending > cancelled by hand | placed, cancelled, cancelled"; got != want {
		t.Errorf("got %s, want one orders.cancelled for each of two events: %s", got, want)
	}
}

func TestSaga_EventsOfNoOrderAreDeadLettersAndLaterOnesGoOn(t *testing.T) {
	s, o := openWithBroker(t)
	s.list(t, "A", 100)
	o.reserved(t, uuid.NewString())
	o.charged(t, "not a uuid")
	order := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	o.short(t, order)
	s.becomes(t, order, toRejected)
	eventually(t, "both are dead letters", func() bool { return s.count(t, "SELECT count(*) FROM dead_letters") == 2 })
}

func TestSaga_ReplicasExpireEachOrderOnce(t *testing.T) {
	app, owner := pgtest.NewRoles(t)
	environ := []string{"DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner, "EXPIRY_POLL=5ms"}
	s := start(t, owner, environ...)
	s.waitReady(t)
	for range 2 {
		start(t, owner, environ...).waitReady(t)
	}
	s.list(t, "A", 100)
	const orders = 350 // more than three batches
	for i := range orders {
		s.place(t, wanted(fmt.Sprint(i), "A", 1))
	}
	young := s.place(t, wanted("young", "A", 1)).GetOrder().GetId()
	s.exec(t, "UPDATE orders SET created_at = created_at - interval '301 seconds' WHERE id <> $1", young)
	eventually(t, "all have expired", func() bool {
		return s.count(t, "SELECT count(*) FROM orders WHERE status = 'cancelled' AND reason = 'expired'") == orders
	})
	if got := s.count(t, "SELECT count(*) FROM outbox WHERE subject = 'orders.cancelled'"); got != orders {
		t.Errorf("orders.cancelled: got %d, want %d", got, orders)
	}
	if got := s.story(t, young); got != "pending | placed" {
		t.Errorf("the young order: got %s, want it pending", got)
	}
}

// The bounds of field report 20.
const (
	takesOrdersWithin = 5 * time.Second
	eventsLeaveWithin = 10 * time.Second
)

func TestService_TakesOrdersWithoutABrokerAndTellsOfThemWhenItComes(t *testing.T) {
	server := brokertest.New(t)
	began := time.Now()
	s := open(t, "NATS_URL="+server.URL())
	s.list(t, "A", 100)
	order := s.place(t, wanted("k", "A", 1)).GetOrder().GetId()
	if took := time.Since(began); took > takesOrdersWithin {
		t.Errorf("the first order was taken after %v, want %v at most (field report 20)", took, takesOrdersWithin)
	}
	if got := s.story(t, order); got != "pending | placed" {
		t.Errorf("got %s, want it pending", got)
	}
	server.Start()
	began = time.Now()
	eventually(t, "the event is published", func() bool {
		return s.count(t, "SELECT count(*) FROM outbox WHERE published_at IS NULL") == 0
	})
	if took := time.Since(began); took > eventsLeaveWithin {
		t.Errorf("the event left after %v, want %v at most (field report 20)", took, eventsLeaveWithin)
	}
	o := newOthers(t, server)
	o.reserved(t, order)
	o.charged(t, order)
	s.becomes(t, order, toConfirmed)
	server.Stop()
	second := s.place(t, wanted("k2", "A", 1)).GetOrder().GetId()
	server.Start()
	o.reserved(t, second)
	o.charged(t, second)
	s.becomes(t, second, toConfirmed)
}

// TestSaga_ReplicasAndEventsInAnyOrderEndEachOrderOnce lets three processes work on orders for which the others say
// contradictory things, twice, in any order and at once.
func TestSaga_ReplicasAndEventsInAnyOrderEndEachOrderOnce(t *testing.T) {
	server := brokertest.Start(t)
	app, owner := pgtest.NewRoles(t)
	environ := []string{"DATABASE_URL=" + app, "MIGRATE_DATABASE_URL=" + owner, "NATS_URL=" + server.URL(), "EXPIRY_POLL=5ms", "CONSUMER_MAX_BACKOFF=50ms"}
	s := start(t, owner, environ...)
	s.waitReady(t)
	for range 2 {
		start(t, owner, environ...).waitReady(t)
	}
	o := newOthers(t, server)
	s.list(t, "A", 100)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var orders []string
	var saying sync.WaitGroup
	for i := range 100 {
		order := s.place(t, wanted(fmt.Sprint(i), "A", 1)).GetOrder().GetId()
		orders = append(orders, order)
		steps := []func(testing.TB, string){o.reserved1, o.reserved1, o.charged, o.charged}
		switch random.IntN(4) {
		case 0:
			steps = append(steps, o.declined)
		case 1:
			steps = append(steps, o.short)
		case 2:
			steps = append(steps, func(t testing.TB, order string) {
				t.Helper()
				s.exec(t, "UPDATE orders SET created_at = created_at - interval '1 hour' WHERE id = $1", order)
			})
		}
		random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		saying.Go(func() {
			for _, step := range steps {
				step(t, order)
			}
		})
	}
	saying.Wait()
	o.consumed(t)
	eventually(t, "all have ended", func() bool {
		return s.count(t, "SELECT count(*) FROM orders WHERE status IN ('pending', 'awaiting_payment')") == 0
	})
	o.consumed(t)
	for _, order := range orders {
		story := s.story(t, order)
		for _, once := range []string{"payment_requested", ", confirmed", ", rejected"} {
			if strings.Count(story, once) > 1 {
				t.Errorf("order %s told %s twice: %s", order, once, story)
			}
		}
		confirmed := strings.Contains(story, "> confirmed |")
		if confirmed != strings.Contains(story, ", confirmed") || confirmed && strings.Contains(story, "cancelled") {
			t.Errorf("order %s: %s", order, story)
		}
	}
}
