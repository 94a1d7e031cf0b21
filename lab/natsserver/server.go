package natsserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// readyTimeout bounds the start of a server, which first recovers its streams.
const readyTimeout = time.Minute

// Run serves with the configuration in file until ctx ends. It is a process of its own (`lab nats-server`), so that it can
// be killed and stopped apart from everything else.
func Run(ctx context.Context, file string) error {
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		return fmt.Errorf("NATS configuration: %w", err)
	}
	options.NoSigs = true // ctx carries them
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	s.ConfigureLogger()
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(readyTimeout) {
		return errors.New("NATS server: not ready for connections in time; its log says why")
	}
	<-ctx.Done()
	return nil
}

// Connect connects to url as the user in it, with that user's own inbox.
func Connect(url, user string, options ...nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect(url, append([]nats.Option{nats.Name(user), nats.CustomInboxPrefix(InboxPrefix(user))}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return conn, nil
}

// Ready returns nil when the server at url answers for its streams.
func Ready(ctx context.Context, url string) error {
	conn, err := Connect(url, Admin, nats.NoReconnect(), nats.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	if _, err := js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return nil
}

// DeclareBuckets makes the buckets, or brings those that exist to the same settings. What is in them stays.
func DeclareBuckets(ctx context.Context, url string) error {
	return withStreams(url, func(js jetstream.JetStream) error { return declareBuckets(ctx, js) })
}

// Declare is DeclareBuckets, and clears the faults that are left from an earlier run: a shop that is started anew starts
// healthy, and a fault that keeps it from starting could not be cleared over its own gateway. It returns the keys of those
// faults.
func Declare(ctx context.Context, url string) (cleared []string, err error) {
	err = withStreams(url, func(js jetstream.JetStream) error {
		if err := declareBuckets(ctx, js); err != nil {
			return err
		}
		cleared, err = clearFaults(ctx, js)
		return err
	})
	return cleared, err
}

// withStreams calls do on a connection of Admin's.
func withStreams(url string, do func(jetstream.JetStream) error) error {
	conn, err := Connect(url, Admin)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return do(js)
}

func declareBuckets(ctx context.Context, js jetstream.JetStream) error {
	for _, bucket := range []jetstream.KeyValueConfig{
		{Bucket: FaultsBucket, Description: "desired faults", History: 1, Storage: jetstream.FileStorage, MaxBytes: 1 << 20},
		{Bucket: InstancesBucket, Description: "running processes", History: 1, Storage: jetstream.FileStorage, MaxBytes: 16 << 20},
	} {
		if _, err := js.CreateOrUpdateKeyValue(ctx, bucket); err != nil {
			return fmt.Errorf("bucket %s: %w", bucket.Bucket, err)
		}
	}
	return nil
}

func clearFaults(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	faults, err := js.KeyValue(ctx, FaultsBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", FaultsBucket, err)
	}
	keys, err := faults.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list faults: %w", err)
	}
	for _, key := range keys {
		if err := faults.Purge(ctx, key); err != nil {
			return nil, fmt.Errorf("clear fault %s: %w", key, err)
		}
	}
	return keys, nil
}
