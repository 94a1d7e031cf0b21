package natsserver

import (
	"context"
	"encoding/json"
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
			for _, subject := range consumedOf(stream) {
				if _, err := js.Publish(t.Context(), subject, []byte("x"), jetstream.WithMsgID(subject)); err != nil {
					t.Fatalf("%s cannot publish: %v", owner.user, err)
				}
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

// consumedOf are the subjects of the stream that somebody handles.
func consumedOf(stream string) []string {
	var subjects []string
	for _, g := range grants() {
		subjects = append(subjects, g.consumed()[stream]...)
	}
	slices.Sort(subjects)
	return slices.Compact(subjects)
}

// durable are the settings of a consumer as services ask for it: one subject is the filter, several are a list.
func durable(name string, subjects ...string) jetstream.ConsumerConfig {
	settings := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}
	if len(subjects) == 1 {
		settings.FilterSubject = subjects[0]
	} else {
		settings.FilterSubjects = subjects
	}
	return settings
}

// consumes checks that g can work off what it handles of the stream, and cannot even look at a stream otherwise.
func consumes(t *testing.T, config Config, g grant, stream string) {
	t.Helper()
	_, js := streams(t, config, g.user)
	subjects := g.consumed()[stream]
	if len(subjects) == 0 {
		for _, filters := range [][]string{{stream + ".happened"}, consumedOf(stream), nil} {
			if _, err := js.CreateOrUpdateConsumer(soon(t), stream, durable(g.user, filters...)); err == nil {
				t.Errorf("%s consumes %s, filtered on %q", g.user, stream, filters)
			}
		}
		return
	}
	consumer, err := js.CreateOrUpdateConsumer(t.Context(), stream, durable(g.user, subjects...))
	if err != nil {
		t.Errorf("%s cannot consume %s: %v", g.user, stream, err)
		return
	}
	batch, err := consumer.Fetch(len(subjects), jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		t.Errorf("%s cannot fetch from %s: %v", g.user, stream, err)
		return
	}
	var got []string
	for message := range batch.Messages() {
		got = append(got, message.Subject())
		if err := message.DoubleAck(t.Context()); err != nil {
			t.Errorf("%s cannot acknowledge on %s: %v", g.user, stream, err)
		}
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(subjects))) {
		t.Errorf("%s gets %q of %s (%v), want %q", g.user, got, stream, batch.Error(), subjects)
	}
	if _, err := js.CreateOrUpdateConsumer(soon(t), stream, durable("admin", subjects...)); err == nil {
		t.Errorf("%s creates a consumer of another name on %s", g.user, stream)
	}
}

// The payment token is in orders.payment_requested, of the same stream as what recs learns from.
func TestUsers_RecsSeesNoOrderThatIsNotConfirmed(t *testing.T) {
	config := broker(t)
	_, admin := streams(t, config, Admin)
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	conn, js := streams(t, config, "recs")
	const secret, confirmed = "orders.payment_requested", "orders.confirmed"
	attempts := map[string]func(context.Context) error{
		"another filter":         asking(js, durable("recs", secret)),
		"a wider filter":         asking(js, durable("recs", "orders.>")),
		"another beside its own": asking(js, durable("recs", confirmed, secret)),
		"no filter":              asking(js, durable("recs")),
		"its own filter in the request's subject, another in its content": func(ctx context.Context) error {
			return asked(ctx, conn, "$JS.API.CONSUMER.CREATE.orders.recs."+confirmed, `{"stream_name":"orders","config":{"durable_name":"recs","ack_policy":"explicit","filter_subject":"`+secret+`"}}`)
		},
		"its own filter in the request's subject, a list in its content": func(ctx context.Context) error {
			return asked(ctx, conn, "$JS.API.CONSUMER.CREATE.orders.recs."+confirmed, `{"stream_name":"orders","config":{"durable_name":"recs","ack_policy":"explicit","filter_subjects":["`+confirmed+`","`+secret+`"]}}`)
		},
		"its own filter in the request's subject, none in its content": func(ctx context.Context) error {
			return asked(ctx, conn, "$JS.API.CONSUMER.CREATE.orders.recs."+confirmed, `{"stream_name":"orders","config":{"durable_name":"recs","ack_policy":"explicit"}}`)
		},
		"the request of old clients": func(ctx context.Context) error {
			return asked(ctx, conn, "$JS.API.CONSUMER.DURABLE.CREATE.orders.recs", `{"stream_name":"orders","config":{"durable_name":"recs","ack_policy":"explicit","filter_subject":"`+secret+`"}}`)
		},
	}
	for name, attempt := range attempts {
		if err := attempt(soon(t)); err == nil {
			t.Errorf("recs creates its consumer with %s", name)
		}
		if _, err := admin.Consumer(t.Context(), "orders", "recs"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatalf("after %s: the consumer is there: %v", name, err)
		}
	}
	if err := asking(js, durable("recs", confirmed))(t.Context()); err != nil {
		t.Fatalf("recs cannot create its consumer: %v", err)
	}
	for name, attempt := range attempts {
		if err := attempt(soon(t)); err == nil {
			t.Errorf("recs updates its consumer to %s", name)
		}
		consumer, err := admin.Consumer(t.Context(), "orders", "recs")
		if err != nil {
			t.Fatal(err)
		}
		if c := consumer.CachedInfo().Config; c.FilterSubject != confirmed || len(c.FilterSubjects) != 0 {
			t.Errorf("after %s: the consumer's filters are %q and %q, want %s", name, c.FilterSubject, c.FilterSubjects, confirmed)
		}
	}
}

