package fault_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/broker/brokertest"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/postgres/pgtest"
)

// stage is a broker and the switch.
type stage struct {
	t      *testing.T
	server *brokertest.Server
	store  *fault.Store
}

func newStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	server := brokertest.Start(t, fault.Bucket, broker.InstancesBucket)
	return &stage{t: t, server: server, store: newStore(t, server)}
}

func newStore(t *testing.T, server *brokertest.Server) *fault.Store {
	t.Helper()
	conn, err := broker.Connect(broker.Config{URL: server.URL(), Heartbeat: time.Second}, "switch", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := broker.Await(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	return fault.NewStore(conn, slog.New(slog.DiscardHandler))
}

// run starts a victim that listens to the switch.
func (s *stage) run(env ...string) *process {
	s.t.Helper()
	return run(s.t, s.env(env...)...)
}

func (s *stage) env(env ...string) []string {
	return append([]string{"FAULTS_ENABLED=true", "NATS_URL=" + s.server.URL()}, env...)
}

func (s *stage) set(r fault.Request) {
	s.t.Helper()
	f, err := r.Fault(time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.store.Put(s.t.Context(), "victim", f); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) clear() {
	s.t.Helper()
	if err := s.store.Clear(s.t.Context(), "victim"); err != nil {
		s.t.Fatal(err)
	}
}

// sick sets the fault and waits until the process shows it.
func (s *stage) sick(p *process, r fault.Request) {
	s.t.Helper()
	s.set(r)
	eventually(s.t, "the metric shows the fault", func() bool { return p.active() == string(r.Kind) })
}

func (s *stage) well(p *process) {
	s.t.Helper()
	eventually(s.t, "the metric shows no fault", func() bool { return p.active() == "" })
	if took, err := p.call(patience); err != nil || took > 20*time.Second {
		s.t.Fatalf("a well process answers %v after %s", err, took)
	}
}

// active is the kind that the metric shows, and an error text when it shows no kind at all.
func (p *process) active() string {
	_, page := p.page("/metrics")
	kinds := 0
	active := ""
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, `watertight_faults_active{kind="`)
		if !ok {
			continue
		}
		kinds++
		if kind, value, _ := strings.Cut(rest, `"} `); strings.TrimSpace(value) == "1" {
			active += kind
		}
	}
	if kinds != len(fault.Kinds()) {
		return fmt.Sprintf("%d kinds", kinds)
	}
	return active
}

// both runs the test once with a fault that is cleared and once with one whose time ends.
func both(t *testing.T, test func(s *stage, ttl int64, end func())) {
	t.Helper()
	t.Run("by clear", func(t *testing.T) {
		s := newStage(t)
		test(s, 600, s.clear)
	})
	t.Run("by TTL", func(t *testing.T) {
		s := newStage(t)
		test(s, 5, func() {})
	})
}

func TestSlow_DelaysRequestsAndLetsTheSleepersGoWhenItEnds(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		s.sick(p, fault.Request{Kind: fault.Slow, DelayMS: new(int64(300)), TTLS: &ttl})
		if took, err := p.call(patience); err != nil || took < 300*time.Millisecond {
			s.t.Errorf("got %v after %s, want an answer after 300 ms", err, took)
		}
		s.sick(p, fault.Request{Kind: fault.Slow, DelayMS: new(int64(600_000)), TTLS: &ttl})
		sleeper := p.later(patience)
		if _, err := p.call(200 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
			s.t.Errorf("got %v, want the deadline to pass", err)
		}
		end()
		if err := outcome(sleeper); err != nil {
			s.t.Errorf("the sleeper got %v, want an answer once the fault had ended", err)
		}
		s.well(p)
	})
}

func TestError_AnswersWithItsCodeUntilItEnds(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.NotFound, codes.ResourceExhausted} {
			name := map[codes.Code]string{codes.Unavailable: "", codes.Internal: "INTERNAL", codes.Unknown: "UNKNOWN", codes.NotFound: "NOT_FOUND", codes.ResourceExhausted: "RESOURCE_EXHAUSTED"}[code]
			s.set(fault.Request{Kind: fault.Error, Code: name, TTLS: &ttl})
			eventually(s.t, "the answer is "+code.String(), func() bool {
				_, err := p.call(patience)
				return status.Code(err) == code
			})
		}
		end()
		s.well(p)
	})
}

