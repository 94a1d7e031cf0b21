package storefront

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"

	"example.com/watertight/gateway/page"
)

//go:embed templates
var templateFiles embed.FS

//go:embed shop.css
var shopStyle string

// pages are the parsed templates by name, each with the layout around it.
type pages map[string]*template.Template

// view is what the layout shows around a page.
type view struct {
	Title    string
	Style    template.HTML   // set by render
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
		named, err := layout.Clone()
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", name, err)
		}
		if _, err := named.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
			return nil, fmt.Errorf("parse page %s: %w", name, err)
		}
		all[name] = named
	}
	return all, nil
}

// render sends a page, whole or not at all: an error means that nothing was sent.
func (s *Storefront) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) error {
	if v.Basket == 0 {
		v.Basket = basketOf(r).pieces()
	}
	v.Style = s.style.Element
	var html bytes.Buffer
	if err := s.pages[name].Execute(&html, v); err != nil {
		return fmt.Errorf("render page %s: %w", name, err)
	}
	page.Send(w, r, status, s.policy, html.Bytes())
	return nil
}

// productAddress is where a product's page is. Ids may hold any printable character, slashes too.
func productAddress(id string) string { return "/products/" + url.PathEscape(id) }

// orderAddress is where an order's page is.
func orderAddress(id string) string { return "/orders/" + url.PathEscape(id) }
