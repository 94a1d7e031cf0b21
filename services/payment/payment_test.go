package payment_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres/pgtest"
	"example.com/watertight/platform/rpcerr"
	paymentv1 "example.com/watertight/proto/payment/v1"
	"example.com/watertight/services/payment"
	"example.com/watertight/services/payment/sandbox"
)

const (
	chargedOnce = "charged 510-0 | ledger charge 510 | payments.charged"
	nothingDone = "cancelled 0-0 | ledger empty | silent"
	givenBack   = "refunded 510-510 | ledger charge 510, refund 510 | payments.charged, payments.refunded"
	isDeclined  = "declined 0-0 | ledger empty | payments.declined"
)

func TestPayment_EveryTokenEndsAsDocumented(t *testing.T) {
	r := newRig(t)
	r.start(t, nil, "PROVIDER_TIMEOUT=500ms", "SANDBOX_SLOW=200ms", "PROVIDER_BACKOFF=20ms")
	wants := map[string]string{
		"tok_ok": chargedOnce, "tok_timeout": chargedOnce, "tok_slow": chargedOnce, "tok_flaky": chargedOnce,
		"tok_declined": isDeclined, "4111 1111": isDeclined,
	}
	orders := map[string]string{}
	for token := range wants {
		orders[token] = uuid.NewString()
		r.request(t, orders[token], token)
	}
	for token, want := range wants {
		t.Run(token, func(t *testing.T) { r.becomes(t, orders[token], want) })
	}
	tries := map[string]int{"tok_ok": 1, "tok_timeout": 2, "tok_slow": 1, "tok_flaky": 3, "tok_declined": 1}
	for token, want := range tries {
		if got := r.count(t, "SELECT tries FROM sandbox_keys WHERE key = $1", orders[token]); got != want {
			t.Errorf("%s: the provider was asked %d times, want %d", token, got, want)
		}
	}
}

func TestPayment_ARequestThatComesAgainChargesNothing(t *testing.T) {
	r := newRig(t)
	r.start(t, nil)
	for token, want := range map[string]string{"tok_ok": chargedOnce, "tok_declined": isDeclined} {
		order := uuid.NewString()
		for range 3 {
			r.request(t, order, token)
		}
		r.becomes(t, order, want)
		r.request(t, order, "tok_ok")
		r.settled(t)
		r.becomes(t, order, want)
	}
}

func TestPayment_ACancellationThatOvertakesItsRequestLeavesATombstone(t *testing.T) {
	r := newRig(t)
	p := r.start(t, nil)
	order := uuid.NewString()
	r.cancel(t, order)
	r.becomes(t, order, nothingDone)
	r.request(t, order, "tok_ok")
	r.settled(t)
	r.becomes(t, order, nothingDone)
	got, err := p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: order})
	must(t, err)
	if s := got.GetPayment().GetStatus(); s != paymentv1.PaymentStatus_PAYMENT_STATUS_CANCELLED || got.GetPayment().GetAmount() != nil {
		t.Errorf("got %v, want CANCELLED without an amount", got)
	}
}

func TestPayment_WhatWasChargedForACancelledOrderIsGivenBackOnce(t *testing.T) {
	r := newRig(t)
	p := r.start(t, nil)
	order := uuid.NewString()
	r.request(t, order, "tok_ok")
	r.becomes(t, order, chargedOnce)
	for range 3 {
		r.cancel(t, order)
	}
	r.becomes(t, order, givenBack)
	r.cancel(t, order)
	r.settled(t)
	r.becomes(t, order, givenBack)
	got, err := p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: order})
	must(t, err)
	if m := got.GetPayment(); m.GetStatus() != paymentv1.PaymentStatus_PAYMENT_STATUS_REFUNDED || m.GetCharged() != 510 || m.GetRefunded() != 510 ||
		m.GetAmount().GetMinor() != 510 || m.GetAmount().GetCurrency() != "GBP" || !m.GetUpdatedAt().AsTime().After(m.GetCreatedAt().AsTime()) {
		t.Errorf("got %v, want 510 GBP charged and refunded", got)
	}
}

