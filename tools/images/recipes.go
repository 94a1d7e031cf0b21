package main

import (
	"encoding/pem"
	"fmt"
	"path"
	"regexp"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"example.com/watertight/tools/images/debian"
	"example.com/watertight/tools/images/gobuild"
	"example.com/watertight/tools/images/image"
)

// recipe says what an image is made of: one Go program, or Debian's packages.
type recipe struct {
	name     string
	program  gobuild.Target
	file     string // what the program is called in the image, in its root folder
	packages []string
	limit    int64 // how large the image may be, compressed, in bytes
}

// A node fetches a service's image before it can start a pod, in a bad hour too. The others are fetched once.
const (
	serviceLimit = 20_000_000
	toolLimit    = 60_000_000
)

// recipes has every image of the shop.
func recipes() []recipe {
	program := func(name, dir, pkg string) recipe {
		return recipe{name: name, program: gobuild.Target{Dir: dir, Package: pkg}, file: "/" + path.Base(pkg), limit: serviceLimit}
	}
	lab := program("lab", "lab", "./cmd/lab")
	lab.limit = toolLimit
	service := func(name string) recipe { return program(name, path.Join("services", name), "./cmd/"+name) }
	return []recipe{
		program("gateway", "gateway", "./cmd/gateway"),
		service("checkout"), service("search"), service("recs"), service("inventory"), service("payment"), service("monolith"),
		lab,
		// In the version that go.mod here has as a tool.
		{name: "nats", program: gobuild.Target{Dir: "tools/images", Package: "github.com/nats-io/nats-server/v2"}, file: "/nats-server", limit: serviceLimit},
		// initdb calls the shell, and so do the scripts that set a database up; flock keeps two servers off one volume.
		{name: "postgres", packages: []string{"postgresql", "dash", "coreutils", "grep", "sed", "util-linux", "libc-bin", "tzdata"}, limit: toolLimit},
	}
}

const nobody = 65532 // the number that distroless images use for a user without rights

// ground is the layer under every Go program: who runs it, and whom it trusts when it calls an https address. The
// certificates are Mozilla's as a Go module pins them, so that they do not depend on the machine.
func ground() []image.File {
	var roots strings.Builder
	for root := range bundle.Roots() {
		// pem.Encode fails only when its writer does.
		_ = pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
	}
	return []image.File{
		text("/etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/nologin\nnonroot:x:%d:%d:nonroot:/:/nologin\n", nobody, nobody)),
		text("/etc/group", fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", nobody)),
		text("/etc/ssl/certs/ca-certificates.crt", roots.String()),
		{Path: "/tmp", Mode: 0o1777, Dir: true},
	}
}

func text(name, content string) image.File {
	return image.File{Path: name, Mode: 0o644, Data: []byte(content)}
}

// programSpec is the image of one static program: FROM scratch, nothing to log into, nothing that needs root.
func programSpec(file, arch string, binary []byte) image.Spec {
	return image.Spec{
		Arch: arch, User: fmt.Sprintf("%d:%d", nobody, nobody), Entrypoint: []string{file}, WorkingDir: "/",
		Layers: [][]image.File{ground(), {{Path: file, Mode: 0o755, Data: binary}}},
	}
}

// postgresID is the number that the official image of PostgreSQL gives its user too, so that one manifest fits both.
const postgresID = 999

// postgresSpec is the image of a PostgreSQL server and its client programs, which are on the PATH. It starts a server on
// $PGDATA, but makes no database: who runs it calls initdb first.
func postgresSpec(arch, bin string, files []debian.File) image.Spec {
	const home = "/var/lib/postgresql"
	layer := []image.File{
		text("/etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/bin/sh\npostgres:x:%d:%d:PostgreSQL:%s:/bin/sh\n", postgresID, postgresID, home)),
		text("/etc/group", fmt.Sprintf("root:x:0:\npostgres:x:%d:\n", postgresID)),
		{Path: "/tmp", Mode: 0o1777, Dir: true},
		{Path: home, Mode: 0o755, Dir: true, UID: postgresID, GID: postgresID},
		{Path: home + "/data", Mode: 0o700, Dir: true, UID: postgresID, GID: postgresID},
		{Path: "/run/postgresql", Mode: 0o3777, Dir: true, UID: postgresID, GID: postgresID},
		{Path: "/var/run", Link: "/run"},
	}
	for _, top := range []string{"bin", "sbin", "lib", "lib64"} {
		layer = append(layer, image.File{Path: "/" + top, Link: "usr/" + top})
	}
	there := map[string]bool{}
	for _, f := range layer {
		there[f.Path] = true
	}
	for _, f := range files {
		if there[f.Path] {
			continue
		}
		there[f.Path] = true
		layer = append(layer, image.File{Path: f.Path, Mode: f.Mode, Dir: f.Dir, Link: f.Link, Data: f.Data})
	}
	if !there["/usr/bin/sh"] {
		layer = append(layer, image.File{Path: "/usr/bin/sh", Link: "dash"})
	}
	return image.Spec{
		Arch: arch, User: fmt.Sprintf("%d:%d", postgresID, postgresID), Entrypoint: []string{bin + "/postgres"}, WorkingDir: home,
		Env:    []string{"PATH=" + bin + ":/usr/local/bin:/usr/bin:/usr/sbin", "LANG=C.UTF-8", "PGDATA=" + home + "/data"},
		Layers: [][]image.File{layer},
	}
}

// unneeded matches what a server in a container has no use for: documentation, translations, what extensions are compiled
// with, and the JIT compiler, which PostgreSQL does without when it is not there and which would double the image.
var unneeded = regexp.MustCompile(`^/usr/share/(doc|doc-base|man|locale|info|lintian|bug|postgresql-common)/|^/usr/include/|^/etc/(init\.d|default)/` +
	`|/bitcode/|/llvmjit|/pgxs/|^/usr/lib/[^/]*-linux-gnu/gconv/`)

func wanted(f debian.File) bool {
	if f.Package == "util-linux" { // much else is in there
		return f.Path == "/usr/bin/flock"
	}
	return !unneeded.MatchString(f.Path)
}
