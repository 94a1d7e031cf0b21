package exchange

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/problem"
)

func TestNew_ReadsTheCustomerFromHeaderThenCookie(t *testing.T) {
	for name, tc := range map[string]struct{ header, cookie, want string }{
		"header":            {"c-1", "", "c-1"},
		"cookie":            {"", "customer=c-2", "c-2"},
		"header goes first": {"c-1", "customer=c-2", "c-1"},
		"neither":           {"", "other=c-2", ""},
		"too long":          {strings.Repeat("c", 129), "", ""},
		"not UTF-8":         {"c\xff", "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if tc.header != "" {
			r.Header.Set(CustomerHeader, tc.header)
		}
		if tc.cookie != "" {
			r.Header.Set("Cookie", tc.cookie)
		}
		if got := New(r, netip.Addr{}).Customer; got != tc.want {
			t.Errorf("%s: customer %q, want %q", name, got, tc.want)
		}
	}
}

func TestJudge_AClientThatLeftIsNotAFault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/products", nil)
	if got := Judge(r, status.Error(codes.Internal, "stream reset")).Status; got != problem.StatusClientClosedRequest {
		t.Errorf("status %d, want 499", got)
	}
	if got := Judge(r, problem.Invalid("q", "wrong")).Status; got != 400 {
		t.Errorf("what we found wrong ourselves: status %d, want 400", got)
	}
}

func TestFail_NotesTheCauseAndTellsTheClientItsIDs(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/products?q=1", nil)
	r.Header.Set(RequestIDHeader, "r-1")
	e := New(r, netip.Addr{})
	r = r.WithContext(e.Context(r.Context()))
	w := httptest.NewRecorder()
	cause := errors.New("boom")
	Fail(w, r, cause)
	if !errors.Is(e.Failure, cause) {
		t.Errorf("noted %v", e.Failure)
	}
	if body := w.Body.String(); w.Code != 500 || !strings.Contains(body, `"request_id":"r-1"`) ||
		!strings.Contains(body, `"instance":"/api/v1/products"`) || strings.Contains(body, "boom") {
		t.Errorf("got %d %s", w.Code, body)
	}
}
