// Package repo looks things up in the repository's own files, for tests that hold its pages against them.
package repo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// HasTest says whether the package in a folder has the test function. The error is that of a file that cannot be read.
func HasTest(folder, test string) (bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		return false, fmt.Errorf("tests in %s: %w", folder, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("tests in %s: %w", folder, err)
		}
		if bytes.Contains(content, []byte("\nfunc "+test+"(t *testing.T)")) {
			return true, nil
		}
	}
	return false, nil
}
