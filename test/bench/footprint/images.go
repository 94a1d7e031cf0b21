package footprint

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// heaviestImage returns the largest of the named images in folder, and the bytes that a registry would hold of it; no name when there is
// none for this machine.
func heaviestImage(folder string, names []string) (heaviest string, bytes float64) {
	for _, name := range names {
		size, err := compressed(filepath.Join(folder, name+"-"+runtime.GOARCH+".tar"))
		if err == nil && size > bytes { // without an error there is one
			heaviest, bytes = name, size
		}
	}
	return heaviest, bytes
}

// compressed sums up the layers of an archive, which are compressed in it.
func compressed(archive string) (bytes float64, err error) {
	file, err := os.Open(archive)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for members := tar.NewReader(file); ; {
		member, err := members.Next()
		if errors.Is(err, io.EOF) {
			return bytes, nil
		}
		if err != nil {
			return 0, err
		}
		if strings.HasSuffix(member.Name, ".tar.gz") {
			bytes += float64(member.Size)
		}
	}
}
