package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds in bytes what is read of one answer.
const maxAnswer = 64 << 20

// ErrNotFound says that Jaeger has no such trace: it never came, or not yet, or so many came after it.
var ErrNotFound = errors.New("no such trace")

var ids = regexp.MustCompile(`^(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?$`)

// ParseID reads a trace id, alone or within a traceparent.
func ParseID(text string) (string, error) {
	found := ids.FindStringSubmatch(strings.ToLower(text))
	if found == nil {
		return "", fmt.Errorf("%q is no trace id: 32 hexadecimal digits, or a traceparent that holds them", text)
	}
	return found[1], nil
}

// Jaeger is a Jaeger's query API, by its base URL.
type Jaeger struct {
	URL    string
	Client *http.Client
}

// Get returns a trace, or ErrNotFound.
func (j Jaeger) Get(ctx context.Context, id string) (Trace, error) {
	found, err := j.ask(ctx, "/api/traces/"+id, nil)
	if err != nil {
		return Trace{}, err
	}
	if len(found) == 0 || len(found[0].Spans) == 0 {
		return Trace{}, ErrNotFound
	}
	spans := found[0].spans()
	for _, s := range spans {
		sent, err := j.sending(ctx, s)
		if err != nil {
			return Trace{}, err
		}
		spans = append(spans, sent...)
	}
	return assemble(id, unique(spans)), nil
}

// sending finds the spans of the relay that brought to the broker what s handles.
func (j Jaeger) sending(ctx context.Context, s Span) ([]Span, error) {
	source, message := s.Attributes["cloudevents.event_source"], s.Attributes["messaging.message.id"]
	if s.Kind != "consumer" || source == nil || message == nil {
		return nil, nil
	}
	tags, err := json.Marshal(map[string]any{"messaging.message.id": message, "messaging.operation.type": "send"})
	if err != nil {
		return nil, err
	}
	found, err := j.ask(ctx, "/api/traces", url.Values{"service": {fmt.Sprint(source)}, "tags": {string(tags)}, "limit": {"20"}, "lookback": {"custom"},
		"start": {strconv.FormatInt(s.Start.Add(-24*time.Hour).UnixMicro(), 10)}, "end": {strconv.FormatInt(s.Start.Add(time.Minute).UnixMicro(), 10)}})
	var out []Span
	for _, t := range found {
		out = append(out, t.spans()...)
	}
	return out, err
}

// Latest returns the root spans of the newest traces that the service takes part in, the newest first.
func (j Jaeger) Latest(ctx context.Context, service string, limit int) ([]Trace, error) {
	found, err := j.ask(ctx, "/api/traces", url.Values{"service": {service}, "limit": {strconv.Itoa(limit)}})
	if err != nil {
		return nil, err
	}
	var out []Trace
	for _, t := range found {
		out = append(out, assemble(t.TraceID, t.spans()))
	}
	return out, nil
}

// ask returns no traces and no error for one that is not there.
func (j Jaeger) ask(ctx context.Context, path string, query url.Values) ([]jaegerTrace, error) {
	address := strings.TrimSuffix(j.URL, "/") + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("--jaeger: %w", err)
	}
	resp, err := j.Client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask Jaeger: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	var answer struct {
		Data   []jaegerTrace `json:"data"`
		Errors []struct {
			Msg string `json:"msg"`
		} `json:"errors"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s answers %s and not as Jaeger does: %w", j.URL, resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("Jaeger answers %s: %v", resp.Status, answer.Errors)
	}
	return answer.Data, nil
}

// What Jaeger's query API answers with.
type (
	jaegerTrace struct {
		TraceID   string       `json:"traceID"`
		Spans     []jaegerSpan `json:"spans"`
		Processes map[string]struct {
			ServiceName string `json:"serviceName"`
		} `json:"processes"`
	}
	jaegerSpan struct {
		TraceID       string `json:"traceID"`
		SpanID        string `json:"spanID"`
		OperationName string `json:"operationName"`
		References    []struct {
			RefType string `json:"refType"`
			TraceID string `json:"traceID"`
			SpanID  string `json:"spanID"`
		} `json:"references"`
		StartTime int64   `json:"startTime"` // microseconds
		Duration  int64   `json:"duration"`  // microseconds
		Tags      []keyed `json:"tags"`
		Logs      []struct {
			Timestamp int64   `json:"timestamp"`
			Fields    []keyed `json:"fields"`
		} `json:"logs"`
		ProcessID string `json:"processID"`
	}
	keyed struct {
		Key   string `json:"key"`
		Value any    `json:"value"`
	}
)

func (t jaegerTrace) spans() []Span {
	out := make([]Span, 0, len(t.Spans))
	for _, s := range t.Spans {
		span := Span{TraceID: s.TraceID, ID: s.SpanID, Service: t.Processes[s.ProcessID].ServiceName, Name: s.OperationName,
			Start: time.UnixMicro(s.StartTime).UTC(), Duration: time.Duration(s.Duration) * time.Microsecond, Attributes: attributes(s.Tags)}
		for _, r := range s.References {
			if r.RefType == "CHILD_OF" && r.TraceID == s.TraceID {
				span.ParentID = r.SpanID
			} else {
				span.Links = append(span.Links, Link{r.TraceID, r.SpanID})
			}
		}
		for _, l := range s.Logs {
			e := Event{At: time.UnixMicro(l.Timestamp).UTC(), Attributes: attributes(l.Fields)}
			e.Name, _ = take(e.Attributes, "event").(string)
			span.Events = append(span.Events, e)
		}
		span.Kind, _ = take(span.Attributes, "span.kind").(string)
		span.Status, _ = take(span.Attributes, "otel.status_description").(string)
		code, _ := take(span.Attributes, "otel.status_code").(string)
		_ = take(span.Attributes, "error")
		span.Failed = code == "ERROR"
		out = append(out, span)
	}
	return out
}

func attributes(all []keyed) map[string]any {
	out := map[string]any{}
	for _, a := range all {
		out[a.Key] = a.Value
	}
	return out
}

func take(attributes map[string]any, key string) any {
	value := attributes[key]
	delete(attributes, key)
	return value
}

// unique drops what several deliveries of one event have found twice.
func unique(spans []Span) []Span {
	seen := map[string]bool{}
	var out []Span
	for _, s := range spans {
		if key := s.TraceID + s.ID; !seen[key] {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}
