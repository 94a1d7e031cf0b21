package load

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress_FitsOneRowWithTheWorstOnTheLeft(t *testing.T) {
	p := Progress{At: 12400 * time.Millisecond, End: 20 * time.Second, Rate: 198.6, InFlight: 12, Operations: []OperationProgress{
		{Checkout, 400, 400, 28_600 * time.Microsecond}, {Recs, 800, 20, 9_210 * time.Microsecond},
	}}
	if got, want := p.String(), " 12.4/20 s  199/s  12 waiting  checkout 0% 29ms  recs 97.5% 9.2ms"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	p.NotSent = 123_456
	if got := p.String(); len(got) > 79 || !strings.Contains(got, "NOT SENT 123456") {
		t.Errorf("got %q, %d columns, want it cut at 79 with what was not sent in it", got, len(got))
	}
	var elsewhere bytes.Buffer
	line := NewLine(&elsewhere)
	line.Show(p)
	line.Clear()
	if elsewhere.Len() != 0 {
		t.Errorf("on what is no terminal: %q", elsewhere.String())
	}
}
