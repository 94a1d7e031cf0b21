//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// meddler tampers with the events on the broker, with the administrator's rights.
type meddler struct {
	conn *nats.Conn
	js   jetstream.JetStream
}

func newMeddler(conn *nats.Conn) (*meddler, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return &meddler{conn, js}, nil
}

// handling is a durable consumer of the saga.
type handling struct{ stream, consumer string }

func someHandling(random *rand.Rand) handling {
	all := []handling{{"orders", "inventory"}, {"orders", "payment"}, {"inventory", "checkout"}, {"payments", "checkout"}}
	return all[random.IntN(len(all))]
}

const (
	copies = 15  // events that are published once more at a time
	recent = 300 // out of so many of the latest
)

// duplicate publishes events again under their old ids, later and in another order. The broker would recognise those of
// the last two minutes, so it is told to forget first; the stream's owner tells it otherwise when it connects again.
func (m *meddler) duplicate(ctx context.Context, random *rand.Rand) error {
	name := []string{"orders", "inventory", "payments"}[random.IntN(3)]
	stream, err := m.js.Stream(ctx, name)
	if err != nil {
		return away(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Duplicates = 100 * time.Millisecond // the least
	if stream, err = m.js.UpdateStream(ctx, cfg); err != nil {
		return away(err)
	}
	last := stream.CachedInfo().State.LastSeq
	if last == 0 {
		return fmt.Errorf("%w: stream %s is empty", errNothing, name)
	}
	stored := 0
	for range copies {
		original, err := stream.GetMsg(ctx, last-random.Uint64N(min(last, recent)))
		if err != nil {
			return away(err)
		}
		again := &nats.Msg{Subject: original.Subject, Data: original.Data, Header: nats.Header{}}
		for key, values := range original.Header {
			if key == jetstream.MsgIDHeader || !strings.HasPrefix(key, "Nats-") {
				again.Header[key] = values
			}
		}
		answer, err := m.js.PublishMsg(ctx, again)
		if err != nil {
			return away(err)
		}
		if !answer.Duplicate {
			stored++
		}
	}
	if stored == 0 {
		return fmt.Errorf("%w: the broker recognised every repeat", errNothing)
	}
	return nil
}

// delay keeps one consumer from getting anything for a while, whoever asks. When nothing came for it, nothing was delayed.
func (m *meddler) delay(ctx context.Context, random *rand.Rand) error {
	h := someHandling(random)
	until := time.Now().Add(time.Duration(300+random.IntN(1700)) * time.Millisecond)
	paused, err := m.js.PauseConsumer(ctx, h.stream, h.consumer, until)
	if err != nil {
		return away(err)
	}
	if !paused.Paused {
		return fmt.Errorf("%w: %s's consumer was not paused", errNothing, h.consumer)
	}
	pause(ctx, time.Until(until)-10*time.Millisecond)
	consumer, err := m.js.Consumer(ctx, h.stream, h.consumer)
	if err != nil {
		return away(err)
	}
	if consumer.CachedInfo().NumPending == 0 {
		return fmt.Errorf("%w: nothing came for %s meanwhile", errNothing, h.consumer)
	}
	return nil
}

// reorder takes events that a consumer was to get and has them delivered later, each after a time of its own. With one
// event there is no order.
func (m *meddler) reorder(ctx context.Context, random *rand.Rand) error {
	h := someHandling(random)
	consumer, err := m.js.Consumer(ctx, h.stream, h.consumer)
	if err != nil {
		return away(err)
	}
	batch, err := consumer.Fetch(10, jetstream.FetchMaxWait(700*time.Millisecond))
	if err != nil {
		return away(err)
	}
	taken := 0
	for message := range batch.Messages() {
		if err := message.NakWithDelay(time.Duration(random.IntN(1500)) * time.Millisecond); err != nil {
			return away(err) // it is delivered again all the same
		}
		taken++
	}
	if taken < 2 {
		return fmt.Errorf("%w: %s had no two events to get", errNothing, h.consumer)
	}
	return away(m.conn.FlushWithContext(ctx)) // the broker knows of it
}

// away turns errors of a broker that is dead, frozen or new into errNothing: there is nothing to tamper with.
func away(err error) error {
	if err == nil {
		return nil
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code < 500 && api.Code != 404 {
		return err
	}
	return errors.Join(errNothing, err)
}
