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
	"example.com/watertight/gateway/sse"
	"example.com/watertight/platform/rpc"
	"example.com/watertight/platform/rpcerr"
)

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
		return rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "too many event streams are open", rpcerr.RetryAfter(sse.ReconnectAfter))
	}
	opening, cancel := context.WithTimeout(r.Context(), a.Budgets.Checkout)
	defer cancel()
	order, err := a.Shop.Order(opening, r.PathValue("id"))
	if err != nil {
		return err
	}
	if r.Method == http.MethodHead {
		sse.Start(w)
		return nil
	}
	watch := a.watch(r.Context(), order.ID, after)
	defer watch.stop()

	var pending *shop.Event   // seen before the stream is open
	if order.Status.Final() { // then the first thing heard tells 204 from 200
		select {
		case first := <-watch.events:
			pending = &first
		case <-watch.done:
			if watch.err == nil {
				w.WriteHeader(http.StatusNoContent)
			}
			return watch.err
		case <-opening.Done():
			return rpcerr.New(codes.DeadlineExceeded, rpcerr.Timeout, "the order's events did not come in time")
		}
	}
	if err := a.follow(w, pending, watch); err != nil && r.Context().Err() == nil {
		exchange.From(r.Context()).Failure = err // too late for a problem, not for the log
	}
	return nil
}

// follow sends what is pending, if anything is, and what the watch sees until either side ends.
func (a *api) follow(w http.ResponseWriter, pending *shop.Event, watch *watch) error {
	stream, err := sse.Open(w, a.cfg.WriteTimeout)
	if err == nil && pending != nil {
		err = sendEvent(stream, *pending)
	}
	if err != nil {
		return err
	}
	heartbeat := time.NewTicker(a.cfg.EventHeartbeat)
	defer heartbeat.Stop()
	// A client whose network is gone looks alive for as long as the kernel's buffer takes what is sent: age ends that.
	tooOld := time.After(a.cfg.EventStreamMaxAge)
	for {
		select {
		case event := <-watch.events:
			err = sendEvent(stream, event)
			heartbeat.Reset(a.cfg.EventHeartbeat)
		case <-heartbeat.C:
			err = stream.Heartbeat()
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

func sendEvent(stream *sse.Stream, e shop.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	return stream.Send(e.Sequence, data)
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
