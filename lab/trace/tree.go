package trace

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// shown are the attributes that a line of the tree carries, in this order, with the word before each value.
func shown() [9]struct{ key, word string } {
	return [...]struct{ key, word string }{
		{"http.response.status_code", ""}, {"rpc.response.status_code", ""}, {"upstream.outcome", ""}, {"work.outcome", ""},
		{"upstream.breaker", "breaker "}, {"bulkhead.queue_wait_seconds", "queued "}, {"retry.attempt", "attempt "},
		{"event.age_seconds", "age "}, {"event.duplicate", "duplicate "},
	}
}

// Tree writes the trace with one line for each span: its start and duration in milliseconds, its service, its name below its
// parent's, and how it ended. Without statements those of a database are summed up in the line of what made them.
func (t Trace) Tree(out io.Writer, statements bool) error {
	p := &painter{trace: t, statements: statements, children: map[string][]Span{}}
	known := map[string]bool{}
	for _, s := range t.Spans {
		known[s.ID] = true
	}
	for _, s := range t.Spans {
		above := t.above(s)
		if !known[above] { // the caller's own span, which lies elsewhere
			above = ""
		}
		p.children[above] = append(p.children[above], s)
	}
	fmt.Fprintf(&p.text, "trace %s  %s  %s ms  %d spans of %s\n\n%9s %9s  %-*s  %s\n", t.ID, t.Start.Local().Format("2006-01-02 15:04:05"),
		milliseconds(t.Duration), len(t.Spans), strings.Join(t.Services, ", "), "START ms", "TOOK ms", serviceColumn, "SERVICE", "WHAT")
	p.paint("", 0)
	if _, err := io.WriteString(out, p.text.String()); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

const serviceColumn = 9

type painter struct {
	trace      Trace
	statements bool
	children   map[string][]Span
	text       strings.Builder
}

func (p *painter) paint(parent string, depth int) {
	for _, s := range p.children[parent] {
		if statement(s) && !p.statements {
			continue
		}
		p.line(s, depth)
		p.paint(s.ID, depth+1)
	}
}

func (p *painter) line(s Span, depth int) {
	indent := strings.Repeat("  ", depth)
	lead := fmt.Sprintf("%9s %9s  %-*s  %s", milliseconds(s.Start.Sub(p.trace.Start)), milliseconds(s.Duration), serviceColumn, s.Service, indent)
	name := s.Name
	if s.TraceID != p.trace.ID {
		name = "~ " + name // linked, not a child
	}
	parts := append([]string{name}, p.ending(s)...)
	fmt.Fprintln(&p.text, lead+strings.Join(parts, "  "))
	for _, e := range s.Events {
		fmt.Fprintf(&p.text, "%9s %9s  %-*s  %s  ! %s\n", milliseconds(e.At.Sub(p.trace.Start)), "", serviceColumn, "", indent, describe(e))
	}
}

// ending is what is worth knowing of how s went.
func (p *painter) ending(s Span) []string {
	var parts []string
	for _, a := range shown() {
		value, there := s.Attributes[a.key]
		if !there || a.key == "retry.attempt" && fmt.Sprint(value) == "1" {
			continue
		}
		parts = append(parts, a.word+quantity(a.key, value))
	}
	if s.Failed {
		parts = append(parts, "FAILED: "+strings.TrimSpace(s.Status))
	}
	if s.TraceID != p.trace.ID {
		parts = append(parts, "(trace "+s.TraceID+")")
	}
	if n, took := p.below(s); n > 0 && !p.statements {
		parts = append(parts, fmt.Sprintf("[%d statements, %s ms]", n, milliseconds(took)))
	}
	return parts
}

// below sums up the statements right below s. A batch is as many as it holds, and takes the time of the whole.
func (p *painter) below(s Span) (n int, took time.Duration) {
	for _, c := range p.children[s.ID] {
		if !statement(c) {
			continue
		}
		took += c.Duration
		if c.Attributes["db.operation.batch.size"] == nil {
			n++
			continue
		}
		for _, part := range p.children[c.ID] {
			if statement(part) {
				n++
			}
		}
	}
	return n, took
}

func statement(s Span) bool { return s.Attributes["db.system.name"] != nil }

// describe is an event in one line; of an exception its message is enough.
func describe(e Event) string {
	if message, ok := e.Attributes["exception.message"]; ok {
		first, _, _ := strings.Cut(fmt.Sprint(message), "\n")
		return first
	}
	parts := []string{e.Name}
	for _, key := range slices.Sorted(maps.Keys(e.Attributes)) {
		parts = append(parts, strings.TrimSuffix(key, "_seconds")+" "+quantity(key, e.Attributes[key]))
	}
	return strings.Join(parts, " ")
}

// quantity writes seconds as milliseconds, as the rest of the picture has them.
func quantity(key string, value any) string {
	if seconds, ok := value.(float64); ok && strings.HasSuffix(key, "_seconds") {
		return fmt.Sprintf("%.1f ms", 1000*seconds)
	}
	return fmt.Sprint(value)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}