func TestHang_HoldsAWorkerWhateverBecomesOfTheCallerAndFreesItAtTheEnd(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		s.sick(p, fault.Request{Kind: fault.Hang, TTLS: &ttl})
		for range 4 { // POOL_SIZE
			if _, err := p.call(100 * time.Millisecond); status.Code(err) != codes.DeadlineExceeded {
				s.t.Errorf("got %v, want the deadline to pass", err)
			}
		}
		if _, page := p.page("/metrics"); !strings.Contains(page, `watertight_bulkhead_in_flight{pool="grpc"} 4`) {
			s.t.Error("the workers came free although the work ignores that its callers left")
		}
		end()
		s.well(p)
		eventually(s.t, "the workers are free", func() bool {
			_, page := p.page("/metrics")
			return strings.Contains(page, `watertight_bulkhead_in_flight{pool="grpc"} 0`)
		})
	})
}

func TestCrash_EndsTheProcessInTheMiddleOfARequestUntilItEnds(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		s.sick(p, fault.Request{Kind: fault.Crash, DelayMS: new(int64(50)), TTLS: &ttl})
		p.alive(s.t)
		if _, err := p.call(patience); err == nil {
			s.t.Error("the call was answered")
		}
		if code := p.exit(s.t); code != fault.CrashCode {
			s.t.Errorf("got exit code %d, want %d", code, fault.CrashCode)
		}
		if ttl > 60 { // the fault outlives the process: this is what makes a crash loop
			again := s.run()
			if _, err := again.call(patience); err == nil {
				s.t.Error("the process that came after answers")
			}
			if code := again.exit(s.t); code != fault.CrashCode {
				s.t.Errorf("got exit code %d, want %d", code, fault.CrashCode)
			}
		}
		end()
		s.well(s.run())
	})
}

func TestCrashOnStart_KeepsAProcessFromStartingAndLeavesOneThatRunsAlone(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		running := s.run()
		s.sick(running, fault.Request{Kind: fault.CrashOnStart, TTLS: &ttl})
		p, _ := launch(s.t, s.env()...)
		if code := p.exit(s.t); code != 1 || !strings.Contains(p.output(), "crash-on-start") {
			s.t.Errorf("got exit code %d, want 1 and a line that says why", code)
		}
		running.alive(s.t)
		if _, err := running.call(patience); err != nil {
			s.t.Errorf("the process that runs answers %v", err)
		}
		end()
		s.well(running)
		s.well(s.run())
	})
}

func TestCrashOnStart_IsCountedAsAStart(t *testing.T) {
	s := newStage(t)
	s.set(fault.Request{Kind: fault.CrashOnStart})
	kv := s.server.Bucket(broker.InstancesBucket)
	var boots []string
	for range 2 {
		p, _ := launch(t, s.env()...)
		p.exit(t)
		entry, err := kv.Get(t.Context(), "victim.victim")
		if err != nil {
			t.Fatal(err)
		}
		boots = append(boots, string(entry.Value()))
	}
	if boots[0] == boots[1] {
		t.Errorf("two starts announce the same: %s", boots[0])
	}
}

func TestOOM_TakesMemoryUntilTheProcessEndsWith137(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run("FAULT_OOM_BOUND=134217728")
		s.sick(p, fault.Request{Kind: fault.OOM, TTLS: &ttl})
		before := p.resident(s.t)
		peak := before
		done := p.later(patience)
		for ended := false; !ended; {
			select {
			case <-p.exited:
				ended = true
			default:
				peak = max(peak, p.resident(s.t))
			}
		}
		if err := outcome(done); err == nil {
			s.t.Error("the call was answered")
		}
		if code := p.exit(s.t); code != fault.OOMCode {
			s.t.Errorf("got exit code %d, want %d", code, fault.OOMCode)
		}
		if peak-before < 32<<20 {
			s.t.Errorf("memory went from %d to %d bytes: it was not touched", before, peak)
		}
		end()
		s.well(s.run())
	})
}

