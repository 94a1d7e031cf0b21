// Package jaeger finds a Jaeger for `lab up --traces`, or makes one, and says how it is run: everything in memory, on this
// machine only. It starts nothing itself but what finding and building take.
package jaeger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// module is what is built when no Jaeger is found. Its tag v1.76.0 carries the program of Jaeger 2.
	module = "github.com/jaegertracing/jaeger/cmd/jaeger@v1.76.0"
	// image is the official one.
	image = "cr.jaegertracing.io/jaegertracing/jaeger:2.13.0"
	// built is the program's name in the cache, and packed that of a compressed one in the cache or in the seed.
	built  = "jaeger-2"
	packed = "jaeger-2-" + runtime.GOOS + "-" + runtime.GOARCH + ".zst"
	// keep bounds the traces in memory: at 100 KB for that of an order, half a gigabyte at the very most.
	keep = 5000
	// dockerBound is how long the Docker engine may take to say that it is there.
	dockerBound = 5 * time.Second
)

// Locator is where to look.
type Locator struct {
	Path  string // as in the environment: folders with programs
	Cache string // folder that keeps what was built
	Seed  string // folder of programs that are built already; may be empty
	// Environ is that of the programs that are run on the way.
	Environ []string
	// Say tells the user what takes long.
	Say func(format string, args ...any)
}

// NewLocator reads WATERTIGHT_CACHE (~/.cache/watertight) and WATERTIGHT_CACHE_SEED.
func NewLocator(environ []string, say func(format string, args ...any)) (Locator, error) {
	l := Locator{Environ: environ, Say: say}
	for _, line := range environ {
		switch name, value, _ := strings.Cut(line, "="); name {
		case "PATH":
			l.Path = value
		case "WATERTIGHT_CACHE":
			l.Cache = value
		case "WATERTIGHT_CACHE_SEED":
			l.Seed = value
		}
	}
	if l.Cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return l, fmt.Errorf("WATERTIGHT_CACHE: %w", err)
		}
		l.Cache = filepath.Join(home, ".cache", "watertight")
	}
	return l, nil
}

// Program is a Jaeger that can be run.
type Program struct {
	path   string
	docker bool
	// From says where it was found, in a few words.
	From string
	// Page says whether it has Jaeger's page; else it answers to its API only.
	Page bool
}

// Find returns the first there is: on the PATH, in the cache, in the seed, in Docker. When there is none it builds one into
// the cache, which takes minutes, once.
func (l Locator) Find(ctx context.Context) (Program, error) {
	if path := l.onPath("jaeger"); path != "" {
		return Program{path: path, From: path, Page: true}, nil
	}
	cached := filepath.Join(l.Cache, "bin", built)
	if executable(cached) {
		return Program{path: cached, From: cached}, nil
	}
	for _, folder := range []string{l.Cache, l.Seed} {
		if folder == "" {
			continue
		}
		from := filepath.Join(folder, packed)
		switch err := unpack(from, cached); {
		case err == nil:
			return Program{path: cached, From: from}, nil
		case !errors.Is(err, os.ErrNotExist):
			return Program{}, err
		}
	}
	if docker := l.onPath("docker"); docker != "" && l.dockerRuns(ctx, docker) {
		return Program{path: docker, docker: true, From: image, Page: true}, nil
	}
	return Program{path: cached, From: cached}, l.build(ctx, cached)
}

