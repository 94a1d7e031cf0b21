package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// InstancesBucket is where processes say that they run, under SERVICE.INSTANCE.
const InstancesBucket = "instances"

// announceTimeout bounds one word to the broker.
const announceTimeout = time.Second

// Announcement is what a process says about itself.
type Announcement struct {
	Service     string    `json:"service"`
	Instance    string    `json:"instance"`
	BootID      string    `json:"boot_id"` // another one at each start
	StartedAt   time.Time `json:"started_at"`
	Ready       bool      `json:"ready"`        // started and not draining
	HeartbeatMS int64     `json:"heartbeat_ms"` // how soon the next word is due
	// Gauges are numbers that others may show, as of the last word.
	Gauges map[string]float64 `json:"gauges,omitempty"`
}

// Announcer keeps a process's announcement fresh for as long as the process serves: it is one of the process's
// lifecycle.Servers, because those are told when it becomes ready and when it drains. Without a broker it does nothing.
type Announcer struct {
	conn *nats.Conn
	log  *slog.Logger

	mu     sync.Mutex
	said   Announcement
	gauges map[string]func() float64

	changed chan struct{} // holds a value when there is news
	stop    chan struct{}
	stopped chan struct{}
}

// NewAnnouncer says nothing yet. Its error names INSTANCE_ID.
func NewAnnouncer(cfg Config, conn *nats.Conn, service string, log *slog.Logger) (*Announcer, error) {
	instance, err := cfg.instance()
	if err != nil {
		return nil, err
	}
	return &Announcer{
		conn: conn, log: log,
		said: Announcement{
			Service: service, Instance: instance, BootID: uuid.NewString(), StartedAt: time.Now().UTC().Truncate(time.Millisecond),
			HeartbeatMS: cfg.Heartbeat.Milliseconds(),
		},
		gauges: map[string]func() float64{}, changed: make(chan struct{}, 1), stop: make(chan struct{}), stopped: make(chan struct{}),
	}, nil
}

// Gauge adds a number to what is announced; read is called at each word and must return at once. It is for before Serve.
func (a *Announcer) Gauge(name string, read func() float64) { a.gauges[name] = read }

// Announce says once how things are. It fails at once while the broker is away.
func (a *Announcer) Announce(ctx context.Context) error {
	a.mu.Lock()
	said := a.said
	a.mu.Unlock()
	said.Gauges = make(map[string]float64, len(a.gauges))
	for name, read := range a.gauges {
		said.Gauges[name] = read()
	}
	value, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	kv, err := a.bucket(ctx)
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, said.key(), value); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

func (a Announcement) key() string { return a.Service + "." + a.Instance }

func (a *Announcer) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	if a.conn == nil || !a.conn.IsConnected() {
		return nil, fmt.Errorf("announce: %w", nats.ErrDisconnected)
	}
	js, err := jetstream.New(a.conn)
	if err != nil {
		return nil, fmt.Errorf("announce: %w", err)
	}
	kv, err := js.KeyValue(ctx, InstancesBucket)
	if err != nil {
		return nil, fmt.Errorf("announce: bucket %s: %w", InstancesBucket, err)
	}
	return kv, nil
}

// Serve announces until Shutdown: at once, at every change, at every heartbeat.
func (a *Announcer) Serve() error {
	defer close(a.stopped)
	beat := time.NewTicker(time.Duration(a.said.HeartbeatMS) * time.Millisecond)
	defer beat.Stop()
	told := false // of the trouble that lasts
	for {
		// Without a connection there is nothing to try, and the connection says so itself.
		if a.conn != nil && a.conn.IsConnected() {
			err := a.Announce(context.Background())
			if err != nil && !told {
				a.log.Warn("cannot announce this process; trying on", "error", err)
			}
			told = err != nil
		}
		select {
		case <-a.changed:
		case <-beat.C:
		case <-a.stop:
			return nil
		}
	}
}

// Ready announces that the process takes traffic.
func (a *Announcer) Ready() { a.set(true) }

// Drain announces that it takes no more.
func (a *Announcer) Drain() { a.set(false) }

func (a *Announcer) set(ready bool) {
	a.mu.Lock()
	a.said.Ready = ready
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default: // the news that waits is told with this
	}
}

// Shutdown takes the announcement back: who leaves in good order is not missed.
func (a *Announcer) Shutdown(ctx context.Context) error {
	close(a.stop)
	<-a.stopped
	if a.conn == nil || !a.conn.IsConnected() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	kv, err := a.bucket(ctx)
	if err != nil {
		return err
	}
	if err := kv.Purge(ctx, a.said.key()); err != nil {
		return fmt.Errorf("take the announcement back: %w", err)
	}
	return nil
}
