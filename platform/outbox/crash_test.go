package outbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/watertight/platform/broker"
	"example.com/watertight/platform/config"
	"example.com/watertight/platform/outbox"
	"example.com/watertight/platform/postgres"
)

// TestMain is also the main of the processes that the tests kill.
func TestMain(m *testing.M) {
	if os.Getenv("OUTBOX_CHILD") == "" {
		os.Exit(m.Run())
	}
	work := map[string]func(context.Context, *outbox.Outbox, *pgxpool.Pool) error{"run": handleAll, "place": placeOne}[os.Getenv("OUTBOX_CHILD")]
	if err := child(work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a process with an Outbox that fills the stream "test".
func child(work func(context.Context, *outbox.Outbox, *pgxpool.Pool) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := config.Load[struct {
		Database postgres.Config
		Broker   broker.Config
		Outbox   outbox.Config
	}](os.Environ())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	conn, err := broker.Connect(cfg.Broker, "child", log)
	if err != nil {
		return err
	}
	defer conn.Close()
	o, err := outbox.New(ctx, cfg.Outbox, outbox.Deps{Service: "child", Stream: "test", Database: cfg.Database, Conn: conn, Log: log,
		Registry: prometheus.NewRegistry(), FaultsEnabled: true})
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, cfg.Database, postgres.Deps{Name: "child"})
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(ctx, o, pool)
}

// handleAll relays, and consumes the stream and notes its effects.
func handleAll(ctx context.Context, o *outbox.Outbox, _ *pgxpool.Pool) error {
	o.Consume("test", map[string]outbox.Handler{"test.happened": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", m.ID)
		return err
	}})
	return o.Run(ctx)
}

// placeOne does once what a service does for who asks: something outside, then an event in a transaction, then a reply.
func placeOne(ctx context.Context, o *outbox.Outbox, pool *pgxpool.Pool) error {
	event, err := outbox.NewEvent("test.happened", wrapperspb.String("placed"))
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "INSERT INTO steps VALUES ('answered')"); err != nil {
		return err
	}
	o.Answered()
	if err := postgres.SendTx(ctx, pool, func(b *pgx.Batch) { outbox.Queue(ctx, b, event) }); err != nil {
		return err
	}
	o.Wake()
	_, err = pool.Exec(ctx, "INSERT INTO steps VALUES ('replied')")
	return err
}

// spawn runs child processes, each again whenever it has died, until the test ends. It returns how often they died by
// kill -9 so far.
func (r *rig) spawn(n int, environ ...string) (kills func() int) {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	died, ended := make(chan struct{}, 10000), make(chan struct{})
	for range n {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				cmd := exec.CommandContext(ctx, exe)
				cmd.Env = append(os.Environ(), append(environ, "OUTBOX_CHILD=run", "DATABASE_URL="+r.url, "NATS_URL="+r.broker.URL())...)
				cmd.Stderr = os.Stderr
				_ = cmd.Run() // how it died is what counts
				if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ctx.Err() == nil && status.Signaled() && status.Signal() == syscall.SIGKILL {
					died <- struct{}{}
				} else if ctx.Err() == nil {
					r.t.Errorf("a child ended by itself: %v", cmd.ProcessState)
					return
				}
			}
		}()
	}
	r.t.Cleanup(func() {
		cancel()
		for range n {
			<-ended
		}
	})
	return func() int { return len(died) }
}

func TestReport25_KilledAfterPublishingNoEventIsLostAndRepeatsKeepTheirID(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t)
		r.effects()
		w := r.listen("test.>")
		kills := r.spawn(3, mode, "RELAY_BATCH=25", "RELAY_LEASE=1s", "RELAY_PUBLISH_TIMEOUT=400ms", "CONSUMER_ACK_WAIT=2s", "CRASH_POINT=after-publish:0.3")
		var ids []uuid.UUID
		for range 20 { // at least twenty publishes
			ids = append(ids, r.append(100, "test.happened")...)
			eventually(t, 30*time.Second, "these are published", func() bool { return r.unpublished() == 0 })
		}
		r.wantAllHandled(ids, 90*time.Second)
		if kills() == 0 {
			t.Error("no process was killed")
		}
		known := map[string]bool{}
		for _, id := range ids {
			known[id.String()] = true
		}
		repeats := 0
		for id, n := range w.counts() {
			if !known[id] {
				t.Errorf("an event with the id %s was sent, which is nobody's", id)
			}
			repeats += n - 1
		}
		if repeats == 0 {
			t.Error("no event was sent again")
		}
		t.Logf("%d kills, %d repeats", kills(), repeats)
	})
}

