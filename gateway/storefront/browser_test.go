package storefront_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// browser goes through pages as a person without scripts does: it follows links and sends forms with what they hold.
type browser struct {
	tb      testing.TB
	client  *http.Client
	base    string
	headers http.Header // sent with each request
}

// page is an answer that was read and parsed.
type page struct {
	*browser
	Status  int
	Header  http.Header
	Address *url.URL
	Body    string
	Root    *html.Node
}

func browse(tb testing.TB, h http.Handler) *browser {
	tb.Helper()
	server := httptest.NewServer(h)
	tb.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		tb.Fatal(err)
	}
	client := server.Client()
	client.Jar = jar
	return &browser{tb: tb, client: client, base: server.URL, headers: http.Header{"Accept": {"text/html"}}}
}

func (b *browser) do(method, address string, form url.Values) page {
	b.tb.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.tb.Context(), method, b.base+address, body)
	if err != nil {
		b.tb.Fatal(err)
	}
	req.Header = b.headers.Clone()
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.tb.Fatalf("%s %s: %v", method, address, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		b.tb.Fatalf("%s %s: %v", method, address, err)
	}
	root, err := html.Parse(strings.NewReader(string(content)))
	if err != nil {
		b.tb.Fatalf("%s %s: %v", method, address, err)
	}
	return page{b, resp.StatusCode, resp.Header, resp.Request.URL, string(content), root}
}

func (b *browser) get(address string) page {
	b.tb.Helper()
	return b.do(http.MethodGet, address, nil)
}

// wants fails the test unless the page has the status.
func (p page) wants(status int) page {
	p.tb.Helper()
	if p.Status != status {
		p.tb.Fatalf("%s: status %d, want %d; %.300s", p.Address, p.Status, status, text(p.Root))
	}
	return p
}

// says fails the test unless the page's text has each of the words.
func (p page) says(words ...string) page {
	p.tb.Helper()
	shown := text(p.Root)
	for _, w := range words {
		if !strings.Contains(shown, w) {
			p.tb.Fatalf("%s does not say %q: %s", p.Address, w, shown)
		}
	}
	return p
}

// follow goes where the link with this text leads.
func (p page) follow(label string) page {
	p.tb.Helper()
	for _, a := range all(p.Root, "a") {
		if strings.Contains(text(a), label) {
			next, err := p.Address.Parse(attr(a, "href"))
			if err != nil {
				p.tb.Fatal(err)
			}
			return p.get(next.RequestURI())
		}
	}
	p.tb.Fatalf("%s has no link %q", p.Address, label)
	return p
}

// form is a form of a page, filled in as the page has it.
type form struct {
	page   page
	action string
	method string
	values url.Values
}

// form finds the form by the text or the label of its button, which is pressed.
func (p page) form(button string) form {
	p.tb.Helper()
	for _, f := range all(p.Root, "form") {
		for _, b := range all(f, "button") {
			if !strings.Contains(text(b)+attr(b, "aria-label"), button) {
				continue
			}
			filled := form{page: p, action: attr(f, "action"), method: strings.ToUpper(attr(f, "method")), values: url.Values{}}
			for _, i := range all(f, "input") {
				if _, checked := lookup(i, "checked"); attr(i, "type") == "radio" && !checked {
					continue
				}
				filled.values.Add(attr(i, "name"), attr(i, "value"))
			}
			if name := attr(b, "name"); name != "" {
				filled.values.Set(name, attr(b, "value"))
			}
			return filled
		}
	}
	p.tb.Fatalf("%s has no form with the button %q", p.Address, button)
	return form{}
}

func (f form) with(name, value string) form {
	f.page.tb.Helper()
	if _, ok := f.values[name]; !ok {
		f.page.tb.Fatalf("the form has no field %q: %v", name, f.values)
	}
	f.values.Set(name, value)
	return f
}

func (f form) send() page {
	f.page.tb.Helper()
	if f.method == http.MethodPost {
		return f.page.do(http.MethodPost, f.action, f.values)
	}
	return f.page.get(f.action + "?" + f.values.Encode())
}

