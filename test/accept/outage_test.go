//go:build unix

package accept

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/watertight/test/shop"
)

func TestFieldReport_11_AnOrderWhoseAnswerIsLostIsSentOnceAndFoundByItsKey(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	body, key := wish(someone(), somethings(t, s, 1)[0].ID, "1"), newKey()
	place(t, s, newKey(), wish(someone(), somethings(t, s, 1)[0].ID, "1")) // on a connection that stands: a new one would hear nothing
	before := ordersTaken(t, s)
	live.checkout.LoseAnswers()
	t.Cleanup(live.checkout.Cut)
	answered := make(chan shop.Answer, 1)
	go func() {
		a, err := s.Try(t, http.MethodPost, "/api/v1/orders", body, "Idempotency-Key", key)
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	shop.Eventually(t, 10*time.Second, "checkout has stored the order", func() bool { return ordersTaken(t, s) == before+1 })
	live.checkout.Cut()
	if a := <-answered; a.Status != http.StatusServiceUnavailable && a.Status != http.StatusGatewayTimeout {
		t.Errorf("got %d %s, want 503 or 504", a.Status, a.Body)
	}
	if taken := ordersTaken(t, s) - before; taken != 1 {
		t.Errorf("%d orders were stored, want 1: nobody may have tried again", taken)
	}
	// The customer's own second try.
	shop.Eventually(t, 20*time.Second, "the same key finds the order", func() bool {
		a := place(t, s, key, body)
		return a.Status == http.StatusCreated && a.Header.Get("Idempotency-Replayed") == "true"
	})
	if taken := ordersTaken(t, s) - before; taken != 1 {
		t.Errorf("%d orders were stored in the end, want 1", taken)
	}
}

// mended makes the test end only when the shop is whole again, also when it has failed: every process ready, every breaker
// closed, orders taken, pages complete.
func mended(t *testing.T, s *shop.Shop) {
	t.Helper()
	item := somethings(t, s, 1)[0]
	t.Cleanup(func() {
		start, missing := time.Now(), "nothing"
		defer func() {
			t.Logf("whole after %v; last was missing: %s", time.Since(start).Round(100*time.Millisecond), missing)
		}()
		shop.Eventually(t, time.Minute, "the shop is whole again", func() bool {
			now := wanting(t, s, item)
			if now != "" {
				missing = now
			}
			return now == ""
		})
	})
}

// wanting says what the shop lacks; "" when it is whole.
func wanting(t *testing.T, s *shop.Shop, item product) string {
	t.Helper()
	for name, p := range s.Processes(t) {
		if !p.Ready {
			return name + " is not ready"
		}
	}
	for _, request := range [][2]string{{http.MethodGet, "/api/v1/products/" + item.ID}, {http.MethodPost, "/api/v1/orders"}, {http.MethodGet, "/api/v1/faults"}} {
		a, err := s.Try(t, request[0], request[1], wish(someone(), item.ID, "1"), "Idempotency-Key", newKey())
		if err != nil || a.Status >= 400 || a.Header.Get("Watertight-Degraded") != "" {
			return fmt.Sprintf("%s %s: %d %s %v", request[0], request[1], a.Status, a.Header.Get("Watertight-Degraded"), err)
		}
	}
	var status struct {
		Upstreams []struct{ Name, Breaker string }
	}
	s.Get(t, "/api/v1/status").Into(t, http.StatusOK, &status)
	for _, upstream := range status.Upstreams {
		if upstream.Breaker != "closed" {
			return fmt.Sprintf("the breaker of %s is %s", upstream.Name, upstream.Breaker)
		}
	}
	return ""
}

// alive samples /livez of every service until it is told to stop, and fails the test for every answer that is not 200.
func alive(t *testing.T, s *shop.Shop) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	before := s.Services(t)
	samples := 0
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			for name, p := range before {
				a, err := s.Try(t, http.MethodGet, "http://"+p.Addresses["admin"]+"/livez", "")
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("%s: /livez %d %s (%v)", name, a.Status, a.Body, err)
				}
				samples++
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		sampling.Wait()
		t.Logf("%d samples of /livez", samples)
		for name, now := range s.Services(t) {
			if now.PID != before[name].PID {
				t.Errorf("%s was process %d and is %d", name, before[name].PID, now.PID)
			}
		}
	}
}