func TestReport35_KilledInTheMiddleOfAnEventItHasItsEffectOnce(t *testing.T) {
	for _, point := range []string{"after-effect", "after-commit"} {
		t.Run(point, func(t *testing.T) {
			r := newRig(t)
			r.effects()
			ids := r.append(500, "test.happened")
			kills := r.spawn(3, "CONSUMER_ACK_WAIT=1s", "RELAY_LEASE=2s", "RELAY_PUBLISH_TIMEOUT=500ms", "CRASH_POINT="+point+":0.03")
			r.wantAllHandled(ids, 90*time.Second)
			if kills() == 0 {
				t.Error("no process was killed")
			}
			t.Logf("%d kills", kills())
		})
	}
}

// wantAllHandled waits until each of the events has had its effect, and checks that none has had two.
func (r *rig) wantAllHandled(ids []uuid.UUID, within time.Duration) {
	r.t.Helper()
	eventually(r.t, within, "all are published and handled", func() bool {
		_, events := r.handled()
		return events == len(ids) && r.unpublished() == 0
	})
	r.wantStored("test", ids)
	if effects, events := r.handled(); effects != len(ids) || events != len(ids) {
		r.t.Errorf("got %d effects of %d events, want %d of each", effects, events, len(ids))
	}
	if got := r.count("SELECT count(*) FROM outbox WHERE dead_at IS NOT NULL") + r.count("SELECT count(*) FROM dead_letters"); got != 0 {
		r.t.Errorf("dead letters: got %d, want 0", got)
	}
}

func TestCrashPoint_InAServicesOwnWorkKillsWhereItsNameSays(t *testing.T) {
	for _, c := range []struct {
		points, died              string
		answered, events, replied int
	}{
		{"after-answer:1", "after-answer", 1, 0, 0},
		{"before-reply:1", "before-reply", 1, 1, 0},
		{"after-answer:0,before-reply:1,after-commit:1", "before-reply", 1, 1, 0},
		{"after-publish:1,after-effect:1,after-commit:1,before-reply:0", "", 1, 1, 1},
	} {
		t.Run(c.points, func(t *testing.T) {
			r := newRig(t)
			r.create("CREATE TABLE steps (name text NOT NULL)")
			log, died := r.place("CRASH_POINT=" + c.points)
			if killed := c.died != ""; died != killed || killed && !strings.Contains(log, `msg="crash point" point=`+c.died+"\n") {
				t.Errorf("killed: %v, want %v at %q and a line of its log that says so; its log:\n%s", died, killed, c.died, log)
			}
			answered, replied := r.count("SELECT count(*) FROM steps WHERE name = 'answered'"), r.count("SELECT count(*) FROM steps WHERE name = 'replied'")
			if events := r.count("SELECT count(*) FROM outbox"); answered != c.answered || events != c.events || replied != c.replied {
				t.Errorf("got %d answers, %d events and %d replies, want %d, %d and %d", answered, events, replied, c.answered, c.events, c.replied)
			}
			r.start(settings(t))
			eventually(t, 10*time.Second, "another process publishes what was committed", func() bool { return r.unpublished() == 0 })
		})
	}
}

// place runs a child that does placeOne. It returns what it logged and whether a kill -9 ended it.
func (r *rig) place(environ ...string) (log string, killed bool) {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), exe)
	cmd.Env = append(os.Environ(), append(environ, "OUTBOX_CHILD=place", "DATABASE_URL="+r.url, "NATS_URL="+r.broker.URL())...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	if err != nil && !killed {
		r.t.Fatalf("the child: %v", err)
	}
	return string(out), killed
}

func TestCrashPoint_WithoutFaultsEnabledDoesNothing(t *testing.T) {
	r := newRig(t)
	r.append(10, "test.happened")
	r.start(settings(t, "CRASH_POINT=after-publish:1"))
	eventually(t, 10*time.Second, "published by a process that lives", func() bool { return r.unpublished() == 0 })
}
