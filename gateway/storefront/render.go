package storefront

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

//go:embed templates
var templateFiles embed.FS

// pages are the parsed templates by name, each with the layout around it.
type pages map[string]*template.Template

// view is what the layout shows around a page.
type view struct {
	Title    string
	Query    string          // in the search box
	Basket   int64           // pieces in the basket
	Pictures []template.HTML // symbols that the page draws from
	Script   string          // static file with the page's script; empty for none
	Refresh  int             // seconds after which a browser without scripts loads the page again; 0 for never
	Page     any
}

func parsePages(a assets) (pages, error) {
	functions := template.FuncMap{"asset": a.address, "money": money, "product": productAddress}
	layout, err := template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("parse the layout: %w", err)
	}
	all := pages{}
	for _, name := range []string{"catalog", "product", "basket", "checkout", "order", "failure"} {
		page, err := layout.Clone()
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", name, err)
		}
		if _, err := page.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
			return nil, fmt.Errorf("parse page %s: %w", name, err)
		}
		all[name] = page
	}
	return all, nil
}

// render sends a page, whole or not at all: an error means that nothing was sent.
func (s *Storefront) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) error {
	if v.Basket == 0 {
		v.Basket = basketOf(r).pieces()
	}
	var page bytes.Buffer
	if err := s.pages[name].Execute(&page, v); err != nil {
		return fmt.Errorf("render page %s: %w", name, err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	newBody(page.Bytes()).send(w, r, status)
	return nil
}

// body is content as it is and compressed: compressed, a page of products fits into the first flight of a new connection
// (ten segments, about 14 kB; RFC 6928).
type body struct {
	plain, zipped []byte
}

func newBody(content []byte) body {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(content) //nolint:errcheck // a buffer takes everything
	z.Close()
	return body{plain: content, zipped: zipped.Bytes()}
}

func (b body) send(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	content := b.plain
	h.Add("Vary", "Accept-Encoding")
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		content = b.zipped
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(status)
	w.Write(content) //nolint:errcheck // the client is gone; there is nobody to tell
}

// acceptsGzip looks for gzip by name, without q=0 behind it (RFC 9110, section 12.5.3).
func acceptsGzip(header string) bool {
	for coding := range strings.SplitSeq(header, ",") {
		name, weight, weighted := strings.Cut(coding, ";")
		if !strings.EqualFold(strings.TrimSpace(name), "gzip") {
			continue
		}
		_, value, _ := strings.Cut(weight, "=")
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		return !weighted || (err == nil && q > 0)
	}
	return false
}

// productAddress is where a product's page is. Ids may hold any printable character, slashes too.
func productAddress(id string) string { return "/products/" + url.PathEscape(id) }

// orderAddress is where an order's page is.
func orderAddress(id string) string { return "/orders/" + url.PathEscape(id) }
