// Package gobuild compiles Go programs for an image: static, stripped, and the same bytes on every machine. It asks
// nothing of the environment but where the caches are and how modules are fetched.
package gobuild

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// buildTags leave out gRPC's own trace pages. They would bring in a template engine, and with that every method of every type: a fifth
// of a service's program.
const buildTags = "grpcnotrace"

// Target is a program in a module.
type Target struct {
	Dir     string // of the module
	Package string // as `go build` takes it, there
}

// Builder compiles with one Go version.
type Builder struct {
	Toolchain string // as GOTOOLCHAIN takes it, such as go1.27.3
	Release   string // what the shop's programs call their version
	Environ   []string
}

// Build compiles the target for linux on arch and writes the program to file.
func (b Builder) Build(ctx context.Context, target Target, arch, file string) error {
	flags := "-ldflags=-s -w -buildid= -X example.com/watertight/platform/telemetry.release=" + b.Release
	cmd := exec.CommandContext(ctx, "go", "build", "-C", target.Dir, "-trimpath", "-buildvcs=false", "-tags", buildTags, flags, "-o", file, target.Package)
	cmd.Env = b.environ(arch)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s in %s for %s: %w\n%s", target.Package, target.Dir, arch, err, &out)
	}
	return nil
}

// environ is b.Environ without what would change the code that comes out.
func (b Builder) environ(arch string) []string {
	fixed := []string{
		"GOTOOLCHAIN=" + b.Toolchain, "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GODEBUG=", "GOFIPS140=off",
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0",
	}
	// Of two settings of a variable the last one holds.
	return slices.Concat(b.Environ, fixed)
}
