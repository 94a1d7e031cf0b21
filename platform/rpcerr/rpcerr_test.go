package rpcerr_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/platform/rpcerr"
)

func TestNew_CarriesReasonFieldsAndDelay(t *testing.T) {
	err := rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "the pool is full",
		rpcerr.Meta("pool", "recs"), rpcerr.Field("a", "too long"), rpcerr.Field("b", "missing"), rpcerr.RetryAfter(2*time.Second))

	if got := status.Code(err); got != codes.ResourceExhausted {
		t.Errorf("code = %v, want ResourceExhausted", got)
	}
	if got := rpcerr.Reason(err); got != rpcerr.BulkheadFull {
		t.Errorf("reason = %q, want %q", got, rpcerr.BulkheadFull)
	}
	if got := rpcerr.Info(err).GetMetadata()["pool"]; got != "recs" {
		t.Errorf("metadata pool = %q, want recs", got)
	}
	if got := rpcerr.Fields(err); len(got) != 2 || got[1].GetField() != "b" {
		t.Errorf("fields = %v, want a and b in one BadRequest", got)
	}
	if got, ok := rpcerr.Delay(err); !ok || got != 2*time.Second {
		t.Errorf("delay = %v %v, want 2s true", got, ok)
	}
}

func TestReason_OfErrorsMadeElsewhere(t *testing.T) {
	for _, err := range []error{nil, errors.New("plain"), status.Error(codes.NotFound, "bare status")} {
		if got := rpcerr.Reason(err); got != "" {
			t.Errorf("Reason(%v) = %q, want none", err, got)
		}
		if _, ok := rpcerr.Delay(err); ok {
			t.Errorf("Delay(%v) claims a delay", err)
		}
	}
	wrapped := fmt.Errorf("place order: %w", rpcerr.Invalid("lines", "at least one"))
	if got := rpcerr.Reason(wrapped); got != rpcerr.InvalidArgument {
		t.Errorf("Reason(wrapped) = %q, want %q", got, rpcerr.InvalidArgument)
	}
}
