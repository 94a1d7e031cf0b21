package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/watertight/platform/lifecycle"
)

func process(t *testing.T, cfg lifecycle.Config) *lifecycle.Process {
	t.Helper()
	cfg.AdminAddr = "127.0.0.1:0"
	p, err := lifecycle.New(cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run starts p and returns its stop, which gives Run's result.
func run(t *testing.T, p *lifecycle.Process) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(cancel)
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("Run did not end in 10s")
			return nil
		}
	}
}

func get(t *testing.T, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func status(t *testing.T, p *lifecycle.Process, path string) int {
	t.Helper()
	resp, err := get(t, "http://"+p.AdminAddr()+path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func waitForStatus(t *testing.T, p *lifecycle.Process, path string, want int) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); status(t, p, path) != want; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not become %d in 5s", path, want)
		}
	}
}

func TestProcess_IsReadyOnlyWhenEveryConditionIsDone(t *testing.T) {
	p := process(t, lifecycle.Config{})
	database, index := p.Ready("database"), p.Ready("index")
	stop := run(t, p)
	waitForStatus(t, p, "/livez", 200)
	if got := status(t, p, "/readyz"); got != 503 {
		t.Errorf("/readyz before any condition = %d, want 503", got)
	}
	database()
	database() // may be told twice
	if got := status(t, p, "/readyz"); got != 503 {
		t.Errorf("/readyz with the index missing = %d, want 503", got)
	}
	index()
	waitForStatus(t, p, "/readyz", 200)
	if got := status(t, p, "/metrics"); got != 200 {
		t.Errorf("/metrics = %d, want 200", got)
	}
	if got := status(t, p, "/debug/pprof/"); got != 404 {
		t.Errorf("/debug/pprof/ when off = %d, want 404", got)
	}
	if err := stop(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// Field report 18: readiness turns at once, liveness never, and requests in the drain delay are still served.
func TestFieldReport_18_DrainServesWhileTheNewsSpreads(t *testing.T) {
	p := process(t, lifecycle.Config{DrainDelay: time.Second, DrainTimeout: 5 * time.Second})
	listener, err := lifecycle.Listen("HTTP_ADDR", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inFlight, finish := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/long", func(http.ResponseWriter, *http.Request) { close(inFlight); <-finish })
	server := lifecycle.NewHTTPServer(listener, &http.Server{Handler: mux, ReadHeaderTimeout: time.Second})
	p.Server("http", server)
	var order []string
	p.Worker("relay", func(ctx context.Context) error { <-ctx.Done(); order = append(order, "worker"); return nil })
	p.Closer("pool", func(context.Context) error { order = append(order, "closer"); return nil })
	ctx, sigterm := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	waitForStatus(t, p, "/readyz", 200)

	long := make(chan error, 1)
	go func() {
		resp, err := get(t, "http://"+server.Addr()+"/long")
		if err == nil {
			resp.Body.Close()
		}
		long <- err
	}()
	<-inFlight
	sigterm()
	started := time.Now()
	waitForStatus(t, p, "/readyz", 503)
	if took := time.Since(started); took > 200*time.Millisecond {
		t.Errorf("/readyz turned after %v, want within 200ms", took)
	}
	if got := status(t, p, "/livez"); got != 200 {
		t.Errorf("/livez while draining = %d, want 200", got)
	}
	resp, err := get(t, "http://"+server.Addr()+"/quick")
	if err != nil {
		t.Fatalf("request in the drain delay: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("request in the drain delay: status %d, connection close %v; want 200, true", resp.StatusCode, resp.Close)
	}
	<-p.Draining()
	time.AfterFunc(1500*time.Millisecond, func() { close(finish) }) // ends after the delay, within the budget
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if err := <-long; err != nil {
		t.Errorf("request in flight at SIGTERM: %v", err)
	}
	if got := strings.Join(order, ","); got != "worker,closer" {
		t.Errorf("stop order = %s, want worker,closer", got)
	}
}

func TestProcess_StopIsBoundedWhateverHangs(t *testing.T) {
	p := process(t, lifecycle.Config{DrainTimeout: 100 * time.Millisecond})
	listener, err := lifecycle.Listen("HTTP_ADDR", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forever := make(chan struct{})
	defer close(forever)
	entered := make(chan struct{})
	server := lifecycle.NewHTTPServer(listener, &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-forever
	})})
	p.Server("http", server)
	p.Worker("stubborn", func(context.Context) error { <-forever; return nil })
	p.Closer("stubborn", func(context.Context) error { <-forever; return nil })
	stop := run(t, p)
	go func() {
		if resp, err := get(t, "http://"+server.Addr()); err == nil {
			resp.Body.Close()
		}
	}()
	<-entered
	started := time.Now()
	if err := stop(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("stop took %v, want about 2.1s", took)
	}
}

func TestProcess_AFailedPartEndsIt(t *testing.T) {
	p := process(t, lifecycle.Config{})
	p.Worker("relay", func(context.Context) error { return errors.New("schema is newer than this build") })
	err := p.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "relay: schema is newer") {
		t.Errorf("Run = %v, want the worker's error with its name", err)
	}
}

func TestNew_ABusyPortIsOneClearError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = lifecycle.New(lifecycle.Config{AdminAddr: taken.Addr().String()}, slog.Default(), prometheus.NewRegistry())
	if err == nil || !strings.Contains(err.Error(), "ADMIN_ADDR") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want an error that names ADMIN_ADDR and says that it is in use", err)
	}
}
