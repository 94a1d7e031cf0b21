package gateway

import (
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"time"

	"example.com/watertight/gateway/clientip"
	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/problem"
)

// logged starts the exchange, answers it with a 500 when its handler panics, and at the end counts it and writes its one log line.
func logged(log *slog.Logger, proxies clientip.Proxies, traffic *traffic, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := traffic.begin()
		e := exchange.New(r, proxies.Of(r))
		r = r.WithContext(e.Context(r.Context()))
		w.Header().Set(exchange.RequestIDHeader, e.RequestID)
		answer := &answerWriter{ResponseWriter: w}
		defer func() {
			panicked := recover()
			if panicked != nil && panicked != http.ErrAbortHandler { //nolint:errorlint // a panic value, which nobody wraps
				log.ErrorContext(r.Context(), "handler panicked", "request_id", e.RequestID, "panic", panicked, "stack", string(debug.Stack()))
				if answer.status == 0 {
					problem := exchange.Judge(r, problem.New(http.StatusInternalServerError, "internal", "something went wrong on our side"))
					problem.Write(answer)
					panicked = nil
				}
			}
			end(answer.status)
			writeLine(log, r, e, answer)
			if panicked != nil { // part of the answer is out: only cutting the connection tells the client
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

func writeLine(log *slog.Logger, r *http.Request, e *exchange.Exchange, answer *answerWriter) {
	level := slog.LevelInfo
	switch {
	case answer.status == http.StatusInternalServerError:
		level = slog.LevelError
	case answer.status > http.StatusInternalServerError: // an upstream's trouble, or load shed on purpose
		level = slog.LevelWarn
	}
	if !log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", e.RequestID),
		slog.String("method", exchange.Shorten(r.Method)),
		slog.String("path", exchange.Shorten(r.URL.EscapedPath())),
		slog.String("route", e.Route),
		slog.Int("status", answer.status),
		slog.Int64("bytes", answer.bytes),
		slog.Float64("ms", float64(time.Since(e.Arrival).Microseconds())/1000),
		// Neither the customer nor the whole address: both are personal data, and a log goes far and is kept long.
		slog.String("client", coarse(e.Client)),
	}
	if e.Failure != nil {
		attrs = append(attrs, slog.String("error", e.Failure.Error()))
	}
	log.LogAttrs(r.Context(), level, "request", attrs...)
}

// coarse is the part of an address that many share: the first three bytes of four, or of sixteen the first six.
func coarse(client netip.Addr) string {
	bits := 48
	if client = client.Unmap(); client.Is4() {
		bits = 24
	}
	prefix, err := client.Prefix(bits)
	if err != nil {
		return ""
	}
	return prefix.String()
}

// answerWriter notes what was answered.
type answerWriter struct {
	http.ResponseWriter
	status int // 0 until the head is out
	bytes  int64
}

// Unwrap lets an http.ResponseController reach the connection.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answerWriter) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerWriter) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}
