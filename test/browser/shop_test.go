//go:build unix

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// product is one that there is enough of.
const product = "/products/LGT-0007"

// order orders one of the product, and leaves the tab at the order's page.
func (p *tab) order() {
	p.t.Helper()
	p.open(product)
	p.click(`button[value=add]`)
	p.at("/basket")
	p.click(`a[href="/checkout"]`)
	p.at("/checkout")
	p.click(`.actions button`)
	p.at("/orders/")
}

const confirmed = `document.querySelector("#status")?.dataset.status === "confirmed"`

func TestShop_FromTheShelfToAConfirmedOrder(t *testing.T) {
	p := visit(t)
	p.open("/")
	p.do(chromedp.SendKeys(chromedp.CSS("#q"), "storm lantern"+kb.Enter))
	p.wait("the search finds something", `document.querySelectorAll(".card").length > 0 && location.search.includes("storm")`)
	p.click(".card a")
	p.at("/products/")
	if got := eval[int](p, `document.querySelectorAll(".together .card").length`); got == 0 {
		t.Error("the page has no recommendations")
	}
	p.order()
	loaded := eval[float64](p, `performance.timeOrigin`)
	p.wait("the order is confirmed", confirmed)
	if eval[float64](p, `performance.timeOrigin`) != loaded {
		t.Error("the page was loaded again: its script did not follow the order")
	}
	if words := eval[string](p, `document.querySelector("#status").innerText`); !strings.Contains(words, "Thank you") {
		t.Errorf("the confirmed order's page says %q", words)
	}
}

func TestShop_OrdersWithKeysAlone(t *testing.T) {
	p := visit(t)
	p.open(product)
	p.do(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](p, `document.activeElement.className`); got != "skip" {
		t.Errorf("the first stop is %q, want the link that skips to the content", got)
	}
	p.tabTo(`button[value=add]`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.at("/basket")
	p.tabTo(`a[href="/checkout"]`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.at("/checkout")
	p.tabTo(`input[type=radio]`)
	p.tabTo(`.actions button`)
	p.do(chromedp.KeyEvent(" "))
	p.at("/orders/")
	p.wait("the order is confirmed", confirmed)
}

// tabTo presses Tab until the focus is where the selector says, and checks that one sees at each stop where the focus is.
func (p *tab) tabTo(selector string) {
	p.t.Helper()
	for range 200 {
		p.do(chromedp.KeyEvent(kb.Tab))
		where := eval[struct {
			There, Seen bool
			What        string
		}](p, fmt.Sprintf(`(() => {
			const el = document.activeElement;
			const style = getComputedStyle(el);
			const box = el.getBoundingClientRect();
			return {
				There: el.matches(%s),
				Seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.bottom > 0 && box.top < innerHeight,
				What: el.outerHTML.slice(0, 120),
			};
		})()`, quote(selector)))
		if !where.Seen && where.What[:5] != "<body" {
			p.t.Errorf("on the way to %s one does not see that the focus is on %s", selector, where.What)
		}
		if where.There {
			return
		}
	}
	p.t.Fatalf("Tab does not come to %s", selector)
}

// places lists the pages that the standard holds for, once there is an order, and something in the basket.
func places(p *tab) []string {
	p.t.Helper()
	p.order()
	order := eval[string](p, `location.pathname`)
	p.wait("the order is confirmed", confirmed)
	p.open(product)
	p.click(`button[value=add]`)
	p.at("/basket")
	return []string{"/", "/?q=lantern", "/?q=nothing+of+the+kind", product, "/basket", "/checkout", order, "/nowhere", "/bridge"}
}

func TestPages_AreAccessibleInLightAndDark(t *testing.T) {
	p := visit(t)
	script := axe(t, p.shop)
	for _, path := range places(p) {
		for _, scheme := range []string{"light", "dark"} {
			p.media("prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce")
			p.open(path)
			p.accessible(path+" in "+scheme, script)
		}
	}
}

func TestPages_FitAPhoneAndDoNotShift(t *testing.T) {
	p := visit(t)
	all := places(p)
	customers(t, p.shop) // numbers that stand still prove nothing
	for _, width := range []int64{360, 768, 1280} {
		p.do(chromedp.EmulateViewport(width, 740))
		for _, path := range all {
			p.open(path)
			if path == "/bridge" {
				p.wait("three frames have come", `(window.frames_ ??= new Set()).add(document.querySelector("[data-text=clock]").textContent).size >= 3`)
			}
			if got := eval[int64](p, `document.scrollingElement.scrollWidth`); got > width {
				wide := eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll("main *")].filter((el) => el.getBoundingClientRect().right > %d).slice(0, 5).map((el) => el.outerHTML.slice(0, 100))`, width))
				t.Errorf("%s at %d px is %d wide: %v", path, width, got, wide)
			}
			shifts := eval[[]string](p, `new Promise((done) => {
				const all = [];
				new PerformanceObserver((list) => all.push(...list.getEntries())).observe({ type: "layout-shift", buffered: true });
				const name = (node) => (node?.outerHTML ?? node?.parentNode?.outerHTML ?? "a text that was replaced").slice(0, 120);
				const from = ({ x, y, width }) => " " + [x, y, width].map(Math.round);
				requestAnimationFrame(() => setTimeout(() => done(all.flatMap((e) => e.sources.map((s) =>
					e.value.toFixed(5) + " by " + name(s.node) + from(s.previousRect) + " to" + from(s.currentRect))))));
			})`)
			if len(shifts) > 0 {
				t.Errorf("%s at %d px shifts: %s", path, width, strings.Join(shifts, "; "))
			}
			small := eval[[]string](p, `[...document.querySelectorAll("button, summary, select, input:not([type=hidden]):not([type=radio])")].filter((el) => el.checkVisibility() && el.getBoundingClientRect().height < 24).map((el) => el.outerHTML.slice(0, 100))`)
			if len(small) > 0 {
				t.Errorf("%s at %d px: too small to touch: %v", path, width, small)
			}
		}
	}
}

// The page, its style and whatever it needs to be shown come with the first answer, in the first flight of a new connection.
func TestPages_AreShownAfterOneRoundTrip(t *testing.T) {
	const firstFlight = 10 * 1460
	p := visit(t)
	for _, path := range places(p) {
		p.open(path)
		cost := eval[struct {
			Page, All float64
			Blocking  []string
		}](p, `(() => {
			const page = performance.getEntriesByType("navigation")[0];
			const parts = performance.getEntriesByType("resource");
			return {
				Page: page.transferSize,
				All: parts.reduce((sum, part) => sum + part.transferSize, page.transferSize),
				Blocking: parts.filter((part) => part.renderBlockingStatus === "blocking").map((part) => part.name),
			};
		})()`)
		if cost.Page > firstFlight || cost.Page == 0 || len(cost.Blocking) > 0 {
			t.Errorf("%s takes %.0f bytes before it is shown, want at most %d, and waits for %v", path, cost.Page, firstFlight, cost.Blocking)
		}
		if cost.All > 100<<10 {
			t.Errorf("%s takes %.0f bytes in all, want at most 100 KiB", path, cost.All)
		}
		t.Logf("%s: %.0f bytes, %.0f in all", path, cost.Page, cost.All)
	}
}
