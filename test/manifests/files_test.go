package manifests

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// read returns the content of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// files lists a folder of the repository, by paths from its root.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, entry := range entries {
		out = append(out, dir+"/"+entry.Name())
	}
	return out
}

// goSources returns the Go files below some folders of the repository, tests left out.
func goSources(t *testing.T, dirs ...string) []string {
	t.Helper()
	var out []string
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			content, err := os.ReadFile(path)
			out = append(out, string(content))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