func TestFieldReport_17_AFrozenDatabaseCostsNoProcessAndOrdersComeBackByThemselves(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	item := somethings(t, s, 1)[0]
	stop := alive(t, s)
	thaw := s.Freeze(t, "postgres")
	// The report has it away for a minute; every time-out here is shorter than these 20 s.
	for away := time.After(20 * time.Second); ; {
		if a := s.Get(t, "/api/v1/products?q=lantern"); a.Status != http.StatusOK {
			t.Errorf("search without its database: %d %s", a.Status, a.Body)
		}
		var page productPage
		if s.Get(t, "/api/v1/products/"+item.ID).Into(t, http.StatusOK, &page); len(page.Recommendations) == 0 {
			t.Error("the page has no recommendations while the database is away")
		}
		a := place(t, s, newKey(), wish(someone(), item.ID, "1"))
		if a.Status != http.StatusServiceUnavailable && a.Status != http.StatusGatewayTimeout {
			t.Errorf("an order: %d %s, want 503 or 504", a.Status, a.Body)
		}
		if a.Took > 5*time.Second {
			t.Errorf("the refusal took %v", a.Took)
		}
		quiet(t, "postgres", a)
		select {
		case <-away:
		case <-time.After(time.Second):
			continue
		}
		break
	}
	thaw()
	back := time.Now()
	shop.Eventually(t, 10*time.Second, "orders work again", func() bool {
		return place(t, s, newKey(), wish(someone(), item.ID, "1")).Status == http.StatusCreated
	})
	t.Logf("orders work %v after the database", time.Since(back).Round(100*time.Millisecond))
	stop()
}

func TestOutage_AKilledDatabaseComesBackAndKeepsEveryOrder(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	item := somethings(t, s, 1)[0]
	before := mustPlace(t, s, newKey(), wish(someone(), item.ID, "1"))
	stop := alive(t, s)
	start := time.Now()
	s.Kill(t, "postgres")
	t.Logf("the database was away for %v", time.Since(start).Round(100*time.Millisecond))
	shop.Eventually(t, 10*time.Second, "orders work again", func() bool {
		return place(t, s, newKey(), wish(someone(), item.ID, "1")).Status == http.StatusCreated
	})
	var same order
	if s.Get(t, "/api/v1/orders/"+before.ID).Into(t, http.StatusOK, &same); same.ID != before.ID {
		t.Errorf("the order placed before is gone: %+v", same)
	}
	stop()
}

func TestFieldReport_18_AServiceToldToEndFinishesWhatItBegan(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	for _, name := range []string{"recs", "search", "checkout", "gateway"} {
		restarted(t, s, name)
		if log := string(s.Log(t, name)); strings.Contains(log, "panic") || !strings.Contains(log, "drain") {
			t.Errorf("%s did not drain in order:\n%s", name, tail(log))
		}
	}
}

// restarted ends a process politely and waits for the next one.
func restarted(t *testing.T, s *shop.Shop, name string) {
	t.Helper()
	before := s.Process(t, name)
	s.Terminate(t, name)
	shop.Eventually(t, 30*time.Second, name+" runs again", func() bool {
		now := s.Process(t, name)
		return now.Ready && now.PID != before.PID
	})
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-10, 0):], "\n")
}

func TestFieldReport_19_WithoutRecsTheGatewayIsReadyAndThePageComes(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	for _, how := range []string{"frozen", "ended"} {
		t.Run(how, func(t *testing.T) {
			mended(t, s)
			if how == "frozen" {
				s.Freeze(t, "recs")
			} else {
				s.Terminate(t, "recs")
			}
			ready := "http://" + s.Process(t, "gateway").Addresses["admin"] + "/readyz"
			for range 20 {
				if a := s.Get(t, ready); a.Status != http.StatusOK {
					t.Errorf("/readyz of the gateway: %d %s", a.Status, a.Body)
				}
				for _, path := range []string{"/products/" + item.ID, "/api/v1/products/" + item.ID, "/api/v1/recommendations"} {
					if a := s.Get(t, path); a.Status != http.StatusOK || a.Took > 2*time.Second {
						t.Errorf("%s: %d after %v", path, a.Status, a.Took)
					}
				}
				mustPlace(t, s, newKey(), wish(someone(), item.ID, "1"))
			}
		})
	}
}

