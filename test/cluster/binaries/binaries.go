// Package binaries builds the programs of the cluster, once: what was built is kept in a cache, under a name that follows
// from the source. A seed is a folder of programs that somebody else has built; its files are taken by name and version,
// on trust.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Cache is where the programs are.
type Cache struct {
	Dir  string
	Seed string // NAME-VERSION-linux-ARCH.zst; "" for none
	Log  io.Writer
}

// Source is a program in a Go module of its own.
type Source struct {
	Name    string
	Module  string // the module's folder
	Package string // as `go build` takes it, there
	// VersionOf is the module in go.mod whose version is the program's; "" for a program of this repository.
	VersionOf string
	// Flags gives more flags for the linker.
	Flags func(version string) string
}

// Get returns the path of the program, which it builds if neither the cache nor the seed has it.
func (c Cache) Get(ctx context.Context, s Source) (string, error) {
	version, key, err := s.identify(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join(c.Dir, fmt.Sprintf("%s-%s-%s", s.Name, version, key))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", fmt.Errorf("%s: %w", s.Name, err)
	}
	// Under another name until it is whole: two may build at once, and a run may be cut short.
	part := fmt.Sprintf("%s.%d", file, os.Getpid())
	defer func() { _ = os.Remove(part) }()
	seeded, err := c.unpack(fmt.Sprintf("%s-%s-linux-%s.zst", s.Name, version, runtime.GOARCH), part)
	if err != nil {
		return "", err
	}
	if !seeded {
		fmt.Fprintf(c.Log, "building %s %s: this takes a while, once\n", s.Name, version)
		if err := s.build(ctx, version, part); err != nil {
			return "", err
		}
	}
	if err := os.Rename(part, file); err != nil {
		return "", fmt.Errorf("%s: %w", s.Name, err)
	}
	return file, nil
}

// identify returns the program's version, and a key that changes with anything that would change the program.
func (s Source) identify(ctx context.Context) (version, key string, err error) {
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir = s.Module
	goVersion, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("%s: go version: %w", s.Name, err)
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s%s\n", goVersion, s.Package)
	version = "dev"
	files, err := filepath.Glob(filepath.Join(s.Module, "*"))
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", s.Name, err)
	}
	for _, file := range files { // sorted
		content, err := os.ReadFile(file)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", s.Name, err)
		}
		fmt.Fprintf(hash, "%s %x\n", filepath.Base(file), sha256.Sum256(content))
		if filepath.Base(file) == "go.mod" && s.VersionOf != "" {
			match := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(s.VersionOf) + ` (v\S+)`).FindSubmatch(content)
			if match == nil {
				return "", "", fmt.Errorf("%s: %s does not require %s", s.Name, file, s.VersionOf)
			}
			version = string(match[1])
		}
	}
	if s.Flags != nil {
		fmt.Fprintln(hash, s.Flags(version))
	}
	return version, fmt.Sprintf("%x", hash.Sum(nil))[:12], nil
}

// unpack writes the seed's file of that name to file, and reports whether there is one.
func (c Cache) unpack(name, file string) (bool, error) {
	if c.Seed == "" {
		return false, nil
	}
	packed, err := os.Open(filepath.Join(c.Seed, name))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("seed: %w", err)
	}
	defer func() { _ = packed.Close() }()
	reader, err := zstd.NewReader(packed)
	if err != nil {
		return false, fmt.Errorf("seed %s: %w", name, err)
	}
	defer reader.Close()
	out, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return false, fmt.Errorf("seed %s: %w", name, err)
	}
	if _, err := io.Copy(out, reader); err != nil {
		return false, fmt.Errorf("seed %s: %w", name, errors.Join(err, out.Close()))
	}
	if err := out.Close(); err != nil {
		return false, fmt.Errorf("seed %s: %w", name, err)
	}
	return true, nil
}

func (s Source) build(ctx context.Context, version, file string) error {
	flags := "-s -w"
	if s.Flags != nil {
		flags += " " + s.Flags(version)
	}
	// Absolute, as the build runs in the module's folder.
	file, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", file, s.Package)
	cmd.Dir = s.Module
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", s.Name, err, strings.TrimSpace(out.String()))
	}
	return nil
}
