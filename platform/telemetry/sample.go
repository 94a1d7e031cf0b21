package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// loud is how many warnings and errors of one kind a second are all written.
	loud = 50
	// oneIn is which share of those beyond is written.
	oneIn = 100
)

// sampled keeps a fault from filling the disk with one line a request: of warnings and errors of a kind, which is the message
// and the route where there is one, it writes the first of each second and then a sample. The next line that is written says
// in left_out how many of its kind were not. Lines below a warning are as many as there is work, and are left alone.
type sampled struct {
	slog.Handler

	kinds *kinds // the same for all loggers made from this one
}

type kinds struct {
	mu    sync.Mutex
	byKey map[kindKey]*kind // as many as the program has messages and routes
}

type kindKey struct {
	level          slog.Level
	message, route string
}

type kind struct {
	second  int64
	lines   int // in this second
	leftOut int64
}

func newSampled(h slog.Handler) sampled {
	return sampled{h, &kinds{byKey: map[kindKey]*kind{}}}
}

func (h sampled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	write, leftOut := h.kinds.count(keyOf(r), r.Time)
	if !write {
		return nil
	}
	if leftOut > 0 {
		r.AddAttrs(slog.Int64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

func keyOf(r slog.Record) kindKey {
	key := kindKey{level: r.Level, message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "route" {
			key.route = a.Value.String()
			return false
		}
		return true
	})
	return key
}

// count says whether the line is written, and how many of its kind were left out since the last one that was.
func (k *kinds) count(key kindKey, at time.Time) (write bool, leftOut int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	it := k.byKey[key]
	if it == nil {
		it = &kind{}
		k.byKey[key] = it
	}
	if second := at.Unix(); second != it.second {
		it.second, it.lines = second, 0
	}
	it.lines++
	if it.lines > loud && it.lines%oneIn != 0 {
		it.leftOut++
		return false, 0
	}
	leftOut, it.leftOut = it.leftOut, 0
	return true, leftOut
}

func (h sampled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return sampled{h.Handler.WithAttrs(attrs), h.kinds}
}

func (h sampled) WithGroup(name string) slog.Handler {
	return sampled{h.Handler.WithGroup(name), h.kinds}
}
