//go:build unix

package browser

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/watertight/test/shop"
)

// room is a JavaScript expression: the state of a compartment on the page.
func room(name string) string { return `document.querySelector("#room-` + name + `").dataset.state` }

// clearFaults ends every fault with the test.
func clearFaults(t *testing.T, s *shop.Shop) {
	t.Helper()
	t.Cleanup(func() {
		for _, service := range []string{"checkout", "search", "recs", "inventory", "payment"} {
			s.Do(t, "DELETE", "/api/v1/faults/"+service, "")
		}
	})
}

// well waits until pages are whole and every compartment that takes calls answers them.
func well(t *testing.T, s *shop.Shop) {
	t.Helper()
	shop.Eventually(t, within, "pages are whole", func() bool {
		a := s.Get(t, "/api/v1"+product)
		return a.Status == 200 && a.Header.Get("Watertight-Degraded") == ""
	})
}

// The story of the whole shop: recs is broken from the bridge, its compartment floods, pages go without it, an order does not even
// notice; the fault is cleared, and all heals.
func TestBridge_RecsFloodsAndTheShipSailsOn(t *testing.T) {
	bridge, customer := visit(t), visit(t)
	s := bridge.shop
	clearFaults(t, s)
	bridge.open("/bridge")
	bridge.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)

	bridge.click("#room-recs summary")
	eval[bool](bridge, `(document.querySelector("#kind-recs").value = "slow", document.querySelector("#kind-recs").dispatchEvent(new Event("change")))`)
	bridge.click("#room-recs form button")
	bridge.wait("the fault and its countdown are shown", `!document.querySelector("[data-show='recs.fault']").hidden && /^[45]:[0-9]{2}$/.test(document.querySelector("[data-text='recs.fault_ends']").textContent)`)

	shop.Eventually(t, within, "the customer's page says what it lacks", func() bool {
		customer.open(product)
		return eval[bool](customer, `document.querySelector("#degraded") !== null`)
	})
	shop.Eventually(t, within, "recs is flooded, with its breaker open", func() bool {
		s.Get(t, "/api/v1"+product)
		return eval[bool](bridge, room("recs")+` === "flooded" && document.querySelector("[data-text='recs.breaker']").textContent === "open"`)
	})
	// At once, that is: on a busy machine another service may be late for a second or two, for reasons of its own.
	shop.Eventually(t, within, "recs alone is flooded", func() bool {
		s.Get(t, "/api/v1"+product)
		for _, dry := range []string{"checkout", "search", "inventory", "payment"} {
			if eval[string](bridge, room(dry)) != "dry" {
				return false
			}
		}
		return eval[string](bridge, `document.querySelector(".summary").textContent`) == "recs is flooded. The walls hold: orders sail on."
	})
	bridge.wait("the log tells of it", `document.querySelector("#entries").innerText.includes("recs: circuit breaker opened")`)
	bridge.wait("and so does the live region, in few words", `document.querySelector("#news").textContent.includes("recs")`)

	customer.order()
	customer.wait("the order is confirmed all the same", confirmed)

	bridge.click("#clear-all")
	bridge.wait("the fault is gone", `document.querySelector("[data-show='recs.fault']").hidden`)
	shop.Eventually(t, within, "recs is dry again", func() bool {
		s.Get(t, "/api/v1"+product)
		return eval[bool](bridge, room("recs")+` === "dry"`)
	})
	customer.open(product)
	if !eval[bool](customer, `document.querySelector(".together .card") !== null`) {
		t.Error("the customer's page is not whole again")
	}
	bridge.wait("the log tells of the end", `document.querySelector("#entries").innerText.includes("recs: circuit breaker closed")`)
}

func TestBridge_IsAccessibleWhileItFloods(t *testing.T) {
	p := visit(t)
	script := axe(t, p.shop)
	fault(t, p.shop, "recs", `{"kind":"error","ttl_s":300}`)
	fault(t, p.shop, "search", `{"kind":"error","rate":0.2,"ttl_s":300}`)
	p.open("/bridge")
	p.media("prefers-reduced-motion", "reduce")
	shop.Eventually(t, within, "recs is flooded and search takes water", func() bool {
		for range 5 {
			p.shop.Get(t, "/api/v1"+product)
		}
		return eval[bool](p, room("recs")+` === "flooded" && ["leaking", "flooded"].includes(`+room("search")+`)`)
	})
	eval[bool](p, `document.querySelectorAll("details").forEach((d) => (d.open = true)) ?? true`)
	p.click("#pause") // or what axe looks at changes under its eyes
	for _, width := range []int64{360, 1280} {
		for _, scheme := range []string{"light", "dark"} {
			p.do(chromedp.EmulateViewport(width, 740))
			p.media("prefers-color-scheme", scheme, "prefers-reduced-motion", "reduce")
			p.accessible("flooded, "+scheme, script)
			if got := eval[int64](p, `document.scrollingElement.scrollWidth`); got > width {
				t.Errorf("with its forms open, the bridge is %d wide at %d px", got, width)
			}
		}
	}
}

