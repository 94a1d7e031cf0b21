//go:build unix

// Package browser tests what only a browser can tell: that the pages work with their scripts, for eyes, ears and keys alike, on
// a phone too, under their own content policy. It drives Chromium against one real shop that `lab up` starts. It is a module
// of its own, so that the driver is nobody else's burden. Without Chromium or axe-core its tests are skipped, except in CI.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"example.com/watertight/test/shop"
)

// live is the shop that all tests share; each leaves it without faults.
var live = shop.New(func(int) (shop.Settings, error) {
	return shop.Settings{Environ: []string{"LOG_FORMAT=json"}}, nil
})

// chromium is the one browser of the test binary.
var chromium = &lazyBrowser{}

func TestMain(m *testing.M) {
	code := live.Main(m)
	chromium.close()
	os.Exit(code)
}

// within bounds every wait: generous, as the machine may be busy.
const within = time.Minute

// lazyBrowser is started by the first test that asks for it.
type lazyBrowser struct {
	once   sync.Once
	ctx    context.Context
	cancel []func()
	err    error
}

// get returns the context that tabs are made from.
func (b *lazyBrowser) get(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	program := find()
	if program == "" {
		missing(t, "no Chromium: run scripts/install-chromium.sh, or set CHROMIUM to one")
	}
	b.once.Do(func() { b.start(program) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.ctx
}

func (b *lazyBrowser) start(program string) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to start as root otherwise
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx, b.cancel = ctx, []func(){cancel, cancelAllocator}
	if err := chromedp.Do(ctx); err != nil {
		b.err = fmt.Errorf("start %s: %w", program, err)
	}
}

func (b *lazyBrowser) close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// find returns the browser's program, empty when there is none.
func find() string {
	for _, name := range []string{
		os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
		"/Applications/Chromium.app/Contents/MacOS/Chromium",
	} {
		if program, err := exec.LookPath(name); name != "" && err == nil {
			return program
		}
	}
	return ""
}

// missing skips the test for the reason, or fails it in CI, which must not pass without having looked.
func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// tab is one tab of a visitor with cookies of their own.
type tab struct {
	t    *testing.T
	ctx  context.Context
	shop *shop.Shop

	mu   sync.Mutex
	said []string // what the browser complained of
}

// visit opens a tab for a new visitor, once the shop has got over what other tests have done to it: a breaker may stay open for a while
// after the fault. What the browser complains of until the test ends fails the test: a script's error, or
// something that the content policy forbids.
func visit(t *testing.T) *tab {
	t.Helper()
	browser := chromium.get(t)
	p := &tab{t: t, shop: live.Get(t)}
	well(t, p.shop)
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, complaint := range p.said {
			t.Errorf("the browser complains: %s", complaint)
		}
	})
	p.ctx = ctx
	p.do(chromedp.EmulateViewport(1280, 900))
	return p
}

func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, fmt.Sprintf("%s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *cdplog.EventEntryAdded:
		// That an address did not answer is for the page to handle.
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork {
			p.said = append(p.said, string(e.Entry.Source)+": "+e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// open goes to an address of the shop.
func (p *tab) open(path string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(p.shop.URL+path)); err != nil {
		p.t.Fatalf("open %s: %v", path, err)
	}
}

// media sets what the visitor's system prefers, such as prefers-color-scheme to dark.
func (p *tab) media(pairs ...string) {
	p.t.Helper()
	var features []*emulation.MediaFeature
	for i := 0; i < len(pairs); i += 2 {
		features = append(features, &emulation.MediaFeature{Name: pairs[i], Value: pairs[i+1]})
	}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		p.t.Fatal(err)
	}
}

// eval evaluates JavaScript in the page.
func eval[T any](p *tab, js string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%.200s: %v", js, err)
	}
	return v
}

// wait waits until the JavaScript is true, also across pages.
func (p *tab) wait(what, js string) {
	p.t.Helper()
	shop.Eventually(p.t, within, what, func() bool {
		ok, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool](js))
		return err == nil && ok
	})
}

// click clicks what the selector finds, once it can be seen.
func (p *tab) click(selector string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		p.t.Fatalf("click %s: %v", selector, err)
	}
}

// at waits until the tab is at an address of the shop that begins with path.
func (p *tab) at(path string) {
	p.t.Helper()
	p.wait("the browser is at "+path, `document.readyState === "complete" && location.pathname.startsWith(`+quote(path)+`)`)
}

// quote writes a text as JavaScript has it.
func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string always can
	}
	return string(out)
}

// axe is the accessibility checker, as a script.
func axe(t *testing.T, s *shop.Shop) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(s.Root, "tools/node_modules/axe-core/axe.min.js"))
	if err != nil {
		missing(t, "no axe-core: run scripts/install-chromium.sh, which needs npm")
	}
	return string(script)
}

// accessible fails the test for everything that axe finds wrong with the page as it is now.
func (p *tab) accessible(name, axe string) {
	p.t.Helper()
	found := eval[[]string](p, axe+`;
		axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }).then(({ violations }) =>
			violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replaceAll("\n", " "))))`)
	for _, f := range found {
		p.t.Errorf("%s: %s", name, strings.TrimSpace(f))
	}
}

// fault sets a service's fault through the API, and ends it with the test.
func fault(t *testing.T, s *shop.Shop, service, body string) {
	t.Helper()
	t.Cleanup(func() { s.Do(t, "DELETE", "/api/v1/faults/"+service, "") })
	if a := s.Do(t, "PUT", "/api/v1/faults/"+service, body, "Content-Type", "application/json"); a.Status != 200 {
		t.Fatalf("fault of %s: %d %s", service, a.Status, a.Body)
	}
}
