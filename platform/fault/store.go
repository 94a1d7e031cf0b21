package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.com/watertight/platform/broker"
)

// Bucket is the key-value bucket of the faults that are wanted: one per service, under the service's name.
const Bucket = "faults"

// ErrAway says that the broker is away, so that faults can be neither read nor changed.
var ErrAway = errors.New("fault: the broker is away")

// Store is the switch: it sets and clears what the Injectors of all processes follow. It may be used by any goroutine.
type Store struct {
	conn *nats.Conn
	log  *slog.Logger
	seen atomic.Pointer[map[string]Fault]
}

// NewStore returns a store over the connection; nil is a broker that never comes.
func NewStore(conn *nats.Conn, log *slog.Logger) *Store { return &Store{conn: conn, log: log} }

// Put sets the service's fault in place of the one it has.
func (s *Store) Put(ctx context.Context, service string, f Fault) error {
	value, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("set the fault of %s: %w", service, err)
	}
	kv, err := s.bucket(ctx)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, service, value); err != nil {
		return fmt.Errorf("%w: set the fault of %s: %w", ErrAway, service, err)
	}
	return nil
}

// Clear ends the service's fault; it is no error when it has none.
func (s *Store) Clear(ctx context.Context, service string) error {
	kv, err := s.bucket(ctx)
	if err != nil {
		return err
	}
	if err := kv.Purge(ctx, service); err != nil {
		return fmt.Errorf("%w: clear the fault of %s: %w", ErrAway, service, err)
	}
	return nil
}

// Get asks the broker for the faults of the services; those whose time is over are not there.
func (s *Store) Get(ctx context.Context, services []string) (map[string]Fault, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return nil, err
	}
	entries := broker.Entries{}
	for _, service := range services {
		entry, err := kv.Get(ctx, service)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%w: read the fault of %s: %w", ErrAway, service, err)
		}
		entries[service] = entry
	}
	return current(decode(entries)), nil
}

// Run keeps what Seen returns up to date until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	broker.Watch(ctx, s.conn, s.log, Bucket, ">", func(entries broker.Entries) {
		all := decode(entries)
		s.seen.Store(&all)
	})
	return nil
}

// Seen returns the faults of all services as Run saw them last. It asks nobody.
func (s *Store) Seen() map[string]Fault {
	all := s.seen.Load()
	if all == nil {
		return nil
	}
	return current(*all)
}

func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if s.conn == nil || !s.conn.IsConnected() {
		return nil, ErrAway
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	kv, err := js.KeyValue(ctx, Bucket)
	if err != nil {
		return nil, fmt.Errorf("%w: bucket %s: %w", ErrAway, Bucket, err)
	}
	return kv, nil
}

// decode leaves out what is no fault; the service that it is meant for says so in its log.
func decode(entries broker.Entries) map[string]Fault {
	faults := map[string]Fault{}
	for service, entry := range entries {
		var f Fault
		if json.Unmarshal(entry.Value(), &f) == nil && f.validate() == nil {
			faults[service] = f
		}
	}
	return faults
}

func current(all map[string]Fault) map[string]Fault {
	now := time.Now()
	out := map[string]Fault{}
	for service, f := range all {
		if f.ExpiresAt.After(now) {
			out[service] = f
		}
	}
	return out
}
