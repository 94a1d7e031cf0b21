package shop

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// buildTags leave out gRPC's own trace pages. They would bring in a template engine, and with that every method of every type: a fifth
// of the program.
const buildTags = "grpcnotrace"

// Build builds the programs of services into bin, as the workspace at root sees them. The error of a program that does
// not compile is the compiler's own.
func Build(ctx context.Context, root, bin string, services []Service, environ []string) error {
	tool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the Go tools are needed to build the services (https://go.dev/dl): %w", err)
	}
	args := []string{"build", "-tags", buildTags, "-o", bin + string(filepath.Separator)}
	if !revisionIsKnown(ctx, root) {
		args = append(args, "-buildvcs=false")
	}
	for _, s := range services {
		if folder := "./" + filepath.ToSlash(s.folder()); !slices.Contains(args, folder) {
			args = append(args, folder)
		}
	}
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = root
	// As in the images, no C library is linked, unless environ wants one, for the race detector.
	cmd.Env = slices.Concat([]string{"CGO_ENABLED=0"}, environ, []string{"GOWORK=" + filepath.Join(root, "go.work")})
	out, err := cmd.CombinedOutput()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("build the services: %w", err)
	}
	if err != nil {
		return fmt.Errorf("build the services: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// revisionIsKnown reports whether git can name the checkout's revision. Where it cannot (no commit yet, or a checkout that
// belongs to another user), the Go tools would refuse to build.
func revisionIsKnown(ctx context.Context, root string) bool {
	err := exec.CommandContext(ctx, "git", "-C", root, "rev-parse", "HEAD").Run()
	return err == nil || errors.Is(err, exec.ErrNotFound)
}
