package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/watertight/platform/outbox"
)

func TestOnCommit_IsCalledOnceAfterTheCommitAndNotForWhatWasRolledBack(t *testing.T) {
	r := newRig(t)
	r.stream("alpha")
	note := r.effects()
	var handled, dead, called atomic.Int64
	seen := make(chan int, 10)
	r.startWith(settings(t), consuming("alpha", map[string]outbox.Handler{
		"alpha.happened": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			outbox.OnCommit(ctx, func() {
				called.Add(1)
				effects, _ := r.handled()
				seen <- effects
			})
			return errors.Join(note(ctx, tx, m), map[bool]error{true: errors.New("not now")}[handled.Add(1) < 3])
		},
		"alpha.dead": func(ctx context.Context, tx pgx.Tx, m outbox.Message) error {
			outbox.OnCommit(ctx, func() { called.Add(1) })
			if dead.Add(1) == 1 {
				return outbox.Permanent(errors.New("never"))
			}
			return note(ctx, tx, m)
		},
	}))
	r.publish("alpha.happened", uuid.NewString(), nil)
	select {
	case effects := <-seen:
		if effects != 1 {
			t.Errorf("effects that were committed before the call: got %d, want 1", effects)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("never called")
	}

	r.publish("alpha.dead", uuid.NewString(), nil)
	eventually(t, 20*time.Second, "a dead letter", func() bool { return r.count("SELECT count(*) FROM dead_letters") == 1 })
	if got := called.Load(); got != 1 {
		t.Errorf("calls: got %d, want 1: a dead letter has committed nothing", got)
	}
	if _, err := outbox.Retry(t.Context(), r.pool); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "a call for the dead letter that was retried", func() bool { return called.Load() == 2 })
	outbox.OnCommit(t.Context(), func() { t.Error("called without a handler") })
}