func TestBridge_IsWorkedWithKeysAlone(t *testing.T) {
	p := visit(t)
	clearFaults(t, p.shop)
	p.open("/bridge")
	p.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)
	p.tabTo("#room-inventory summary")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.tabTo("#kind-inventory")
	p.do(chromedp.KeyEvent("err")) // a select goes to what is typed
	p.tabTo("#rate-inventory")
	p.do(chromedp.KeyEvent("0.5")) // Tab has selected what was there
	p.do(chromedp.KeyEvent(kb.Enter))
	p.wait("the fault is set", `document.querySelector("[data-text='inventory.fault']").textContent === "error, UNAVAILABLE, 0.5 % of requests"`)
	if got := eval[string](p, `document.activeElement.id`); got != "rate-inventory" {
		t.Errorf("after a frame the focus is on %q, want it where it was", got)
	}
	p.tabTo("[data-clear=inventory]")
	p.do(chromedp.KeyEvent(" "))
	p.wait("the fault is gone", `document.querySelector("[data-show='inventory.fault']").hidden`)
}

func TestBridge_SaysWhatIsWrongWithAFault(t *testing.T) {
	p := visit(t)
	clearFaults(t, p.shop)
	p.open("/bridge")
	p.click("#room-recs summary")
	eval[bool](p, `(document.querySelector("#kind-recs").value = "poison", document.querySelector("#kind-recs").dispatchEvent(new Event("change")))`)
	if !eval[bool](p, `document.querySelector("#product-recs").checkVisibility() && document.querySelector("#product-recs").required && !document.querySelector("#delay-recs").checkVisibility()`) {
		t.Error("poison does not ask for its product, or asks for a delay")
	}
	eval[bool](p, `(document.querySelector("#product-recs").value = "P".repeat(300), document.querySelector("#product-recs").removeAttribute("maxlength"), true)`)
	p.click("#room-recs form button")
	p.wait("the gateway's words stand beside the switch", `document.querySelector("#room-recs .wrong").textContent.startsWith("match: ")`)
	if !eval[bool](p, `document.querySelector("[data-show='recs.fault']").hidden`) {
		t.Error("the fault was set all the same")
	}
}

func TestBridge_StandsStillWhereMotionIsUnwelcome(t *testing.T) {
	p := visit(t)
	running := `document.getAnimations().filter((a) => a.playState === "running").length`
	p.order() // the ship moves while orders do
	p.open("/bridge")
	p.wait("the ship moves", running+` > 0`)
	p.media("prefers-reduced-motion", "reduce")
	p.open("/bridge")
	p.wait("a frame has come", `document.querySelector("#link").dataset.link === "live"`)
	if got := eval[int](p, running); got != 0 {
		t.Errorf("%d animations run all the same", got)
	}
}

func TestBridge_PausesForWhoeverReads(t *testing.T) {
	p := visit(t)
	p.open("/bridge")
	p.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)
	p.click("#pause")
	clock := `document.querySelector("[data-text=clock]").textContent`
	before := eval[string](p, clock)
	// A stream of its own tells when there was more to show.
	eval[bool](p, `new Promise((done) => { let n = 0; const more = new EventSource("/bridge/events"); more.onmessage = () => { if (++n === 3) { more.close(); done(true); } }; })`)
	if after := eval[string](p, clock); after != before {
		t.Errorf("the clock went from %s to %s while paused", before, after)
	}
	p.click("#pause")
	p.wait("it goes on", clock+` !== `+quote(before))
}

func TestBridge_ShowsASnapshotWithoutScripts(t *testing.T) {
	p := visit(t)
	if _, err := chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	p.open("/bridge")
	words, err := chromedp.Run(p.ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Without JavaScript", "checkout", "no request waits for it", "closed", "orders a second"} {
		if !strings.Contains(words, want) {
			t.Errorf("the page does not say %q: %s", want, words)
		}
	}
	for _, dead := range []string{"Pause updates", "Clear all faults", "Break recs"} {
		if strings.Contains(words, dead) {
			t.Errorf("the page shows %q, which does nothing without scripts", dead)
		}
	}
}

// While everything else is frozen in its tracks, the bridge shows it, and comes as fast as ever.
func TestBridge_StaysUpWhileTheRestSinks(t *testing.T) {
	p := visit(t)
	s := p.shop
	p.open("/bridge")
	p.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)
	t.Cleanup(func() { well(t, s) }) // after all are thawed: cleanups run in reverse
	for _, name := range []string{"recs", "search", "checkout", "inventory", "payment", "nats", "postgres"} {
		s.Freeze(t, name)
	}
	for range 8 {
		s.Get(t, "/api/v1"+product)
	}
	p.wait("the bridge shows that search is flooded", room("search")+` === "flooded" && document.querySelector("#link").dataset.link === "live"`)
	for _, path := range []string{"/bridge", "/api/v1/status"} {
		if a := s.Get(t, path); a.Status != http.StatusOK || a.Took > 2*time.Second {
			t.Errorf("%s: %d after %v", path, a.Status, a.Took)
		}
	}
}

// A gateway that is replaced ends its streams, and the page finds the next one.
func TestBridge_FindsTheNextGateway(t *testing.T) {
	p := visit(t)
	p.open("/bridge")
	p.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)
	before := p.shop.Process(t, "gateway")
	p.shop.Terminate(t, "gateway")
	p.wait("the page says that it is alone", `document.querySelector("#link").dataset.link === "lost"`)
	shop.Eventually(t, within, "there is another gateway", func() bool {
		now := p.shop.Process(t, "gateway")
		return now.Ready && now.PID != before.PID
	})
	p.wait("the page is live again", `document.querySelector("#link").dataset.link === "live"`)
}