// all returns the elements with the name below n, in document order.
func all(n *html.Node, name string) []*html.Node {
	var found []*html.Node
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && (name == "*" || d.Data == name) {
			found = append(found, d)
		}
	}
	return found
}

func text(n *html.Node) string {
	var words []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode && !slices.Contains([]string{"script", "style"}, d.Parent.Data) {
			words = append(words, strings.Fields(d.Data)...)
		}
	}
	return strings.Join(words, " ")
}

func lookup(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func attr(n *html.Node, name string) string {
	value, _ := lookup(n, name)
	return value
}

// faults lists what is wrong with a page whatever it is about: for people with a screen reader, for the content policy, for
// a slow line, and for a shop that asks nobody else.
func faults(p page) []string {
	var wrong []string
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }

	if len(p.Body) > 100<<10 {
		report("the page has %d bytes", len(p.Body))
	}
	if attr(all(p.Root, "html")[0], "lang") == "" {
		report("no language")
	}
	if titles := all(p.Root, "title"); len(titles) != 1 || text(titles[0]) == "" {
		report("%d titles", len(titles))
	}
	ids, labelled, level := map[string]bool{}, map[string]bool{}, 0
	for _, n := range all(p.Root, "*") {
		if id, ok := lookup(n, "id"); ok {
			if id == "" || ids[id] {
				report("id %q is empty or there twice", id)
			}
			ids[id] = true
		}
		if n.Data == "label" {
			labelled[attr(n, "for")] = true
		}
		if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
			now := int(n.Data[1] - '0')
			if now > level+1 || (now == 1 && level != 0) {
				report("h%d after h%d", now, level)
			}
			level = now
		}
	}
	if level == 0 || len(all(p.Root, "h1")) != 1 {
		report("there is not one h1")
	}
	for _, n := range all(p.Root, "*") {
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on") || a.Key == "style":
				report("<%s %s> is inline code or style", n.Data, a.Key)
			case (a.Key == "href" || a.Key == "src" || a.Key == "action") && !localAddress(a.Val):
				report("<%s %s=%q> leaves the shop", n.Data, a.Key, a.Val)
			case a.Key == "aria-labelledby" || a.Key == "aria-describedby":
				for id := range strings.FieldsSeq(a.Val) {
					if !ids[id] {
						report("%s names %q, which is not there", a.Key, id)
					}
				}
			}
		}
		switch n.Data {
		case "style":
			if css := n.FirstChild.Data; strings.Contains(css, "@import") || strings.Contains(css, "url(") {
				report("a style that asks for more")
			}
			sum := sha256.Sum256([]byte(n.FirstChild.Data))
			if policy := p.Header.Get("Content-Security-Policy"); !strings.Contains(policy, base64.StdEncoding.EncodeToString(sum[:])) {
				report("a style element that the policy %q does not allow", policy)
			}
		case "script":
			if attr(n, "src") == "" || text(n) != "" {
				report("an inline script")
			}
		case "svg":
			if attr(n, "aria-hidden") != "true" {
				report("a drawing that is not hidden from screen readers")
			}
		case "img":
			if _, ok := lookup(n, "alt"); !ok {
				report("an image without alt")
			}
		case "input":
			if attr(n, "type") != "hidden" && !labelled[attr(n, "id")] && n.Parent.Data != "label" {
				report("input %q has no label", attr(n, "name"))
			}
		case "button", "a":
			if text(n) == "" && attr(n, "aria-label") == "" && attr(n, "aria-hidden") != "true" {
				report("a %s without a name", n.Data)
			}
		case "form":
			if m := attr(n, "method"); m != "post" && m != "get" {
				report("a form without a method")
			}
		case "ul", "ol":
			for c := range n.ChildNodes() {
				if c.Type == html.ElementNode && c.Data != "li" {
					report("a list with a %s in it", c.Data)
				}
			}
		}
	}
	return wrong
}

func localAddress(address string) bool {
	return strings.HasPrefix(address, "#") || (strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//"))
}

// input returns the page's input with the name.
func (p page) input(name string) *html.Node {
	p.tb.Helper()
	for _, i := range all(p.Root, "input") {
		if attr(i, "name") == name {
			return i
		}
	}
	p.tb.Fatalf("%s has no input %q", p.Address, name)
	return nil
}
