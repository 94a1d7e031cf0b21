package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"example.com/watertight/tools/images/debian"
	"example.com/watertight/tools/images/gobuild"
	"example.com/watertight/tools/images/image"
	"example.com/watertight/tools/images/sbom"
)

// repository is where the images' names begin.
const repository = "watertight/"

type maker struct {
	root, out, cache, scratch string
	release, toolchain        string
	environ                   []string
	log                       io.Writer
}

func (m maker) makeAll(ctx context.Context, wanted []recipe, archs []string) error {
	if err := os.MkdirAll(m.out, 0o755); err != nil {
		return fmt.Errorf("folder for the images: %w", err)
	}
	// After a failure too: the archives that were made until then have new tags.
	return errors.Join(m.makeEach(ctx, wanted, archs), m.writeTags(archs))
}

func (m maker) makeEach(ctx context.Context, wanted []recipe, archs []string) error {
	for _, arch := range archs {
		for _, r := range wanted {
			if r.packages != nil && len(wanted) > 1 && !debian.Available() {
				fmt.Fprintf(m.log, "%-10s %-6s left out: it is made of Debian packages, and there is no apt-get here; use the official image\n", r.name, arch)
				continue
			}
			if err := m.makeOne(ctx, r, arch); err != nil {
				return fmt.Errorf("%s for %s: %w", r.name, arch, err)
			}
		}
	}
	return nil
}

func (m maker) makeOne(ctx context.Context, r recipe, arch string) error {
	build := m.program
	if r.packages != nil {
		build = m.packaged
	}
	spec, parts, err := build(ctx, r, arch)
	if err != nil {
		return err
	}
	spec.Labels = map[string]string{"org.opencontainers.image.title": repository + r.name, "org.opencontainers.image.version": m.release}
	built, err := image.New(spec)
	if err != nil {
		return err
	}
	tag, err := image.ContentTag(built)
	if err != nil {
		return err
	}
	size, err := image.CompressedSize(built)
	if err != nil {
		return err
	}
	if size > r.limit {
		return fmt.Errorf("%d bytes compressed, and %d are allowed", size, r.limit)
	}
	document, err := sbom.Document(repository+r.name+"-"+arch, tag, parts)
	if err != nil {
		return err
	}
	// Whole or not at all: a run that is cut short must not leave half an archive.
	file := archive(m.out, r.name, arch)
	if err := image.WriteArchive(file+".part", built, repository+r.name, tag, m.release); err != nil {
		return err
	}
	if err := os.WriteFile(strings.TrimSuffix(file, ".tar")+".spdx.json", document, 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".part", file); err != nil {
		return err
	}
	fmt.Fprintf(m.log, "%-10s %-6s %s  %5.1f MB compressed\n", r.name, arch, tag, float64(size)/1e6)
	return nil
}

func (m maker) program(ctx context.Context, r recipe, arch string) (image.Spec, []sbom.Part, error) {
	file := filepath.Join(m.scratch, r.name+"-"+arch)
	target := gobuild.Target{Dir: filepath.Join(m.root, r.program.Dir), Package: r.program.Package}
	builder := gobuild.Builder{Toolchain: m.toolchain, Release: m.release, Environ: m.environ}
	if err := builder.Build(ctx, target, arch, file); err != nil {
		return image.Spec{}, nil, err
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return image.Spec{}, nil, err
	}
	parts, err := sbom.GoParts(file)
	if err != nil {
		return image.Spec{}, nil, err
	}
	return programSpec(r.file, arch, binary), parts, os.Remove(file)
}

func (m maker) packaged(ctx context.Context, r recipe, arch string) (image.Spec, []sbom.Part, error) {
	debs, err := debian.Fetch(ctx, m.cache, arch, r.packages...)
	if err != nil {
		return image.Spec{}, nil, err
	}
	pool, err := debian.Open(ctx, debs)
	if err != nil {
		return image.Spec{}, nil, err
	}
	server, version, err := serverPackages(pool)
	if err != nil {
		return image.Spec{}, nil, err
	}
	files, err := pool.Select(wanted, slices.Concat(r.packages, server)...)
	if err != nil {
		return image.Spec{}, nil, err
	}
	from := map[string]bool{}
	for _, f := range files {
		from[f.Package] = true
	}
	var parts []sbom.Part
	for name, pkg := range pool.Packages {
		if from[name] {
			parts = append(parts, sbom.DebianPart("debian", name, pkg.Version, pkg.Arch))
		}
	}
	slices.SortFunc(parts, func(a, b sbom.Part) int { return strings.Compare(a.Name, b.Name) })
	return postgresSpec(arch, "/usr/lib/postgresql/"+version+"/bin", files), parts, nil
}

// serverPackages finds the packages behind the name "postgresql", which stands for the distribution's version.
func serverPackages(pool *debian.Pool) (packages []string, version string, err error) {
	named := regexp.MustCompile(`^postgresql-(\d+)$`)
	for name := range pool.Packages {
		if match := named.FindStringSubmatch(name); match != nil {
			return []string{name, "postgresql-client-" + match[1]}, match[1], nil
		}
	}
	return nil, "", errors.New("no package postgresql-N came with postgresql")
}

// writeTags writes the tags of all archives that are there, of one architecture: this machine's if it was built, else the
// first. values.yaml is for helm, kustomization.yaml is a component for kubectl apply -k.
func (m maker) writeTags(archs []string) error {
	arch := archs[0]
	if slices.Contains(archs, runtime.GOARCH) {
		arch = runtime.GOARCH
	}
	var values, component strings.Builder
	fmt.Fprintf(&values, "# Written by make images, for %s: helm … -f this file. The tags follow the content.\nimages:\n", arch)
	fmt.Fprintf(&component, "# Written by make images, for %s: name this folder under components.\n", arch)
	component.WriteString("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nimages:\n")
	for _, name := range names() {
		repo, tags, err := image.ArchiveTags(archive(m.out, name, arch))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		i := slices.IndexFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "sha-") })
		if i < 0 {
			return fmt.Errorf("%s carries no tag of its content, only %v", archive(m.out, name, arch), tags)
		}
		fmt.Fprintf(&values, "  %s: {repository: %s, tag: %s}\n", name, repo, tags[i])
		fmt.Fprintf(&component, "  - {name: %s, newTag: %s}\n", repo, tags[i])
		if path.Base(repo) == "postgres" { // the manifests name the official image
			fmt.Fprintf(&component, "  - {name: postgres, newName: %s, newTag: %s}\n", repo, tags[i])
		}
	}
	return cmp.Or(
		os.WriteFile(filepath.Join(m.out, "values.yaml"), []byte(values.String()), 0o644),
		os.WriteFile(filepath.Join(m.out, "kustomization.yaml"), []byte(component.String()), 0o644),
	)
}
