package bridge

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"

	"example.com/watertight/gateway/exchange"
	"example.com/watertight/gateway/page"
	"example.com/watertight/gateway/route"
	"example.com/watertight/gateway/sse"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/rpcerr"
)

//go:embed bridge.html bridge.css bridge.js
var files embed.FS

// layout is the page without what changes. Style and script stand in the page: it needs no other file, from no other replica.
type layout struct {
	template      *template.Template
	style, script page.Inline
	unscripted    page.Inline // hides, in a browser without scripts, what does nothing there
	policy        string
}

func newLayout() (layout, error) {
	content := map[string]string{}
	for _, name := range []string{"bridge.html", "bridge.css", "bridge.js"} {
		raw, err := files.ReadFile(name)
		if err != nil {
			return layout{}, fmt.Errorf("bridge: %w", err)
		}
		content[name] = string(raw)
	}
	parsed, err := template.New("bridge").Parse(content["bridge.html"])
	if err != nil {
		return layout{}, fmt.Errorf("bridge: parse the page: %w", err)
	}
	style, script := page.Style(page.BaseStyle()+content["bridge.css"]), page.Script(content["bridge.js"])
	unscripted := page.Style(".scripted { display: none !important; }")
	return layout{parsed, style, script, unscripted, page.Policy([]page.Inline{style, unscripted}, []page.Inline{script})}, nil
}

// Routes are the page's addresses. They take no budget: nothing behind them is waited for.
func (b *Bridge) Routes() []route.Route {
	if b == nil {
		return nil
	}
	return []route.Route{
		{Method: http.MethodGet, Path: "/bridge", Handler: http.HandlerFunc(b.page)},
		{Method: http.MethodGet, Path: "/bridge/events", Handler: http.HandlerFunc(b.events)},
	}
}

// sheet is what the template gets.
type sheet struct {
	view
	Style, Script, Unscripted template.HTML
	Kinds                     []fault.Kind
}

// word is one text of the page under its name.
type word struct{ Key, Value string }

// Word looks a text up.
func (s sheet) Word(key string) word { return word{key, s.Text[key]} }

// Of looks a text of a compartment up.
func (s sheet) Of(c compartment, key string) word { return s.Word(c.Name + "." + key) }

// Compartments lists the ship's parts.
func (s sheet) Compartments() []compartment { return s.compartments }

// Switches says whether faults can be set.
func (s sheet) Switches() bool { return len(s.targets) > 0 }

// page answers GET /bridge with the ship as it was at the last look.
func (b *Bridge) page(w http.ResponseWriter, r *http.Request) {
	shown, _ := b.latest()
	if shown.number == 0 { // asked before the first look
		if err := b.look(time.Now()); err != nil {
			exchange.Fail(w, r, err)
			return
		}
		shown, _ = b.latest()
	}
	var html bytes.Buffer
	err := b.layout.template.Execute(&html, sheet{
		view: shown.view, Style: b.layout.style.Element, Script: b.layout.script.Element, Unscripted: b.layout.unscripted.Element, Kinds: fault.Kinds(),
	})
	if err != nil {
		exchange.Fail(w, r, fmt.Errorf("bridge: write the page: %w", err))
		return
	}
	page.Send(w, r, http.StatusOK, b.layout.policy, html.Bytes())
}

// events answers GET /bridge/events: server-sent events, each the whole state of the page. A stream ends at drain, at its
// greatest age, and when the client stops reading.
func (b *Bridge) events(w http.ResponseWriter, r *http.Request) {
	select {
	case <-b.deps.Draining:
		exchange.Fail(w, r, rpcerr.New(codes.Unavailable, rpcerr.Draining, "shutting down"))
		return
	default:
	}
	select {
	case b.streams <- struct{}{}:
		defer func() { <-b.streams }()
	default:
		exchange.Fail(w, r, rpcerr.New(codes.ResourceExhausted, rpcerr.BulkheadFull, "too many people are on the bridge",
			rpcerr.RetryAfter(sse.ReconnectAfter)))
		return
	}
	if r.Method == http.MethodHead {
		sse.Start(w)
		return
	}
	if err := b.follow(w, r); err != nil && r.Context().Err() == nil {
		exchange.From(r.Context()).Failure = err // too late for a problem, not for the log
	}
}

// follow sends each frame, or only the newest of several to a client that is slow, and a heartbeat when none comes.
func (b *Bridge) follow(w http.ResponseWriter, r *http.Request) error {
	stream, err := sse.Open(w, b.cfg.WriteTimeout)
	if err != nil {
		return err
	}
	heartbeat := time.NewTicker(b.cfg.Heartbeat)
	defer heartbeat.Stop()
	tooOld := time.After(b.cfg.MaxAge)
	sent := int64(0)
	for err == nil {
		shown, newer := b.latest()
		if shown.number > sent {
			sent, err = shown.number, stream.Send(shown.number, shown.data)
			heartbeat.Reset(b.cfg.Heartbeat)
			continue
		}
		select {
		case <-newer:
		case <-heartbeat.C:
			err = stream.Heartbeat()
		case <-b.deps.Draining:
			return nil
		case <-tooOld:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
	return err
}
