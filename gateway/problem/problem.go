// Package problem writes errors as RFC 9457 problem details (application/problem+json) with a stable "code". It decides
// the HTTP status of each gRPC error and refuses to let a server-side error's text out: what a 5xx says is written here.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// StatusClientClosedRequest is the unofficial status for a client that went away; only logs and metrics see it.
const StatusClientClosedRequest = 499

// Codes that have no ErrorInfo reason because no service gives them.
const (
	CodeMethodNotAllowed = "method_not_allowed"
	CodeCrossOrigin      = "cross_origin"
	CodeCancelled        = "cancelled"
)

// typePrefix makes a code into a problem type. It is a name, not an address: there is nothing to fetch.
const typePrefix = "urn:watertight:problem:"

// Problem is one problem details object; also an error, so that a handler can return it.
type Problem struct { //nolint:errname // it is a thing of its own, which is sometimes an error
	Type      string            `json:"type"`
	Title     string            `json:"title"`
	Status    int               `json:"status"`
	Detail    string            `json:"detail,omitempty"`
	Instance  string            `json:"instance,omitempty"` // path of the request
	Code      string            `json:"code"`
	Errors    []Field           `json:"errors,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"` // what a client may act on: "total", "product_id"
	RequestID string            `json:"request_id,omitempty"`
	TraceID   string            `json:"trace_id,omitempty"`

	// RetryAfter goes into the Retry-After header, rounded up to whole seconds and to at least one; 0 means none.
	RetryAfter time.Duration `json:"-"`
}

// Error is for logs.
func (p Problem) Error() string { return p.Code + ": " + p.Detail }

// Field is one part of the request that is wrong: a path into the body such as lines[0].quantity, a query parameter or a header.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// New returns a problem with the given HTTP status, code and detail. The detail is shown to the client. Every 503 and 429
// carries a Retry-After; set another one when more is known.
func New(httpStatus int, code, detail string) Problem {
	p := Problem{Type: typePrefix + code, Title: title(httpStatus), Status: httpStatus, Detail: detail, Code: code}
	if httpStatus == http.StatusServiceUnavailable || httpStatus == http.StatusTooManyRequests {
		p.RetryAfter = time.Second
	}
	return p
}

// Invalid returns the 400 for one wrong field.
func Invalid(field, detail string) Problem {
	p := New(http.StatusBadRequest, code(rpcerr.InvalidArgument), field+": "+detail)
	p.Errors = []Field{{Field: field, Detail: detail}}
	return p
}

// kind is what a reason or a gRPC code means over HTTP. The text is what a client reads when the error's own may not be shown.
type kind struct {
	status int
	text   string
}

const (
	textInternal    = "something went wrong on our side"
	textLate        = "the answer did not come in time"
	textUnavailable = "this part of the shop cannot be reached at the moment"
	textInvalid     = "the request is not valid"
	textRate        = "too many requests from this client"
)

// ofReason is the table of ErrorInfo reasons. They go before gRPC codes, because several of them share one.
func ofReason(reason string) (k kind, known bool) {
	known = true
	switch reason {
	case rpcerr.InvalidArgument:
		k = kind{http.StatusBadRequest, textInvalid}
	case rpcerr.NotFound:
		k = kind{http.StatusNotFound, "not found"}
	case rpcerr.PriceChanged:
		k = kind{http.StatusConflict, "the total is not what was expected"}
	case rpcerr.IdempotencyKeyMissing:
		k = kind{http.StatusBadRequest, "the Idempotency-Key header is missing"}
	case rpcerr.IdempotencyKeyReused:
		k = kind{http.StatusUnprocessableEntity, "the idempotency key was used for another order"}
	case rpcerr.BulkheadFull:
		k = kind{http.StatusServiceUnavailable, "too many requests of this kind are under way; try again shortly"}
	case rpcerr.BreakerOpen:
		k = kind{http.StatusServiceUnavailable, "this part of the shop is not well and is given time to recover"}
	case rpcerr.Timeout:
		k = kind{http.StatusGatewayTimeout, textLate}
	case rpcerr.Unavailable:
		k = kind{http.StatusServiceUnavailable, textUnavailable}
	case rpcerr.RateLimited:
		k = kind{http.StatusTooManyRequests, textRate}
	case rpcerr.Draining:
		k = kind{http.StatusServiceUnavailable, "this server is shutting down; another one will answer"}
	case rpcerr.BodyTooLarge:
		k = kind{http.StatusRequestEntityTooLarge, "the request is too large"}
	case rpcerr.Internal:
		k = kind{http.StatusInternalServerError, textInternal}
	default:
		known = false
	}
	return k, known
}

