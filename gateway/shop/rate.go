package shop

import (
	"sync"
	"time"
)

// rateWindow is over how many full seconds the order rate is averaged.
const rateWindow = 10

// orderRate counts orders in one-second buckets: rateWindow full ones and the one being filled.
type orderRate struct {
	mu      sync.Mutex
	started time.Time
	counts  [rateWindow + 1]int64
	second  int64 // the second, since started, that is being filled
}

func newOrderRate(now time.Time) *orderRate { return &orderRate{started: now} }

func (r *orderRate) count(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	r.counts[r.second%int64(len(r.counts))]++
}

func (r *orderRate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(now)
	full := min(r.second, rateWindow) // a young process has fewer seconds to look back on
	if full == 0 {
		return 0
	}
	var sum int64
	for i := int64(1); i <= full; i++ {
		sum += r.counts[(r.second-i)%int64(len(r.counts))]
	}
	return float64(sum) / float64(full)
}

// advance empties the buckets of the seconds that have passed. The clock is monotonic, so time never runs backwards.
func (r *orderRate) advance(now time.Time) {
	second := int64(now.Sub(r.started) / time.Second)
	for steps := min(second-r.second, int64(len(r.counts))); steps > 0; steps-- {
		r.counts[(second-steps+1)%int64(len(r.counts))] = 0
	}
	r.second = max(r.second, second)
}
