package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/route"
)

// TimeoutHeader is where a client may say how long it will wait, in the gRPC wire format: up to eight digits and a unit of H, M,
// S, m (milliseconds), u or n, such as 400m. It shortens a route's budget and never lengthens it.
const TimeoutHeader = "Grpc-Timeout"

// endpoint is a handler whose error is answered as a problem. It returns an error only before it has written anything.
type endpoint func(w http.ResponseWriter, r *http.Request) error

func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := e(w, r); err != nil {
		exchange.Fail(w, r, err)
	}
}

// newRouter matches paths with a ServeMux and methods itself, so that 404 and 405 are problems too. It must stand behind
// canonicalPath: a ServeMux answers other paths with a redirect.
func newRouter(routes []route.Route, sending time.Duration, guard func(string, http.Handler) http.Handler) http.Handler {
	paths := map[string]methods{"/api": nil, "/api/": nil, "/": nil} // without /api the mux would redirect it to /api/
	for _, r := range routes {
		byMethod := paths[r.Path]
		if byMethod == nil {
			byMethod = methods{}
			paths[r.Path] = byMethod
		}
		h := r.Handler
		if guard != nil && r.Feature != "" {
			h = guard(r.Feature, h)
		}
		byMethod[r.Method] = named(r.Path, withinBudget(r.Budget, sending, h))
	}
	mux := http.NewServeMux()
	for path, byMethod := range paths {
		mux.Handle(path, byMethod.on(path))
	}
	return mux
}

// methods are the handlers of one path.
type methods map[string]http.Handler

func (m methods) on(path string) http.Handler {
	allowed := make([]string, 0, len(m)+1)
	for method := range m {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		h, ok := m[method]
		switch {
		case ok:
			h.ServeHTTP(w, r)
		case len(m) == 0 || path == "/": // nothing is there, so no method would help
			exchange.Fail(w, r, notFound())
		default:
			exchange.Fail(w, r, problem.MethodNotAllowed(w, allowed))
		}
	})
}

func notFound() problem.Problem {
	return problem.New(http.StatusNotFound, "not_found", "there is nothing at this address")
}

// named gives the request's span, metrics and log line the name of its route, never the address itself.
func named(path string, next http.Handler) http.Handler {
	path = strings.TrimSuffix(path, "{$}") // Go's word for the end of a path
	attribute := semconv.HTTPRoute(path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchange.From(r.Context()).Route = path
		if labels, ok := otelhttp.LabelerFromContext(r.Context()); ok {
			labels.Add(attribute)
		}
		if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
			span.SetName(r.Method + " " + path)
			span.SetAttributes(attribute)
		}
		next.ServeHTTP(w, r)
	})
}

// withinBudget ends the request's context at its arrival plus the budget, or earlier when the client says so; sending has the
// time after that.
func withinBudget(budget, sending time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := budget
		if header := r.Header.Get(TimeoutHeader); header != "" {
			asked, ok := parseTimeout(header)
			if !ok {
				exchange.Fail(w, r, problem.Invalid(TimeoutHeader, "must be up to eight digits and a unit, such as 400m for 400 milliseconds"))
				return
			}
			if limit == 0 || asked < limit {
				limit = max(asked, 1) // 0 is no time at all, not no limit
			}
		}
		if limit == 0 {
			next.ServeHTTP(w, r)
			return
		}
		deadline := exchange.From(r.Context()).Arrival.Add(limit)
		ctx, cancel := context.WithDeadline(r.Context(), deadline)
		defer cancel()
		if err := http.NewResponseController(w).SetWriteDeadline(deadline.Add(sending)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			exchange.Fail(w, r, fmt.Errorf("set a write deadline: %w", err))
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

var timeoutFormat = regexp.MustCompile(`^[0-9]{1,8}[HMSmun]$`)

func parseTimeout(header string) (time.Duration, bool) {
	if !timeoutFormat.MatchString(header) {
		return 0, false
	}
	last := len(header) - 1
	n, err := strconv.ParseInt(header[:last], 10, 64)
	if err != nil {
		return 0, false
	}
	unit := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}[header[last]]
	if n > int64(24*time.Hour/unit) { // also keeps 99999999H from overflowing
		return 24 * time.Hour, true
	}
	return time.Duration(n) * unit, true
}

// canonicalPath refuses every path that is not written the one way. A ServeMux would redirect such a request, and clients
// turn a redirected POST into a GET.
func canonicalPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) || p[0] != '/' {
			exchange.Fail(w, r, notFound())
			return
		}
		next.ServeHTTP(w, r)
	})
}
