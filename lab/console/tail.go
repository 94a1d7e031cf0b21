package console

import (
	"slices"
	"strings"
	"sync"
)

// Tail is a writer that remembers the last lines, to be shown when their writer fails.
type Tail struct {
	*Lines
	mu    sync.Mutex
	keep  int
	lines []string
}

// NewTail returns a Tail of keep lines.
func NewTail(keep int) *Tail {
	t := &Tail{keep: keep}
	t.Lines = NewLines(t.add)
	return t
}

func (t *Tail) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == t.keep {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
	t.lines = append(t.lines, string(line))
}

// String returns the lines, each on one of its own with indent before it; "" when there are none.
func (t *Tail) String(indent string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, line := range t.lines {
		b.WriteString("\n" + indent + line)
	}
	return b.String()
}
