//go:build unix

package accept

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

// A marker stands for a person and for a means of payment, and goes wherever the shop takes them: through orders that end well and
// badly, through mistakes, through the pages, and through a database that hangs. No process's log has it.
func TestLogs_HaveNoPersonAndNoPaymentInThem(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	person, token := "person-"+rand.Text(), "tok_secret_"+rand.Text()
	paidWith := func(body, token string) string { return strings.Replace(body, `"tok_ok"`, `"`+token+`"`, 1) }
	as := []string{"Watertight-Customer", person, "Cookie", "customer=" + person}

	key := newKey()
	body := wish(person, item.ID, "1")
	if !strings.Contains(body, `"tok_ok"`) {
		t.Fatalf("the order has no token to replace: %s", body)
	}
	ids := []string{mustPlace(t, s, key, body).ID}
	for _, code := range []int{http.StatusCreated, http.StatusUnprocessableEntity} {
		if a := place(t, s, key, body, as...); a.Status != code {
			t.Errorf("got %d %s, want %d", a.Status, a.Body, code)
		}
		body = paidWith(body, token)
	}
	for _, means := range []string{token, "tok_declined", "tok_flaky", "tok_timeout"} {
		ids = append(ids, mustPlace(t, s, newKey(), paidWith(wish(person, item.ID, "1"), means)).ID)
	}
	for _, wrong := range []string{
		wish(person, item.ID, "0"), wish(person, "no-such-product", "1"), wish(strings.Repeat(person, 20), item.ID, "1"), wish(person+"\a", item.ID, "1"),
		strings.Replace(body, `"GBP"`, `"gbp"`, 1), strings.Replace(body, `"currency"`, `"CURRENCY"`, 1), strings.Replace(body, `"`+token+`"`, `["`+token+`"]`, 1),
		body + body, paidWith(wish(person, item.ID, "1"), strings.Repeat(token, 20)),
	} {
		if a := place(t, s, newKey(), wrong, as...); a.Status < 400 || a.Status > 499 {
			t.Errorf("%.200s: got %d %s, want it refused", wrong, a.Status, a.Body)
		}
	}
	for _, path := range []string{"/", "/products/" + item.ID, "/api/v1/recommendations?product_id=" + item.ID, "/orders/" + ids[0], "/nowhere", "/bridge"} {
		s.Get(t, path, as...)
	}
	form := url.Values{"customer_id": {person}, "payment_token": {token}, "currency": {"GBP"}, "product_id": {item.ID}, "quantity": {"1"}, "price": {"1"}, "name": {"x"},
		"expected_total": {"1"}, "idempotency_key": {newKey()}}
	for range 2 {
		s.Do(t, http.MethodPost, "/checkout", form.Encode(), append(as, "Content-Type", "application/x-www-form-urlencoded")...)
		form.Set("customer_id", person+" with a blank")
	}
	shop.Eventually(t, time.Minute, "the orders come to their end", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool {
			var o order
			s.Get(t, "/api/v1/orders/"+id).Into(t, http.StatusOK, &o)
			return o.Status == "pending" || o.Status == "awaiting_payment"
		})
	})
	thaw := s.Freeze(t, "postgres")
	if a := place(t, s, newKey(), paidWith(wish(person, item.ID, "1"), token), as...); a.Status < 500 {
		t.Errorf("with the database frozen: %d %s", a.Status, a.Body)
	}
	thaw()
	mended(t, s)

	logs, err := filepath.Glob(filepath.Join(s.Dir(), "logs", "*.log"))
	if err != nil || len(logs) < 8 {
		t.Fatalf("logs %v (%v), want those of 8 processes", logs, err)
	}
	for _, log := range append(logs, filepath.Join(s.Dir(), "lab.log")) {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			if bytes.Contains(line, []byte(person)) || bytes.Contains(line, []byte(token)) {
				t.Errorf("%s: %s", filepath.Base(log), line)
			}
		}
	}
}

func TestLogs_AreOneJSONObjectALineAndLeadToTheirTrace(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	trace := hexID(16)
	placed := place(t, s, newKey(), wish(someone(), item.ID, "1"), "Traceparent", "00-"+trace+"-"+hexID(8)+"-01")
	if placed.Status != http.StatusCreated {
		t.Fatalf("got %d %s", placed.Status, placed.Body)
	}
	place(t, s, newKey(), wish(someone(), item.ID, "0"))
	for name := range s.Services(t) {
		for line := range bytes.Lines(s.Log(t, name)) {
			var fields struct {
				Time                time.Time
				Level, Msg, Service string
				TraceID             string `json:"trace_id"`
				SpanID              string `json:"span_id"`
			}
			if err := json.Unmarshal(line, &fields); err != nil {
				t.Errorf("%s: %v in %q", name, err, line)
				continue
			}
			if fields.Time.IsZero() || fields.Level == "" || fields.Msg == "" || fields.Service == "" {
				t.Errorf("%s: no time, level, message or service in %s", name, line)
			}
			if fields.Msg == "request" && (len(fields.TraceID) != 32 || len(fields.SpanID) != 16) {
				t.Errorf("%s: a request without its trace and span: %s", name, line)
			}
		}
	}
	if !bytes.Contains(s.Log(t, "gateway"), []byte(trace)) {
		t.Error("the gateway's log does not have the caller's trace")
	}
}
