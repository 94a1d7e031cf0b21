package natsserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// broker is a real server with the real configuration, on a free port.
func broker(t *testing.T) Config {
	t.Helper()
	config := Config{Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir(), Passwords: map[string]string{}}
	for _, user := range append(Users(), Admin) {
		config.Passwords[user] = "secret-of-" + user
	}
	content, err := config.File()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !options.SyncAlways {
		t.Error("sync_interval: always is not in force: an acknowledgement would not mean that the message is on the disk")
	}
	options.NoSigs, options.NoLog = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	config.Port = options.Port
	if _, err := Declare(t.Context(), config.URL(Admin)); err != nil {
		t.Fatal(err)
	}
	return config
}

func streams(t *testing.T, config Config, user string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	// What a user may not do is told to the connection, and the call that waits for an answer just gets none.
	conn, err := Connect(config.URL(user), user, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

// soon bounds a call that is expected to get no answer.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestUsers_EachReadsAndWatchesFaults(t *testing.T) {
	config := broker(t)
	_, gateway := streams(t, config, "gateway")
	written, err := gateway.KeyValue(t.Context(), FaultsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := written.PutString(t.Context(), "recs", "slow"); err != nil {
		t.Fatalf("the gateway cannot set a fault: %v", err)
	}
	for _, user := range Users() {
		_, js := streams(t, config, user)
		faults, err := js.KeyValue(t.Context(), FaultsBucket)
		if err != nil {
			t.Errorf("%s cannot open the bucket: %v", user, err)
			continue
		}
		if entry, err := faults.Get(t.Context(), "recs"); err != nil || string(entry.Value()) != "slow" {
			t.Errorf("%s cannot read a fault: %v", user, err)
		}
		for _, pattern := range []string{"recs", ">"} {
			watcher, err := faults.Watch(t.Context(), pattern)
			if err != nil {
				t.Errorf("%s cannot watch %s: %v", user, pattern, err)
				continue
			}
			select {
			case entry := <-watcher.Updates():
				if entry == nil || string(entry.Value()) != "slow" {
					t.Errorf("%s sees %v", user, entry)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s sees nothing when it watches %s", user, pattern)
			}
			if err := watcher.Stop(); err != nil {
				t.Errorf("%s: stop watching: %v", user, err)
			}
		}
	}
}

func TestUsers_OnlyTheGatewayAndWhoHoldsItWriteFaults(t *testing.T) {
	config := broker(t)
	_, admin := streams(t, config, Admin)
	faults, err := admin.KeyValue(t.Context(), FaultsBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range Users() {
		_, js := streams(t, config, user)
		bucket, err := js.KeyValue(t.Context(), FaultsBucket)
		if err != nil {
			t.Fatal(err)
		}
		_, err = bucket.PutString(soon(t), "by-"+user, "crash")
		_, found := faults.Get(t.Context(), "by-"+user)
		if allowed := user == "gateway" || user == "monolith"; (err == nil) != allowed || (found == nil) != allowed {
			t.Errorf("%s: put says %v, and the key is there: %v; want allowed %v", user, err, found == nil, allowed)
		}
	}
}

func TestUsers_EachWritesItsOwnInstancesOnly(t *testing.T) {
	config := broker(t)
	for _, user := range Users() {
		_, js := streams(t, config, user)
		bucket, err := js.KeyValue(t.Context(), InstancesBucket)
		if err != nil {
			t.Fatalf("%s cannot open the bucket: %v", user, err)
		}
		if _, err := bucket.PutString(t.Context(), user+".pod-1", "{}"); err != nil {
			t.Errorf("%s cannot announce itself: %v", user, err)
		}
		other := "payment"
		if user == other {
			other = "checkout"
		}
		_, err = bucket.PutString(soon(t), other+".pod-1", "{}")
		if allowed := user == "monolith"; (err == nil) != allowed {
			t.Errorf("%s announces %s: %v, want it allowed: %v", user, other, err, allowed)
		}
	}
	_, gateway := streams(t, config, "gateway")
	bucket, err := gateway.KeyValue(t.Context(), InstancesBucket)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := bucket.Keys(t.Context())
	if err != nil || len(keys) != len(Users()) {
		t.Errorf("the gateway sees %v (%v), want an instance of each of %v", keys, err, Users())
	}
}

func TestUsers_EventsFlowFromTheirOwnerToThoseWhoConsumeThem(t *testing.T) {
	config := broker(t)
	for _, owner := range grants() {
		for _, stream := range owner.publishes {
			_, js := streams(t, config, owner.user)
			if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
				t.Fatalf("%s cannot create its stream: %v", owner.user, err)
			}
			if _, err := js.Publish(t.Context(), stream+".happened", []byte("x"), jetstream.WithMsgID("1")); err != nil {
				t.Fatalf("%s cannot publish: %v", owner.user, err)
			}
			for _, g := range grants() {
				consumes(t, config, g, stream)
			}
			for _, g := range grants() {
				_, js := streams(t, config, g.user)
				_, err := js.Publish(soon(t), stream+".forged", nil)
				if may := g.user == owner.user || slices.Contains(g.as, owner.user); (err == nil) != may {
					t.Errorf("%s publishes to %s: %v", g.user, stream, err)
				}
			}
		}
	}
}

// consumes checks that g can work off the stream if it should, and cannot even look at it otherwise.
func consumes(t *testing.T, config Config, g grant, stream string) {
	t.Helper()
	_, js := streams(t, config, g.user)
	settings := jetstream.ConsumerConfig{Durable: g.user, AckPolicy: jetstream.AckExplicitPolicy, FilterSubjects: []string{stream + ".happened"}}
	if !slices.Contains(g.consumes, stream) {
		if _, err := js.CreateOrUpdateConsumer(soon(t), stream, settings); err == nil {
			t.Errorf("%s consumes %s", g.user, stream)
		}
		return
	}
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), stream, settings)
	if err != nil {
		t.Errorf("%s cannot consume %s: %v", g.user, stream, err)
		return
	}
	batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Errorf("%s cannot fetch from %s: %v", g.user, stream, err)
		return
	}
	message, ok := <-batch.Messages()
	if !ok {
		t.Errorf("%s gets nothing from %s: %v", g.user, stream, batch.Error())
		return
	}
	if err := message.DoubleAck(t.Context()); err != nil {
		t.Errorf("%s cannot acknowledge on %s: %v", g.user, stream, err)
	}
	settings.Durable = "admin"
	if _, err := js.CreateOrUpdateConsumer(soon(t), stream, settings); err == nil {
		t.Errorf("%s creates a consumer of another name on %s", g.user, stream)
	}
}

