package recs_test

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres/pgtest"
	eventsv1 "example.com/watertight/proto/events/v1"
)

// confirm publishes the confirmation of an order, as checkout does.
func confirm(t *testing.T, js jetstream.JetStream, eventID, order string, products ...string) {
	t.Helper()
	message := &eventsv1.OrderConfirmed{OrderId: order, CustomerId: "c-1"}
	for _, id := range products {
		message.Items = append(message.Items, &eventsv1.Item{ProductId: id, Quantity: 2})
	}
	payload, err := proto.Marshal(message)
	must(t, err)
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: "orders.confirmed", Data: payload, Header: nats.Header{
		jetstream.MsgIDHeader: {eventID}, "ce-type": {"events.v1.OrderConfirmed"},
	}})
	must(t, err)
}

func TestOrders_WhatIsConfirmedIsLearnedFromOnce(t *testing.T) {
	server := brokertest.Start(t)
	js := server.JetStream()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
	must(t, err)
	settings, err := config.Load[broker.Config]([]string{"NATS_URL=" + server.URL()})
	must(t, err)
	conn, err := broker.Connect(settings, "recs", slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	t.Cleanup(conn.Close)
	cfg := quick
	cfg.ModelRefresh = 50 * time.Millisecond
	r := startWithBroker(t, pgtest.New(t), cfg, conn)
	r.waitReady(t)

	id := uuid.NewString()
	confirm(t, js, id, "order-1", "LAMP", "BULB")
	eventually(t, "the first basket is stored", func() (string, bool) {
		n := query[int](t, r, "SELECT count(*)::int FROM baskets")
		return fmt.Sprint(n), n == 1
	})
	confirm(t, js, strings.ToUpper(id), "order-1", "LAMP") // the same event, and the broker does not see it
	confirm(t, js, uuid.NewString(), "", "X")              // can never be handled
	confirm(t, js, uuid.NewString(), "order-2", "LAMP", "BULB")
	eventually(t, "learned", func() (string, bool) {
		got := r.recommend(t, "lamp", 1)
		return fmt.Sprint(got), slices.Equal(got, []string{"BASIS_BOUGHT_TOGETHER", "BULB 1.0000"})
	})
	eventually(t, "the bad one is a dead letter", func() (string, bool) {
		got := query[string](t, r, "SELECT coalesce(string_agg(last_error, ' '), 'none') FROM dead_letters")
		return got, got == "order_id and items: must not be empty"
	})
	want := "order-1 BULB,LAMP; order-2 BULB,LAMP"
	got := query[string](t, r, `SELECT string_agg(id || ' ' || array_to_string(ARRAY(SELECT unnest(product_ids) ORDER BY 1), ','), '; ' ORDER BY id)
		FROM baskets`)
	if got != want {
		t.Errorf("baskets: got %s, want %s", got, want)
	}
}

func TestMigrations_HoldTheInboxAsThePlatformDefinesIt(t *testing.T) {
	got, err := os.ReadFile("migrations/00002_events.sql")
	must(t, err)
	if diff := cmp.Diff(outbox.Schema, string(got)); diff != "" {
		t.Errorf("events migration (-platform +ours):\n%s", diff)
	}
}
