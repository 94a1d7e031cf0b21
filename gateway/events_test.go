package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/watertight/gateway"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

const firstOrder = "00000000-0000-4000-8000-000000000001"

// stream is an event stream as a client reads it.
type stream struct {
	*bufio.Reader
	Status int
	Header http.Header
}

// listen opens the first order's event stream; close it by cancelling ctx.
func (e *edge) listen(ctx context.Context, tb testing.TB, header ...string) stream {
	tb.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/api/v1/orders/"+firstOrder+"/events", nil)
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := e.Client.Do(r)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { resp.Body.Close() })
	return stream{bufio.NewReader(resp.Body), resp.StatusCode, resp.Header}
}

// nextEvent reads up to the next event's end and returns its id and data; heartbeats are passed over.
func nextEvent(r stream) (id, data string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return id, data, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && data != "":
			return id, data, nil
		}
	}
}

func wantEvent(tb testing.TB, r stream, sequence int, status string) {
	tb.Helper()
	id, data, err := nextEvent(r)
	want := fmt.Sprintf(`{"order_id":"%s","status":"%s","reason":"","at":"2026-01-02T03:04:%02dZ"}`, firstOrder, status, 4+sequence)
	if err != nil || id != fmt.Sprint(sequence) || data != want {
		tb.Fatalf("event id %q data %s, %v; want %d %s", id, data, err, sequence, want)
	}
}

func (e *edge) change(to checkoutv1.OrderStatus) { e.Orders.Change(firstOrder, to) }

func TestEvents_TellEachChangeAndEndAfterAFinalOne(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	events := e.listen(t.Context(), t)
	if events.Status != http.StatusOK || events.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %d %v", events.Status, events.Header)
	}
	wantEvent(t, events, 1, "pending")
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_AWAITING_PAYMENT)
	wantEvent(t, events, 2, "awaiting_payment")
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED)
	wantEvent(t, events, 3, "confirmed")
	if rest, err := io.ReadAll(events); err != nil || len(rest) != 0 {
		t.Errorf("after the final event: %q, %v; want the end", rest, err)
	}

	// Asked again: with the last id nothing, with an earlier one what is missing, with none all.
	if status := e.listen(t.Context(), t, "Last-Event-ID", "3").Status; status != http.StatusNoContent {
		t.Errorf("with the last id: %d, want 204", status)
	}
	events = e.listen(t.Context(), t, "Last-Event-ID", "2")
	wantEvent(t, events, 3, "confirmed")
	events = e.listen(t.Context(), t)
	for i, s := range []string{"pending", "awaiting_payment", "confirmed"} {
		wantEvent(t, events, i+1, s)
	}
}

func TestEvents_OddRequestsAreRefused(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	for _, id := range []string{"abc", "-1", "1.5", "9223372036854775808"} {
		p := wantProblem(t, e.get(t, "/api/v1/orders/"+firstOrder+"/events", "Last-Event-ID", id), 400, "invalid_argument")
		if len(p.Errors) != 1 || p.Errors[0].Field != "Last-Event-ID" {
			t.Errorf("Last-Event-ID %s: %+v", id, p)
		}
	}
	wantProblem(t, e.get(t, "/api/v1/orders/00000000-0000-4000-8000-999999999999/events"), 404, "not_found")
	wantProblem(t, e.get(t, "/api/v1/orders/nonsense/events"), 400, "invalid_argument")
}

func TestEvents_GoOnWhenCheckoutEndsTheStream(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	e.Orders.BreakStreams(2)
	events := e.listen(t.Context(), t)
	wantEvent(t, events, 1, "pending")
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_AWAITING_PAYMENT)
	wantEvent(t, events, 2, "awaiting_payment")
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_CANCELLED)
	wantEvent(t, events, 3, "cancelled")
	if rest, err := io.ReadAll(events); err != nil || len(rest) != 0 {
		t.Errorf("after the final event: %q, %v; want the end", rest, err)
	}
}

func TestEvents_GoOnWhenCheckoutRestarts(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	events := e.listen(t.Context(), t)
	wantEvent(t, events, 1, "pending")
	e.Checkout.Stop()
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_AWAITING_PAYMENT)
	e.RestartCheckout(t)
	wantEvent(t, events, 2, "awaiting_payment")
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_REJECTED)
	wantEvent(t, events, 3, "rejected")
}

