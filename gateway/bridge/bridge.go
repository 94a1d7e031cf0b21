// Package bridge is the page from which the whole ship is seen: each part of the shop as a compartment that is dry or floods,
// the orders that go on all the same, and what happened lately; with faults enabled, also the switches to flood one. It
// looks once a second at what the process knows anyway, so it stays up while everything behind it sinks: it asks no
// service, and no customer's request ever waits for it.
package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/watertight/gateway/report"
)

// every is how often the bridge looks.
const every = time.Second

// Config bounds the page's event streams.
type Config struct {
	MaxStreams   int           // open at once
	Heartbeat    time.Duration // pause after which a quiet stream sends a comment
	WriteTimeout time.Duration // of one event
	MaxAge       time.Duration // after which a stream ends, and the browser comes back
}

// Deps is what the bridge looks at.
type Deps struct {
	// Report must return at once: what the process knows, not what it would have to ask for.
	Report func() report.Status
	// FaultTargets are the services that can be made sick; empty while faults are disabled.
	FaultTargets []string
	Draining     <-chan struct{} // closed when the process begins to drain: streams end then
}

// Bridge serves the page and its stream. Its methods may be called from any goroutine; those of a nil Bridge do nothing.
type Bridge struct {
	cfg     Config
	deps    Deps
	layout  layout
	streams chan struct{} // one element per open stream

	mu    sync.Mutex
	seen  past
	shown frame
	next  chan struct{} // closed when there is a newer frame
}

// frame is the whole state of the page at one moment: a client that missed some has missed nothing.
type frame struct {
	number int64 // 0: none yet
	view   view
	data   []byte // view as JSON
}

// New prepares the page. An error means that the embedded template is broken.
func New(cfg Config, deps Deps) (*Bridge, error) {
	if deps.Report == nil || deps.Draining == nil {
		return nil, errors.New("bridge: a dependency is missing")
	}
	layout, err := newLayout()
	if err != nil {
		return nil, err
	}
	return &Bridge{
		cfg: cfg, deps: deps, layout: layout, streams: make(chan struct{}, cfg.MaxStreams), next: make(chan struct{}),
	}, nil
}

// Run looks at the ship until ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := b.look(time.Now()); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Streams is how many of the page's event streams are open.
func (b *Bridge) Streams() int {
	if b == nil {
		return 0
	}
	return len(b.streams)
}

// look makes the next frame, and wakes the streams.
func (b *Bridge) look(now time.Time) error {
	seen := b.deps.Report()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.observe(moment{now, seen})
	v := newView(&b.seen, b.deps.FaultTargets)
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("bridge: write a frame: %w", err)
	}
	b.shown = frame{number: b.shown.number + 1, view: v, data: data}
	close(b.next)
	b.next = make(chan struct{})
	return nil
}

// latest returns the frame in force, and what is closed when there is a newer one.
func (b *Bridge) latest() (frame, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shown, b.next
}
