package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

// Field report 15.
func TestFromError_EachGRPCCodeHasItsStatus(t *testing.T) {
	want := map[codes.Code]struct {
		status int
		code   string
	}{
		codes.Canceled: {499, "cancelled"}, codes.Unknown: {500, "internal"}, codes.InvalidArgument: {400, "invalid_argument"},
		codes.DeadlineExceeded: {504, "timeout"}, codes.NotFound: {404, "not_found"}, codes.AlreadyExists: {409, "already_exists"},
		codes.PermissionDenied: {403, "permission_denied"}, codes.ResourceExhausted: {429, "rate_limited"},
		codes.FailedPrecondition: {400, "failed_precondition"}, codes.Aborted: {409, "aborted"}, codes.OutOfRange: {400, "out_of_range"},
		codes.Unimplemented: {501, "unimplemented"}, codes.Internal: {500, "internal"}, codes.Unavailable: {503, "unavailable"},
		codes.DataLoss: {500, "internal"}, codes.Unauthenticated: {401, "unauthenticated"},
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		got := FromError(status.Error(c, "dial tcp 10.0.0.1:5432: rpc error SQLSTATE"))
		if got.Status != want[c].status || got.Code != want[c].code {
			t.Errorf("%v: got %d %s, want %d %s", c, got.Status, got.Code, want[c].status, want[c].code)
		}
		if strings.Contains(got.Detail, "dial") || got.Detail == "" || got.Title == "" {
			t.Errorf("%v: title %q, detail %q: must be there and be our own words", c, got.Title, got.Detail)
		}
	}
}

func TestFromError_TheReasonGoesBeforeTheCode(t *testing.T) {
	for reason, want := range map[string]int{
		rpcerr.InvalidArgument: 400, rpcerr.NotFound: 404, rpcerr.PriceChanged: 409, rpcerr.IdempotencyKeyMissing: 400,
		rpcerr.IdempotencyKeyReused: 422, rpcerr.BulkheadFull: 503, rpcerr.BreakerOpen: 503, rpcerr.Timeout: 504,
		rpcerr.Unavailable: 503, rpcerr.RateLimited: 429, rpcerr.Draining: 503, rpcerr.BodyTooLarge: 413, rpcerr.Internal: 500,
	} {
		got := FromError(fmt.Errorf("wrapped: %w", rpcerr.New(codes.Aborted, reason, "said the service")))
		if got.Status != want || got.Code != strings.ToLower(reason) {
			t.Errorf("%s: got %d %s, want %d", reason, got.Status, got.Code, want)
		}
		if shown := got.Detail == "said the service"; shown != (want < 500) {
			t.Errorf("%s: the service's message is shown: %v", reason, shown)
		}
	}
}

func TestFromError_AReasonWeDoNotKnowKeepsItsNameAndTheCodesStatus(t *testing.T) {
	got := FromError(rpcerr.New(codes.FailedPrecondition, "OUT_OF_TEA", "no tea"))
	if got.Status != 400 || got.Code != "out_of_tea" || got.Detail != "no tea" {
		t.Errorf("got %d %s %q", got.Status, got.Code, got.Detail)
	}
}

func TestFromError_PlainErrorsShowNothing(t *testing.T) {
	for err, want := range map[error]int{
		errors.New(`relation "orders" does not exist (SQLSTATE 42P01)`): 500,
		fmt.Errorf("query orders: %w", context.DeadlineExceeded):        504,
		fmt.Errorf("query orders: %w", context.Canceled):                499,
	} {
		got := FromError(err)
		if got.Status != want || strings.Contains(got.Detail, "SQLSTATE") || strings.Contains(got.Detail, "orders") {
			t.Errorf("%v: got %d %q, want %d in our own words", err, got.Status, got.Detail, want)
		}
	}
}

// Field report 10.
func TestWrite_ShedAnswersSayWhenToComeBackInWholeSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]string{0: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2",
		5 * time.Second: "5"} {
		for _, reason := range []string{rpcerr.BulkheadFull, rpcerr.BreakerOpen, rpcerr.Draining, rpcerr.RateLimited, rpcerr.Unavailable} {
			w := httptest.NewRecorder()
			FromError(rpcerr.New(codes.Unavailable, reason, "x", rpcerr.RetryAfter(wait))).Write(w)
			if got := w.Header().Get("Retry-After"); wait > 0 && got != want {
				t.Errorf("%s, %v: Retry-After %q, want %q", reason, wait, got, want)
			}
			w = httptest.NewRecorder()
			FromError(rpcerr.New(codes.Unavailable, reason, "x")).Write(w)
			if n, err := strconv.Atoi(w.Header().Get("Retry-After")); err != nil || n < 1 {
				t.Errorf("%s without RetryInfo: Retry-After %q, want a whole number ≥ 1", reason, w.Header().Get("Retry-After"))
			}
		}
	}
}

func TestWrite_GoldenBodies(t *testing.T) {
	for name, p := range map[string]Problem{
		"invalid_field": FromError(rpcerr.New(codes.InvalidArgument, rpcerr.InvalidArgument, "lines[0].quantity: must be >= 1",
			rpcerr.Field("lines[0].quantity", "must be >= 1"), rpcerr.Field("currency", "must match ^[A-Z]{3}$"))),
		"price_changed":  FromError(rpcerr.New(codes.FailedPrecondition, rpcerr.PriceChanged, "the total has changed", rpcerr.Meta("total", "510"))),
		"bulkhead_full":  FromError(rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "internal words")),
		"unavailable":    FromError(status.Error(codes.Unavailable, "connection error: dial tcp 10.0.0.1:50051")),
		"timeout":        FromError(status.Error(codes.DeadlineExceeded, "context deadline exceeded")),
		"internal":       FromError(errors.New("boom")),
		"body_too_large": New(http.StatusRequestEntityTooLarge, "body_too_large", "the body must not be longer than 1 MiB"),
		"not_found":      New(http.StatusNotFound, "not_found", "there is nothing at this address"),
	} {
		t.Run(name, func(t *testing.T) {
			p.Instance, p.RequestID, p.TraceID = "/api/v1/orders", "req-1", "0af7651916cd43dd8448eb211c80319c"
			w := httptest.NewRecorder()
			p.Write(w)
			if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type = %q", got)
			}
			var body any
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			pretty, err := json.MarshalIndent(body, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".json")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, append(pretty, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(pretty)+"\n"); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMethodNotAllowed_SaysWhatIs(t *testing.T) {
	w := httptest.NewRecorder()
	MethodNotAllowed(w, []string{"POST", "GET", "HEAD"}).Write(w)
	if got := w.Header().Get("Allow"); got != "GET, HEAD, POST" || w.Code != 405 {
		t.Errorf("got %d with Allow %q", w.Code, got)
	}
}
