package binaries_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"example.com/watertight/test/cluster/binaries"
)

func source(t *testing.T, says string) binaries.Source {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/tiny\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\""+says+"\") }\n")
	return binaries.Source{Name: "tiny", Module: dir, Package: "."}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c binaries.Cache, s binaries.Source) string {
	t.Helper()
	file, err := c.Get(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCache_BuildsOnceForEachContent(t *testing.T) {
	var log bytes.Buffer
	cache := binaries.Cache{Dir: filepath.Join(t.TempDir(), "cache"), Log: &log}
	first := get(t, cache, source(t, "one"))
	if out, err := exec.Command(first).Output(); err != nil || string(out) != "one" {
		t.Errorf("the program says %q, %v, want one", out, err)
	}
	if again := get(t, cache, source(t, "one")); again != first {
		t.Errorf("the same source in another folder: %s, want %s", again, first)
	}
	if other := get(t, cache, source(t, "two")); other == first {
		t.Error("another source, and the same program")
	}
	if n := strings.Count(log.String(), "building tiny dev"); n != 2 {
		t.Errorf("built %d times, want 2:\n%s", n, log.String())
	}
}

func TestCache_TakesASeedByNameAndVersion(t *testing.T) {
	seed := t.TempDir()
	s := source(t, "one")
	s.VersionOf = "example.com/big"
	write(t, filepath.Join(s.Module, "go.mod"), "module example.com/tiny\n\ngo 1.26.0\n\nrequire example.com/big v1.2.3\n")
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := encoder.EncodeAll([]byte("#!/bin/sh\necho seeded\n"), nil)
	write(t, filepath.Join(seed, "tiny-v1.2.3-linux-"+runtime.GOARCH+".zst"), string(packed))
	var log bytes.Buffer
	file := get(t, binaries.Cache{Dir: t.TempDir(), Seed: seed, Log: &log}, s)
	if out, err := exec.Command(file).Output(); err != nil || string(out) != "seeded\n" {
		t.Errorf("the program says %q, %v, want seeded", out, err)
	}
	if log.Len() > 0 {
		t.Errorf("built all the same: %s", log.String())
	}
}

func TestCache_ABuildThatFailsLeavesNothing(t *testing.T) {
	s := source(t, "one")
	write(t, filepath.Join(s.Module, "main.go"), "package main\n\nfunc main() { undefined() }\n")
	dir := t.TempDir()
	_, err := binaries.Cache{Dir: dir, Log: new(bytes.Buffer)}.Get(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("got %v, want the compiler's words", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
