package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
)

// reconnectAfter is how long a browser is asked to wait before it comes back to a stream that ended.
const reconnectAfter = time.Second

// orderEvents answers GET /api/v1/orders/{id}/events: server-sent events, one per status change, whose id is the change's
// sequence. It ends after a final status, at drain, at its greatest age, and when the client stops reading; asked again
// with the last id of a finished order it answers 204, which stops a browser from coming back.
func (a *api) orderEvents(w http.ResponseWriter, r *http.Request) error {
	after, err := lastEventID(r)
	if err != nil {
		return err
	}
	select {
	case <-a.Draining:
		return rpcerr.New(codes.Unavailable, rpcerr.Draining, "shutting down")
	default:
	}
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		return rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "too many event streams are open", rpcerr.RetryAfter(reconnectAfter))
	}
	opening, cancel := context.WithTimeout(r.Context(), a.Budgets.Checkout)
	defer cancel()
	order, err := a.Shop.Order(opening, r.PathValue("id"))
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		startStream(w)
		return nil
	}
	watch := a.watch(r.Context(), order.ID, after)
	defer watch.stop()

	stream := &eventStream{w: w, control: http.NewResponseController(w), limit: a.cfg.WriteTimeout}
	if order.Status.Final() { // then the first thing heard tells 204 from 200
		select {
		case first := <-watch.events:
			stream.pending = &first
		case <-watch.done:
			if watch.err == nil {
				w.WriteHeader(http.StatusNoContent)
			}
			return watch.err
		case <-opening.Done():
			return rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the order's events did not come in time")
		}
	}
	startStream(w)
	if err := a.follow(stream, watch); err != nil && r.Context().Err() == nil {
		exchange.From(r.Context()).Failure = err // too late for a problem, not for the log
	}
	return nil
}

func startStream(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies that buffer would hold events back
	w.WriteHeader(http.StatusOK)
}

// follow sends what the watch sees until either ends.
func (a *api) follow(stream *eventStream, watch *watch) error {
	if err := stream.open(); err != nil {
		return err
	}
	heartbeat := time.NewTicker(a.cfg.EventHeartbeat)
	defer heartbeat.Stop()
	// A client whose network is gone looks alive for as long as the kernel's buffer takes what is sent: age ends that.
	tooOld := time.After(a.cfg.EventStreamMaxAge)
	for {
		var err error
		select {
		case event := <-watch.events:
			err = stream.send(event)
			heartbeat.Reset(a.cfg.EventHeartbeat)
		case <-heartbeat.C:
			err = stream.write(": still here\n\n")
		case <-watch.done:
			return watch.err
		case <-a.Draining:
			return nil
		case <-tooOld:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// watch runs Shop.Watch beside the handler that owns it. events is unbuffered: when done is closed, every event was taken.
type watch struct {
	events chan shop.Event
	done   chan struct{}
	err    error // valid once done is closed
	cancel context.CancelFunc
}

func (a *api) watch(ctx context.Context, orderID string, after int64) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{events: make(chan shop.Event), done: make(chan struct{}), cancel: cancel}
	w.err = rpcerr.New(codes.Internal, rpcerr.Internal, "the watch panicked") // stands when Watch does not return
	rpc.Go(a.Log, "watch order", func() {
		defer close(w.done)
		w.err = a.Shop.Watch(ctx, orderID, after, func(e shop.Event) error {
			select {
			case w.events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return w
}

// stop ends the watch and waits for its goroutine.
func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// eventStream writes server-sent events. Each write has a deadline of its own, so that a client that stopped reading holds nothing
// for longer than that.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
	pending *shop.Event // seen before the stream was open
}

func (s *eventStream) open() error {
	// The server's read timeout is for the request, which is read; left alone, it would end the stream.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift the read deadline: %w", err)
	}
	if err := s.write(fmt.Sprintf("retry: %d\n\n", reconnectAfter.Milliseconds())); err != nil || s.pending == nil {
		return err
	}
	return s.send(*s.pending)
}

func (s *eventStream) send(e shop.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	return s.write(fmt.Sprintf("id: %d\ndata: %s\n\n", e.Sequence, data))
}

func (s *eventStream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.limit)); err != nil {
		return fmt.Errorf("set a write deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("the client stopped reading: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("the client stopped reading: %w", err)
	}
	return nil
}

// lastEventID reads the sequence that the client saw last; 0 when it has seen nothing.
func lastEventID(r *http.Request) (int64, error) {
	value := r.Header.Get("Last-Event-ID")
	if value == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(value, 10, 64)
	if err != nil || id < 0 {
		return 0, problem.Invalid("Last-Event-ID", "must be the id of an event of this stream")
	}
	return id, nil
}
