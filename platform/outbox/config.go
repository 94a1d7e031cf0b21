package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Mode is how the relay keeps a row from being published by two relays at once.
type Mode string

// The modes. Lease holds no transaction open while the broker works; Tx needs one update less for each row, and a
// connection that waits for the broker inside a transaction.
const (
	Lease Mode = "lease"
	Tx    Mode = "tx"
)

// maxBatch is the most messages that the broker takes as one batch.
const maxBatch = 1000

// Config is how events are published, kept and consumed.
type Config struct {
	Mode           Mode          `env:"RELAY_MODE" envDefault:"lease" help:"lease or tx: how relays share the outbox"`
	Batch          int           `env:"RELAY_BATCH" envDefault:"200" help:"events claimed and published together, 1 to 1000"`
	InFlight       int           `env:"RELAY_IN_FLIGHT" envDefault:"3" help:"batches that may be under way at once in mode lease"`
	Lease          time.Duration `env:"RELAY_LEASE" envDefault:"30s" help:"after this time another relay takes over what one has claimed"`
	Poll           time.Duration `env:"RELAY_POLL" envDefault:"100ms" help:"pause between looks for events that nobody announced in this process"`
	PublishTimeout time.Duration `env:"RELAY_PUBLISH_TIMEOUT" envDefault:"5s" help:"how long the broker may take for a batch; a third of RELAY_LEASE at most"`
	MaxRefusals    int           `env:"RELAY_MAX_REFUSALS" envDefault:"10" help:"refusals by the broker after which an event is a dead letter"`
	RefusalBackoff time.Duration `env:"RELAY_REFUSAL_BACKOFF" envDefault:"1s" help:"pause after an event's first refusal; it doubles with each, up to 1m"`
	RelayConns     int32         `env:"RELAY_DB_MAX_CONNS" envDefault:"2" help:"database connections of the relay, at least 1"`

	AckWait       time.Duration `env:"CONSUMER_ACK_WAIT" envDefault:"10s" help:"when an unacknowledged event comes again; half bounds its transaction"`
	MaxDeliveries int           `env:"CONSUMER_MAX_DELIVERIES" envDefault:"20" help:"failed deliveries after which an event is a dead letter"`
	MaxBackoff    time.Duration `env:"CONSUMER_MAX_BACKOFF" envDefault:"5s" help:"longest pause before a failed event is delivered again"`
	Concurrency   int           `env:"CONSUMER_CONCURRENCY" envDefault:"4" help:"events of one stream handled at once"`
	ConsumerConns int32         `env:"CONSUMER_DB_MAX_CONNS" envDefault:"4" help:"database connections of the consumers"`

	OutboxRetention time.Duration `env:"OUTBOX_RETENTION" envDefault:"1h" help:"how long published events are kept in the database"`
	InboxRetention  time.Duration `env:"INBOX_RETENTION" envDefault:"192h" help:"how long ids of consumed events are kept; longer than STREAM_MAX_AGE"`
	PurgePause      time.Duration `env:"PURGE_PAUSE" envDefault:"1s" help:"pause between looks for rows past their retention"`

	StreamMaxAge   time.Duration `env:"STREAM_MAX_AGE" envDefault:"168h" help:"how long the broker keeps this service's events"`
	StreamMaxBytes int64         `env:"STREAM_MAX_BYTES" envDefault:"1073741824" help:"how much it keeps of them; when that is full, events wait in the outbox"`
	StreamReplicas int           `env:"STREAM_REPLICAS" envDefault:"1" help:"brokers of a cluster that each keep them"`

	CrashPoint string `env:"CRASH_POINT" help:"POINT:PROBABILITY,… to die at: after-{publish,effect,commit,answer}, before-reply; needs FAULTS_ENABLED"`
}

// Validate reports every setting that cannot work, each by the name of its variable.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Mode == Lease || c.Mode == Tx, "RELAY_MODE: must be lease or tx, is %q", c.Mode)
	check(c.Batch >= 1 && c.Batch <= maxBatch, "RELAY_BATCH: must be between 1 and %d, is %d", maxBatch, c.Batch)
	check(c.InboxRetention > c.StreamMaxAge, "INBOX_RETENTION: must be more than STREAM_MAX_AGE, %s, is %s: an event could be applied twice",
		c.StreamMaxAge, c.InboxRetention)
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"RELAY_IN_FLIGHT", int64(c.InFlight)}, {"RELAY_MAX_REFUSALS", int64(c.MaxRefusals)}, {"RELAY_DB_MAX_CONNS", int64(c.RelayConns)},
		{"CONSUMER_MAX_DELIVERIES", int64(c.MaxDeliveries)}, {"CONSUMER_CONCURRENCY", int64(c.Concurrency)},
		{"CONSUMER_DB_MAX_CONNS", int64(c.ConsumerConns)}, {"STREAM_MAX_BYTES", c.StreamMaxBytes}, {"STREAM_REPLICAS", int64(c.StreamReplicas)},
	} {
		check(n.value >= 1, "%s: must be at least 1, is %d", n.name, n.value)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"RELAY_LEASE", c.Lease}, {"RELAY_POLL", c.Poll}, {"RELAY_PUBLISH_TIMEOUT", c.PublishTimeout}, {"RELAY_REFUSAL_BACKOFF", c.RefusalBackoff},
		{"CONSUMER_ACK_WAIT", c.AckWait}, {"CONSUMER_MAX_BACKOFF", c.MaxBackoff}, {"OUTBOX_RETENTION", c.OutboxRetention},
		{"INBOX_RETENTION", c.InboxRetention}, {"PURGE_PAUSE", c.PurgePause}, {"STREAM_MAX_AGE", c.StreamMaxAge},
	} {
		check(d.value >= time.Millisecond, "%s: must be at least 1ms, is %s", d.name, d.value)
	}
	if _, err := parseCrashPoints(c.CrashPoint); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stream is how the broker keeps the events of the stream name: all that begins with it and a dot, on disk, and nothing
// more once it is full, because an event that was acknowledged must not make way for a newer one.
func (c Config) stream(name string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardNew, MaxAge: c.StreamMaxAge, MaxBytes: c.StreamMaxBytes, Replicas: c.StreamReplicas,
		// The broker's own recognition of repeats spares the consumers most of them; they do not rely on it.
		Duplicates: min(2*time.Minute, c.StreamMaxAge),
		// With sync_interval: always, one batch costs as many writes to the disk as one message.
		AllowAtomicPublish: true,
	}
}
