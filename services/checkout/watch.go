package checkout

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// WatchOrder sends the order's changes until a final one, and ends early when the process drains. How many streams there
// may be is the server's to say.
func (s *Service) WatchOrder(req *checkoutv1.WatchOrderRequest, stream grpc.ServerStreamingServer[checkoutv1.WatchOrderResponse]) error {
	ctx := stream.Context()
	id, err := parseOrderID(req.GetOrderId())
	if err != nil {
		return err
	}
	changed, leave := s.watches.follow(id) // before the first look, so that no change falls between
	defer leave()
	after := req.GetAfterSequence()
	for {
		news, complete, err := s.store.changes(ctx, id, after)
		if errors.Is(err, errNoOrder) {
			return noOrder(id)
		}
		if err != nil {
			return err
		}
		for _, c := range news {
			if err := stream.Send(changeMessage(id, c)); err != nil {
				return err // the stream's own status: the client is gone
			}
			after = c.sequence
		}
		if complete {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.draining:
			return errDraining()
		case <-changed:
		}
	}
}

func changeMessage(id uuid.UUID, c change) *checkoutv1.WatchOrderResponse {
	return &checkoutv1.WatchOrderResponse{
		Sequence: c.sequence, OrderId: id.String(), Status: statusMessage(c.status), Reason: c.reason, At: timestamppb.New(c.at),
	}
}

func errDraining() error {
	return rpcerr.New(codes.Unavailable, rpcerr.Draining, "the server is about to stop; try again", rpcerr.RetryAfter(time.Second))
}

// watches knows which orders are being followed, and tells their followers of changes. However many they are, one query
// at a time asks for what is new.
type watches struct {
	mu     sync.Mutex
	orders map[uuid.UUID]*watched
}

type watched struct {
	seen      int64 // the last change that the followers were told of
	followers map[chan struct{}]struct{}
}

func newWatches() *watches { return &watches{orders: map[uuid.UUID]*watched{}} }

// follow returns a channel that gets a value after changes of the order; changes that come fast may share one. leave must
// be called once.
func (w *watches) follow(id uuid.UUID) (changed <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.orders[id]
	if o == nil {
		o = &watched{followers: map[chan struct{}]struct{}{}}
		w.orders[id] = o
	}
	o.followers[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(o.followers, c)
		if len(o.followers) == 0 {
			delete(w.orders, id)
		}
	}
}

// followed returns the orders that have followers.
func (w *watches) followed() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.orders))
}

// tell lets the followers of an order know that it has changed up to a sequence, if they were not told before.
func (w *watches) tell(id uuid.UUID, sequence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.orders[id]
	if o == nil || o.seen >= sequence {
		return
	}
	o.seen = sequence
	for c := range o.followers {
		select {
		case c <- struct{}{}:
		default: // it has not looked since the last time, and will see this change too
		}
	}
}

// poll asks once for the changes of all followed orders.
func (w *watches) poll(ctx context.Context, latest func(context.Context, []uuid.UUID) (map[uuid.UUID]int64, error)) error {
	ids := w.followed()
	if len(ids) == 0 {
		return nil
	}
	sequences, err := latest(ctx, ids)
	if err != nil {
		return err
	}
	for id, sequence := range sequences {
		w.tell(id, sequence)
	}
	return nil
}