func TestUsers_NoneReadsAnothersAnswers(t *testing.T) {
	config := broker(t)
	for _, subject := range []string{InboxPrefix("checkout") + ".>", "_INBOX.>", ">", "orders.>", "$KV.>"} {
		refused := make(chan error, 1)
		conn, err := Connect(config.URL("recs"), "recs", nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: got %v, want a permission violation", subject, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("recs may subscribe to %s", subject)
		}
		conn.Close()
	}
}

func TestUsers_AnonymousAndWrongPasswordsAreRefused(t *testing.T) {
	config := broker(t)
	for _, url := range []string{"nats://" + config.Address(), "nats://checkout:wrong@" + config.Address(), "nats://stranger:x@" + config.Address()} {
		if conn, err := nats.Connect(url); err == nil {
			conn.Close()
			t.Errorf("%s was let in", strings.Replace(url, config.Address(), "…", 1))
		}
	}
}

func TestDeclare_ClearsTheFaultsOfTheLastRun(t *testing.T) {
	config := broker(t)
	_, admin := streams(t, config, Admin)
	faults, err := admin.KeyValue(t.Context(), FaultsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := faults.PutString(t.Context(), "recs", "crash-on-start"); err != nil {
		t.Fatal(err)
	}
	cleared, err := Declare(t.Context(), config.URL(Admin))
	if err != nil || !slices.Equal(cleared, []string{"recs"}) {
		t.Errorf("cleared %v (%v), want recs", cleared, err)
	}
	if again, err := Declare(t.Context(), config.URL(Admin)); err != nil || len(again) != 0 {
		t.Errorf("a second time: cleared %v (%v), want nothing", again, err)
	}
}

func TestDeclareBuckets_LeavesWhatIsInThem(t *testing.T) {
	config := broker(t)
	_, admin := streams(t, config, Admin)
	faults, err := admin.KeyValue(t.Context(), FaultsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := faults.PutString(t.Context(), "recs", "slow"); err != nil {
		t.Fatal(err)
	}
	if err := DeclareBuckets(t.Context(), config.URL(Admin)); err != nil {
		t.Fatal(err)
	}
	if entry, err := faults.Get(t.Context(), "recs"); err != nil || string(entry.Value()) != "slow" {
		t.Errorf("the fault is %v (%v), want it as it was", entry, err)
	}
	if err := admin.DeleteKeyValue(t.Context(), InstancesBucket); err != nil {
		t.Fatal(err)
	}
	if err := DeclareBuckets(t.Context(), config.URL(Admin)); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.KeyValue(t.Context(), InstancesBucket); err != nil {
		t.Errorf("a bucket that was lost is not made again: %v", err)
	}
}

func TestConfig_NamesTheUserWithoutAPassword(t *testing.T) {
	_, err := Config{Host: "127.0.0.1", Port: 4222, Passwords: map[string]string{"gateway": "x"}}.File()
	if err == nil || !strings.Contains(err.Error(), "checkout") {
		t.Errorf("got %v, want an error that names checkout", err)
	}
}

func TestReady_TellsWhenNobodyServes(t *testing.T) {
	if err := Ready(t.Context(), "nats://lab:x@127.0.0.1:1"); err == nil {
		t.Error("a broker that does not exist is ready")
	}
}