// ofCode is the table of gRPC codes, for errors without a known reason, with the problem code that stands for each.
func ofCode(c codes.Code) (k kind, problemCode string) {
	switch c {
	case codes.Canceled:
		return kind{StatusClientClosedRequest, "the client went away"}, CodeCancelled
	case codes.InvalidArgument:
		return kind{http.StatusBadRequest, textInvalid}, code(rpcerr.InvalidArgument)
	case codes.DeadlineExceeded:
		return kind{http.StatusGatewayTimeout, textLate}, code(rpcerr.Timeout)
	case codes.NotFound:
		return kind{http.StatusNotFound, "not found"}, code(rpcerr.NotFound)
	case codes.AlreadyExists:
		return kind{http.StatusConflict, "it exists already"}, "already_exists"
	case codes.PermissionDenied:
		return kind{http.StatusForbidden, "not allowed"}, "permission_denied"
	case codes.Unauthenticated:
		return kind{http.StatusUnauthorized, "not signed in"}, "unauthenticated"
	case codes.ResourceExhausted:
		return kind{http.StatusTooManyRequests, textRate}, code(rpcerr.RateLimited)
	case codes.FailedPrecondition:
		return kind{http.StatusBadRequest, "not possible as things stand"}, "failed_precondition"
	case codes.Aborted:
		return kind{http.StatusConflict, "another change came first; try again"}, "aborted"
	case codes.OutOfRange:
		return kind{http.StatusBadRequest, "out of range"}, "out_of_range"
	case codes.Unimplemented:
		return kind{http.StatusNotImplemented, "not available here"}, "unimplemented"
	case codes.Unavailable:
		return kind{http.StatusServiceUnavailable, textUnavailable}, code(rpcerr.Unavailable)
	default: // UNKNOWN, INTERNAL, DATA_LOSS, and an error that is called OK
		return kind{http.StatusInternalServerError, textInternal}, code(rpcerr.Internal)
	}
}

// FromError returns the problem for an error: a Problem as it is, a gRPC status by its table, the end of a context as 504
// or 499, any other error as a 500. An ErrorInfo's reason decides first, then the gRPC code. The error's message, fields
// and metadata are shown only below 500 and only when it carries a reason of ours: gRPC's own messages speak of internals.
func FromError(err error) Problem {
	if made, ok := errors.AsType[Problem](err); ok {
		return made
	}
	reason := rpcerr.Reason(err)
	k, problemCode := ofCode(codeOf(err))
	if reason != "" {
		problemCode = code(reason)
	}
	if own, known := ofReason(reason); known {
		k = own
	}
	p := New(k.status, problemCode, k.text)
	if p.RetryAfter > 0 {
		if wait, told := rpcerr.Delay(err); told {
			p.RetryAfter = wait
		}
	}
	if reason == "" || p.Status >= http.StatusInternalServerError {
		return p
	}
	// Not status.Convert: for a wrapped error that puts the wrapping into the message.
	var own interface{ GRPCStatus() *status.Status }
	if errors.As(err, &own) && own.GRPCStatus().Message() != "" {
		p.Detail = own.GRPCStatus().Message()
	}
	for _, f := range rpcerr.Fields(err) {
		p.Errors = append(p.Errors, Field{Field: f.GetField(), Detail: f.GetDescription()})
	}
	p.Metadata = maps.Clone(rpcerr.Info(err).GetMetadata())
	return p
}

// codeOf is status.Code, but sees a context's end in an error that never crossed gRPC.
func codeOf(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.Unknown
}

// MethodNotAllowed writes nothing yet: it returns the 405 and sets Allow, as that status demands.
func MethodNotAllowed(w http.ResponseWriter, allowed []string) Problem {
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return New(http.StatusMethodNotAllowed, CodeMethodNotAllowed, "this address does not know the method")
}

// Write sends the problem. Headers that the response had for a body of another kind are replaced.
func (p Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic("problem: " + err.Error()) // strings, integers and nothing else
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	if p.RetryAfter > 0 {
		seconds := int64((p.RetryAfter + time.Second - 1) / time.Second)
		h.Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
	}
	w.WriteHeader(p.Status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone; there is nobody to tell
}

func title(httpStatus int) string {
	if httpStatus == StatusClientClosedRequest {
		return "Client Closed Request"
	}
	return http.StatusText(httpStatus)
}

func code(reason string) string { return strings.ToLower(reason) }
