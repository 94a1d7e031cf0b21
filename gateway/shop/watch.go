package shop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// The pause before a watch that ended early is resumed doubles from the first to the second.
const (
	resumeFirst = 100 * time.Millisecond
	resumeMost  = 3 * time.Second
)

// Event is one status change of an order. Sequence counts the changes of one order from 1.
type Event struct {
	Sequence int64     `json:"-"`
	OrderID  string    `json:"order_id"`
	Status   Status    `json:"status"`
	Reason   string    `json:"reason"`
	At       time.Time `json:"at"`
}

// Watch calls deliver for each change of the order after the given sequence (0 for all), in order, and returns nil after a
// final one, or when the order was final already and nothing is left to tell. When checkout ends the stream early or goes away,
// Watch resumes behind the last change delivered, for as long as ctx lasts. It returns deliver's error, ctx's, or
// checkout's when trying again cannot help (NOT_FOUND, INVALID_ARGUMENT).
func (s *Shop) Watch(ctx context.Context, orderID string, after int64, deliver func(Event) error) error {
	if err := allUTF8(field{"order_id", orderID}); err != nil {
		return err
	}
	pause := resumeFirst
	for {
		last, err := s.watchOnce(ctx, orderID, after, deliver)
		if last > after { // it moved on: what failed before is over
			pause = resumeFirst
		}
		after = last
		if _, broken := errors.AsType[interrupted](err); !broken {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, resumeMost)
	}
}

// interrupted is a stream's end that resuming may mend.
type interrupted struct{ error }

// watchOnce follows one stream to its end and returns the last sequence delivered.
func (s *Shop) watchOnce(ctx context.Context, orderID string, after int64, deliver func(Event) error) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream when deliver fails
	stream, err := s.b.Checkout.WatchOrder(ctx, &checkoutv1.WatchOrderRequest{OrderId: orderID, AfterSequence: after})
	if err != nil {
		return after, resumable(ctx, err)
	}
	for {
		change, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return after, s.ended(ctx, orderID)
		}
		if err != nil {
			return after, resumable(ctx, err)
		}
		if change.GetSequence() <= after { // a resumed stream may repeat, the client must not see it
			continue
		}
		event := Event{
			Sequence: change.GetSequence(), OrderID: change.GetOrderId(), Status: statusOf(change.GetStatus()),
			Reason: change.GetReason(), At: change.GetAt().AsTime(),
		}
		if err := deliver(event); err != nil {
			return after, fmt.Errorf("deliver event %d of order %s: %w", event.Sequence, orderID, err)
		}
		after = event.Sequence
		if event.Status.Final() {
			return after, nil
		}
	}
}

// ended judges a stream that closed without a final change: fine when the order is final all the same (the client had seen
// that change), else to be resumed.
func (s *Shop) ended(ctx context.Context, orderID string) error {
	order, err := s.Order(ctx, orderID)
	if err != nil {
		return resumable(ctx, err)
	}
	if !order.Status.Final() {
		return interrupted{errors.New("checkout ended the stream before a final status")}
	}
	return nil
}

func resumable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return err
	default:
		return interrupted{err}
	}
}
