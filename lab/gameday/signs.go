package gameday

import (
	"context"
	"math"
	"time"

	"example.com/watertight/lab/scenario"
)

const (
	lookEvery   = 250 * time.Millisecond
	lookTimeout = 2 * time.Second
)

// see notes when the sign was seen first.
func (s *Sign) see(after time.Duration) {
	if s.Seen {
		return
	}
	seconds := math.Round(10*after.Seconds()) / 10
	s.Seen, s.After = true, &seconds
}

// watcher looks for the signs that a fault shows while it lasts.
type watcher struct {
	before  View
	signals []scenario.Signal
	seen    []Sign
	// moved are the signals of steadiness that were broken.
	moved map[int]bool
}

func newWatcher(before View, signals []scenario.Signal) *watcher {
	w := &watcher{before: before, signals: signals, moved: map[int]bool{}}
	for _, s := range signals {
		w.seen = append(w.seen, Sign{Signal: s.String()})
	}
	return w
}

// run looks until ctx ends. A look that fails is no sign of anything.
func (w *watcher) run(ctx context.Context, t Target, began time.Time) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		looking, cancel := context.WithTimeout(ctx, lookTimeout)
		view, err := t.Look(looking)
		cancel()
		if err == nil {
			w.note(view, time.Since(began))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *watcher) note(v View, after time.Duration) {
	for i, s := range w.signals {
		started := v.Restarts[s.Of] > w.before.Restarts[s.Of]
		switch s.Kind {
		case scenario.Breaker:
			if v.Breakers[s.Of] == s.Want {
				w.seen[i].see(after)
			}
		case scenario.FaultSeen:
			if v.Faults[s.Of] != "" {
				w.seen[i].see(after)
			}
		case scenario.Restarts:
			if started {
				w.seen[i].see(after)
			}
		case scenario.Steady:
			w.moved[i] = w.moved[i] || started
		}
	}
}

// signs are those of the fault: the ones of the recovery come later. Steadiness is known at the end only.
func (w *watcher) signs(p Phase) []Sign {
	var out []Sign
	for i, s := range w.signals {
		sign := w.seen[i]
		switch s.Kind {
		case scenario.Recovers, scenario.Bookkept:
			continue
		case scenario.Steady:
			sign.Seen = !w.moved[i]
		case scenario.Degraded:
			sign.Seen = p.Degraded > 0
		}
		out = append(out, sign)
	}
	return out
}
