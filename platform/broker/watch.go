package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openTimeout bounds the opening of a bucket and of a watch on it.
const openTimeout = 5 * time.Second

// Entries are the values of a bucket by key; deleted ones are not there.
type Entries map[string]jetstream.KeyValueEntry

// Watch tells changed the entries whose keys match pattern (a key, or > for all), until ctx ends: first what there is, then
// all of them again after each change. When the connection or the bucket is lost, what was told last stays true; when it is
// back, changed is told what there is then, so that nothing that happened meanwhile is missed but what was overwritten.
// changed runs in Watch's goroutine and must not keep the map.
func Watch(ctx context.Context, conn *nats.Conn, log *slog.Logger, bucket, pattern string, changed func(Entries)) {
	told := false // of the trouble that lasts
	for Await(ctx, conn) == nil {
		err := follow(ctx, conn, bucket, pattern, func(entries Entries) {
			told = false
			changed(entries)
		})
		if ctx.Err() != nil {
			return
		}
		if !told && !errors.Is(err, errLost) {
			log.Warn("watch on a bucket broke; trying again", "bucket", bucket, "error", err)
			told = true
		}
		select {
		case <-time.After(100*time.Millisecond + rand.N(400*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// errLost is the end of a watch whose connection was lost, which the connection itself logs.
var errLost = errors.New("the connection was lost")

// follow watches until ctx ends or the connection is lost. It does not leave it to the client to mend the watch: that takes
// until a heartbeat is missed, and a bucket that was made anew would not be noticed at all.
func follow(ctx context.Context, conn *nats.Conn, bucket, pattern string, changed func(Entries)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := conn.StatusChanged(nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(lost)
	go func() {
		select {
		case <-lost:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	if !conn.IsConnected() {
		return errLost
	}
	late := time.AfterFunc(openTimeout, func() { cancel(fmt.Errorf("no answer within %s", openTimeout)) })
	defer late.Stop()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return because(ctx, err)
	}
	watcher, err := kv.Watch(ctx, pattern)
	if err != nil {
		return because(ctx, err)
	}
	late.Stop()
	collect(watcher, changed)
	return because(ctx, errors.New("the watch ended"))
}

// because prefers the reason for which ctx was ended to what came of it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// collect returns when the end of the watch's context has closed its updates.
func collect(watcher jetstream.KeyWatcher, changed func(Entries)) {
	entries, complete := Entries{}, false
	for entry := range watcher.Updates() {
		switch {
		case entry == nil: // all that was there has been told
			complete = true
		case entry.Operation() == jetstream.KeyValuePut:
			entries[entry.Key()] = entry
		default:
			delete(entries, entry.Key())
		}
		if complete {
			changed(entries)
		}
	}
}
