// Package trace reads one trace from Jaeger and shows it as a tree: who called whom, how long it took, how it ended. To it
// belong the sendings of the events that came of it: each is a trace of its own, linked to this one, because a broker's batch
// is nobody's child.
package trace

import (
	"maps"
	"slices"
	"time"
)

// Trace is a request with all that came of it.
type Trace struct {
	ID       string        `json:"trace_id"`
	Start    time.Time     `json:"started_at"`
	Duration time.Duration `json:"duration_ns"`
	Services []string      `json:"services"`
	// Spans are in the order of their start. The sendings are among them, with their own TraceID.
	Spans []Span `json:"spans"`
}

// Span is one piece of the work.
type Span struct {
	TraceID    string         `json:"trace_id"`
	ID         string         `json:"span_id"`
	ParentID   string         `json:"parent_id,omitempty"` // "" at the root
	Service    string         `json:"service"`
	Name       string         `json:"name"`
	Kind       string         `json:"kind,omitempty"` // server, client, producer, consumer, internal
	Start      time.Time      `json:"started_at"`
	Duration   time.Duration  `json:"duration_ns"`
	Failed     bool           `json:"failed"`
	Status     string         `json:"status,omitempty"` // why it failed
	Attributes map[string]any `json:"attributes,omitempty"`
	Events     []Event        `json:"events,omitempty"`
	Links      []Link         `json:"links,omitempty"`
}

// Event is something that happened during a span.
type Event struct {
	Name       string         `json:"name"`
	At         time.Time      `json:"at"`
	Attributes map[string]any `json:"attributes,omitempty"`
}

// Link leads to a span that this one is no child of.
type Link struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

// assemble puts a trace together from its spans and those of the sendings that link to it.
func assemble(id string, spans []Span) Trace {
	t := Trace{ID: id, Spans: spans}
	slices.SortStableFunc(t.Spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	services := map[string]bool{}
	var end time.Time
	for i, s := range t.Spans {
		services[s.Service] = true
		if i == 0 {
			t.Start = s.Start
		}
		if e := s.Start.Add(s.Duration); e.After(end) {
			end = e
		}
	}
	t.Services = slices.Sorted(maps.Keys(services))
	t.Duration = end.Sub(t.Start)
	return t
}

// above is the span that s hangs from in the picture: its parent or, for a sending, the span in which the event came about.
func (t Trace) above(s Span) string {
	if s.TraceID == t.ID {
		return s.ParentID
	}
	for _, l := range s.Links {
		if l.TraceID == t.ID {
			return l.SpanID
		}
	}
	return ""
}

// Outcome is the trace in a word: degraded, when its first span says so; failed, when a span did; else ok.
func (t Trace) Outcome() string {
	if len(t.Spans) > 0 && t.Spans[0].Attributes["upstream.outcome"] == "degraded" {
		return "degraded"
	}
	if slices.ContainsFunc(t.Spans, func(s Span) bool { return s.Failed }) {
		return "failed"
	}
	return "ok"
}
