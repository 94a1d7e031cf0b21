package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/watertight/gateway/shoptest"
)

func get(tb testing.TB, url string) (status int, body string, closes bool) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error(), false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Close
}

func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("never came true: %s", what)
		}
	}
}

// Field reports 18 and 19: ready without recs; at the end not ready at once, alive, and serving for the drain delay.
func TestRun_ServesWithoutRecsAndDrains(t *testing.T) {
	services := shoptest.Start(t)
	public, admin := shoptest.DeadAddr(t), shoptest.DeadAddr(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	log := &shoptest.Lines{}
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, nil, []string{
			"HTTP_ADDR=" + public, "ADMIN_ADDR=" + admin, "DRAIN_DELAY=1500ms",
			"CHECKOUT_ADDR=" + services.Checkout.Target(), "SEARCH_ADDR=" + services.Search.Target(), "RECS_ADDR=static:///" + shoptest.DeadAddr(t),
			"SEARCH_TIMEOUT=3s", "CHECKOUT_TIMEOUT=3s",
		}, log)
	}()
	eventually(t, "ready", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("run ended: %v", err)
		default:
		}
		status, _, _ := get(t, "http://"+admin+"/readyz")
		return status == 200
	})
	status, body, _ := get(t, "http://"+public+"/api/v1/products/P-1")
	if status != 200 || !strings.Contains(body, `"degraded":["recs"]`) {
		t.Errorf("page without recs: %d %s", status, body)
	}
	if status, _, _ := get(t, "http://"+admin+"/readyz"); status != 200 {
		t.Errorf("/readyz without recs: %d", status)
	}
	_, metrics, _ := get(t, "http://"+admin+"/metrics")
	for what, want := range map[string]string{
		"the degraded page":     `watertight_upstream_requests_total{outcome="degraded",upstream="recs"} 1`,
		"the collector's share": "go_gc_gogc_percent 400",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in the metrics, want %s:\n%s", what, want, metrics)
		}
	}

	stop()
	eventually(t, "/readyz turns", func() bool { status, _, _ := get(t, "http://"+admin+"/readyz"); return status == 503 })
	if status, _, _ := get(t, "http://"+admin+"/livez"); status != 200 {
		t.Errorf("/livez while draining: %d", status)
	}
	if status, body, closes := get(t, "http://"+public+"/api/v1/products"); status != 200 || !closes {
		t.Errorf("a new request while draining: %d, Connection: close %v: %s", status, closes, body)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("does not end")
	}
}

func TestRun_SaysWhichVariableIsWrong(t *testing.T) {
	for variable, want := range map[string]string{
		"CLIENT_RATE=-1": "CLIENT_RATE", "CLIENT_RATE=NaN": "CLIENT_RATE", "TRUSTED_PROXIES=10.0.0.0/99": "TRUSTED_PROXIES", "RECS_TIMEOUT=soon": "RECS_TIMEOUT",
		"RECS_TIMEOUT=0s": "RECS_TIMEOUT", "SEARCH_MAX_IN_FLIGHT=0": "SEARCH_MAX_IN_FLIGHT", "CHECKOUT_BREAKER_RATIO=2": "CHECKOUT_BREAKER_RATIO",
		"HTTP_ADDR=nonsense": "HTTP_ADDR", "HTTP_READ_TIMEOUT=0s": "HTTP_READ_TIMEOUT", "LOG_LEVEL=loud": "LOG_LEVEL", "MAX_EVENT_STREAMS=0": "MAX_EVENT_STREAMS",
	} {
		err := run(t.Context(), nil, []string{"ADMIN_ADDR=127.0.0.1:0", variable}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", variable, err, want)
		}
	}
	if err := run(t.Context(), []string{"serve"}, nil, io.Discard); err == nil {
		t.Error("an argument was taken")
	}
}

func TestHelp_ListsEveryVariableWithItsDefault(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	help := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"HTTP_ADDR [:8080]", "ADMIN_ADDR [:9080]", "CLIENT_RATE [0]", "TRUSTED_PROXIES []", "CHECKOUT_ADDR [dns:///checkout:50051]", "CHECKOUT_TIMEOUT [2s]",
		"CHECKOUT_MAX_IN_FLIGHT [64]", "CHECKOUT_MAX_QUEUE [64]", "SEARCH_TIMEOUT [800ms]", "SEARCH_MAX_QUEUE [32]", "RECS_TIMEOUT [150ms]", "RECS_MAX_IN_FLIGHT [32]",
		"RECS_MAX_QUEUE [8]", "RECS_BREAKER_WINDOW [10s]", "RECS_BREAKER_MIN_CALLS [20]", "RECS_BREAKER_RATIO [0.5]", "RECS_BREAKER_CONSECUTIVE [5]", "RECS_BREAKER_OPEN [5s]",
		"RECS_BREAKER_PROBES [3]", "DRAIN_DELAY [5s]", "DRAIN_TIMEOUT [15s]",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("help lacks %q", want)
		}
	}
}