func (l Locator) onPath(name string) string {
	for _, folder := range filepath.SplitList(l.Path) {
		if path := filepath.Join(folder, name); filepath.IsAbs(path) && executable(path) {
			return path
		}
	}
	return ""
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// dockerRuns says whether there is an engine behind the command.
func (l Locator) dockerRuns(ctx context.Context, docker string) bool {
	ctx, cancel := context.WithTimeout(ctx, dockerBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, docker, "info", "--format", "{{.ServerVersion}}")
	cmd.Env = l.Environ
	return cmd.Run() == nil
}

// build compiles Jaeger into the cache.
func (l Locator) build(ctx context.Context, to string) error {
	tool := l.onPath("go")
	if tool == "" {
		return errors.New("no Jaeger on the PATH, in the cache or in Docker, and no Go to build one: see https://www.jaegertracing.io/download")
	}
	l.Say("no Jaeger here: building %s once, into %s; this takes minutes", module, to)
	began := time.Now()
	bin, err := os.MkdirTemp("", "jaeger")
	if err != nil {
		return fmt.Errorf("build Jaeger: %w", err)
	}
	defer os.RemoveAll(bin)
	cmd := exec.CommandContext(ctx, tool, "install", "-trimpath", "-ldflags=-s -w", module)
	cmd.Dir = bin // outside of any workspace
	cmd.Env = append(append([]string{}, l.Environ...), "GOBIN="+bin, "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Jaeger: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	source, err := os.Open(filepath.Join(bin, "jaeger"))
	if err != nil {
		return fmt.Errorf("build Jaeger: %w", err)
	}
	defer source.Close()
	if err := install(source, to); err != nil {
		return err
	}
	l.Say("Jaeger built in %s", time.Since(began).Round(time.Second))
	return nil
}

// unpack decompresses a program. The error is os.ErrNotExist when there is none.
func unpack(from, to string) error {
	file, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("unpack Jaeger: %w", err)
	}
	defer file.Close()
	stream, err := zstd.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", from, err)
	}
	defer stream.Close()
	return install(stream, to)
}

// install writes a program so that it is there whole or not at all.
func install(source io.Reader, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // programs are no secret
		return fmt.Errorf("install Jaeger: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(to), "jaeger.*")
	if err != nil {
		return fmt.Errorf("install Jaeger: %w", err)
	}
	_, err = io.Copy(temp, source)
	err = errors.Join(err, temp.Chmod(0o755), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("install Jaeger: %w", err), os.Remove(temp.Name()))
	}
	return nil
}

// Addresses are where it listens, as host:port.
type Addresses struct {
	OTLP string // gRPC
	UI   string // HTTP: page and query API
}

// Command is how the program is run with the configuration in file (Config).
func (p Program) Command(at Addresses, file string) (path string, args []string) {
	if !p.docker {
		return p.path, []string{"--config=file:" + file}
	}
	const inside = "/etc/jaeger/config.yaml"
	return p.path, []string{
		"run", "--rm", "--init", "--name", p.container(at), "--publish", at.OTLP + ":4317", "--publish", at.UI + ":16686",
		"--volume", file + ":" + inside + ":ro", image, "--config=file:" + inside,
	}
}

func (p Program) container(at Addresses) string {
	_, port, _ := net.SplitHostPort(at.UI)
	return "watertight-jaeger-" + port
}

// Clear removes what a run that was killed has left behind.
func (p Program) Clear(ctx context.Context, at Addresses, environ []string) error {
	if !p.docker {
		return nil
	}
	cmd := exec.CommandContext(ctx, p.path, "rm", "--force", p.container(at))
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove the last run's Jaeger: %w\n%s", err, out)
	}
	return nil
}

// Config is Jaeger's configuration: OTLP in, traces in memory, the query API out, and nothing else.
func (p Program) Config(at Addresses) string {
	if p.docker { // the container's own ports, of which Docker publishes two
		at = Addresses{OTLP: "0.0.0.0:4317", UI: "0.0.0.0:16686"}
	}
	return fmt.Sprintf(`# Written by lab up --traces.
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_storage:
    backends:
      memory: {memory: {max_traces: %d}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "%s"}
    grpc: {endpoint: "127.0.0.1:0"} # used by nobody
receivers:
  otlp:
    protocols: {grpc: {endpoint: "%s"}}
processors:
  batch: {timeout: 200ms}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`, keep, at.UI, at.OTLP)
}
