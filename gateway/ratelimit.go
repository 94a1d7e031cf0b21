package gateway

import (
	"container/list"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
)

// maxClients bounds the memory of the limiter: about 15 MB of buckets.
const maxClients = 65536

// limitClients gives each client address perSecond requests a second, with a burst of one second's worth; 0 limits nobody.
func limitClients(perSecond float64, next http.Handler) http.Handler {
	if perSecond == 0 {
		return next
	}
	clients := newClientLimiter(perSecond, maxClients)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wait := clients.take(exchange.From(r.Context()).Client, time.Now()); wait > 0 {
			p := problem.New(http.StatusTooManyRequests, "rate_limited", "too many requests from this client")
			p.RetryAfter = wait
			exchange.Fail(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// clientLimiter holds a token bucket per client. When there are too many it forgets the one unused for longest: after one
// burst's time that bucket would be full again, and as good as a new one.
type clientLimiter struct {
	limit rate.Limit
	burst int
	most  int

	mu      sync.Mutex
	buckets map[netip.Prefix]*list.Element
	recent  *list.List // of *bucket, most recently used first
}

type bucket struct {
	client netip.Prefix
	tokens *rate.Limiter
}

func newClientLimiter(perSecond float64, most int) *clientLimiter {
	return &clientLimiter{
		limit: rate.Limit(perSecond), burst: max(1, int(perSecond)), most: most,
		buckets: map[netip.Prefix]*list.Element{}, recent: list.New(),
	}
}

// take takes a token of the client's bucket. When there is none it returns how long until there will be one.
func (l *clientLimiter) take(addr netip.Addr, now time.Time) time.Duration {
	reserved := l.bucket(network(addr)).ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > 0 {
		reserved.CancelAt(now) // a refused request costs nothing
	}
	return wait
}

func (l *clientLimiter) bucket(client netip.Prefix) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.buckets[client]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).tokens //nolint:errcheck,forcetypeassert // nothing else is in the list
	}
	if len(l.buckets) >= l.most {
		oldest := l.recent.Back()
		delete(l.buckets, l.recent.Remove(oldest).(*bucket).client) //nolint:errcheck,forcetypeassert // as above
	}
	b := &bucket{client: client, tokens: rate.NewLimiter(l.limit, l.burst)}
	l.buckets[client] = l.recent.PushFront(b)
	return b.tokens
}

// network is what counts as one client: an IPv4 address, or the /64 that an IPv6 client has to itself. Clients without an
// address share a bucket.
func network(addr netip.Addr) netip.Prefix {
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
