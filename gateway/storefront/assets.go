package storefront

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"example.com/watertight/gateway/page"
	"example.com/watertight/gateway/problem"
)

//go:embed static
var staticFiles embed.FS

// asset is one static file in both the forms it is sent in.
type asset struct {
	address     string // with the hash of its content
	contentType string
	body        page.Body
}

// assets are the static files by name, such as order.js.
type assets map[string]asset

func loadAssets() (assets, error) {
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		return nil, fmt.Errorf("list static files: %w", err)
	}
	all := assets{}
	for _, e := range entries {
		content, err := staticFiles.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read a static file: %w", err)
		}
		sum := sha256.Sum256(content)
		ext := path.Ext(e.Name())
		kind, err := contentType(ext)
		if err != nil {
			return nil, fmt.Errorf("static file %s: %w", e.Name(), err)
		}
		all[e.Name()] = asset{
			address:     "/static/" + strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext,
			contentType: kind,
			body:        page.NewBody(content),
		}
	}
	return all, nil
}

// contentType is the same on every machine. The standard library's would read the machine's own tables first, and keep a thousand types.
func contentType(ext string) (string, error) {
	switch ext {
	case ".js":
		return "text/javascript; charset=utf-8", nil
	case ".svg":
		return "image/svg+xml", nil
	}
	return "", fmt.Errorf("the content type of %q is not known", ext)
}

// address is for templates.
func (a assets) address(name string) (string, error) {
	it, ok := a[name]
	if !ok {
		return "", fmt.Errorf("there is no static file %q", name)
	}
	return it.address, nil
}

// static answers GET /static/{file}. While a release rolls out, a page of one build may ask another build for its files: an
// unknown hash gets this build's file, not to be kept, because an old script is better than none.
func (s *Storefront) static(w http.ResponseWriter, r *http.Request) error {
	file := r.PathValue("file")
	ext := path.Ext(file)
	base := strings.TrimSuffix(file, ext)
	it, ok := s.assets[strings.TrimSuffix(base, path.Ext(base))+ext]
	if !ok {
		return problem.New(http.StatusNotFound, "not_found", "there is no such file")
	}
	h := w.Header()
	h.Set("Content-Type", it.contentType)
	h.Set("Cache-Control", "no-cache")
	if it.address == r.URL.Path {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	it.body.Send(w, r, http.StatusOK)
	return nil
}