func TestEvents_QuietStreamsBeatAndOutliveTheRequestTimeouts(t *testing.T) {
	e := newEdge(t, options{environ: []string{"EVENT_HEARTBEAT=100ms", "HTTP_READ_TIMEOUT=500ms", "HTTP_WRITE_TIMEOUT=1s", "CHECKOUT_TIMEOUT=500ms"}})
	e.order(t, "k")
	events := e.listen(t.Context(), t)
	wantEvent(t, events, 1, "pending")
	for beats := 0; beats < 30; { // 3 s, several times each limit
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d heartbeats: %v", beats, err)
		}
		if strings.HasPrefix(line, ":") {
			beats++
		}
	}
	e.change(checkoutv1.OrderStatus_ORDER_STATUS_CONFIRMED)
	wantEvent(t, events, 2, "confirmed")
}

func TestEvents_EndAtDrainAndAreRefusedFromThenOn(t *testing.T) {
	e := newEdge(t, options{})
	e.order(t, "k")
	events := e.listen(t.Context(), t)
	wantEvent(t, events, 1, "pending")
	e.Drain()
	if rest, err := io.ReadAll(events); err != nil || len(rest) != 0 {
		t.Errorf("at drain: %q, %v; want the end", rest, err)
	}
	a := e.get(t, "/api/v1/orders/"+firstOrder+"/events")
	wantProblem(t, a, 503, "draining")
	if a.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	// Field report 18: other requests are still served, and told to come back by a new connection.
	if a := e.get(t, "/api/v1/products"); a.Status != 200 || !a.Close {
		t.Errorf("while draining: %d, Connection: close %v; want 200 and close", a.Status, a.Close)
	}
}

func TestEvents_HaveACapOfTheirOwnAndLeaveNothingBehind(t *testing.T) {
	e := newEdge(t, options{environ: []string{"MAX_EVENT_STREAMS=2"}})
	e.order(t, "k")
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		events := e.listen(ctx, t)
		wantEvent(t, events, 1, "pending")
	}
	a := e.get(t, "/api/v1/orders/"+firstOrder+"/events")
	wantProblem(t, a, 503, "bulkhead_full")
	if a.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	if a := e.get(t, "/api/v1/orders/"+firstOrder); a.Status != 200 {
		t.Errorf("streams keep others from the order: %d", a.Status)
	}
	cancel()
	eventually(t, "closed streams make room", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return e.listen(ctx, t).Status == http.StatusOK
	})
}

// pipes is a listener whose connections have no buffer at all: what the client does not read blocks the server.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accept:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func TestEvents_AClientThatStopsReadingIsLetGo(t *testing.T) {
	e := newEdge(t, options{environ: []string{"EVENT_HEARTBEAT=10ms", "HTTP_WRITE_TIMEOUT=200ms", "MAX_EVENT_STREAMS=1"}})
	e.order(t, "k")
	listener := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	server := gateway.NewServer(e.Config, e.Handler, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	}()
	client, conn := net.Pipe()
	listener.accept <- conn
	if _, err := fmt.Fprintf(client, "GET /api/v1/orders/%s/events HTTP/1.1\r\nHost: x\r\n\r\n", firstOrder); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(client, 16).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Fatalf("answer %q, %v", line, err)
	}
	eventually(t, "its place is free again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return e.listen(ctx, t).Status == http.StatusOK
	})
}

func TestEvents_EndAtTheirGreatestAge(t *testing.T) {
	e := newEdge(t, options{environ: []string{"EVENT_STREAM_MAX_AGE=100ms"}})
	e.order(t, "k")
	events := e.listen(t.Context(), t)
	if all, err := io.ReadAll(events); err != nil || !strings.HasPrefix(string(all), "retry: 1000\n\n") {
		t.Errorf("got %q, %v; want a stream that says when to come back, and ends", all, err)
	}
}

func TestEvents_AnEndedStreamEndsAtCheckoutToo(t *testing.T) {
	ended := make(chan time.Time, 1)
	e := newEdge(t, options{})
	e.order(t, "k")
	e.Checkout.Do(func(ctx context.Context, method string) error {
		if method == checkoutv1.CheckoutService_WatchOrder_FullMethodName {
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	e.listen(ctx, t)
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("checkout's stream goes on after the client left")
	}
}