func asking(js jetstream.JetStream, settings jetstream.ConsumerConfig) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := js.CreateOrUpdateConsumer(ctx, "orders", settings)
		return err
	}
}

// asked sends a request of JetStream's API by hand.
func asked(ctx context.Context, conn *nats.Conn, subject, content string) error {
	answer, err := conn.RequestWithContext(ctx, subject, []byte(content))
	if err != nil {
		return err
	}
	var said struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return err
	}
	if said.Error != nil {
		return said.Error
	}
	return nil
}

// A durable that was made with its one subject in a list is brought to the other form, and goes on where it was.
func TestUsers_ADurableOfTheOldFormIsUpdatedWithoutALoss(t *testing.T) {
	config := broker(t)
	_, admin := streams(t, config, Admin)
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	old := jetstream.ConsumerConfig{Durable: "recs", AckPolicy: jetstream.AckExplicitPolicy, FilterSubjects: []string{"orders.confirmed"}}
	before, err := admin.CreateConsumer(t.Context(), "orders", old)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"handled", "waiting"} {
		if _, err := admin.Publish(t.Context(), "orders.confirmed", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	handled, err := before.Next(jetstream.FetchMaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := handled.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, js := streams(t, config, "recs")
	after, err := js.CreateOrUpdateConsumer(t.Context(), "orders", durable("recs", "orders.confirmed"))
	if err != nil {
		t.Fatalf("the durable is not updated: %v", err)
	}
	if info := after.CachedInfo(); info.Config.FilterSubject != "orders.confirmed" || len(info.Config.FilterSubjects) != 0 || info.NumPending != 1 {
		t.Errorf("filters %q and %q with %d waiting, want the one subject and 1", info.Config.FilterSubject, info.Config.FilterSubjects, info.NumPending)
	}
	if next, err := after.Next(jetstream.FetchMaxWait(10 * time.Second)); err != nil || string(next.Data()) != "waiting" {
		t.Errorf("got %v (%v), want the event that waited", next, err)
	}
}

// request is one of JetStream's API.
type request struct{ subject, content string }

// destructive are the requests that take something from a stream, or change it. The last removes the stream.
func destructive(stream, consumer string) []request {
	return []request{
		{"$JS.API.STREAM.UPDATE." + stream, `{"name":"` + stream + `","subjects":["` + stream + `.>"]}`},
		{"$JS.API.STREAM.MSG.DELETE." + stream, `{"seq":1}`},
		{"$JS.API.CONSUMER.DELETE." + stream + "." + consumer, ""},
		{"$JS.API.STREAM.PURGE." + stream, ""},
		{"$JS.API.STREAM.DELETE." + stream, ""},
	}
}

func TestUsers_NoneTakesEventsFromAStreamNorChangesAnothers(t *testing.T) {
	config := broker(t)
	admin, js := streams(t, config, Admin)
	var requests []request
	owners := map[string]string{}
	for _, owner := range grants() {
		for _, stream := range owner.publishes {
			owners["$JS.API.STREAM.UPDATE."+stream] = owner.user
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}}); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), stream+".happened", nil); err != nil {
				t.Fatal(err)
			}
			for _, g := range grants() {
				if _, err := js.CreateConsumer(t.Context(), stream, durable(g.user)); err != nil {
					t.Fatal(err)
				}
				requests = append(requests, destructive(stream, g.user)...)
			}
		}
	}
	for _, g := range grants() {
		refused := refusals(t, config, g.user, requests)
		for _, r := range requests {
			owner, update := owners[r.subject]
			if may := update && (owner == g.user || slices.Contains(g.as, owner)); refused[r.subject] == may {
				t.Errorf("%s: %s is refused: %v, want %v", g.user, r.subject, refused[r.subject], !may)
			}
		}
	}
	// They are requests that the broker would have carried out.
	for _, stream := range []string{"orders", "inventory", "payments"} {
		for _, r := range destructive(stream, "recs") {
			if err := asked(t.Context(), admin, r.subject, r.content); err != nil {
				t.Errorf("%s of the administrator: %v", r.subject, err)
			}
		}
	}
}

// refusals sends the requests as user and returns the subjects that the broker refused.
func refusals(t *testing.T, config Config, user string, requests []request) map[string]bool {
	t.Helper()
	const last = "forbidden.to.all"
	told := make(chan string, len(requests)+1)
	conn, err := Connect(config.URL(user), user, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if _, rest, ok := strings.Cut(err.Error(), `Publish to "`); ok && errors.Is(err, nats.ErrPermissionViolation) {
			subject, _, _ := strings.Cut(rest, `"`)
			told <- subject
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, r := range append(requests, request{subject: last}) {
		if err := conn.PublishRequest(r.subject, InboxPrefix(user)+".answer", []byte(r.content)); err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]bool{}
	deadline := time.After(20 * time.Second)
	for !refused[last] { // refusals come in the order of the requests
		select {
		case subject := <-told:
			refused[subject] = true
		case <-deadline:
			t.Fatalf("%s: the broker did not refuse %s", user, last)
		}
	}
	return refused
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
