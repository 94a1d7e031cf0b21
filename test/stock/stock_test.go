//go:build unix

// Package stock checks that the stock of one product behaves as if one clerk served one customer at a time, whichever
// replica of inventory does the work and whatever dies meanwhile: it records who asked for what when, and what was
// answered when, and searches for an order of the operations that explains every answer (linearizability,
// https://github.com/anishathalye/porcupine). It talks to inventory as checkout does, by events, and knows no table.
package stock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	eventsv1 "example.com/watertight/proto/events/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
	"example.com/watertight/test/shop"
)

const (
	product    = "linear-1"
	pieces     = 20 // at the start: few, so that customers get into each other's way
	clerks     = 6
	operations = 40 // of each clerk
	maxOrders  = clerks * operations
	// pacing is the longest pause between two operations of a clerk, so that several replicas die during the history.
	pacing = 100 * time.Millisecond
	// answerBound is how long an answer may take: a killed replica's work has to be taken over.
	answerBound = time.Minute
)

// live is inventory alone, three times; what a dead replica held is taken over within two seconds.
var live = shop.New(func(int) (shop.Settings, error) {
	flags := []string{"--no-seed", "--restart-backoff", "300ms", "--restart-backoff-max", "300ms", "--replicas", "inventory=3",
		"--env", "inventory.RELAY_LEASE=2s", "--env", "inventory.RELAY_PUBLISH_TIMEOUT=500ms", "--env", "inventory.CONSUMER_ACK_WAIT=2s"}
	for _, service := range []string{"checkout", "search", "recs", "payment", "gateway"} {
		flags = append(flags, "--replicas", service+"=0")
	}
	return shop.Settings{Flags: flags}, nil
})

func TestMain(m *testing.M) { os.Exit(live.Main(m)) }

func TestStock_IsLinearizableOverReplicasThatDie(t *testing.T) {
	s := live.Get(t)
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv("STOCK_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	r := newRecorder(t, s)
	stopKilling := killing(t, s, seed)
	var working sync.WaitGroup
	for clerk := range clerks {
		random := rand.New(rand.NewPCG(seed, uint64(clerk)))
		working.Go(func() { r.work(clerk, random) })
	}
	working.Wait()
	kills := stopKilling()
	if t.Failed() {
		t.FailNow()
	}
	result, info := porcupine.CheckOperationsVerbose(model(), r.history, time.Minute)
	kinds := map[string]int{}
	for _, op := range r.history {
		kinds[op.Output.(output).kind()]++
	}
	t.Logf("seed %d: %d operations %v, %d kills", seed, len(r.history), kinds, kills)
	if result != porcupine.Ok {
		path := strings.ReplaceAll(os.TempDir()+"/stock-SEED.html", "SEED", fmt.Sprint(seed))
		t.Errorf("seed %d: the history is %s, want %s (%v; drawn in %s)", seed, result, porcupine.Ok, porcupine.VisualizePath(model(), info, path), path)
	}
	if kills < 3 {
		t.Errorf("seed %d: %d replicas were killed, want at least 3", seed, kills)
	}
	for _, kind := range []string{"reserved", "rejected", "released", "read"} {
		if kinds[kind] == 0 {
			t.Errorf("seed %d: no operation was %s: the history proves nothing of it", seed, kind)
		}
	}
}

// TestModel_FindsWhatCannotBe holds the model against histories in which a piece is sold twice.
func TestModel_FindsWhatCannotBe(t *testing.T) {
	reserve := func(order int, q int64, from, to int64, answer string) porcupine.Operation {
		return porcupine.Operation{ClientId: order, Input: input{what: "reserve", order: order, quantity: q}, Call: from, Return: to, Output: output{status: answer}}
	}
	read := func(from, to, available int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 9, Input: input{what: "read"}, Call: from, Return: to, Output: output{available: available, reserved: pieces - available}}
	}
	release := func(order int, from, to int64) porcupine.Operation {
		return porcupine.Operation{ClientId: order, Input: input{what: "release", order: order}, Call: from, Return: to, Output: output{status: "released"}}
	}
	for _, tc := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"two after another, both fit", []porcupine.Operation{reserve(0, 10, 1, 2, "reserved"), reserve(1, 10, 3, 4, "reserved")}, true},
		{"oversold", []porcupine.Operation{reserve(0, 15, 1, 4, "reserved"), reserve(1, 15, 2, 3, "reserved")}, false},
		{"one of two at once is rejected", []porcupine.Operation{reserve(0, 15, 1, 4, "rejected"), reserve(1, 15, 2, 3, "reserved")}, true},
		{"rejected though there was enough", []porcupine.Operation{reserve(0, 15, 1, 2, "rejected")}, false},
		{"stale read", []porcupine.Operation{reserve(0, 5, 1, 2, "reserved"), read(3, 4, 20)}, false},
		{"read during", []porcupine.Operation{reserve(0, 5, 1, 4, "reserved"), read(2, 3, 20)}, true},
		{"given back once", []porcupine.Operation{reserve(0, 5, 1, 2, "reserved"), release(0, 3, 4), release(0, 5, 6), read(7, 8, 20)}, true},
		{"given back twice", []porcupine.Operation{reserve(0, 5, 1, 2, "reserved"), release(0, 3, 4), release(0, 5, 6), read(7, 8, 25)}, false},
		{"released before it is reserved", []porcupine.Operation{release(0, 1, 2), reserve(0, 5, 3, 4, "released"), read(5, 6, 20)}, true},
		{"reserved after its release", []porcupine.Operation{release(0, 1, 2), reserve(0, 5, 3, 4, "reserved")}, false},
	} {
		if got := porcupine.CheckOperations(model(), tc.history); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}

