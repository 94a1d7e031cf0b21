package importer

import (
	"strings"
	"testing"
)

func TestBar_AddsUpTheServicesAndClearsItsLine(t *testing.T) {
	var out strings.Builder
	b := newBar(&out)
	b.out = &out // as on a terminal
	b.imported(Progress{Service: "search", Done: 50, Total: 100})
	if got, want := out.String(), "\rimporting [===============               ]  50 %"; got != want {
		t.Errorf("bar: got %q, want %q", got, want)
	}
	b.imported(Progress{Service: "recs", Done: 100, Total: 100})
	if got := strings.Count(out.String(), "\r"); got != 1 {
		t.Errorf("drawn %d times within one refresh, want 1", got)
	}
	b.clear()
	b.clear()
	if got := strings.Count(out.String(), "\x1b[K"); got != 1 {
		t.Errorf("cleared %d times, want 1", got)
	}
}

func TestBar_StaysSilentWithoutATerminal(t *testing.T) {
	var out strings.Builder
	b := newBar(&out)
	b.read(5, 10)
	b.imported(Progress{Service: "search", Done: 1, Total: 2})
	b.clear()
	if out.String() != "" {
		t.Errorf("drawn: %q, want nothing", out.String())
	}
}