// resident is how much memory the process has, 0 when it has ended.
func (p *process) resident(t *testing.T) int64 {
	t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(statm))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func TestOOM_GivesTheMemoryBackWhenItEndsBefore(t *testing.T) {
	s := newStage(t)
	p := s.run("FAULT_OOM_BOUND=" + strconv.Itoa(8<<30)) // so much that the end comes first
	before := p.resident(t)
	s.sick(p, fault.Request{Kind: fault.OOM})
	done := p.later(patience)
	eventually(t, "memory is taken", func() bool { return p.resident(t) > before+64<<20 })
	s.clear()
	if err := outcome(done); err != nil {
		t.Errorf("the call got %v, want an answer", err)
	}
	eventually(t, "the memory is given back", func() bool { return p.resident(t) < before+64<<20 })
	s.well(p)
}

func TestCPU_KeepsTheCoresBusyUntilItEnds(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		s.sick(p, fault.Request{Kind: fault.CPU, DelayMS: new(int64(600_000)), TTLS: &ttl})
		before := p.seconds(s.t)
		done := p.later(patience)
		eventually(s.t, "a second of processor time is used up", func() bool { return p.seconds(s.t) > before+1 })
		end()
		if err := outcome(done); err != nil {
			s.t.Errorf("the call got %v, want an answer once the fault had ended", err)
		}
		s.well(p)
		eventually(s.t, "the cores are idle", func() bool {
			start, at := p.seconds(s.t), time.Now()
			time.Sleep(300 * time.Millisecond) // a rate needs a while to be measured in
			return p.seconds(s.t)-start < 0.3*time.Since(at).Seconds()
		})
	})
}

// seconds is how much processor time the process has used.
func (p *process) seconds(t *testing.T) float64 {
	t.Helper()
	p.alive(t)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	total := 0.0
	for _, field := range fields[11:13] { // user and system time, in hundredths
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += ticks / 100
	}
	return total
}

func TestDBLock_HoldsTablesAndConnectionsUntilItEnds(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		database, owner := pgtest.NewRoles(s.t)
		admin, err := pgx.Connect(s.t.Context(), owner)
		if err != nil {
			s.t.Fatal(err)
		}
		defer admin.Close(context.Background())
		if _, err := admin.Exec(s.t.Context(), "CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY)"); err != nil {
			s.t.Fatal(err)
		}
		p := s.run("DATABASE_URL="+database, "DB_LOCK_TIMEOUT=300ms", "FAULT_DB_CONNECTIONS=5")
		asks := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := p.EmptyCall(ctx, &testpb.Empty{})
			return err
		}
		if err := asks(); err != nil {
			s.t.Fatal(err)
		}
		s.sick(p, fault.Request{Kind: fault.DBLock, TTLS: &ttl})
		if err := asks(); status.Code(err) != codes.Unavailable {
			s.t.Errorf("got %v, want UNAVAILABLE: the table is locked", err)
		}
		if got := held(s.t, admin); got != 6 {
			s.t.Errorf("%d connections are held, want the one with the locks and 5 more", got)
		}
		if took, err := p.call(patience); err != nil {
			s.t.Errorf("a call without the database: got %v after %s", err, took)
		}
		end()
		s.well(p)
		eventually(s.t, "the database answers", func() bool { return asks() == nil })
		eventually(s.t, "the connections are given back", func() bool { return held(s.t, admin) == 0 })
	})
}

