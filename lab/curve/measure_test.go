//go:build unix

package curve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestOptions_RefuseWhatCannotBe(t *testing.T) {
	good := Options{Load: true, Services: []string{"recs"}, Shares: []float64{1}, Most: 4, StepTime: time.Second, Deadline: time.Second}
	if err := good.Validate(); err != nil {
		t.Errorf("good options: %v", err)
	}
	for want, change := range map[string]func(*Options){
		`service "payment"`: func(o *Options) { o.Services = []string{"payment"} },
		"shares: there are": func(o *Options) { o.Shares = nil },
		"share -1":          func(o *Options) { o.Shares = []float64{1, -1} },
		"replicas 9":        func(o *Options) { o.Most = 9 },
		"step 1ms":          func(o *Options) { o.StepTime = time.Millisecond },
		"deadline 0s":       func(o *Options) { o.Deadline = 0 },
	} {
		o := good
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

func TestOldestPending_IsReadFromCheckoutsMetrics(t *testing.T) {
	page := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
	defer server.Close()
	page = "# HELP x y\nwatertight_orders_total{status=\"pending\"} 4\nwatertight_order_oldest_pending_seconds 1.25\n"
	if got, err := oldestPending(t.Context(), server.URL); err != nil || got != 1.25 {
		t.Errorf("got %v, %v, want 1.25", got, err)
	}
	page = "watertight_orders_total 4\n"
	if got, err := oldestPending(t.Context(), server.URL); err == nil {
		t.Errorf("without the metric: got %v, want an error", got)
	}
}
