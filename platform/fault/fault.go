// Package fault makes a service sick on purpose: the fault that is wanted lies in a key-value bucket, each process watches
// it and applies it to its own unary calls. It leaves health, reflection, streams and the admin listener alone, knows no
// service and no message by name, and does nothing at all unless it is switched on.
package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Kind is what goes wrong.
type Kind string

// The kinds. DelayMS is how long a request waits before the fault bites, unless a kind says otherwise.
const (
	Slow         Kind = "slow"           // the request waits for DelayMS, and goes on
	Error        Kind = "error"          // it is answered with Code
	Hang         Kind = "hang"           // it waits until the fault ends, whatever becomes of its caller
	Crash        Kind = "crash"          // the process exits in the middle of it
	CrashOnStart Kind = "crash-on-start" // the process ends before it serves; one that runs is left alone
	OOM          Kind = "oom"            // the process takes memory until it is killed, or has had enough
	CPU          Kind = "cpu"            // all cores are kept busy for DelayMS, while the request waits
	DBLock       Kind = "db-lock"        // the process holds locks and connections of its database until the fault ends
	Poison       Kind = "poison"         // as crash, for requests that match only
)

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{Slow, Error, Hang, Crash, CrashOnStart, OOM, CPU, DBLock, Poison}
}

// What a Request that does not say gets, and what it may say.
const (
	DefaultTTL   = 10 * time.Minute
	MaxTTL       = 24 * time.Hour
	MaxDelay     = 10 * time.Minute
	defaultCode  = "UNAVAILABLE"
	maxMatches   = 8
	maxMatchSize = 256 // bytes of a field's name or value
)

// defaultDelay is how long the kinds take that are nothing but a delay.
func defaultDelay(kind Kind) time.Duration {
	switch kind {
	case Slow:
		return 2 * time.Second
	case CPU:
		return time.Second
	}
	return 0
}

// Fault is a fault as the bucket keeps it: complete, and with its end.
type Fault struct {
	Kind Kind `json:"kind"`
	// Rate is the share of the requests that it bites, 0 to 1: each process throws its own dice for each request.
	Rate    float64 `json:"rate"`
	DelayMS int64   `json:"delay_ms"`
	Code    string  `json:"code,omitempty"` // gRPC code, for error only
	TTLS    int64   `json:"ttl_s"`
	// ExpiresAt is when the fault ends by itself, by the clock of each process.
	ExpiresAt time.Time `json:"expires_at"`
	// Match restricts the fault to requests in which each of these fields, by its name in the contract and at any depth, has
	// the value; of a repeated field one element is enough.
	Match map[string]string `json:"match,omitempty"`
}

// Request is the fault that somebody asks for. What is nil or empty gets its default.
type Request struct {
	Kind    Kind              `json:"kind"`
	Rate    *float64          `json:"rate,omitempty"`
	DelayMS *int64            `json:"delay_ms,omitempty"`
	Code    string            `json:"code,omitempty"`
	TTLS    *int64            `json:"ttl_s,omitempty"`
	Match   map[string]string `json:"match,omitempty"`
}

// FieldError says which field of a Request is wrong.
type FieldError struct{ Field, Detail string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }

// Fault completes the request to a fault that begins now. The error is a *FieldError.
func (r Request) Fault(now time.Time) (Fault, error) {
	f := Fault{
		Kind: r.Kind, Rate: 1, DelayMS: defaultDelay(r.Kind).Milliseconds(), Code: r.Code,
		TTLS: int64(DefaultTTL / time.Second), Match: maps.Clone(r.Match),
	}
	if r.Rate != nil {
		f.Rate = *r.Rate
	}
	if r.DelayMS != nil {
		f.DelayMS = *r.DelayMS
	}
	if r.TTLS != nil {
		f.TTLS = *r.TTLS
	}
	if f.Kind == Error && f.Code == "" {
		f.Code = defaultCode
	}
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	f.ExpiresAt = now.Add(time.Duration(f.TTLS) * time.Second).UTC().Truncate(time.Millisecond)
	return f, nil
}

// validate returns a *FieldError for the first field that cannot be.
func (f Fault) validate() error {
	switch {
	case !slices.Contains(Kinds(), f.Kind):
		return &FieldError{"kind", "must be one of " + kindNames()}
	case !(f.Rate >= 0 && f.Rate <= 1):
		return &FieldError{"rate", "must be between 0 and 1"}
	case f.DelayMS < 0 || f.DelayMS > MaxDelay.Milliseconds():
		return &FieldError{"delay_ms", fmt.Sprintf("must be between 0 and %d", MaxDelay.Milliseconds())}
	case f.TTLS < 1 || f.TTLS > int64(MaxTTL/time.Second):
		return &FieldError{"ttl_s", fmt.Sprintf("must be between 1 and %d", int64(MaxTTL/time.Second))}
	case f.Code != "" && f.Kind != Error:
		return &FieldError{"code", "is for the kind error only"}
	case f.Kind == Poison && len(f.Match) == 0:
		return &FieldError{"match", "must name a field and its value, such as {\"product_id\":\"85123A\"}: poison is for some requests only"}
	case len(f.Match) > maxMatches:
		return &FieldError{"match", fmt.Sprintf("must have at most %d fields", maxMatches)}
	}
	if f.Kind == Error {
		if _, ok := parseCode(f.Code); !ok {
			return &FieldError{"code", "must be a gRPC status code other than OK, such as UNAVAILABLE"}
		}
	}
	for name, value := range f.Match {
		if name == "" || len(name) > maxMatchSize || len(value) > maxMatchSize {
			return &FieldError{"match", fmt.Sprintf("names and values must be at most %d bytes, and names not empty", maxMatchSize)}
		}
	}
	return nil
}

func kindNames() string {
	names := make([]string, 0, len(Kinds()))
	for _, kind := range Kinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// delay is how long the request waits.
func (f Fault) delay() time.Duration { return time.Duration(f.DelayMS) * time.Millisecond }

// equal says whether two entries are the same fault, so that reading one again changes nothing.
func (f Fault) equal(other Fault) bool {
	return f.Kind == other.Kind && f.Rate == other.Rate && f.DelayMS == other.DelayMS && f.Code == other.Code && f.TTLS == other.TTLS &&
		f.ExpiresAt.Equal(other.ExpiresAt) && maps.Equal(f.Match, other.Match)
}

// parseCode reads a gRPC code's name in capitals, as in the protocol's documents. OK is no fault.
func parseCode(name string) (codes.Code, bool) {
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + name + `"`)); err != nil || code == codes.OK {
		return 0, false
	}
	return code, true
}
