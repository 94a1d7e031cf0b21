//go:build unix

package shop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Answer is an HTTP answer, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Took   time.Duration
}

// Problem is an RFC 9457 problem, as far as tests look into it.
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Field string `json:"field"`
	} `json:"errors"`
	Metadata map[string]string `json:"metadata"`
	TraceID  string            `json:"trace_id"`
}

// client opens a connection for each request: on a connection that is used again, Go may send a request twice by itself,
// also a POST that carries an idempotency key. It follows no redirect.
func client(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Try sends a request to the gateway. path may also be a whole URL; headers are pairs of name and value.
func (s *Shop) Try(tb testing.TB, method, path, body string, headers ...string) (Answer, error) {
	tb.Helper()
	if strings.HasPrefix(path, "/") {
		path = s.URL + path
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(tb.Context()), method, path, strings.NewReader(body)) // a cleanup sends requests, too
	if err != nil {
		tb.Errorf("%s %s: %v", method, path, err)
		return Answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if http.CanonicalHeaderKey(headers[i]) == "Host" {
			r.Host = headers[i+1]
		}
	}
	start := time.Now()
	resp, err := client(30 * time.Second).Do(r)
	if err != nil {
		return Answer{}, err
	}
	content, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(content), time.Since(start)}, errors.Join(err, resp.Body.Close())
}

// Do is Try for a request that must be answered.
func (s *Shop) Do(tb testing.TB, method, path, body string, headers ...string) Answer {
	tb.Helper()
	a, err := s.Try(tb, method, path, body, headers...)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// Get sends a GET that must be answered.
func (s *Shop) Get(tb testing.TB, path string, headers ...string) Answer {
	tb.Helper()
	return s.Do(tb, http.MethodGet, path, "", headers...)
}

// Into decodes the JSON body of an answer that must have the status.
func (a Answer) Into(tb testing.TB, status int, v any) {
	tb.Helper()
	if a.Status != status {
		tb.Fatalf("got %d, want %d: %s", a.Status, status, a.Body)
	}
	if kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type")); err != nil || !strings.HasSuffix(kind, "json") {
		tb.Fatalf("Content-Type %q, want JSON: %s", a.Header.Get("Content-Type"), a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), v); err != nil {
		tb.Fatalf("%v in %s", err, a.Body)
	}
}

// WantProblem checks that the answer is a problem with this status and one of the codes, and returns it.
func (a Answer) WantProblem(tb testing.TB, status int, code string) Problem {
	tb.Helper()
	var p Problem
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Header.Get("Content-Type") != "application/problem+json" {
		tb.Errorf("got %d, %q, want a problem: %s", a.Status, a.Header.Get("Content-Type"), a.Body)
		return p
	}
	if a.Status != status || p.Status != status || p.Code != code {
		tb.Errorf("got %d with status %d and code %q, want %d and %q: %s", a.Status, p.Status, p.Code, status, code, a.Body)
	}
	return p
}