func TestPayment_ADeclinedPaymentStaysDeclinedWhenItsOrderIsCancelled(t *testing.T) {
	r := newRig(t)
	r.start(t, nil)
	order := uuid.NewString()
	r.request(t, order, "tok_declined")
	r.becomes(t, order, isDeclined)
	r.cancel(t, order)
	r.settled(t)
	r.becomes(t, order, isDeclined)
}

// gated starts a replica whose calls to the provider the test lets through one by one.
func (r *rig) gated(t *testing.T, environ ...string) *gate {
	t.Helper()
	g := &gate{calls: make(chan call)}
	r.start(t, func(p payment.Provider) payment.Provider { g.Provider = p; return g }, append([]string{"PROVIDER_BACKOFF=20ms"}, environ...)...)
	return g
}

func TestPayment_AChargeWhoseAnswerWasLostIsFoundOutAndGivenBackWhenItsOrderIsCancelled(t *testing.T) {
	for name, c := range map[string]struct {
		lost verdict
		want string
	}{
		"charged after all": {lostAfter, "refunded 510-510 | ledger charge 510, refund 510 | payments.refunded"},
		"never charged":     {lostBefore, nothingDone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.gated(t, "PROVIDER_BACKOFF=1h", "PROVIDER_MAX_BACKOFF=1h") // only the cancellation makes it ask again
			order := uuid.NewString()
			r.request(t, order, "tok_ok")
			g.next(t, "charge").pass <- c.lost
			eventually(t, "the charge is postponed", func() bool {
				return r.count(t, "SELECT count(*) FROM payments WHERE due_at > now() + interval '1 minute'") == 1
			})
			r.cancel(t, order)
			g.next(t, "call off").pass <- through
			r.becomes(t, order, c.want)
		})
	}
}

func TestPayment_AnOrderThatIsCancelledWhileItIsBeingChargedKeepsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		chargeFirst bool
		want        string
	}{
		"the charge is first":       {true, "refunded 510-510 | ledger charge 510, refund 510 | payments.charged, payments.refunded"},
		"the cancellation is first": {false, nothingDone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.gated(t)
			order := uuid.NewString()
			r.request(t, order, "tok_ok")
			charging := g.next(t, "charge")
			r.cancel(t, order)
			calling := g.next(t, "call off")
			if c.chargeFirst {
				charging.pass <- through
				eventually(t, "the charge is stored", func() bool { return strings.HasPrefix(r.state(t, order), "charged") })
				drainCalls(g, calling)
			} else {
				calling.pass <- through
				r.becomes(t, order, c.want)
				charging.pass <- through
			}
			r.settled(t)
			r.becomes(t, order, c.want)
		})
	}
}

// drainCalls lets a call, and all that come after it, through.
func drainCalls(g *gate, first call) {
	first.pass <- through
	go func() {
		for c := range g.calls {
			c.pass <- through
		}
	}()
}

