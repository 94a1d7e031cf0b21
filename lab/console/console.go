// Package console writes what several processes say to one place, a line at a time, each under its own name.
// It interprets nothing of what it passes on.
package console

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
)

// Console is one output that several writers share. Its methods may be called by any goroutine.
type Console struct {
	mu     sync.Mutex
	out    io.Writer
	color  bool
	names  int // how many have a color already
	column int // width of the names
}

// New returns a Console on out. Names are padded to column characters, and colored when color is set.
func New(out io.Writer, color bool, column int) *Console {
	return &Console{out: out, color: color, column: column}
}

// WantsColor reports whether out is a terminal whose user has not asked for plain text (https://no-color.org).
func WantsColor(out io.Writer, noColor string) bool { return noColor == "" && IsTerminal(out) }

// IsTerminal reports whether out is a character device.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// palette holds the foreground colors that can be read on a dark and on a light ground.
func palette() []int { return []int{36, 33, 32, 35, 34, 96, 93, 92, 95, 94} }

// Prefix returns a writer whose lines appear under name.
func (c *Console) Prefix(name string) *Lines {
	c.mu.Lock()
	defer c.mu.Unlock()
	prefix := fmt.Sprintf("%-*s | ", c.column, name)
	if c.color {
		colors := palette()
		prefix = fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[c.names%len(colors)], prefix)
		c.names++
	}
	return NewLines(func(line []byte) { c.write(prefix, line) })
}

// Printf writes a line without a name.
func (c *Console) Printf(format string, args ...any) {
	c.write("", fmt.Appendf(nil, format, args...))
}

// write puts a line out in one piece. An output that is gone (a closed pipe) must not stop the shop: the error is dropped.
func (c *Console) write(prefix string, line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := make([]byte, 0, len(prefix)+len(line)+1)
	whole = append(append(append(whole, prefix...), line...), '\n')
	_, _ = c.out.Write(whole)
}

// maxLine is where a line without an end is cut, so that a process cannot fill the memory of whoever reads it.
const maxLine = 64 << 10

// Lines is a writer that hands on whole lines, without their line ends.
type Lines struct {
	mu      sync.Mutex
	pending []byte
	line    func([]byte)
}

// NewLines returns a Lines that calls line for each. line must not keep the slice.
func NewLines(line func([]byte)) *Lines { return &Lines{line: line} }

// Write never fails.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, p...)
	for {
		end := bytes.IndexByte(l.pending, '\n')
		if end < 0 && len(l.pending) < maxLine {
			return len(p), nil
		}
		if end < 0 {
			l.line(l.pending)
			l.pending = l.pending[:0]
			return len(p), nil
		}
		l.line(bytes.TrimSuffix(l.pending[:end], []byte{'\r'}))
		l.pending = append(l.pending[:0], l.pending[end+1:]...)
	}
}
