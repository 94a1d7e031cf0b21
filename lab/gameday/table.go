package gameday

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes what became of an experiment for people.
func (e Experiment) WriteText(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n", e.Scenario)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("hypothesis", "%s", e.Hypothesis)
	line("steady", "%s", e.Steady)
	line("injected", "%s", e.Injected)
	line("then", "%s", e.Sick)
	line("checkout", "%s, expected %s", e.Became, e.Expected)
	if e.Aborted {
		line("stopped", "checkout failed too often; the fault was cleared before its time")
	}
	for _, s := range e.Signs {
		mark, when := "missing", ""
		if s.Seen {
			mark = "seen"
		}
		if s.After != nil {
			when = fmt.Sprintf(", after %.1f s", *s.After)
		}
		line(mark, "%s%s", s.Signal, when)
	}
	verdict := "HELD"
	if !e.Held {
		verdict = "REFUTED: " + strings.Join(e.Why, "; ")
	}
	line("verdict", "%s", verdict)
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("write experiment: %w", err)
	}
	return nil
}

// String is the phase in a line.
func (p Phase) String() string {
	text := fmt.Sprintf("%d requests; %d orders, %.1f %% failed, %.1f a second", p.Requests, p.Checkouts, p.ErrorsPercent, p.Orders)
	if p.P50MS > 0 {
		text += fmt.Sprintf(", p50 %.1f ms, p95 %.1f ms", p.P50MS, p.P95MS)
	}
	if p.Degraded > 0 {
		text += fmt.Sprintf("; %d degraded answers", p.Degraded)
	}
	return text
}
