package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, fields)
	}
	return all
}

func TestSampled_ALoudFaultLeavesASampleAndSaysWhatIsMissing(t *testing.T) {
	var out bytes.Buffer
	log := newSampled(slog.NewJSONHandler(&out, nil)).WithAttrs([]slog.Attr{slog.String("service", "x")})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	say := func(level slog.Level, message string, attrs ...slog.Attr) {
		r := slog.NewRecord(at, level, message, 0)
		r.AddAttrs(attrs...)
		if err := log.Handle(context.Background(), r); err != nil {
			t.Fatal(err)
		}
	}
	const many = 10_000
	for range many {
		say(slog.LevelWarn, "request", slog.String("route", "/api/v1/products"))
	}
	say(slog.LevelWarn, "request", slog.String("route", "/api/v1/orders"))
	say(slog.LevelError, "request", slog.String("route", "/api/v1/products"))
	for range 200 {
		say(slog.LevelInfo, "request")
	}
	at = at.Add(time.Second)
	say(slog.LevelWarn, "request", slog.String("route", "/api/v1/products"))

	all := lines(t, &out)
	var loudOnes, missing, others int
	for _, l := range all {
		if n, ok := l["left_out"].(float64); ok {
			missing += int(n)
		}
		if l["level"] == "WARN" && l["route"] == "/api/v1/products" {
			loudOnes++
		} else {
			others++
		}
	}
	if want := loud + many/oneIn + 1; loudOnes != want {
		t.Errorf("%d lines of the loud kind, want %d", loudOnes, want)
	}
	if loudOnes+missing != many+1 {
		t.Errorf("%d lines written and %d said to be left out, of %d", loudOnes, missing, many+1)
	}
	if others != 202 {
		t.Errorf("%d other lines, want all 202: another route, another level, and what is no trouble", others)
	}
}
