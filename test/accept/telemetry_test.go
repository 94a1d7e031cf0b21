//go:build unix

package accept

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

func TestFieldReport_38_OneTraceRunsThroughEveryService(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	trace := hexID(16)
	traceparent := "00-" + trace + "-" + hexID(8) + "-01"
	s.Get(t, "/api/v1/products/"+item.ID, "Traceparent", traceparent)
	if a := place(t, s, newKey(), wish(someone(), item.ID, "1"), "Traceparent", traceparent); a.Status != http.StatusCreated {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}
	want := []string{"checkout", "gateway", "recs", "search"}
	shop.Eventually(t, 20*time.Second, "spans of all four services arrive", func() bool {
		got := live.traces.servicesOf(trace)
		return !slices.ContainsFunc(want, func(service string) bool { return !slices.Contains(got, service) })
	})
	if !bytes.Contains(s.Log(t, "gateway"), []byte(`"trace_id":"`+trace+`"`)) {
		t.Error("the gateway's log does not name the trace")
	}
	if p := s.Get(t, "/api/v1/nothing", "Traceparent", traceparent).WantProblem(t, http.StatusNotFound, "not_found"); p.TraceID != trace {
		t.Errorf("a problem names the trace %q, want %s", p.TraceID, trace)
	}
}

func TestFieldReport_21_SpansOfARequestJustBeforeTheEndArrive(t *testing.T) {
	s := live.Get(t)
	mended(t, s)
	item := somethings(t, s, 1)[0]
	trace := hexID(16)
	traceparent := "00-" + trace + "-" + hexID(8) + "-01"
	s.Get(t, "/api/v1/products/"+item.ID, "Traceparent", traceparent)
	place(t, s, newKey(), wish(someone(), item.ID, "1"), "Traceparent", traceparent)
	<-time.After(100 * time.Millisecond) // as the report has it; the services send their spans every 3 s
	for _, name := range []string{"gateway", "checkout", "search", "recs"} {
		s.Terminate(t, name)
	}
	shop.Eventually(t, 20*time.Second, "spans of all four services arrive", func() bool {
		got := live.traces.servicesOf(trace)
		return !slices.ContainsFunc([]string{"checkout", "gateway", "recs", "search"}, func(service string) bool { return !slices.Contains(got, service) })
	})
}

func hexID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%x", b)
}

func TestFieldReport_39_WhatClientsMakeUpMakesNoSeriesAndNoSpanNames(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	series := func() (n int) {
		for name := range s.Services(t) {
			for line := range strings.Lines(metrics(t, s, name)) {
				if !strings.HasPrefix(line, "#") {
					n++
				}
			}
		}
		return n
	}
	ask := func(i int) {
		madeUp := fmt.Sprintf("madeup-%d", i)
		for _, r := range []struct{ method, path, host string }{
			{"GET", "/api/v1/products/" + madeUp, "shop"}, {"GET", "/" + madeUp + "/x", "shop"},
			{"MADEUP" + fmt.Sprint(i), "/api/v1/products", "shop"}, {"GET", "/api/v1/orders/" + madeUp, madeUp + ".example:80"},
			{"GET", "/api/v1/products?q=" + madeUp, "shop"},
		} {
			if _, err := s.Try(t, r.method, r.path, "", "Host", r.host, "X-Request-Id", madeUp); err != nil {
				t.Error(err)
			}
		}
	}
	// What any request of this kind adds is there before the count begins.
	s.Get(t, "/api/v1/products/"+item.ID)
	inParallel(t, 20, func(i int) string { ask(-i); return "" })
	before := series()
	inParallel(t, 1000, func(i int) string { ask(i); return "" })
	if grown := series() - before; grown >= 50 {
		t.Errorf("%d new series, want fewer than 50", grown)
	} else {
		t.Logf("%d new series for 5000 requests", grown)
	}
	for name := range s.Services(t) {
		if found := regexp.MustCompile(`(?i)[^"]*madeup[^"]*`).FindString(metrics(t, s, name)); found != "" {
			t.Errorf("a label of %s is %q", name, found)
		}
	}
	for _, name := range live.traces.spanNames() {
		if regexp.MustCompile(`(?i)madeup|[0-9a-f]{8}-[0-9a-f]{4}|LGT-\d`).MatchString(name) {
			t.Errorf("a span is called %q", name)
		}
	}
}

func TestFieldReport_50_RequestIDsAreCheckedAndLogsStayOneObjectALine(t *testing.T) {
	s := live.Get(t)
	for _, id := range []string{strings.Repeat("x", 8<<10), "a\tb", `"}`, "a b"} {
		got := s.Get(t, "/api/v1/products?page_size=1", "X-Request-Id", id).Header.Get("X-Request-ID")
		if got == id || !regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString(got) {
			t.Errorf("request id %.20q came back as %.20q", id, got)
		}
	}
	if got := s.Get(t, "/api/v1/products?page_size=1", "X-Request-Id", "mine-1").Header.Get("X-Request-ID"); got != "mine-1" {
		t.Errorf("request id mine-1 came back as %q", got)
	}
	s.Get(t, "/api/v1/products/%0A%22%7B", "Watertight-Customer", "c\t\"1")
	place(t, s, newKey(), wish("c\\n\\u0001", "a\\nb", "1"))
	for name := range s.Services(t) {
		for line := range bytes.Lines(s.Log(t, name)) {
			var fields map[string]any
			if err := json.Unmarshal(line, &fields); err != nil || fields["service"] != name || fields["msg"] == nil {
				t.Errorf("a line in the log of %s is not one of its JSON objects (%v): %.300s", name, err, line)
			}
		}
	}
}
