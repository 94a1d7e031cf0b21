// Package debian takes programs out of Debian packages, for any architecture and without installing anything: apt finds
// and fetches the packages, and of their files only those are kept that the wanted programs need. Maintainer scripts are
// never run, so it suits programs that work without them.
package debian

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Available reports whether this machine has the two programs that Fetch and Open call.
func Available() bool {
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return true
}

// Fetch downloads the packages and all that they depend on for the architecture arch, as if for an empty machine, from
// where this machine's apt is set up to look. It returns the .deb files, sorted; they stay in dir, where a second call
// finds them. apt checks their signatures.
func Fetch(ctx context.Context, dir, arch string, packages ...string) ([]string, error) {
	dir, err := filepath.Abs(filepath.Join(dir, arch))
	if err != nil {
		return nil, fmt.Errorf("debian: %w", err)
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("debian: %w", err)
		}
	}
	status := filepath.Join(dir, "status") // nothing is installed there
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, fmt.Errorf("debian: %w", err)
	}
	options := []string{
		"-qq", "-o", "APT::Architecture=" + arch, "-o", "APT::Architectures::=" + arch,
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::State::status=" + status,
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"), "-o", "Acquire::Languages=none", "-o", "Acquire::Retries=3",
		"-o", "APT::Sandbox::User=", "-o", "Debug::NoLocking=true", "-o", "APT::Keep-Downloaded-Packages=true",
	}
	if err := run(ctx, "apt-get", append(slices.Clone(options), "update")...); err != nil {
		return nil, err
	}
	// What an older index named would otherwise be taken too.
	if err := run(ctx, "apt-get", append(slices.Clone(options), "autoclean")...); err != nil {
		return nil, err
	}
	install := append(slices.Clone(options), "install", "--yes", "--download-only", "--no-install-recommends")
	if err := run(ctx, "apt-get", append(install, packages...)...); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "cache/archives/*.deb"))
	if err != nil {
		return nil, fmt.Errorf("debian: %w", err)
	}
	slices.Sort(files)
	return files, nil
}

func run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("debian: %s %s: %w\n%s", program, args[len(args)-1], err, &out)
	}
	return nil
}