func TestFieldReport_22_CancelledRequestsDoNotMultiplyConnections(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	item := somethings(t, s, 1)[0]
	db, err := pgx.Connect(t.Context(), s.DatabaseURL(t, "checkout"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	connections := func() (n int) {
		t.Helper()
		// A role sees its own sessions; this one is not checkout's.
		const others = `SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid()`
		if err := db.QueryRow(t.Context(), others).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	most := 0
	var gone sync.WaitGroup
	places := make(chan struct{}, 50)
	tick := time.NewTicker(2 * time.Millisecond) // 500 a second
	defer tick.Stop()
	for i := range 1500 {
		<-tick.C
		places <- struct{}{}
		gone.Go(func() {
			defer func() { <-places }()
			abandon(t, s, wish(someone(), item.ID, "1"), time.Duration(i%10)*time.Millisecond)
		})
		if i%100 == 0 {
			most = max(most, connections())
		}
	}
	gone.Wait()
	if limit := 16 + 2 + 4 + 2; most > limit { // the three pools' defaults, and two that are on their way out
		t.Errorf("%d connections, want at most %d", most, limit)
	}
	shop.Eventually(t, 2*time.Second, "orders work as usual", func() bool {
		return place(t, s, newKey(), wish(someone(), item.ID, "1")).Status == http.StatusCreated
	})
	t.Logf("at most %d connections", most)
}

// abandon sends an order and hangs up after a while.
func abandon(t *testing.T, s *shop.Shop, body string, patience time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /api/v1/orders HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", newKey(), len(body), body)
	<-time.After(patience)
}

// internals are words that no customer may read.
var internals = regexp.MustCompile(`(?i)dial|SQLSTATE|rpc error|127\.0\.0\.1|localhost|\[::1\]|:\d{4,5}\b|connection|refused|relation|pgx|postgres|nats|goroutine|\.go:|transport|desc =`)

// quiet checks that a 5xx says nothing of how the shop is made, whatever is away.
func quiet(t *testing.T, away string, answers ...shop.Answer) {
	t.Helper()
	for _, a := range answers {
		if a.Status < 500 {
			continue
		}
		// Ids and the path of the request are the client's own.
		var fields map[string]any
		text := a.Body
		if json.Unmarshal([]byte(a.Body), &fields) == nil {
			for _, own := range []string{"request_id", "trace_id", "instance"} {
				delete(fields, own)
			}
			text = fmt.Sprint(fields)
		}
		if found := internals.FindString(text); found != "" {
			t.Errorf("without %s a %d says %q: %s", away, a.Status, found, text)
		}
	}
}

func TestFieldReport_51_WhateverIsAwayNo5xxSpeaksOfInternals(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	o := mustPlace(t, s, newKey(), wish(someone(), item.ID, "1"))
	for _, away := range []string{"postgres", "nats", "recs", "search", "checkout"} {
		t.Run(away, func(t *testing.T) {
			mended(t, s)
			ask := func(when string) {
				for _, path := range []string{
					"/", "/?q=lantern", "/products/" + item.ID, "/orders/" + o.ID, "/api/v1/products", "/api/v1/products/" + item.ID,
					"/api/v1/recommendations", "/api/v1/orders/" + o.ID, "/api/v1/status", "/api/v1/faults",
				} {
					a := s.Get(t, path)
					quiet(t, away+" ("+when+")", a)
					if away == "recs" && a.Status != http.StatusOK {
						t.Errorf("without recs (%s) %s answers %d", when, path, a.Status)
					}
				}
				a := place(t, s, newKey(), wish(someone(), item.ID, "1"))
				quiet(t, away+" ("+when+")", a)
				if away != "postgres" && away != "checkout" && a.Status != http.StatusCreated {
					t.Errorf("without %s (%s) an order is answered with %d %s", away, when, a.Status, a.Body)
				}
			}
			thaw := s.Freeze(t, away)
			ask("it hangs")
			thaw()
			s.Crash(t, away)
			ask("it has crashed")
		})
	}
}
