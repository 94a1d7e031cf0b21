// Package rpcerr makes and reads the errors that cross a service boundary: a gRPC status that carries exactly one
// google.rpc.ErrorInfo with a stable reason (AIP-193), plus the detail messages that the reason calls for. It knows the
// vocabulary of reasons and nothing of any service.
package rpcerr

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every error made here.
const Domain = "watertight"

// The stable reasons. The gateway shows them in lower case as the problem's "code".
const (
	InvalidArgument       = "INVALID_ARGUMENT"
	NotFound              = "NOT_FOUND"
	PriceChanged          = "PRICE_CHANGED"
	IdempotencyKeyMissing = "IDEMPOTENCY_KEY_MISSING"
	IdempotencyKeyReused  = "IDEMPOTENCY_KEY_REUSED"
	BulkheadFull          = "BULKHEAD_FULL"
	BreakerOpen           = "BREAKER_OPEN"
	Timeout               = "TIMEOUT"
	Unavailable           = "UNAVAILABLE"
	RateLimited           = "RATE_LIMITED"
	Draining              = "DRAINING"
	ShardDown             = "SHARD_DOWN" // the few replicas that serve one customer; others may be well. Never leaves the process
	BodyTooLarge          = "BODY_TOO_LARGE"
	PermissionDenied      = "PERMISSION_DENIED" // between services, with mutual TLS; people never see it
	Internal              = "INTERNAL"
)

// An Option adds a detail to an error.
type Option func(*builder)

type builder struct {
	info    *errdetails.ErrorInfo
	details []protoadapt.MessageV1
}

// Meta adds a key and value to the ErrorInfo, for clients that act on more than the reason (a new price, a product's id).
func Meta(key, value string) Option {
	return func(b *builder) {
		if b.info.Metadata == nil {
			b.info.Metadata = map[string]string{}
		}
		b.info.Metadata[key] = value
	}
}

// Field adds one violated field (its path in the request message) as a BadRequest detail; it may be given repeatedly.
func Field(path, description string) Option {
	return func(b *builder) {
		violation := &errdetails.BadRequest_FieldViolation{Field: path, Description: description}
		for _, d := range b.details {
			if bad, ok := d.(*errdetails.BadRequest); ok {
				bad.FieldViolations = append(bad.FieldViolations, violation)
				return
			}
		}
		b.details = append(b.details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}})
	}
}

// RetryAfter adds a RetryInfo detail: the caller should not try again sooner than after d.
func RetryAfter(d time.Duration) Option {
	return func(b *builder) {
		b.details = append(b.details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
	}
}

// New returns a gRPC status error with the code, the message (shown to clients: no internals in it) and one ErrorInfo.
func New(code codes.Code, reason, message string, opts ...Option) error {
	b := &builder{info: &errdetails.ErrorInfo{Reason: reason, Domain: Domain}}
	for _, opt := range opts {
		opt(b)
	}
	st := status.New(code, message)
	detailed, err := st.WithDetails(append([]protoadapt.MessageV1{b.info}, b.details...)...)
	if err != nil {
		// Only possible for code OK or a message that cannot be marshalled, both mistakes of the calling code.
		panic(fmt.Sprintf("rpcerr: %s/%s: %v", code, reason, err))
	}
	return detailed.Err()
}

// Invalid is New with INVALID_ARGUMENT for one field of the request.
func Invalid(path, description string) error {
	return New(codes.InvalidArgument, InvalidArgument, path+": "+description, Field(path, description))
}

// Info returns the error's ErrorInfo, or nil when it has none of this domain.
func Info(err error) *errdetails.ErrorInfo {
	return find(err, func(i *errdetails.ErrorInfo) bool { return i.GetDomain() == Domain })
}

// Reason returns the error's stable reason, or "" when it carries none.
func Reason(err error) string { return Info(err).GetReason() }

// Fields returns the error's violated fields, in the order they were found.
func Fields(err error) []*errdetails.BadRequest_FieldViolation {
	return find(err, func(*errdetails.BadRequest) bool { return true }).GetFieldViolations()
}

// Delay returns how long the server asks the caller to wait before a new try, and whether it said so.
func Delay(err error) (time.Duration, bool) {
	info := find(err, func(*errdetails.RetryInfo) bool { return true })
	return info.GetRetryDelay().AsDuration(), info != nil
}

// find returns the first detail of type T that passes keep; typed nil when there is none.
func find[T any](err error, keep func(T) bool) T {
	var none T
	st, ok := status.FromError(err)
	if !ok {
		return none
	}
	for _, d := range st.Details() {
		if t, ok := d.(T); ok && keep(t) {
			return t
		}
	}
	return none
}
