package console

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestConsole_KeepsLinesOfSeveralWritersWhole(t *testing.T) {
	var out bytes.Buffer
	c := New(&out, false, 8)
	var wait sync.WaitGroup
	for _, name := range []string{"recs", "checkout"} {
		w := c.Prefix(name)
		wait.Go(func() {
			for n := range 200 {
				fmt.Fprintf(w, "line %d ", n) // in two writes, as a process may
				fmt.Fprintf(w, "of %s\n", name)
			}
		})
	}
	wait.Wait()
	next := map[string]int{}
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, " ")
		if want := fmt.Sprintf("%-8s | line %d of %s\n", name, next[name], name); line != want {
			t.Fatalf("got %q, want %q", line, want)
		}
		next[name]++
	}
	if next["recs"] != 200 || next["checkout"] != 200 {
		t.Errorf("got %v lines, want 200 each", next)
	}
}

func TestConsole_ColorsNamesOnly(t *testing.T) {
	var out bytes.Buffer
	w := New(&out, true, 4).Prefix("recs")
	fmt.Fprint(w, "hello\r\n")
	if got, want := out.String(), "\x1b[36mrecs | \x1b[0mhello\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLines_CutsALineWithoutAnEnd(t *testing.T) {
	var longest, total int
	w := NewLines(func(line []byte) { longest = max(longest, len(line)); total += len(line) })
	chunk := bytes.Repeat([]byte("x"), 10_000)
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(w)
	if total != 1_000_000 || longest > maxLine+len(chunk) {
		t.Errorf("got %d bytes in lines of up to %d, want 1000000 in lines of up to about %d", total, longest, maxLine)
	}
}

func TestTail_KeepsTheLastLines(t *testing.T) {
	tail := NewTail(2)
	fmt.Fprint(tail, "one\ntwo\nthree\n")
	if got, want := tail.String("> "), "\n> two\n> three"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogFile_StaysBelowItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recs.log")
	if err := os.WriteFile(path, []byte("of the last run\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := CreateLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	previous, err := os.ReadFile(path + ".1")
	if err != nil || string(previous) != "of the last run\n" {
		t.Errorf("the last run's log: got %q (%v)", previous, err)
	}
	for n := range 50 {
		if _, err := fmt.Fprintf(file, "line %02d\n", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	now, err := os.ReadFile(path)
	if err != nil || len(now) > 100 || !strings.HasSuffix(string(now), "line 49\n") {
		t.Errorf("got %d bytes %q (%v), want at most 100 that end with line 49", len(now), now, err)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil || !strings.HasPrefix(string(now), fmt.Sprintf("line %02d", 50-len(now)/8)) || len(before) > 100 {
		t.Errorf("before: got %q (%v)", before, err)
	}
}