// input is what is asked for: to reserve for an order, to release it, or to read the stock.
type input struct {
	what     string
	order    int
	quantity int64
}

// output is the answer: the reservation's status, or, with status "", the stock.
type output struct {
	status              string
	available, reserved int64
}

func (o output) kind() string {
	if o.status == "" {
		return "read"
	}
	return o.status
}

// state is the stock, and how each order stands: its quantity in pieces when it is reserved.
type state struct {
	available, reserved int64
	status              [maxOrders]byte // 0 unheard of, 'r' reserved, 'x' rejected, 'l' released
	quantity            [maxOrders]int8
}

// model is the stock served by one clerk.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{available: pieces} },
		Step: func(s, in, out any) (bool, any) {
			got := out.(output)
			next, want := s.(state).after(in.(input))
			return got == want, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
		DescribeState: func(s any) string {
			return fmt.Sprintf("%d available, %d reserved", s.(state).available, s.(state).reserved)
		},
	}
}

func (s state) after(in input) (state, output) {
	switch in.what {
	case "read":
		return s, output{available: s.available, reserved: s.reserved}
	case "release":
		if s.status[in.order] == 'r' {
			s.available, s.reserved = s.available+int64(s.quantity[in.order]), s.reserved-int64(s.quantity[in.order])
		}
		if s.status[in.order] != 'x' {
			s.status[in.order] = 'l'
		}
		return s, output{status: "released"}
	}
	if s.status[in.order] == 0 && s.available < in.quantity {
		s.status[in.order] = 'x'
	} else if s.status[in.order] == 0 {
		s.status[in.order], s.quantity[in.order] = 'r', int8(in.quantity)
		s.available, s.reserved = s.available-in.quantity, s.reserved+in.quantity
	}
	return s, output{status: map[byte]string{'r': "reserved", 'x': "rejected", 'l': "released"}[s.status[in.order]]}
}

// recorder asks inventory and writes down what was asked and answered when.
type recorder struct {
	t        *testing.T
	js       jetstream.JetStream
	replicas []inventoryv1.InventoryServiceClient
	began    time.Time

	mu      sync.Mutex
	waiting map[string]chan string // the answer's subject, by the operation's trace id
	orders  []uuid.UUID
	history []porcupine.Operation
}

func newRecorder(t *testing.T, s *shop.Shop) *recorder {
	t.Helper()
	record, err := s.Record()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(record.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	r := &recorder{t: t, began: time.Now(), waiting: map[string]chan string{}}
	if r.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	// Nobody else makes checkout's stream here.
	if _, err := r.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Subscribe("inventory.>", r.answered); err != nil {
		t.Fatal(err)
	}
	for _, p := range record.Processes {
		if p.Service != "inventory" {
			continue
		}
		c, err := grpc.NewClient(p.Addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		r.replicas = append(r.replicas, inventoryv1.NewInventoryServiceClient(c))
	}
	r.stock(pieces)
	return r
}

// stock sets what is available at the start.
func (r *recorder) stock(n int64) {
	r.t.Helper()
	stream, err := r.replicas[0].ImportStock(r.t.Context())
	if err == nil {
		err = stream.Send(&inventoryv1.ImportStockRequest{Counts: []*inventoryv1.StockCount{{ProductId: product, Available: n}}})
	}
	if err == nil {
		_, err = stream.CloseAndRecv()
	}
	if err != nil {
		r.t.Fatalf("import stock: %v", err)
	}
}

// answered hands an event to whoever asked for what it tells of. It may come twice, from a relay that died.
func (r *recorder) answered(m *nats.Msg) {
	fields := strings.Split(m.Header.Get("traceparent"), "-")
	if len(fields) != 4 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if waiting, ok := r.waiting[fields[1]]; ok {
		waiting <- m.Subject
		delete(r.waiting, fields[1])
	}
}

// work is one clerk's: a mixture of all operations, with releases of any clerk's orders, also of one that is not placed yet.
func (r *recorder) work(clerk int, random *rand.Rand) {
	for range operations {
		select {
		case <-r.t.Context().Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(pacing)))):
		}
		in := input{what: "read"}
		switch d := random.IntN(10); {
		case d < 4:
			in = input{what: "reserve", order: r.newOrder(), quantity: 1 + random.Int64N(6)}
		case d < 7:
			in = input{what: "release", order: r.someOrder(random)}
		}
		if in.what == "reserve" && random.IntN(4) == 0 { // its release overtakes it, or tries to
			var both sync.WaitGroup
			both.Go(func() { r.record(clerk+clerks, input{what: "release", order: in.order}, 0) })
			r.record(clerk, in, 0)
			both.Wait()
			continue
		}
		r.record(clerk, in, random.IntN(len(r.replicas)))
	}
}

