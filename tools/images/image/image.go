// Package image puts container images together from files, with no daemon, no registry and no base image. The same files
// give the same bytes: no times, no owners' names, sorted paths. It does not know what the files are for.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of a layer: a folder if its mode says so, a symbolic link if Link is set, otherwise a regular file.
type File struct {
	Path     string // absolute
	Mode     int64  // permissions, with the set-id and sticky bits as in a tar header
	UID, GID int
	Dir      bool
	Link     string
	Data     []byte
}

// Spec says what an image is. Every field ends in the image's digest.
type Spec struct {
	Arch       string // as Go names it
	User       string // uid:gid, in numbers
	Entrypoint []string
	Env        []string
	WorkingDir string
	Labels     map[string]string
	Layers     [][]File // the lowest first
}

// New builds the image.
func New(spec Spec) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.DockerManifestSchema2)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: spec.Arch,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: spec.User, Entrypoint: spec.Entrypoint, Env: spec.Env, WorkingDir: spec.WorkingDir, Labels: spec.Labels,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("image config: %w", err)
	}
	for _, files := range spec.Layers {
		layer, err := newLayer(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, fmt.Errorf("image layer: %w", err)
		}
	}
	return image, nil
}

// newLayer writes the files in the order of their paths, and the folders above them where files has none.
func newLayer(files []File) (v1.Layer, error) {
	files, err := complete(files)
	if err != nil {
		return nil, err
	}
	var raw bytes.Buffer
	if err := writeTar(&raw, files); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return layer, nil
}

// writeTar writes the files as they come, without times.
func writeTar(w io.Writer, files []File) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Uid: f.UID, Gid: f.GID, Size: int64(len(f.Data))}
		switch {
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if _, err := tw.Write(f.Data); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return tw.Close()
}

// complete returns files sorted, with the missing parents added. Two entries of one path are an error.
func complete(files []File) ([]File, error) {
	at := map[string]File{}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/" {
			return nil, fmt.Errorf("layer: %q is no clean absolute path of a file", f.Path)
		}
		if _, twice := at[f.Path]; twice {
			return nil, fmt.Errorf("layer: %s is there twice", f.Path)
		}
		at[f.Path] = f
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if _, there := at[dir]; !there {
				at[dir] = File{Path: dir, Mode: 0o755, Dir: true}
			}
		}
	}
	sorted := make([]File, 0, len(at))
	for _, f := range at {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return sorted, nil
}

// ContentTag is a tag that only this content has: "sha-" and the first twelve digits of the image's id, which is the
// digest of its config and so of everything in it.
func ContentTag(image v1.Image) (string, error) {
	id, err := image.ConfigName()
	if err != nil {
		return "", fmt.Errorf("image id: %w", err)
	}
	return "sha-" + id.Hex[:12], nil
}

// CompressedSize is what a registry would hold and a node would fetch, in bytes.
func CompressedSize(image v1.Image) (int64, error) {
	layers, err := image.Layers()
	if err != nil {
		return 0, fmt.Errorf("image size: %w", err)
	}
	size, err := image.Size() // of the manifest
	if err != nil {
		return 0, fmt.Errorf("image size: %w", err)
	}
	for _, layer := range layers {
		n, err := layer.Size()
		if err != nil {
			return 0, fmt.Errorf("image size: %w", err)
		}
		size += n
	}
	return size, nil
}

// WriteArchive writes the image as `docker save` would, under each of the tags of the repository. docker, containerd,
// kind and minikube take it. The same image and tags give the same bytes, which the library's own writer does not promise
// for two tags.
func WriteArchive(file string, image v1.Image, repository string, tags ...string) error {
	config, err := image.RawConfigFile()
	if err != nil {
		return fmt.Errorf("archive %s: %w", file, err)
	}
	id, err := image.ConfigName()
	if err != nil {
		return fmt.Errorf("archive %s: %w", file, err)
	}
	layers, err := image.Layers()
	if err != nil {
		return fmt.Errorf("archive %s: %w", file, err)
	}
	content := tarball.Descriptor{Config: id.Hex + ".json"}
	entries := []File{{Path: content.Config, Mode: 0o644, Data: config}}
	for _, tag := range tags {
		if _, err := name.NewTag(repository + ":" + tag); err != nil {
			return fmt.Errorf("archive %s: %w", file, err)
		}
		content.RepoTags = append(content.RepoTags, repository+":"+tag)
	}
	for _, layer := range layers {
		digest, data, err := compressed(layer)
		if err != nil {
			return fmt.Errorf("archive %s: %w", file, err)
		}
		content.Layers = append(content.Layers, digest+".tar.gz")
		entries = append(entries, File{Path: digest + ".tar.gz", Mode: 0o644, Data: data})
	}
	manifest, err := json.Marshal(tarball.Manifest{content})
	if err != nil {
		return fmt.Errorf("archive %s: %w", file, err)
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, append(entries, File{Path: "manifest.json", Mode: 0o644, Data: manifest})); err != nil {
		return fmt.Errorf("archive %s: %w", file, err)
	}
	return os.WriteFile(file, archive.Bytes(), 0o644)
}

func compressed(layer v1.Layer) (digest string, data []byte, err error) {
	hash, err := layer.Digest()
	if err != nil {
		return "", nil, err
	}
	reader, err := layer.Compressed()
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = reader.Close() }()
	data, err = io.ReadAll(reader)
	return hash.Hex, data, err
}

// ArchiveTags returns the tags that the archive in file carries, in their order there, and the repository that they are of.
func ArchiveTags(file string) (repository string, tags []string, err error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil {
		return "", nil, fmt.Errorf("archive %s: %w", file, err)
	}
	for _, image := range manifest {
		for _, ref := range image.RepoTags {
			colon := strings.LastIndex(ref, ":")
			if colon < 0 {
				return "", nil, fmt.Errorf("archive %s: %q has no tag", file, ref)
			}
			repository, tags = ref[:colon], append(tags, ref[colon+1:])
		}
	}
	return repository, tags, nil
}
