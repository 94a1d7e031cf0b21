//go:build unix

package jaeger_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"example.com/watertight/lab/jaeger"
)

const script = "#!/bin/sh\nexit 0\n"

func program(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func seed(t *testing.T, dir string, content []byte) {
	t.Helper()
	file := filepath.Join(dir, "jaeger-2-"+runtime.GOOS+"-"+runtime.GOARCH+".zst")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func packed(t *testing.T) []byte {
	t.Helper()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return encoder.EncodeAll([]byte(script), nil)
}

func locator(t *testing.T, path, cache, seed string) jaeger.Locator {
	t.Helper()
	l, err := jaeger.NewLocator([]string{"PATH=" + path, "WATERTIGHT_CACHE=" + cache, "WATERTIGHT_CACHE_SEED=" + seed}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLocator_TakesTheNearest(t *testing.T) {
	bin, cache, seeds := t.TempDir(), t.TempDir(), t.TempDir()
	seed(t, seeds, packed(t))
	program(t, filepath.Join(bin, "docker"), script)

	// From far to near: Docker is looked at last, the seed is unpacked into the cache, the PATH wins.
	if got, err := locator(t, bin, cache, "").Find(t.Context()); err != nil || !strings.Contains(got.From, "jaegertracing/jaeger:2") {
		t.Errorf("with Docker only: %+v, %v; want its image", got, err)
	}
	unpacked, err := locator(t, bin, cache, seeds).Find(t.Context())
	if err != nil || !strings.HasPrefix(unpacked.From, seeds) || unpacked.Page {
		t.Errorf("with a seed: %+v, %v; want it taken from there, and no page", unpacked, err)
	}
	path, args := unpacked.Command(jaeger.Addresses{OTLP: "127.0.0.1:4317", UI: "127.0.0.1:16686"}, "/x.yaml")
	if content, err := os.ReadFile(path); err != nil || string(content) != script || len(args) != 1 || args[0] != "--config=file:/x.yaml" {
		t.Errorf("it is run as %s %q and holds %q (%v)", path, args, content, err)
	}
	if got, err := locator(t, bin, cache, "").Find(t.Context()); err != nil || got.From != path {
		t.Errorf("the second time: %+v, %v; want the cache's %s", got, err, path)
	}
	own := program(t, filepath.Join(bin, "jaeger"), script)
	if got, err := locator(t, bin, cache, seeds).Find(t.Context()); err != nil || got.From != own || !got.Page {
		t.Errorf("with one on the PATH: %+v, %v; want that", got, err)
	}
}

func TestLocator_ABrokenSeedIsAnErrorAndLeavesNothing(t *testing.T) {
	cache, seeds := t.TempDir(), t.TempDir()
	seed(t, seeds, packed(t)[:10])
	if got, err := locator(t, "", cache, seeds).Find(t.Context()); err == nil || !strings.Contains(err.Error(), seeds) && !strings.Contains(err.Error(), "install") {
		t.Errorf("got %+v, %v; want an error", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "bin", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLocator_WithNothingSaysWhatToDo(t *testing.T) {
	bin := t.TempDir()
	program(t, filepath.Join(bin, "docker"), "#!/bin/sh\nexit 1\n") // no engine behind it
	if _, err := locator(t, bin, t.TempDir(), "").Find(t.Context()); err == nil || !strings.Contains(err.Error(), "PATH") {
		t.Errorf("got %v, want an error that says where was looked", err)
	}
	said := ""
	l := locator(t, bin, t.TempDir(), "")
	l.Say = func(format string, _ ...any) { said += format }
	program(t, filepath.Join(bin, "go"), "#!/bin/sh\necho no network >&2; exit 1\n")
	if _, err := l.Find(t.Context()); err == nil || !strings.Contains(err.Error(), "no network") || !strings.Contains(said, "minutes") {
		t.Errorf("a build that fails: %v, said %q; want the tool's own words, and a warning before", err, said)
	}
}

func TestConfig_ListensOnThisMachineOnly(t *testing.T) {
	bin := t.TempDir()
	program(t, filepath.Join(bin, "jaeger"), script)
	native, err := locator(t, bin, t.TempDir(), "").Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := native.Config(jaeger.Addresses{OTLP: "127.0.0.1:14317", UI: "127.0.0.1:26686"})
	for _, want := range []string{`"127.0.0.1:14317"`, `"127.0.0.1:26686"`} {
		if !strings.Contains(config, want) {
			t.Errorf("no %s in\n%s", want, config)
		}
	}
	if strings.Contains(config, "0.0.0.0") {
		t.Errorf("it listens for everybody:\n%s", config)
	}
	docker := t.TempDir()
	program(t, filepath.Join(docker, "docker"), script)
	container, err := locator(t, docker, t.TempDir(), "").Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, args := container.Command(jaeger.Addresses{OTLP: "127.0.0.1:14317", UI: "127.0.0.1:26686"}, "/x.yaml")
	if line := strings.Join(args, " "); !strings.Contains(line, "--publish 127.0.0.1:14317:4317") || !strings.Contains(line, "--publish 127.0.0.1:26686:16686") {
		t.Errorf("docker %s", line)
	}
}