func (r *recorder) newOrder() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orders = append(r.orders, uuid.New())
	return len(r.orders) - 1
}

func (r *recorder) someOrder(random *rand.Rand) int {
	r.mu.Lock()
	n := len(r.orders)
	r.mu.Unlock()
	if n == 0 {
		return r.newOrder()
	}
	return max(n-1-random.IntN(10), 0)
}

// record does one operation and writes it down.
func (r *recorder) record(clerk int, in input, replica int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), answerBound)
	defer cancel()
	call := time.Since(r.began).Nanoseconds()
	out, err := r.do(ctx, in, replica)
	if err != nil {
		r.t.Errorf("%+v: %v", in, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, porcupine.Operation{ClientId: clerk, Input: in, Call: call, Output: out, Return: time.Since(r.began).Nanoseconds()})
}

func (r *recorder) do(ctx context.Context, in input, replica int) (output, error) {
	if in.what == "read" {
		answer, err := r.replicas[replica].GetStock(ctx, &inventoryv1.GetStockRequest{ProductIds: []string{product}}, grpc.WaitForReady(true))
		for err != nil && ctx.Err() == nil { // it was killed in the middle of it; a read may be asked again
			answer, err = r.replicas[replica].GetStock(ctx, &inventoryv1.GetStockRequest{ProductIds: []string{product}}, grpc.WaitForReady(true))
		}
		if err != nil {
			return output{}, err
		}
		level := answer.GetLevels()[0]
		return output{available: level.GetAvailable(), reserved: level.GetReserved()}, nil
	}
	r.mu.Lock()
	id := r.orders[in.order].String()
	r.mu.Unlock()
	if in.what == "release" {
		return r.tell(ctx, "orders.cancelled", "events.v1.OrderCancelled", &eventsv1.OrderCancelled{OrderId: id})
	}
	return r.tell(ctx, "orders.placed", "events.v1.OrderPlaced",
		&eventsv1.OrderPlaced{OrderId: id, Items: []*eventsv1.Item{{ProductId: product, Quantity: in.quantity}}})
}

// tell publishes an event and waits for the one that comes of it, which it knows by its trace.
func (r *recorder) tell(ctx context.Context, subject, kind string, message proto.Message) (output, error) {
	payload, err := proto.Marshal(message)
	if err != nil {
		return output{}, err
	}
	trace, answer := strings.ReplaceAll(uuid.NewString(), "-", ""), make(chan string, 1)
	r.mu.Lock()
	r.waiting[trace] = answer
	r.mu.Unlock()
	event := &nats.Msg{Subject: subject, Data: payload, Header: nats.Header{jetstream.MsgIDHeader: {uuid.NewString()}, "ce-type": {kind},
		"traceparent": {"00-" + trace + "-00f067aa0ba902b7-01"}}}
	if _, err := r.js.PublishMsg(ctx, event); err != nil {
		return output{}, err
	}
	select {
	case subject := <-answer:
		return output{status: strings.TrimPrefix(subject, "inventory.")}, nil
	case <-ctx.Done():
		return output{}, fmt.Errorf("no answer to %s: %w", subject, ctx.Err())
	}
}

// killing kills a replica several times a second until it is told to stop; then it says how many it has killed.
func killing(t *testing.T, s *shop.Shop, seed uint64) (stop func() int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 99))
	done, killed := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		defer func() { killed <- n }()
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(300+random.IntN(500)) * time.Millisecond):
			}
			record, err := s.Record()
			if err != nil {
				t.Error(err)
				return
			}
			replicas := slices.DeleteFunc(record.Processes, func(p shop.RecordedProcess) bool { return p.Service != "inventory" || p.PID() <= 1 })
			// One that is on its way back is left to come back: with all three gone at once nothing would be answered.
			if len(replicas) > 1 && syscall.Kill(replicas[random.IntN(len(replicas))].PID(), syscall.SIGKILL) == nil {
				n++
			}
		}
	}()
	return func() int {
		close(done)
		return <-killed
	}
}
