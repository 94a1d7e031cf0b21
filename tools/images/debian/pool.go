package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// Package is what a .deb says about itself.
type Package struct {
	Name, Version, Arch string
}

// File is an entry of a package, with its path as it is on a machine whose /bin, /sbin and /lib lie in /usr.
type File struct {
	Path    string
	Mode    int64
	Dir     bool
	Link    string
	Data    []byte
	Package string
}

// Pool is the content of a set of packages.
type Pool struct {
	Packages map[string]Package // by name
	files    map[string]File    // by path
}

// Open reads the .deb files.
func Open(ctx context.Context, debs []string) (*Pool, error) {
	pool := &Pool{Packages: map[string]Package{}, files: map[string]File{}}
	for _, deb := range debs {
		fields, err := exec.CommandContext(ctx, "dpkg-deb", "--show", "--showformat=${Package}\n${Version}\n${Architecture}", deb).Output()
		if err != nil {
			return nil, fmt.Errorf("debian: what %s is: %w", deb, err)
		}
		lines := strings.Split(string(fields), "\n")
		if len(lines) != 3 {
			return nil, fmt.Errorf("debian: what %s is: %q", deb, fields)
		}
		pkg := Package{Name: lines[0], Version: lines[1], Arch: lines[2]}
		if _, twice := pool.Packages[pkg.Name]; twice {
			return nil, fmt.Errorf("debian: two versions of %s are there", pkg.Name)
		}
		pool.Packages[pkg.Name] = pkg
		content, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			return nil, fmt.Errorf("debian: unpack %s: %w", deb, err)
		}
		if err := pool.add(pkg.Name, content); err != nil {
			return nil, fmt.Errorf("debian: unpack %s: %w", deb, err)
		}
	}
	return pool, nil
}

func (p *Pool) add(pkg string, content []byte) error {
	for tr := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f := File{Path: merged(h.Name), Mode: h.Mode & 0o7777, Package: pkg}
		switch h.Typeflag {
		case tar.TypeDir:
			f.Dir = true
		case tar.TypeSymlink:
			f.Link = h.Linkname
		case tar.TypeLink: // the same file under a second name
			f.Data = p.files[merged(h.Linkname)].Data
		case tar.TypeReg:
			if f.Data, err = io.ReadAll(tr); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is of the kind %q", h.Name, h.Typeflag)
		}
		p.files[f.Path] = f
	}
}

// merged is the path of a file once /bin, /sbin and /lib are links into /usr.
func merged(name string) string {
	name = path.Clean("/" + name)
	top, _, _ := strings.Cut(name[1:], "/")
	switch top {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		return "/usr" + name
	}
	return name
}

// Select returns the files of the named packages that keep lets through, every shared library of the pool that their
// programs need, and what those need in turn; with them the copyright files of all packages that contribute. Folders are
// left out unless a package gives them other rights than 0755. Sorted by path.
func (p *Pool) Select(keep func(File) bool, packages ...string) ([]File, error) {
	chosen := map[string]File{}
	var todo []File
	take := func(files ...File) {
		for _, f := range files {
			if _, there := chosen[f.Path]; !there && keep(f) {
				chosen[f.Path] = f
				todo = append(todo, f)
			}
		}
	}
	for _, f := range p.files {
		if slices.Contains(packages, f.Package) && (!f.Dir || f.Mode != 0o755) {
			take(f)
		}
	}
	libraries := p.libraries()
	for len(todo) > 0 {
		next, err := p.follow(todo[0], libraries)
		if err != nil {
			return nil, err
		}
		todo = todo[1:]
		take(next...)
	}
	for _, f := range slices.Collect(maps.Values(chosen)) {
		for _, notice := range p.copyright(f.Package) {
			chosen[notice.Path] = notice
		}
	}
	return slices.SortedFunc(maps.Values(chosen), func(a, b File) int { return strings.Compare(a.Path, b.Path) }), nil
}

// follow returns what f leads to: the target of a link, or what a program is linked with.
func (p *Pool) follow(f File, libraries map[string]File) ([]File, error) {
	if f.Link != "" {
		if target, there := p.files[linkTarget(f)]; there {
			return []File{target}, nil
		}
		return nil, nil // to a file that is made when a package is installed, or to none
	}
	needs, err := needed(f)
	if err != nil {
		return nil, err
	}
	var found []File
	for _, need := range needs {
		library, there := libraries[need]
		if path.IsAbs(need) { // the dynamic linker
			library, there = p.files[merged(need)]
		}
		if !there {
			return nil, fmt.Errorf("debian: %s needs %s, which no package has", f.Path, need)
		}
		found = append(found, library)
	}
	return found, nil
}

// copyright returns the package's copyright file, and the link to its folder where packages from one source share one.
func (p *Pool) copyright(pkg string) []File {
	folder := "/usr/share/doc/" + pkg
	var found []File
	if link, there := p.files[folder]; there && link.Link != "" {
		found, folder = append(found, link), linkTarget(link)
	}
	if notice, there := p.files[folder+"/copyright"]; there {
		found = append(found, notice)
	}
	return found
}

// libraries has, by name, the files in the folders that the dynamic linker looks in: the architecture's folder in
// /usr/lib, and /usr/lib itself.
func (p *Pool) libraries() map[string]File {
	found := map[string]File{}
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		f, dir := p.files[name], path.Dir(name)
		standard := dir == "/usr/lib" || path.Dir(dir) == "/usr/lib" && strings.HasSuffix(dir, "-linux-gnu")
		if !f.Dir && standard {
			found[path.Base(name)] = f
		}
	}
	return found
}

// linkTarget is the path that the symbolic link f leads to.
func linkTarget(f File) string {
	if path.IsAbs(f.Link) {
		return merged(f.Link)
	}
	return merged(path.Join(path.Dir(f.Path), f.Link))
}

// needed lists the libraries that f is linked with, and its dynamic linker; nothing if it is no program.
func needed(f File) ([]string, error) {
	if !bytes.HasPrefix(f.Data, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	file, err := elf.NewFile(bytes.NewReader(f.Data))
	if err != nil {
		return nil, fmt.Errorf("debian: %s: %w", f.Path, err)
	}
	needs, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("debian: %s: %w", f.Path, err)
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		interpreter, err := io.ReadAll(segment.Open())
		if err != nil {
			return nil, fmt.Errorf("debian: %s: %w", f.Path, err)
		}
		needs = append(needs, strings.TrimRight(string(interpreter), "\x00"))
	}
	return needs, nil
}
