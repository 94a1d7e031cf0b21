package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asServer makes this test binary a small shop in a process of its own, which a test can stop and go on with.
const asServer = "LOAD_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if took := os.Getenv(asServer); took != "" {
		serve(took)
		return
	}
	os.Exit(m.Run())
}

func serve(took string) {
	serviceTime, err := time.ParseDuration(took)
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	shop := &fakeShop{serviceTime: serviceTime}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test, however that ends
		os.Exit(0)
	}()
	panic(http.Serve(listener, shop))
}

// startServer runs a shop as a process.
func startServer(tb testing.TB, serviceTime time.Duration) (Target, *os.Process) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self)
	cmd.Env = append(os.Environ(), asServer+"="+serviceTime.String())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // its end is all that matters
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return target(tb, "http://"+strings.TrimSpace(addr)), cmd.Process
}

func target(tb testing.TB, url string) Target {
	tb.Helper()
	t, err := ParseTarget(url)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// fakeShop answers as the gateway does, after its service time. It stands in for a shop where the generator is tested,
// not the shop.
type fakeShop struct {
	serviceTime time.Duration
	script      func(w http.ResponseWriter, r *http.Request) bool // true: it has answered

	arrived atomic.Int64
	mu      sync.Mutex
	orders  map[string]string // id by key
	bodies  []string
}

func (f *fakeShop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.arrived.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if f.script != nil && f.script(w, r) {
		return
	}
	if f.serviceTime > 0 {
		timer := time.NewTimer(f.serviceTime)
		defer timer.Stop()
		<-timer.C
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /api/v1/orders":
		f.place(w, r.Header.Get("Idempotency-Key"), string(body))
	case "GET /api/v1/products":
		products := []map[string]any{}
		for i := range 20 {
			products = append(products, map[string]any{"id": fmt.Sprintf("P%02d", i), "name": fmt.Sprintf("Lamp Number%d", i),
				"price": map[string]any{"currency": "GBP", "minor": 100}})
		}
		writeJSON(w, http.StatusOK, map[string]any{"products": products, "next_page_token": ""})
	case "GET /api/v1/recommendations":
		writeJSON(w, http.StatusOK, map[string]any{"recommendations": []string{}, "degraded": []string{}})
	default:
		problem(w, http.StatusNotFound, "not_found")
	}
}

func (f *fakeShop) place(w http.ResponseWriter, key, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.orders == nil {
		f.orders = map[string]string{}
	}
	id, known := f.orders[key]
	if known {
		w.Header().Set("Idempotency-Replayed", "true")
	} else {
		id = fmt.Sprintf("order-%d", len(f.orders)+1)
		f.orders[key] = id
		f.bodies = append(f.bodies, body)
	}
	w.Header().Set("Location", "/api/v1/orders/"+id)
	writeJSON(w, http.StatusCreated, map[string]any{"id": id, "status": "pending"})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(body) // the client may have left
}

func problem(w http.ResponseWriter, status int, code string) {
	writeJSON(w, status, map[string]any{"status": status, "code": code})
}

// options are those of a test that counts from the start and has patience.
func options() Options {
	return Options{Timeout: 10 * time.Second, LateAfter: time.Millisecond}
}

// evenly is n requests at a constant rate.
func evenly(n int, rate float64, request func(i int) Request) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		i := 0
		for at := range constant(rate) {
			if i == n || !yield(Arrival{at, request(i)}) {
				return
			}
			i++
		}
	}
}

func orderNumber(t Target) func(int) Request {
	return func(i int) Request {
		return t.PlaceOrder(fmt.Sprintf("key-%d", i), Order{CustomerID: "c-1", Currency: "GBP", PaymentToken: GoodToken,
			Lines: []OrderLine{{"P01", 1}}})
	}
}

func drive(tb testing.TB, t Target, arrivals iter.Seq[Arrival], o Options) Result {
	tb.Helper()
	result, err := Drive(tb.Context(), t, arrivals, o)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}
