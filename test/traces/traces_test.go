//go:build unix

// Package traces runs the shop with a real Jaeger and looks at an order there, as a person would. `make traces-test` runs it: where
// no Jaeger is found one is built first, which takes minutes, so that `make test` leaves it out. What traces consist of is
// test/accept's business.
package traces

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

var live = shop.New(func(int) (shop.Settings, error) { return shop.Settings{Flags: []string{"--traces"}}, nil })

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

const trace = "0af7651916cd43dd8448eb211c80319c"

func TestJaeger_HasTheWholeOrderAndLabShowsIt(t *testing.T) {
	if os.Getenv("TRACES_TEST") == "" {
		t.Skip("needs a Jaeger, which may take minutes to build; make traces-test runs it")
	}
	s := live.Get(t)
	body := `{"customer_id":"c-1","currency":"GBP","lines":[{"product_id":"LGT-0007","quantity":1}],"payment_token":"tok_ok"}`
	a := s.Do(t, http.MethodPost, "/api/v1/orders", body, "Idempotency-Key", "traced", "Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	if a.Status != http.StatusCreated {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}

	// Jaeger's own API.
	jaeger := "http://" + s.Process(t, "jaeger").Addresses["ui"]
	services := func() map[string]bool {
		var answer struct {
			Data []struct {
				Processes map[string]struct {
					ServiceName string `json:"serviceName"`
				} `json:"processes"`
			} `json:"data"`
		}
		found := map[string]bool{}
		got := s.Get(t, jaeger+"/api/traces/"+trace)
		if got.Status != http.StatusOK {
			return found
		}
		if err := json.Unmarshal([]byte(got.Body), &answer); err != nil {
			t.Fatalf("%v in %s", err, got.Body)
		}
		for _, d := range answer.Data {
			for _, p := range d.Processes {
				found[p.ServiceName] = true
			}
		}
		return found
	}
	shop.Eventually(t, 30*time.Second, "Jaeger has the spans of all five services, the last of which is recs", func() bool { return len(services()) == 5 })

	// lab's picture of it.
	out, _ := s.Lab(t, "trace", trace, "--dir", s.Dir())
	for _, want := range []string{"POST /api/v1/orders  201", "upstream checkout  ok", "~ send orders.placed", "process inventory.reserved", "charge  charged", "process orders.confirmed"} {
		if !strings.Contains(out, want) {
			t.Errorf("lab trace does not show %q:\n%s", want, out)
		}
	}
	out, _ = s.Lab(t, "trace", trace, "--output", "json", "--jaeger", jaeger)
	var shown struct {
		Services []string `json:"services"`
		Spans    []struct {
			Name string `json:"name"`
		} `json:"spans"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Services) != 5 || len(shown.Spans) < 30 {
		t.Errorf("lab trace --output json: %v, %d services, %d spans", err, len(shown.Services), len(shown.Spans))
	}
}
