// Package page is what all pages have in common: the base of their look, how they are sent, and the content policy that lets a
// browser run what this program wrote and nothing else. It knows no page.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"strings"
)

//go:embed base.css
var baseStyle string

// BaseStyle is the part of the style that all pages share: colours by role, type, controls, top and bottom.
func BaseStyle() string { return baseStyle }

// Inline is a style or a script that stands in the page itself: it is there with the page's first bytes, and costs no second
// round trip.
type Inline struct {
	Element template.HTML
	source  string // 'sha256-…', as a content policy names it
}

// Style returns a style element.
func Style(css string) Inline { return inline("style", css) }

// Script returns a script element. It belongs at the end of the body, where everything it looks for is there.
func Script(js string) Inline { return inline("script", js) }

// inline relies on its content being part of the program: nobody's input may be in it.
func inline(element, content string) Inline {
	sum := sha256.Sum256([]byte(content))
	return Inline{
		Element: template.HTML("<" + element + ">" + content + "</" + element + ">"), //nolint:gosec // see above
		source:  "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
	}
}

// Policy is the content policy of a page with these inline styles and scripts: it may load what this shop serves, and no
// other inline code, no frame and no other site.
func Policy(styles, scripts []Inline) string {
	return "default-src 'none'; style-src " + sources(styles) + "; script-src " + sources(scripts) + "; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

func sources(all []Inline) string {
	var out strings.Builder
	out.WriteString("'self'")
	for _, i := range all {
		out.WriteString(" " + i.source)
	}
	return out.String()
}

// Send answers with an HTML page under its policy. Pages are never kept: each shows something of its own moment.
func Send(w http.ResponseWriter, r *http.Request, status int, policy string, html []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cache-Control", "no-store")
	NewBody(html).Send(w, r, status)
}

// Body is content as it is and compressed: compressed, a page of products with its style fits into the first flight of a new
// connection (ten segments, about 14 kB; RFC 6928).
type Body struct {
	plain, zipped []byte
}

// NewBody compresses the content.
func NewBody(content []byte) Body {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(content) //nolint:errcheck // a buffer takes everything
	z.Close()
	return Body{plain: content, zipped: zipped.Bytes()}
}

// Send answers with the form that the client takes.
func (b Body) Send(w http.ResponseWriter, r *http.Request, status int) {
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
