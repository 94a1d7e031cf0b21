package importer

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	barWidth   = 30
	barRefresh = 100 * time.Millisecond
)

// bar draws a progress bar on one line of a terminal; anywhere else it draws nothing.
type bar struct {
	out io.Writer // nil when not a terminal

	mu       sync.Mutex
	drawnAt  time.Time
	dirty    bool
	services map[string]Progress
}

func newBar(out io.Writer) *bar {
	b := &bar{services: make(map[string]Progress)}
	if f, ok := out.(*os.File); ok && isTerminal(f) {
		b.out = f
	}
	return b
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (b *bar) read(bytes, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draw("reading", bytes, size)
}

// imported adds one service's progress to the others'.
func (b *bar) imported(p Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.services[p.Service] = p
	var done, total int64
	for _, s := range b.services {
		done += int64(s.Done)
		total += int64(s.Total)
	}
	b.draw("importing", done, total)
}

func (b *bar) draw(what string, done, total int64) {
	if b.out == nil || total <= 0 || time.Since(b.drawnAt) < barRefresh {
		return
	}
	b.drawnAt, b.dirty = time.Now(), true
	done = min(done, total)
	full := int(done * barWidth / total)
	fmt.Fprintf(b.out, "\r%-9s [%s%s] %3d %%", what, strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done*100/total)
}

// clear removes the bar, so that what follows starts on a clean line.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty {
		fmt.Fprint(b.out, "\r\x1b[K")
		b.dirty = false
	}
}
