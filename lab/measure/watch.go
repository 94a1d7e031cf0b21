//go:build unix

package measure

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"example.com/watertight/lab/result"
	"example.com/watertight/lab/runner"
	"example.com/watertight/lab/supervise"
)

const (
	sampleEvery = 200 * time.Millisecond
	// lookEvery paces the looks at which processes run, between the samples.
	lookEvery     = 50 * time.Millisecond
	scrapeTimeout = 150 * time.Millisecond
)

// watch is what a cell's shop looks like over time.
type watch struct {
	shop   *runner.Shop
	start  time.Time
	client *http.Client

	samples []result.Sample
	outages []result.Outage
	away    map[string]*result.Outage // by process, while it lasts
	exits   map[string]time.Time      // the last exit that is known
}

func newWatch(shop *runner.Shop) *watch {
	w := &watch{shop: shop, away: map[string]*result.Outage{}, exits: map[string]time.Time{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}}
	for _, s := range shop.Statuses() {
		if s.LastExit != nil {
			w.exits[s.Name] = s.LastExit.At
		}
	}
	return w
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var sampled time.Time
	for {
		w.look(time.Now())
		if time.Since(sampled) >= sampleEvery {
			sampled = time.Now()
			w.sample(ctx)
		}
		select {
		case <-ctx.Done():
			w.finish(time.Now())
			return
		case <-ticker.C:
		}
	}
}

// look notes who went away and who came back.
func (w *watch) look(now time.Time) {
	for _, s := range w.shop.Statuses() {
		w.note(s, now)
	}
}

func (w *watch) note(s supervise.Status, now time.Time) {
	if exit := s.LastExit; exit != nil && exit.At.After(w.exits[s.Name]) {
		w.exits[s.Name] = exit.At
		if w.away[s.Name] == nil {
			w.away[s.Name] = &result.Outage{Process: s.Name, At: seconds(exit.At.Sub(w.start)), Reason: string(exit.Reason)}
		}
	}
	if out := w.away[s.Name]; out != nil && s.Ready {
		out.Length = seconds(now.Sub(w.start)) - out.At
		w.outages = append(w.outages, *out)
		delete(w.away, s.Name)
	}
}

// finish closes the outages that did not end.
func (w *watch) finish(now time.Time) {
	for _, out := range w.away {
		out.Length = seconds(now.Sub(w.start)) - out.At
		w.outages = append(w.outages, *out)
	}
	slices.SortFunc(w.outages, func(a, b result.Outage) int {
		if a.At != b.At {
			return int(1000 * (a.At - b.At))
		}
		return strings.Compare(a.Process, b.Process)
	})
}

// sample reads every process's metrics at once; one that does not answer is away.
func (w *watch) sample(ctx context.Context) {
	s := result.Sample{T: seconds(time.Since(w.start)), Queued: map[string]int{}, Breakers: map[string]string{}}
	var all sync.WaitGroup
	var mu sync.Mutex
	for name, admin := range w.shop.Admin() {
		all.Go(func() {
			found, err := w.scrape(ctx, admin)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Away = append(s.Away, name)
				return
			}
			for pool, n := range found.queued {
				if n > 0 {
					s.Queued[name+"/"+pool] = n
				}
			}
			for upstream, state := range found.breakers {
				if state != closed {
					s.Breakers[name+"/"+upstream] = state
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return // what did not answer was cut off
	}
	slices.Sort(s.Away)
	w.samples = append(w.samples, s)
}

// metrics is what a sample needs of a process's.
type metrics struct {
	queued   map[string]int
	breakers map[string]string
}

const closed = "closed"

// breakerState reads watertight_upstream_breaker_state.
func breakerState(value int) string {
	return map[int]string{0: closed, 1: "half-open", 2: "open"}[value]
}

func (w *watch) scrape(ctx context.Context, admin string) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/metrics", nil)
	if err != nil {
		return metrics{}, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return metrics{}, err
	}
	defer response.Body.Close()
	return readMetrics(response.Body)
}

// readMetrics reads Prometheus's text form, as far as it is needed here: gauges of whole numbers with one label.
func readMetrics(page io.Reader) (metrics, error) {
	m := metrics{queued: map[string]int{}, breakers: map[string]string{}}
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		if pool, n, ok := gauge(lines.Text(), `watertight_bulkhead_queued{pool="`); ok {
			m.queued[pool] = n
		}
		if upstream, n, ok := gauge(lines.Text(), `watertight_upstream_breaker_state{upstream="`); ok {
			m.breakers[upstream] = breakerState(n)
		}
	}
	return m, lines.Err()
}

func gauge(line, prefix string) (label string, value int, ok bool) {
	rest, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return "", 0, false
	}
	label, rest, ok = strings.Cut(rest, `"} `)
	if !ok {
		return "", 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
	return label, int(v), err == nil
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
