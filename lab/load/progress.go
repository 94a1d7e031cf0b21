package load

import (
	"fmt"
	"io"
	"strings"
	"time"

	"example.com/watertight/lab/console"
)

// Progress is how a run goes.
type Progress struct {
	At, End    time.Duration // End is 0 when not known
	Rate       float64       // requests that were due per second, lately
	InFlight   int64
	NotSent    int64
	Operations []OperationProgress
}

// OperationProgress is one operation so far, without the warm-up.
type OperationProgress struct {
	Name     Operation
	Requests int64
	Good     int64         // ok
	P95      time.Duration // of all that were sent
}

// Line is a line on a terminal that is written over and over.
type Line struct {
	out   io.Writer // nil when not a terminal
	drawn bool
}

// NewLine returns a Line on out, which shows nothing unless out is a terminal.
func NewLine(out io.Writer) *Line {
	if !console.IsTerminal(out) {
		return &Line{}
	}
	return &Line{out: out}
}

// Show replaces the line. It is for Options.Progress.
func (l *Line) Show(p Progress) {
	if l.out == nil {
		return
	}
	l.drawn = true
	fmt.Fprintf(l.out, "\r\x1b[K%s", p)
}

// Clear removes the line, so that what follows starts on a clean one.
func (l *Line) Clear() {
	if l.drawn {
		fmt.Fprint(l.out, "\r\x1b[K")
		l.drawn = false
	}
}

// lineWidth keeps the line on one row of the narrowest terminal, or it could not be written over.
const lineWidth = 79

// String is the line's text. Behind each operation are the share of its requests that were not ok, and p95.
func (p Progress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f", p.At.Seconds())
	if p.End > 0 {
		fmt.Fprintf(&b, "/%.0f", p.End.Seconds())
	}
	fmt.Fprintf(&b, " s  %.0f/s", p.Rate)
	if p.NotSent > 0 {
		fmt.Fprintf(&b, "  NOT SENT %d", p.NotSent)
	}
	fmt.Fprintf(&b, "  %d waiting", p.InFlight)
	for _, op := range p.Operations {
		failed := 0.0
		if op.Requests > 0 {
			failed = 100 * (1 - float64(op.Good)/float64(op.Requests))
		}
		fmt.Fprintf(&b, "  %s %.3g%% %s", op.Name, failed, shortly(op.P95))
	}
	return b.String()[:min(b.Len(), lineWidth)]
}

func shortly(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
