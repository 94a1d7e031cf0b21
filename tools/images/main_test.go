package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tiny is a maker of images from a program that compiles in no time; the recipes themselves are built by `make images`.
func tiny(t *testing.T, out *bytes.Buffer) maker {
	t.Helper()
	root := t.TempDir()
	write := func(name, content string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/tiny\n\ngo 1.26.0\n")
	write("cmd/recs/main.go", "package main\n\nfunc main() { println(`hello`) }\n")
	return maker{
		root: root, out: filepath.Join(root, "images"), scratch: t.TempDir(), release: "0.1.0", toolchain: "local", environ: os.Environ(), log: out,
	}
}

func recs() recipe {
	all, _ := choose([]string{"recs"})
	all[0].program.Dir = "."
	return all[0]
}

func TestImages_SameSourceGivesTheSameArchiveWhereverItLies(t *testing.T) {
	var archives, documents [][]byte
	for range 2 {
		var out bytes.Buffer
		m := tiny(t, &out)
		if err := m.makeAll(t.Context(), []recipe{recs()}, []string{"amd64", "arm64"}); err != nil {
			t.Fatal(err)
		}
		for _, arch := range []string{"amd64", "arm64"} {
			archives = append(archives, contents(t, archive(m.out, "recs", arch)))
			documents = append(documents, contents(t, filepath.Join(m.out, "recs-"+arch+".spdx.json")))
		}
	}
	for i, arch := range []string{"amd64", "arm64"} {
		if !bytes.Equal(archives[i], archives[i+2]) || !bytes.Equal(documents[i], documents[i+2]) {
			t.Errorf("%s: a second build from another folder gave another archive or another list", arch)
		}
	}
	if bytes.Equal(archives[0], archives[1]) {
		t.Error("amd64 and arm64 gave the same archive")
	}
}

func TestImages_AProgramRunsAsANumberAndHasNoShell(t *testing.T) {
	var out bytes.Buffer
	m := tiny(t, &out)
	if err := m.makeAll(t.Context(), []recipe{recs()}, []string{"arm64"}); err != nil {
		t.Fatal(err)
	}
	built, err := tarball.ImageFromPath(archive(m.out, "recs", "arm64"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; config.Architecture != "arm64" || c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/recs" || len(c.Cmd) != 0 {
		t.Errorf("got architecture %s, user %s, entrypoint %q, command %q", config.Architecture, c.User, c.Entrypoint, c.Cmd)
	}
	if files := list(t, built); strings.Contains(files, "bin/") || !strings.Contains(files, "etc/ssl/certs/ca-certificates.crt") {
		t.Errorf("files: %s; want certificates, and nothing to log into", files)
	}
	if _, err := built.ConfigName(); err != nil {
		t.Error(err)
	}
	values := string(contents(t, filepath.Join(m.out, "values.yaml")))
	id, err := built.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if want := "  recs: {repository: watertight/recs, tag: sha-" + id.Hex[:12] + "}\n"; !strings.HasSuffix(values, want) {
		t.Errorf("values.yaml: got\n%s\nwant at its end %s", values, want)
	}
	component := string(contents(t, filepath.Join(m.out, "kustomization.yaml")))
	if want := "  - {name: watertight/recs, newTag: sha-" + id.Hex[:12] + "}\n"; !strings.Contains(component, want) {
		t.Errorf("kustomization.yaml: got\n%s\nwant in it %s", component, want)
	}
}

func TestImages_TagsOfAnEarlierBuildStay(t *testing.T) {
	var out bytes.Buffer
	m := tiny(t, &out)
	other := recs()
	other.name = "search"
	for _, r := range []recipe{recs(), other} { // one at a time, as IMAGES=… does
		if err := m.makeAll(t.Context(), []recipe{r}, []string{runtime.GOARCH}); err != nil {
			t.Fatal(err)
		}
	}
	values := string(contents(t, filepath.Join(m.out, "values.yaml")))
	if !strings.Contains(values, "recs:") || !strings.Contains(values, "search:") {
		t.Errorf("values.yaml lacks one of the two:\n%s", values)
	}
}

func TestImages_AnImageThatIsTooLargeIsRefused(t *testing.T) {
	var out bytes.Buffer
	m := tiny(t, &out)
	large := recs()
	large.limit = 100_000
	if err := m.makeAll(t.Context(), []recipe{large}, []string{"amd64"}); err == nil || !strings.Contains(err.Error(), "100000 are allowed") {
		t.Errorf("got %v, want it refused", err)
	}
	if left, _ := filepath.Glob(filepath.Join(m.out, "*.tar*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestImages_BadInputIsNamed(t *testing.T) {
	for want, args := range map[string][]string{
		"-release":                          {},
		`-arch: "mips" is neither`:          {"-release", "1", "-arch", "mips"},
		`no image is called "rex"; there a`: {"-release", "1", "rex"},
	} {
		var out bytes.Buffer
		if err := run(t.Context(), args, os.Environ(), &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}

func TestImages_ABrokenBuildLeavesNoArchive(t *testing.T) {
	var out bytes.Buffer
	m := tiny(t, &out)
	if err := os.WriteFile(filepath.Join(m.root, "cmd/recs/main.go"), []byte("package main\n\nfunc main() { undefined() }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := m.makeAll(t.Context(), []recipe{recs()}, []string{"amd64"})
	if err == nil || !strings.Contains(err.Error(), "recs for amd64") || !strings.Contains(err.Error(), "undefined") {
		t.Errorf("got %v, want the image, the architecture and the compiler's words", err)
	}
	if left, _ := filepath.Glob(filepath.Join(m.out, "*.tar*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func list(t *testing.T, built v1.Image) string {
	t.Helper()
	layers, err := built.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, layer := range layers {
		raw, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tarNames(t, raw)...)
	}
	return strings.Join(names, " ")
}

func contents(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tarNames(t *testing.T, raw io.Reader) []string {
	t.Helper()
	var names []string
	for tr := tar.NewReader(raw); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
