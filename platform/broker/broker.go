// Package broker is how a process reaches NATS: a connection that starts without the broker and outlives its outages, buckets
// watched over such outages, streams and consumers brought to their settings, and the list of who runs. It knows no events
// and no services, and never makes a process wait for the broker for longer than it is told to.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// dialTimeout bounds one attempt to connect; the first is made before Connect returns.
	dialTimeout = time.Second
	// maxReconnectDelay bounds the pause between two attempts.
	maxReconnectDelay = 2 * time.Second
	// closeTimeout bounds the end: the messages under way are handed out, then the connection is cut.
	closeTimeout = 2 * time.Second
)

// Config is where the broker is and who this process is there.
type Config struct {
	URL       string        `env:"NATS_URL" help:"NATS server with the service's user, nats://user:password@host:4222, or several with commas; empty: none"`
	Instance  string        `env:"INSTANCE_ID" help:"name of this process among the replicas of its service; empty is the host name"`
	Heartbeat time.Duration `env:"INSTANCE_HEARTBEAT" envDefault:"2s" help:"how often the process says that it runs; after three missed it counts as gone"`
}

// Validate checks the URL without repeating it, because there is a password in it.
func (c Config) Validate() error {
	var errs []error
	for _, server := range c.servers() {
		u, err := url.Parse(server)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			errs = append(errs, errors.New("NATS_URL: must be a URL such as nats://user:password@host:4222, or several with commas"))
			break
		}
	}
	if c.Instance != "" && !instanceName.MatchString(c.Instance) {
		errs = append(errs, errors.New("INSTANCE_ID: must be at most 128 letters, digits, '-' and '_'"))
	}
	if c.Heartbeat < 100*time.Millisecond || c.Heartbeat > time.Minute {
		errs = append(errs, errors.New("INSTANCE_HEARTBEAT: must be between 100ms and 1m"))
	}
	return errors.Join(errs...)
}

// instanceName is what fits into one token of a subject.
var (
	instanceName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	notInName    = regexp.MustCompile(`[^A-Za-z0-9_-]+`)
)

func (c Config) servers() []string {
	if c.URL == "" {
		return nil
	}
	return strings.Split(c.URL, ",")
}

// inbox is the prefix under which answers arrive. Each user may have its own and read no other's.
func (c Config) inbox() string {
	u, err := url.Parse(c.servers()[0])
	if err != nil || u.User.Username() == "" || !instanceName.MatchString(u.User.Username()) {
		return nats.InboxPrefix[:len(nats.InboxPrefix)-1]
	}
	return nats.InboxPrefix + u.User.Username()
}

// instance is the process's name among its service's replicas.
func (c Config) instance() (string, error) {
	if c.Instance != "" {
		return c.Instance, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("INSTANCE_ID: is empty and the host has no name: %w", err)
	}
	return notInName.ReplaceAllString(host[:min(len(host), 128)], "-"), nil
}

// Connect connects the named process in the background: it tries once, for about a second, and goes on trying for as long as
// the connection is not closed, at most two seconds apart. While there is no connection, what needs one fails at once. The
// connection is nil when there is no URL; all of this package takes that for a broker that never comes.
func Connect(cfg Config, name string, log *slog.Logger) (*nats.Conn, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.URL == "" {
		return nil, nil
	}
	conn, err := nats.Connect(cfg.URL, append(reports(log),
		nats.Name(name), nats.CustomInboxPrefix(cfg.inbox()), nats.Timeout(dialTimeout), nats.DrainTimeout(closeTimeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		// A wrong password may be put right on the broker's side.
		nats.IgnoreAuthErrorAbort(),
		// A message that waits in a buffer looks sent. Whoever sends it must know that it is not.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(2),
	)...)
	if err != nil {
		return nil, fmt.Errorf("NATS_URL: %w", err)
	}
	if !conn.IsConnected() {
		log.Warn("broker is away; connecting in the background")
	}
	return conn, nil
}

// reports logs each change of the connection's state once.
func reports(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(conn *nats.Conn) { log.Info("broker connected", "url", conn.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(conn *nats.Conn) { log.Info("broker connected again", "url", conn.ConnectedUrlRedacted()) }),
		nats.DisconnectErrHandler(func(conn *nats.Conn, err error) {
			if !conn.IsClosed() {
				log.Warn("broker lost; connecting again in the background", "error", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("broker", "error", err) }),
	}
}

// reconnectDelay doubles from 100 ms to maxReconnectDelay, half of it at random, so that many processes do not come back in
// one wave.
func reconnectDelay(attempts int) time.Duration {
	delay := min(100*time.Millisecond<<min(attempts, 10), maxReconnectDelay)
	return delay/2 + rand.N(delay/2)
}

// Await returns nil as soon as there is a connection, or the error of ctx.
func Await(ctx context.Context, conn *nats.Conn) error {
	if conn == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	connected := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(connected)
	if conn.IsConnected() {
		return nil
	}
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close hands out what has arrived, sends what is under way and closes the connection, within two seconds and within ctx.
func Close(ctx context.Context, conn *nats.Conn) error {
	if conn == nil {
		return nil
	}
	defer conn.Close()
	closed := conn.StatusChanged(nats.CLOSED)
	defer conn.RemoveStatusListener(closed)
	if err := conn.Drain(); errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrConnectionClosed) {
		return nil // nothing can be under way
	} else if err != nil {
		return fmt.Errorf("drain the broker's connection: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	for !conn.IsClosed() {
		select {
		case <-closed:
		case <-ctx.Done():
			return fmt.Errorf("drain the broker's connection: %w", ctx.Err())
		}
	}
	return nil
}

// EnsureStream creates the stream, or brings one that exists to these settings. Whoever owns the events calls it whenever the
// broker has come back, and as often as it likes.
func EnsureStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.CreateOrUpdateStream(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	return stream, nil
}

// EnsureConsumer creates the durable consumer, or brings one that exists to these settings: replicas of two versions may
// each come with their own, and go on with those that came last.
func EnsureConsumer(ctx context.Context, js jetstream.JetStream, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	consumer, err := js.CreateOrUpdateConsumer(ctx, stream, cfg)
	if err != nil {
		return nil, fmt.Errorf("consumer %s of stream %s: %w", cfg.Durable, stream, err)
	}
	return consumer, nil
}

// Header carries a trace context in a message's header. NATS tells upper from lower case, and the names of the W3C are in
// lower case: unlike propagation.HeaderCarrier it keeps them as they are.
type Header nats.Header

// Get returns the first value of key.
func (h Header) Get(key string) string { return nats.Header(h).Get(key) }

// Set replaces the values of key.
func (h Header) Set(key, value string) { nats.Header(h).Set(key, value) }

// Keys lists the keys.
func (h Header) Keys() []string {
	keys := make([]string, 0, len(h))
	for key := range h {
		keys = append(keys, key)
	}
	return keys
}
