//go:build unix

package accept

import (
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/watertight/test/shop"
)

var (
	action = regexp.MustCompile(`<form[^>]*action="([^"]+)" method="post"[^>]*>`)
	inputs = regexp.MustCompile(`<(?:input|button)[^>]*name="([^"]+)"[^>]*value="([^"]*)"`)
)

// browser keeps cookies, follows links and sends forms, and runs no script.
type browser struct {
	t    *testing.T
	shop *shop.Shop
	http *http.Client
}

func newBrowser(t *testing.T, s *shop.Shop) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, s, &http.Client{Jar: jar, Timeout: 30 * time.Second}}
}

// open asks for a page, with a form's fields when there are any, and returns its text and where it ended up.
func (b *browser) open(path string, form url.Values) (page, at string) {
	b.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.shop.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		b.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, content)
	}
	return string(content), resp.Request.URL.Path
}

// send fills in and sends the first form of a page that goes to an address.
func (b *browser) send(page, to string) (next, at string) {
	b.t.Helper()
	for _, where := range action.FindAllStringSubmatchIndex(page, -1) {
		if page[where[2]:where[3]] != to {
			continue
		}
		form, _, _ := strings.Cut(page[where[1]:], "</form>")
		fields := url.Values{}
		for _, input := range inputs.FindAllStringSubmatch(form, -1) {
			if fields.Has(input[1]) {
				continue // the first choice of several
			}
			fields.Set(input[1], html.UnescapeString(input[2]))
		}
		return b.open(to, fields)
	}
	b.t.Fatalf("no form goes to %s in %s", to, page)
	return "", ""
}

func TestStorefront_FromSearchToTheOrdersPageWithoutScripts(t *testing.T) {
	s := live.Get(t)
	item := somethings(t, s, 1)[0]
	b := newBrowser(t, s)

	page, _ := b.open("/?q="+url.QueryEscape(item.Name), nil)
	if !strings.Contains(page, `href="/products/`+item.ID+`"`) {
		t.Fatalf("the search does not lead to %s: %s", item.ID, page)
	}
	page, _ = b.open("/products/"+item.ID, nil)
	if !strings.Contains(page, html.EscapeString(item.Name)) || !strings.Contains(page, "Often bought together") {
		t.Errorf("the product's page: %s", page)
	}
	page, at := b.send(page, "/basket")
	if at != "/basket" || !strings.Contains(page, html.EscapeString(item.Name)) {
		t.Fatalf("the basket at %s: %s", at, page)
	}
	page, _ = b.open("/checkout", nil)
	page, at = b.send(page, "/checkout")
	id, isOrder := strings.CutPrefix(at, "/orders/")
	if !isOrder || !strings.Contains(page, html.EscapeString(item.Name)) {
		t.Fatalf("after the checkout at %s: %s", at, page)
	}
	var o order
	s.Get(t, "/api/v1/orders/"+id).Into(t, http.StatusOK, &o)
	if o.Total != item.Price.Minor || len(o.Lines) != 1 || o.Lines[0].ProductID != item.ID {
		t.Errorf("the order is %+v, want one %s", o, item.ID)
	}
}