func TestPayment_HoldsNoTransactionAndNoConnectionWhileTheProviderIsAsked(t *testing.T) {
	r := newRig(t)
	g := &gate{calls: make(chan call)}
	p := r.start(t, func(p payment.Provider) payment.Provider { g.Provider = p; return g }, "DB_MAX_CONNS=2")
	var waiting []call
	for range 10 {
		r.request(t, uuid.NewString(), "tok_ok")
	}
	for range 10 {
		waiting = append(waiting, g.next(t, "charge"))
	}
	if _, err := p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: waiting[0].key.String()}); err != nil {
		t.Errorf("with ten calls under way: %v", err)
	}
	eventually(t, "no session of the service is in a transaction", func() bool {
		return r.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND state LIKE 'idle in transaction%'`) == 0
	})
	for _, c := range waiting {
		c.pass <- through
	}
	for _, c := range waiting {
		r.becomes(t, c.key.String(), chargedOnce)
	}
}

func TestPayment_AnotherReplicaAsksAgainForWhatAStoppedOneWasAsking(t *testing.T) {
	r := newRig(t)
	first := r.start(t, nil)
	order := uuid.NewString()
	r.request(t, order, "tok_timeout")
	eventually(t, "the provider has charged", func() bool { return strings.Contains(r.state(t, order), "ledger charge 510") })
	first.stop()
	r.start(t, nil, "PROVIDER_LEASE=1h", "PROVIDER_TIMEOUT=10s")
	r.becomes(t, order, chargedOnce)
}

// fickle is a provider that loses one call in three, before or after it is done.
type fickle struct{ payment.Provider }

func (f fickle) Charge(ctx context.Context, key uuid.UUID, c payment.Charge) (payment.Answer, error) {
	if rand.N(6) == 0 {
		return payment.Answer{}, errLost
	}
	answer, err := f.Provider.Charge(ctx, key, c)
	if rand.N(6) == 0 {
		return payment.Answer{}, errLost
	}
	return answer, err
}

func (f fickle) CallOff(ctx context.Context, key uuid.UUID) (int64, error) {
	if rand.N(6) == 0 {
		return 0, errLost
	}
	refunded, err := f.Provider.CallOff(ctx, key)
	if rand.N(6) == 0 {
		return 0, errLost
	}
	return refunded, err
}

func TestPayment_ThreeReplicasAndAFickleProviderLoseNoMoney(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.start(t, func(p payment.Provider) payment.Provider { return fickle{p} }, "PROVIDER_BACKOFF=5ms", "PROVIDER_MAX_BACKOFF=50ms", "PROVIDER_POLL=5ms")
	}
	const orders = 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	calledOff := map[string]bool{}
	var sending sync.WaitGroup
	for range orders {
		order := uuid.NewString()
		steps := []string{"request", "request"}
		calledOff[order] = random.IntN(2) == 0
		if calledOff[order] {
			steps = append(steps, "cancel", "cancel")
			random.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		}
		token := []string{"tok_ok", "tok_flaky"}[random.IntN(2)]
		sending.Go(func() {
			for _, step := range steps {
				if step == "request" {
					r.request(t, order, token)
				} else {
					r.cancel(t, order)
				}
			}
		})
	}
	sending.Wait()
	r.settled(t)
	for order, off := range calledOff {
		got := r.state(t, order)
		kept := strings.Contains(got, "ledger charge 510 |")
		if strings.Count(got, "charge 510") > 1 || strings.Count(got, "refund 510") > 1 || kept == off {
			t.Errorf("order %s, cancelled: %t: got %s", order, off, got)
		}
		if !off && got != chargedOnce {
			t.Errorf("order %s: got %s, want %s", order, got, chargedOnce)
		}
	}
	if got := r.count(t, `SELECT count(*) FROM payments p WHERE charged - refunded <>
		(SELECT coalesce(sum(CASE kind WHEN 'charge' THEN amount ELSE -amount END), 0) FROM sandbox_ledger WHERE key = p.order_id)`); got != 0 {
		t.Errorf("%d payments differ from the provider's books", got)
	}
}

func TestPayment_OutlivesDatabaseAndBroker(t *testing.T) {
	server := pgtest.NewServer(t)
	url := server.New()
	r := rigOn(t, url, url)
	r.start(t, nil)
	before := uuid.NewString()
	r.request(t, before, "tok_ok")
	r.becomes(t, before, chargedOnce)
	r.request(t, uuid.NewString(), "tok_timeout")
	server.Stop()
	r.broker.Stop()
	server.Start()
	r.broker.Start()
	r.pool.Reset() // the test's own connections were cut too
	after := uuid.NewString()
	eventually(t, "the broker takes events again", func() bool {
		_, err := r.js.Stream(t.Context(), "orders")
		return err == nil
	})
	r.request(t, after, "tok_ok")
	r.becomes(t, after, chargedOnce)
	r.settled(t)
	if got := r.count(t, "SELECT count(*) FROM payments WHERE status = 'charged'"); got != 3 {
		t.Errorf("charged: got %d, want 3", got)
	}
}

func TestPayment_EventsThatCannotBeAreDeadLettersAndLaterOnesGoOn(t *testing.T) {
	r := newRig(t)
	r.start(t, nil)
	r.request(t, "not a uuid", "tok_ok")
	r.cancel(t, "")
	order := uuid.NewString()
	r.request(t, order, "tok_ok")
	r.becomes(t, order, chargedOnce)
	eventually(t, "both are dead letters", func() bool {
		return r.count(t, "SELECT count(*) FROM dead_letters WHERE last_error LIKE '%order_id: must be a UUID%'") == 2
	})
}

func TestPayment_TellsOfTheOutcomeInTheTraceOfTheOrder(t *testing.T) {
	r := newRig(t)
	r.start(t, nil)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	order := uuid.NewString()
	r.request(t, order, "tok_ok", "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	r.becomes(t, order, chargedOnce)
	var message jetstream.Msg
	eventually(t, "the event is published", func() bool {
		consumer, err := r.js.OrderedConsumer(t.Context(), "payments", jetstream.OrderedConsumerConfig{})
		if err != nil {
			return false
		}
		message, err = consumer.Next(jetstream.FetchMaxWait(time.Second))
		return err == nil
	})
	if got := message.Headers()["traceparent"]; len(got) != 1 || !strings.Contains(got[0], trace) {
		t.Errorf("traceparent: got %v, want trace %s", got, trace)
	}
}

func TestGetPayment_UnknownAndMalformedOrders(t *testing.T) {
	p := newRig(t).start(t, nil)
	_, err := p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: uuid.NewString()})
	if status.Code(err) != codes.NotFound || rpcerr.Reason(err) != rpcerr.NotFound {
		t.Errorf("unknown: got %v, want NOT_FOUND", err)
	}
	for _, id := range []string{"", "x", strings.Repeat("-", 36)} {
		_, err := p.GetPayment(t.Context(), &paymentv1.GetPaymentRequest{OrderId: id})
		if status.Code(err) != codes.InvalidArgument || len(rpcerr.Fields(err)) != 1 || rpcerr.Fields(err)[0].GetField() != "order_id" {
			t.Errorf("%q: got %v, want INVALID_ARGUMENT that names order_id", id, err)
		}
	}
}

func TestConfig_ErrorsNameTheVariable(t *testing.T) {
	for _, line := range []string{
		"PROVIDER_TIMEOUT=0s", "PROVIDER_IN_FLIGHT=0", "PROVIDER_LEASE=3s", "PROVIDER_POLL=0s", "PROVIDER_BACKOFF=-1s", "PROVIDER_MAX_BACKOFF=0s",
	} {
		name, _, _ := strings.Cut(line, "=")
		if _, err := config.Load[payment.Config]([]string{line}); err == nil || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s: got %v, want an error that names %s", line, err, name)
		}
	}
	for _, line := range []string{"SANDBOX_SLOW=-1s", "SANDBOX_FLAKY_TRIES=-1"} {
		name, _, _ := strings.Cut(line, "=")
		if _, err := config.Load[sandbox.Config]([]string{line}); err == nil || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s: got %v, want an error that names %s", line, err, name)
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

func TestSandbox_ParallelCallsForOneKeyAgree(t *testing.T) {
	r := newRig(t)
	r.start(t, nil) // migrates
	provider, err := sandbox.New(sandbox.Config{}, r.pool)
	must(t, err)
	for round := range 10 {
		key := uuid.New()
		var calling sync.WaitGroup
		for i := range 12 {
			calling.Go(func() {
				if round%2 == 1 && i%3 == 0 {
					if refunded, err := provider.CallOff(t.Context(), key); err != nil || refunded != 0 && refunded != 7 {
						t.Errorf("call off: got %d, %v, want 0 or 7", refunded, err)
					}
					return
				}
				_, err := provider.Charge(t.Context(), key, payment.Charge{Token: sandbox.OK, Currency: "GBP", Minor: 7})
				if err != nil {
					t.Errorf("charge: %v", err)
				}
			})
		}
		calling.Wait()
		got := fmt.Sprint(r.count(t, "SELECT count(*) FROM sandbox_ledger WHERE key = $1 AND kind = 'charge'", key), " ",
			r.count(t, "SELECT count(*) FROM sandbox_ledger WHERE key = $1 AND kind = 'refund'", key))
		if round%2 == 0 && got != "1 0" || round%2 == 1 && got != "1 1" && got != "0 0" {
			t.Errorf("round %d: charges and refunds: got %s", round, got)
		}
	}
}
