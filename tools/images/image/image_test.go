package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"example.com/watertight/tools/images/image"
)

func spec(content string) image.Spec {
	return image.Spec{
		Arch: "arm64", User: "65532:65532", Entrypoint: []string{"/app"}, WorkingDir: "/",
		Layers: [][]image.File{
			{{Path: "/etc/passwd", Mode: 0o644, Data: []byte("nonroot:x:65532:65532::/:/nologin\n")}},
			{{Path: "/bin/link", Link: "../app"}, {Path: "/app", Mode: 0o755, Data: []byte(content)}, {Path: "/tmp", Mode: 0o1777, Dir: true}},
		},
	}
}

func build(t *testing.T, s image.Spec) v1.Image {
	t.Helper()
	built, err := image.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func write(t *testing.T, s image.Spec) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := image.WriteArchive(file, build(t, s), "watertight/app", "sha-1", "0.1.0"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func tag(t *testing.T, s image.Spec) string {
	t.Helper()
	tag, err := image.ContentTag(build(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

func TestImage_SameFilesGiveTheSameBytes(t *testing.T) {
	once := write(t, spec("one"))
	shuffled := spec("one")
	slices.Reverse(shuffled.Layers[1])
	for range 5 { // the order of maps and files must not matter
		if !bytes.Equal(once, write(t, shuffled)) {
			t.Fatal("a second archive of the same files differs from the first")
		}
	}
}

func TestImage_TagFollowsTheContent(t *testing.T) {
	first := tag(t, spec("one"))
	if len(first) != len("sha-0123456789ab") || !strings.HasPrefix(first, "sha-") {
		t.Errorf("tag: got %q, want sha- and twelve digits", first)
	}
	other := spec("one")
	other.User = "0:0"
	for name, s := range map[string]image.Spec{"another program": spec("two"), "another user": other} {
		if got := tag(t, s); got == first {
			t.Errorf("%s has the same tag %s", name, got)
		}
	}
}

func TestImage_ArchiveHoldsWhatWasAskedFor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(file, write(t, spec("one")), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := loaded.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{config.OS, config.Architecture, config.Config.User, strings.Join(config.Config.Entrypoint, " ")}
	if diff := cmp.Diff([]string{"linux", "arm64", "65532:65532", "/app"}, got); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	layers, err := loaded.Layers()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := layers[1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for tr := tar.NewReader(raw); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 {
			t.Errorf("%s has the time %s", h.Name, h.ModTime)
		}
		names = append(names, h.Name)
	}
	if diff := cmp.Diff([]string{"app", "bin/", "bin/link", "tmp/"}, names); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	repository, tags, err := image.ArchiveTags(file)
	if err != nil || repository != "watertight/app" || !slices.Equal(tags, []string{"sha-1", "0.1.0"}) {
		t.Errorf("tags: got %s %v, %v", repository, tags, err)
	}
}

func TestImage_RefusesFilesThatContradictEachOther(t *testing.T) {
	for want, files := range map[string][]image.File{
		"/app is there twice":        {{Path: "/app"}, {Path: "/app"}},
		`"app" is no clean absolute`: {{Path: "app"}},
		`"/a/../b" is no clean`:      {{Path: "/a/../b"}},
	} {
		if _, err := image.New(image.Spec{Layers: [][]image.File{files}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
