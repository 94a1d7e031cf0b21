package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/watertight/lab/result"
)

// watch is what the shop looks like while a scenario plays: its pods, and its own status.
type watch struct {
	shop  *Shop
	start time.Time

	mu       sync.Mutex
	counted  map[string]int             // by pod: restarts that were there before, or are counted already
	restarts map[string]int             // by process, since start
	reasons  map[string]map[string]bool // by process
	before   map[string][]string        // by pod, the reasons that it gave before; none once it has been restarted
	away     map[string]*result.Outage  // by process, while none of its pods is ready
	outages  []result.Outage
	samples  []result.Sample
	breakers map[string]map[string]bool // by upstream, the states that were seen
	sick     map[string]bool            // services whose fault the status showed
}

// newWatch begins a watch: what the pods have been through before counts as nothing.
func newWatch(ctx context.Context, s *Shop) (*watch, error) {
	w := &watch{
		shop: s, start: time.Now(), counted: map[string]int{}, restarts: map[string]int{}, reasons: map[string]map[string]bool{},
		before: map[string][]string{}, away: map[string]*result.Outage{}, breakers: map[string]map[string]bool{}, sick: map[string]bool{},
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		w.counted[string(pods[i].UID)] = restarts(&pods[i])
		w.before[string(pods[i].UID)] = reasons(&pods[i])
	}
	return w, nil
}

// run looks until ctx ends. A look that fails is left out: whoever works on a cluster meets an API server that is busy.
func (w *watch) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if pods, err := w.shop.pods(ctx); err == nil {
			w.look(pods, time.Now())
		}
		if st, err := w.shop.status(ctx); err == nil {
			w.sample(st, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look notes who was started again, why, and who is away.
func (w *watch) look(pods []corev1.Pod, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		name, id := component(p), string(p.UID)
		if n := restarts(p); n > w.counted[id] {
			w.restarts[name] += n - w.counted[id]
			w.counted[id] = n
			delete(w.before, id)
		}
		for _, reason := range reasons(p) {
			if slices.Contains(w.before[id], reason) {
				continue
			}
			if w.reasons[name] == nil {
				w.reasons[name] = map[string]bool{}
			}
			w.reasons[name][reason] = true
		}
		there[name] = there[name] || ready(p)
	}
	for name := range w.away { // a process whose last pod is deleted is in no list
		if _, listed := there[name]; !listed {
			there[name] = false
		}
	}
	for name, ok := range there {
		w.note(name, ok, now)
	}
}

func (w *watch) note(name string, there bool, now time.Time) {
	out := w.away[name]
	switch at := seconds(now.Sub(w.start)); {
	case !there && out == nil:
		w.away[name] = &result.Outage{Process: name, At: at}
	case there && out != nil:
		w.end(out, at)
	}
}

func (w *watch) end(out *result.Outage, at float64) {
	out.Length = at - out.At
	out.Reason = "replaced"
	if all := slices.Sorted(maps.Keys(w.reasons[out.Process])); len(all) > 0 {
		out.Reason = all[0]
	}
	w.outages = append(w.outages, *out)
	delete(w.away, out.Process)
}

func (w *watch) sample(st status, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const closed = "closed"
	s := result.Sample{T: seconds(now.Sub(w.start)), Breakers: map[string]string{}, Orders: &st.Orders.PerSecond, Away: slices.Sorted(maps.Keys(w.away))}
	for _, u := range st.Upstreams {
		if w.breakers[u.Name] == nil {
			w.breakers[u.Name] = map[string]bool{}
		}
		w.breakers[u.Name][u.Breaker] = true
		if u.Breaker != closed {
			s.Breakers[u.Name] = u.Breaker
		}
	}
	for _, f := range st.Faults {
		w.sick[f.Service] = true
	}
	w.samples = append(w.samples, s)
}

// finish closes the outages that did not end, and gives what was seen to the cell, in times from origin.
func (w *watch) finish(c *result.Cell, origin time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, out := range w.away {
		w.end(out, seconds(time.Since(w.start)))
	}
	shift := seconds(w.start.Sub(origin))
	for i := range w.outages {
		w.outages[i].At += shift
	}
	for i := range w.samples {
		w.samples[i].T += shift
	}
	slices.SortFunc(w.outages, func(a, b result.Outage) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Process, b.Process))
	})
	c.Outages, c.Samples, c.Restarts = w.outages, w.samples, maps.Clone(w.restarts)
	c.Reasons = map[string][]string{}
	for name, all := range w.reasons {
		c.Reasons[name] = slices.Sorted(maps.Keys(all))
	}
}

// shows reports whether a pod of the process gave the reason since the watch began.
func (w *watch) shows(process, reason string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reasons[process][reason]
}

func (w *watch) restarted(process string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restarts[process]
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
