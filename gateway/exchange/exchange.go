// Package exchange is one request and its answer: who asks, under which id, since when, and what went wrong. Handlers
// find it in the request's context; the edge writes the log line from it at the end.
package exchange

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/problem"
)

// Headers of a request that the edge reads.
const (
	RequestIDHeader = "X-Request-ID"
	CustomerHeader  = "Watertight-Customer"
	// CustomerCookie is where the storefront keeps the customer's id.
	CustomerCookie = "customer"
)

// maxCustomer is the contract's limit for a customer id, in bytes.
const maxCustomer = 128

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Exchange belongs to the goroutine that serves the request.
type Exchange struct {
	RequestID string
	Client    netip.Addr // not valid when the connection has no IP address
	Arrival   time.Time
	Customer  string // empty when the request names none
	Route     string // path of the route that answers, empty when there is none
	Failure   error  // what the answer is a problem for, with all internals: for the log
}

// Shorten bounds how much of what a client made up is repeated to it or to a log.
func Shorten(text string) string {
	const most = 256
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

type contextKey struct{}

// New starts an exchange for r. A request id that is not 1 to 64 of [A-Za-z0-9._-] is replaced: it goes into logs and headers.
func New(r *http.Request, client netip.Addr) *Exchange {
	e := &Exchange{RequestID: r.Header.Get(RequestIDHeader), Client: client, Arrival: time.Now(), Customer: customer(r)}
	if !requestID.MatchString(e.RequestID) {
		e.RequestID = rand.Text()
	}
	return e
}

// customer reads who asks from the header, else from the storefront's cookie. It only tells customers apart and proves
// nothing, so an id that no customer can have counts as none.
func customer(r *http.Request) string {
	id := r.Header.Get(CustomerHeader)
	if id == "" {
		cookie, err := r.Cookie(CustomerCookie)
		if err != nil {
			return ""
		}
		id = cookie.Value
	}
	if len(id) > maxCustomer || !utf8.ValidString(id) {
		return ""
	}
	return id
}

// Context returns ctx with the exchange in it.
func (e *Exchange) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, e)
}

// From returns the exchange of ctx. A context that does not come from the edge has an empty one, so that a handler can be
// tested alone.
func From(ctx context.Context) *Exchange {
	if e, ok := ctx.Value(contextKey{}).(*Exchange); ok {
		return e
	}
	return &Exchange{}
}

// Fail answers the request with the problem that err stands for, and notes err for the log line. Nothing may have been
// written before.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	Judge(r, err).Write(w)
}

// Judge notes err for the log line and returns the problem that it stands for, complete but not written: a page that shows
// errors its own way takes status, code and detail from it.
func Judge(r *http.Request, err error) problem.Problem {
	var ours problem.Problem
	if errors.Is(r.Context().Err(), context.Canceled) && !errors.As(err, &ours) {
		err = status.Error(codes.Canceled, "the client went away") // whatever came of that is not a fault
	}
	e := From(r.Context())
	e.Failure = err
	p := problem.FromError(err)
	p.Instance, p.RequestID = Shorten(r.URL.EscapedPath()), e.RequestID
	if span := trace.SpanContextFromContext(r.Context()); span.HasTraceID() {
		p.TraceID = span.TraceID().String()
	}
	return p
}
