package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes one line a record to out, with the service's name and, when the context has
// them, trace_id and span_id. Of warnings and errors that come by the hundred it writes a sample. level is debug, info, warn
// or error; format is json, text, or empty for text on a terminal and JSON elsewhere.
func NewLogger(out io.Writer, level, format, service string) (*slog.Logger, error) {
	var lowest slog.Level
	if err := lowest.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("LOG_LEVEL: must be debug, info, warn or error, not %q", level)
	}
	if format == "" {
		format = "json"
		if terminal(out) {
			format = "text"
		}
	}
	var handler slog.Handler
	switch format {
	case "json":
		handler = slog.NewJSONHandler(out, &slog.HandlerOptions{Level: lowest})
	case "text":
		handler = tint.NewTextHandler(out, &tint.Options{Level: lowest, TimeFormat: time.TimeOnly, NoColor: !terminal(out)})
	default:
		return nil, fmt.Errorf("LOG_FORMAT: must be json or text, not %q", format)
	}
	return slog.New(newSampled(traced{handler})).With("service", service), nil
}

func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// traced adds the ids of the span in the context, so that a log line leads to its trace.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
