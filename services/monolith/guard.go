package monolith

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/strictjson"
)

// guard is gateway.Deps.Guard: it puts each route into the pool of its feature. A route whose feature runs elsewhere takes
// no slot here, its upstream has limits of its own.
func (p *pools) guard(feature string, next http.Handler) http.Handler {
	c := p.of[feature]
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = prefetch(r)
		h, err := c.enter(r.Context())
		defer func() { c.outcomes.count(exchange.From(r.Context()).Failure) }()
		if err != nil {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				exchange.Fail(w, r, err)
				return
			}
			// A page has its own words for it: it runs, and whatever it calls is refused.
			next.ServeHTTP(w, r.WithContext((&hold{refusal: err}).context(r.Context())))
			return
		}
		defer h.leave()
		next.ServeHTTP(w, r.WithContext(h.context(r.Context())))
	})
}

// prefetch reads the body before a slot is taken, because a worker must not wait for a slow client. What went wrong on the
// way, the handler finds at the same place. A body that is announced as too large is left unread, as the handler does.
func prefetch(r *http.Request) io.ReadCloser {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > strictjson.MaxBytes {
		return r.Body
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, strictjson.MaxBytes+1))
	var rest io.Reader = r.Body
	if err != nil {
		rest = failing{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), rest), r.Body}
}

// failing is a reader that has only its error left.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
