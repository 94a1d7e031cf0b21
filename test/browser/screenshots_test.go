//go:build unix

package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/watertight/test/shop"
)

// TestScreenshots writes the pictures of the documentation into the folder that SCREENSHOTS names: `make screenshots`.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		t.Skip("SCREENSHOTS names no folder")
	}
	p := visit(t)
	clearFaults(t, p.shop)
	customers(t, p.shop)
	p.media("prefers-reduced-motion", "reduce")

	p.open("/")
	p.picture(folder, "storefront.png")

	p.report(folder)

	p.do(chromedp.EmulateViewport(1280, 1480, chromedp.EmulateScale(0.75)))
	p.open("/bridge")
	points := `document.querySelector("polyline").getAttribute("points").split(" ").filter((point) => !point.endsWith(",60")).length`
	p.wait("there is a line to look at", points+` >= 45 && `+room("recs")+` === "dry"`)
	p.picture(folder, "bridge-calm.png")

	fault(t, p.shop, "recs", `{"kind":"slow","delay_ms":2000,"ttl_s":600}`)
	p.wait("recs is flooded", room("recs")+` === "flooded"`)
	p.wait("and the orders have gone on for a while", points+` >= 80`)
	p.picture(folder, "bridge-flooded.png")

	p.do(chromedp.EmulateViewport(1280, 760))
	p.open(product)
	if !eval[bool](p, `document.querySelector("#degraded") !== null`) {
		t.Error("the product's page is whole while recs is flooded")
	}
	p.picture(folder, "degraded.png")

	p.do(chromedp.EmulateViewport(360, 900))
	p.media("prefers-color-scheme", "dark", "prefers-reduced-motion", "reduce")
	p.open("/bridge")
	p.wait("the bridge is live", `document.querySelector("#link").dataset.link === "live"`)
	p.picture(folder, "bridge-phone.png")
}

// report pictures the page that `lab report` makes of the run in docs/results.
func (p *tab) report(folder string) {
	p.t.Helper()
	page := filepath.Join(p.t.TempDir(), "report.html")
	p.shop.Lab(p.t, "report", filepath.Join(p.shop.Root, "docs", "results", "run.json"), "-o", page)
	p.do(chromedp.EmulateViewport(1280, 1000, chromedp.EmulateScale(0.7)), chromedp.Navigate("file://"+page))
	p.picture(folder, "report.png")
}

// customers send requests until the test ends.
func customers(t *testing.T, s *shop.Shop) {
	t.Helper()
	load := s.LabCommand(t, "load", "--dir", s.Dir(), "--rate", "60", "--duration", "10m", "--output", "json")
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = load.Process.Kill() // there is no result that anybody wants
		_ = load.Wait()
	})
}

func (p *tab) picture(folder, name string) {
	p.t.Helper()
	const most = 150 << 10
	content, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(content) > most {
		p.t.Errorf("%s has %d bytes, want at most %d", name, len(content), most)
	}
	if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
