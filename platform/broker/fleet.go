package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// missedBeats is how many heartbeats an instance may miss before it counts as gone.
	missedBeats = 3
	// forgetAfter is how long the boot id of an instance that is gone is kept, to know it for a restart when it comes back.
	forgetAfter = time.Hour
)

// Service is what its instances say, taken together.
type Service struct {
	Name     string
	Ready    int // instances that take traffic
	Running  int // instances that were heard of lately
	Restarts int // starts of instances that had run before, since the Fleet began to watch
}

// Fleet knows which processes run, from what they announce. While the broker is away nobody ages: that nobody is heard then
// means nothing.
type Fleet struct {
	conn *nats.Conn
	log  *slog.Logger

	mu        sync.Mutex
	instances map[string]*instance // by key
	restarts  map[string]int       // by service; a service once seen stays
	lost      time.Time            // when the broker was lost; zero while it is there
}

type instance struct {
	Announcement
	revision uint64
	heard    time.Time
	left     bool // in good order
}

// NewFleet returns a fleet that knows nobody yet.
func NewFleet(conn *nats.Conn, log *slog.Logger) *Fleet {
	return &Fleet{conn: conn, log: log, instances: map[string]*instance{}, restarts: map[string]int{}}
}

// Run listens until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	if f.conn != nil {
		changes := f.conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
		defer f.conn.RemoveStatusListener(changes)
		go func() {
			for status := range changes {
				f.stopClock(status != nats.CONNECTED, time.Now())
			}
		}()
	}
	Watch(ctx, f.conn, f.log, InstancesBucket, ">", func(all Entries) { f.observe(all, time.Now()) })
	return nil
}

// stopClock stops the clock by which instances age, or lets it go on from where it stopped.
func (f *Fleet) stopClock(stop bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if stop == !f.lost.IsZero() {
		return
	}
	if stop {
		f.lost = now
		return
	}
	for _, it := range f.instances {
		it.heard = it.heard.Add(now.Sub(f.lost))
	}
	f.lost = time.Time{}
}

func (f *Fleet) observe(all Entries, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, it := range f.instances {
		if _, there := all[key]; !there {
			it.left = true
		}
		if now.Sub(it.heard) > forgetAfter {
			delete(f.instances, key)
		}
	}
	for key, entry := range all {
		known := f.instances[key]
		if known != nil && known.revision == entry.Revision() && !known.left {
			continue
		}
		var said Announcement
		if err := json.Unmarshal(entry.Value(), &said); err != nil || said.key() != key || said.HeartbeatMS <= 0 {
			continue // of another version, or forged; it ages away
		}
		// What was written long ago is no sign of life; but nobody's clock may put it into the future.
		heard := now.Add(-max(0, now.Sub(entry.Created())))
		if known != nil {
			heard = now
			if known.BootID != said.BootID {
				f.restarts[said.Service]++
			}
		}
		f.restarts[said.Service] += 0
		f.instances[key] = &instance{Announcement: said, revision: entry.Revision(), heard: heard}
	}
}

// Services lists what is known, by name. It asks nobody.
func (f *Fleet) Services() []Service {
	return f.services(time.Now())
}

func (f *Fleet) services(now time.Time) []Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	now = f.clock(now)
	byName := map[string]*Service{}
	for name, restarts := range f.restarts {
		byName[name] = &Service{Name: name, Restarts: restarts}
	}
	for _, it := range f.instances {
		if !it.running(now) {
			continue
		}
		s := byName[it.Service]
		s.Running++
		if it.Ready {
			s.Ready++
		}
	}
	out := make([]Service, 0, len(byName))
	for _, s := range byName {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Gauge is the greatest value that the service's running instances announce under the name, and whether any does.
func (f *Fleet) Gauge(service, name string) (greatest float64, said bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock(time.Now())
	for _, it := range f.instances {
		value, has := it.Gauges[name]
		if it.Service != service || !has || !it.running(now) {
			continue
		}
		greatest, said = max(greatest, value), true
	}
	return greatest, said
}

// clock stands still while the broker is away.
func (f *Fleet) clock(now time.Time) time.Time {
	if f.lost.IsZero() {
		return now
	}
	return f.lost
}

func (i *instance) running(now time.Time) bool {
	return !i.left && now.Sub(i.heard) <= missedBeats*time.Duration(i.HeartbeatMS)*time.Millisecond
}
