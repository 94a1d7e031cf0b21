//go:build unix

// Package shareddb holds the tests of where isolation ends: services with a database each, on one server. It knows the shop
// from outside only, and one thing more: what a service's role may hold on that server.
package shareddb

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/watertight/test/shop"
)

// greedy has recs' fault take all that it gets: more connections than the server has.
var greedy = []string{"--env", "recs.FAULT_DB_CONNECTIONS=1000"}

var live = shop.New(func(int) (shop.Settings, error) {
	return shop.Settings{Flags: append([]string{"--db-limits=off"}, greedy...)}, nil
})

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

func TestSharedDatabase_IsUsedUpByOneServiceUnlessItsRoleHasLimits(t *testing.T) {
	s := live.Get(t)
	t.Run("without limits recs' fault costs checkout's orders", func(t *testing.T) {
		heal := holdDatabase(t, s)
		if err := connect(t, s, "checkout"); !tooMany(err) {
			t.Errorf("a connection for checkout: got %v, want SQLSTATE %s", err, tooManyConnections)
		}
		orders := placeAll(t, s, newKeys())
		if len(orders.refused) == 0 {
			t.Errorf("all of %d orders were taken, want some refused", len(orders.taken))
		}
		t.Logf("%d orders taken, %d refused", len(orders.taken), len(orders.refused))
		heal()
		shop.Eventually(t, time.Minute, "the refused orders are taken under the same keys", func() bool {
			again := placeAll(t, s, orders.refused)
			orders.refused = again.refused
			return len(again.refused) == 0
		})
		if err := connect(t, s, "checkout"); err != nil {
			t.Errorf("a connection for checkout after the fault: %v", err)
		}
	})
	restart(t, s, append([]string{"--db-limits=on"}, greedy...)...)
	t.Run("with limits it costs recs' connections", func(t *testing.T) {
		heal := holdDatabase(t, s)
		if err := connect(t, s, "recs"); !tooMany(err) {
			t.Errorf("a connection for recs: got %v, want SQLSTATE %s", err, tooManyConnections)
		}
		if err := connect(t, s, "checkout"); err != nil {
			t.Errorf("a connection for checkout: %v", err)
		}
		orders := placeAll(t, s, newKeys())
		if len(orders.refused) > 0 {
			t.Fatalf("%d orders were refused, %d taken, want all taken", len(orders.refused), len(orders.taken))
		}
		shop.Eventually(t, time.Minute, "an order comes to its end beside the fault", func() bool {
			var order struct{ Status string }
			s.Get(t, orders.taken[0]).Into(t, http.StatusOK, &order)
			return order.Status == "confirmed"
		})
		heal()
		shop.Eventually(t, time.Minute, "recs gets connections again", func() bool { return connect(t, s, "recs") == nil })
	})
}

// holdDatabase has recs take all the connections that it gets, and returns what ends that.
func holdDatabase(t *testing.T, s *shop.Shop) (heal func()) {
	t.Helper()
	const path, held = "/api/v1/faults/recs", "fault holds the database"
	before := bytes.Count(s.Log(t, "recs"), []byte(held))
	if a := s.Do(t, http.MethodPut, path, `{"kind":"db-lock","ttl_s":300}`, "Content-Type", "application/json"); a.Status != http.StatusOK {
		t.Fatalf("set the fault: got %d: %s", a.Status, a.Body)
	}
	heal = func() {
		if a := s.Do(t, http.MethodDelete, path, ""); a.Status != http.StatusNoContent {
			t.Errorf("clear the fault: got %d: %s", a.Status, a.Body)
		}
	}
	t.Cleanup(heal) // it may be cleared twice
	shop.Eventually(t, time.Minute, "recs holds the database", func() bool {
		s.Get(t, "/api/v1/products/LGT-0007") // a request for it to bite
		return bytes.Count(s.Log(t, "recs"), []byte(held)) > before
	})
	return heal
}

// restart ends the shop and runs it again on its data with other flags.
func restart(t *testing.T, s *shop.Shop, flags ...string) {
	t.Helper()
	gateway, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(gateway.Port())
	if err != nil {
		t.Fatal(err)
	}
	const usualPort = 8080
	s.Lab(t, "down", "--dir", s.Dir())
	s.Lab(t, append([]string{"up", "--detach", "--dir", s.Dir(), "--port-offset", strconv.Itoa(port - usualPort)}, flags...)...)
}

// connect opens one more connection as the service's role.
func connect(t *testing.T, s *shop.Shop, service string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DatabaseURL(t, service))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

const tooManyConnections = "53300"

func tooMany(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == tooManyConnections
}

// outcome is what became of orders.
type outcome struct {
	taken   []string // paths
	refused []string // idempotency keys
}

// newKeys are those of as many orders at once as need more connections than checkout keeps open.
func newKeys() []string {
	keys := make([]string, 16)
	for i := range keys {
		keys[i] = "shareddb-" + rand.Text()
	}
	return keys
}

// placeAll sends an order for each key, all at once. Each must be taken, or refused for want of checkout.
func placeAll(t *testing.T, s *shop.Shop, keys []string) outcome {
	t.Helper()
	const body = `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"LGT-0007","quantity":1}],"payment_token":"tok_ok"}`
	answers := make([]shop.Answer, len(keys))
	errs := make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() {
			answers[i], errs[i] = s.Try(t, http.MethodPost, "/api/v1/orders", body, "Content-Type", "application/json", "Idempotency-Key", key)
		})
	}
	all.Wait()
	var o outcome
	var odd []string
	for i, a := range answers {
		switch {
		case errs[i] == nil && a.Status == http.StatusCreated:
			o.taken = append(o.taken, a.Header.Get("Location"))
		case errs[i] == nil && a.Status == http.StatusServiceUnavailable:
			o.refused = append(o.refused, keys[i])
		default:
			odd = append(odd, strings.TrimSpace(fmt.Sprintf("%d %v %s", a.Status, errs[i], a.Body)))
		}
	}
	if len(odd) > 0 {
		t.Fatalf("%d orders were neither taken nor refused: %s", len(odd), strings.Join(slices.Compact(odd), "\n"))
	}
	return o
}