// held counts the connections of the fault in this database.
func held(t *testing.T, admin *pgx.Conn) (n int) {
	t.Helper()
	err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'fault db-lock'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDBLock_WithoutADatabaseDoesNoHarm(t *testing.T) {
	s := newStage(t)
	p := s.run()
	s.sick(p, fault.Request{Kind: fault.DBLock})
	if _, err := p.call(patience); err != nil {
		t.Errorf("got %v", err)
	}
	s.clear()
	s.well(p)
}

func TestPoison_CrashesOnlyForOneProduct(t *testing.T) {
	both(t, func(s *stage, ttl int64, end func()) {
		p := s.run()
		s.sick(p, fault.Request{Kind: fault.Poison, TTLS: &ttl, Match: map[string]string{"message": "85123A", "response_size": "7"}})
		for _, name := range []string{"", "85123", "85123a", "22423"} {
			if err := p.ask(patience, name); err != nil {
				s.t.Errorf("%q: got %v, want an answer", name, err)
			}
		}
		p.alive(s.t)
		if err := p.ask(patience, "85123A"); err == nil {
			s.t.Error("the poison was answered")
		}
		if code := p.exit(s.t); code != fault.CrashCode {
			s.t.Errorf("got exit code %d, want %d", code, fault.CrashCode)
		}
		end()
		again := s.run()
		s.well(again)
		if err := again.ask(patience, "85123A"); err != nil {
			s.t.Errorf("after the end: got %v, want an answer", err)
		}
	})
}

func TestFault_LeavesProbesMetricsHealthAndStreamsAlone(t *testing.T) {
	s := newStage(t)
	p := s.run()
	s.sick(p, fault.Request{Kind: fault.Error})
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if got := p.get(path); got != http.StatusOK {
			t.Errorf("%s: got %d, want 200", path, got)
		}
	}
	if _, err := p.health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	stream, err := p.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("stream: %v", err)
	}
	if _, err := p.call(patience); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v: the fault does not bite at all", err)
	}
}

func TestFault_RateIsTheShareOfRequests(t *testing.T) {
	s := newStage(t)
	p := s.run()
	failures := func(n int) (failed int) {
		for range n {
			if _, err := p.call(patience); err != nil {
				failed++
			}
		}
		return failed
	}
	s.sick(p, fault.Request{Kind: fault.Error, Rate: new(0.0)})
	if got := failures(50); got != 0 {
		t.Errorf("rate 0: %d of 50 failed", got)
	}
	s.clear()
	s.well(p)
	s.sick(p, fault.Request{Kind: fault.Error, Rate: new(0.5)})
	// 400 throws of a fair coin lie outside of 200 ± 80 once in 10^15 runs.
	if got := failures(400); got < 120 || got > 280 {
		t.Errorf("rate 0.5: %d of 400 failed", got)
	}
}

func TestFault_IsReadBeforeTheFirstRequest(t *testing.T) {
	s := newStage(t)
	s.set(fault.Request{Kind: fault.Error})
	p := s.run()
	if _, err := p.call(patience); status.Code(err) != codes.Unavailable {
		t.Errorf("the first request got %v, want UNAVAILABLE", err)
	}
}

// Field report 20: a service does not wait for the broker.
func TestService_IsReadyWithin5sWithoutABrokerAndFollowsItLater(t *testing.T) {
	t.Parallel()
	server := brokertest.New(t)
	p := run(t, "FAULTS_ENABLED=true", "NATS_URL="+server.URL())
	if took := time.Since(p.began); took > 5*time.Second {
		t.Errorf("ready after %s, want at most 5 s", took)
	}
	if _, err := p.call(patience); err != nil {
		t.Errorf("without a broker: got %v", err)
	}
	server.Start()
	kv := server.Bucket(broker.InstancesBucket)
	server.Bucket(fault.Bucket)
	s := &stage{t: t, server: server, store: newStore(t, server)}
	s.sick(p, fault.Request{Kind: fault.Error, TTLS: new(int64(4))})
	if _, err := p.call(patience); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want the fault to bite", err)
	}
	eventually(t, "the process is announced", func() bool {
		entry, err := kv.Get(t.Context(), "victim.victim")
		return err == nil && strings.Contains(string(entry.Value()), `"ready":true`)
	})
	server.Stop() // the fault ends by itself all the same
	s.well(p)
}

func TestService_WithFaultsDisabledNothingListensWatchesOrAnswers(t *testing.T) {
	s := newStage(t)
	s.set(fault.Request{Kind: fault.CrashOnStart})
	p := run(t, "NATS_URL="+s.server.URL())
	s.set(fault.Request{Kind: fault.Crash})
	for range 20 {
		if _, err := p.call(patience); err != nil {
			t.Fatalf("got %v", err)
		}
	}
	if _, page := p.page("/metrics"); strings.Contains(page, "watertight_faults") {
		t.Error("there is a metric of faults")
	}
	js := s.server.JetStream()
	stream, err := js.Stream(t.Context(), "KV_"+fault.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if names := stream.ConsumerNames(t.Context()); len(slices.Collect(chanSeq(names.Name()))) != 0 {
		t.Error("somebody watches the faults")
	}
}

func chanSeq[T any](c <-chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}
