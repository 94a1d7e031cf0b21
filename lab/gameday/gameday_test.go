package gameday_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/watertight/lab/gameday"
	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

// shop answers as a gateway does, as far as a game day asks, and is sick as its faults say. It also runs its processes.
type shop struct {
	*httptest.Server

	mu       sync.Mutex
	faults   map[string]string // kind by service
	restarts map[string]int
	set      int // how often a fault was set
	// sinks has checkout fail while recs is sick.
	sinks bool
	// lame stays sick when its faults are cleared.
	lame bool
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{faults: map[string]string{}, restarts: map[string]int{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
	mux.HandleFunc("GET /api/v1/products", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"products":[{"id":"P-1","name":"lantern","price":{"currency":"GBP","minor":100}}],"next_page_token":""}`)
	})
	mux.HandleFunc("GET /api/v1/recommendations", func(w http.ResponseWriter, _ *http.Request) {
		if s.sick("recs") {
			w.Header().Set("Watertight-Degraded", "recs")
		}
		answer(w, 200, `{"recommendations":[],"degraded":[]}`)
	})
	mux.HandleFunc("POST /api/v1/orders", func(w http.ResponseWriter, _ *http.Request) {
		if s.sinks && s.sick("recs") {
			answer(w, 503, `{"code":"bulkhead_full"}`)
			return
		}
		w.Header().Set("Location", "/api/v1/orders/0197a1b2-0000-7000-8000-000000000001")
		answer(w, 201, `{"id":"0197a1b2-0000-7000-8000-000000000001","status":"pending"}`)
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, s.status()) })
	mux.HandleFunc("PUT /api/v1/faults/{service}", func(w http.ResponseWriter, r *http.Request) {
		var f struct{ Kind string }
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults[r.PathValue("service")] = f.Kind
		s.set++
		if f.Kind == string(fault.Crash) {
			s.restarts[r.PathValue("service")]++
		}
		answer(w, 200, `{}`)
	})
	mux.HandleFunc("DELETE /api/v1/faults/{service}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.lame {
			delete(s.faults, r.PathValue("service"))
		}
		w.WriteHeader(http.StatusNoContent)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *shop) sick(service string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults[service] != ""
}

func (s *shop) status() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	breaker, faults := "closed", "[]"
	if kind := s.faults["recs"]; kind != "" {
		breaker, faults = "open", fmt.Sprintf(`[{"service":"recs","kind":%q}]`, kind)
	}
	return fmt.Sprintf(`{"upstreams":[{"name":"recs","breaker":%q}],"orders":{"oldest_pending_seconds":0},"faults":%s}`, breaker, faults)
}

// Restart and Restarts make the shop its own Keeper.
func (s *shop) Restart(_ context.Context, service string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts[service]++
	return nil
}

func (s *shop) Restarts(context.Context) (map[string]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int{"recs": s.restarts["recs"], "checkout": s.restarts["checkout"]}, nil
}

func play(ctx context.Context, t *testing.T, s *shop, name string, length time.Duration) (gameday.Experiment, error) {
	t.Helper()
	target, err := gameday.NewShop(s.URL, s)
	if err != nil {
		t.Fatal(err)
	}
	row, found := scenario.Find(scenario.Table(scenario.Default()), name, func(s scenario.Scenario) string { return s.Name })
	if !found {
		t.Fatalf("no scenario %s", name)
	}
	return gameday.Run(ctx, target, &row, gameday.Options{Rate: 100, Steady: time.Second, Fault: length, Recovery: 3 * time.Second, AbortAt: 0.1, Seed: 19})
}

func TestGameDay_AHypothesisHoldsWhenCheckoutStandsAndEverySignIsSeen(t *testing.T) {
	for _, name := range []string{scenario.Normal, scenario.Slow, scenario.Crash, scenario.Redeployed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			e, err := play(t.Context(), t, s, name, 2*time.Second)
			if err != nil || !e.Held || e.Aborted || e.Sick.Checkouts == 0 || e.Sick.ErrorsPercent != 0 {
				t.Errorf("got %+v, %v, want it to hold", e, err)
			}
			if s.sick("recs") {
				t.Error("recs is left sick")
			}
			var text strings.Builder
			if err := e.WriteText(&text); err != nil || !strings.Contains(text.String(), "verdict     HELD") {
				t.Errorf("%v, %s", err, text.String())
			}
		})
	}
}

func TestGameDay_StopsAndClearsTheFaultWhenCheckoutFailsTooOften(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sinks = true
	began := time.Now()
	e, err := play(t.Context(), t, s, scenario.Slow, time.Minute)
	if err != nil || e.Held || !e.Aborted || e.Became != scenario.Down {
		t.Errorf("got %+v, %v, want it to be stopped and refuted", e, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v, want far less than the minute of the fault", took)
	}
	if s.sick("recs") {
		t.Error("recs is left sick")
	}
}

func TestGameDay_SaysWhichSignWasMissing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.lame = true
	e, err := play(t.Context(), t, s, scenario.Slow, 2*time.Second)
	if err != nil || e.Held || !strings.Contains(strings.Join(e.Why, "\n"), "not seen: answers are whole again") {
		t.Errorf("got %+v, %v, want it refuted for want of recovery", e, err)
	}
}

func TestGameDay_DoesNothingToAShopThatIsNotWell(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.faults["recs"] = "slow"
	if e, err := play(t.Context(), t, s, scenario.Crash, 2*time.Second); !errors.Is(err, gameday.ErrNotSteady) || s.set != 0 {
		t.Errorf("got %+v, %v, and %d faults set; want ErrNotSteady and none", e, err, s.set)
	}
}

func TestGameDay_ClearsTheFaultWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := play(ctx, t, s, scenario.Slow, time.Minute)
		done <- err
	}()
	for deadline := time.Now().Add(20 * time.Second); !s.sick("recs"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no fault was set")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || s.sick("recs") {
		t.Errorf("got %v, recs sick: %v; want the context's error and recs well", err, s.sick("recs"))
	}
}

func TestOptions_NameTheFlagAtFault(t *testing.T) {
	for flag, o := range map[string]gameday.Options{
		"--rate": {AbortAt: 0.1, Steady: time.Second, Fault: time.Second, Recovery: time.Second}, "--abort-at": {Rate: 1, Steady: time.Second, Fault: time.Second, Recovery: time.Second},
		"--fault": {Rate: 1, AbortAt: 0.1, Steady: time.Second, Recovery: time.Second},
	} {
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag+":") {
			t.Errorf("got %v, want an error about %s", err, flag)
		}
	}
}
