// Command images builds the shop's container images into archives, one for each image and architecture, with a list of
// what is in each (SPDX). It needs Go, and for the PostgreSQL image apt; no container engine, no registry, no root. The
// same source gives the same image: tags follow the content.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args, environ []string, out io.Writer) error {
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprintf(out, "usage: images [flags] [IMAGE…]\nBuilds all images, or those named: %s\n", strings.Join(names(), ", "))
		flags.PrintDefaults()
	}
	root := flags.String("root", ".", "the repository's `folder`")
	dir := flags.String("out", "build/images", "`folder` for the archives")
	cache := flags.String("cache", ".watertight/debs", "`folder` where downloaded packages are kept")
	arch := flags.String("arch", "amd64,arm64", "`architectures`, separated by commas")
	release := flags.String("release", "", "the `tag` that an archive carries beside that of its content, such as 0.1.0 (required)")
	toolchain := flags.String("toolchain", "go1.27.3", "the `version` of Go to compile with, so that every machine gets the same bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *release == "" {
		return errors.New("-release: say which version this is")
	}
	archs := strings.Split(*arch, ",")
	for _, a := range archs {
		if a != "amd64" && a != "arm64" {
			return fmt.Errorf("-arch: %q is neither amd64 nor arm64", a)
		}
	}
	wanted, err := choose(flags.Args())
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "watertight-images-")
	if err != nil {
		return fmt.Errorf("scratch folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	m := maker{
		root: *root, out: *dir, cache: *cache, scratch: scratch, release: *release, toolchain: *toolchain, environ: environ, log: out,
	}
	return m.makeAll(ctx, wanted, archs)
}

// choose returns the images of those names, all of them if there is none.
func choose(wanted []string) ([]recipe, error) {
	if len(wanted) == 0 {
		return recipes(), nil
	}
	var chosen []recipe
	for _, name := range wanted {
		i := slices.Index(names(), name)
		if i < 0 {
			return nil, fmt.Errorf("no image is called %q; there are %s", name, strings.Join(names(), ", "))
		}
		chosen = append(chosen, recipes()[i])
	}
	return chosen, nil
}

func names() []string {
	var all []string
	for _, r := range recipes() {
		all = append(all, r.name)
	}
	return all
}

// archive is the file that holds the image of that name and architecture.
func archive(dir, name, arch string) string { return filepath.Join(dir, name+"-"+arch+".tar") }
