package bridge

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/watertight/gateway/report"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ship is a report to begin with: all is well, and nothing happened yet.
func ship() report.Status {
	s := report.Status{Version: "test", Design: "split", Gateway: report.Gateway{Answers: map[string]uint64{}}}
	for _, name := range []string{"checkout", "search", "recs"} {
		s.Upstreams = append(s.Upstreams, report.Upstream{Name: name, Breaker: "closed", Outcomes: map[string]uint64{},
			Limits: report.Limits{Scope: report.PerReplica, Limits: upstream.Limits{MaxInFlight: 64, MaxQueue: 8}}})
	}
	for _, name := range place() {
		s.Services = append(s.Services, report.Service{Name: name, Ready: true})
	}
	return s
}

// recs makes a copy in which recs had the outcomes and has the breaker.
func recs(breaker string, outcomes map[string]uint64) report.Status {
	s := ship()
	s.Upstreams[2].Breaker, s.Upstreams[2].Outcomes = breaker, outcomes
	return s
}

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, 5+second, 0, time.UTC) }

func (p *past) log() []string {
	var all []string
	for _, e := range p.events {
		all = append([]string{e.Kind + " " + e.Text}, all...)
	}
	return all
}

func TestPast_NotesWhatBeginsAndWhatEnds(t *testing.T) {
	sick := fault.Fault{Kind: fault.Slow, Rate: 0.5, DelayMS: 2000, TTLS: 60, ExpiresAt: at(60)}
	broken := recs("open", map[string]uint64{"timed_out": 5, "degraded": 5})
	broken.Faults = []report.Fault{{Service: "recs", Fault: sick}}
	probing := recs("half-open", map[string]uint64{"timed_out": 5, "degraded": 5})
	probing.Faults = broken.Faults
	crashed := recs("closed", map[string]uint64{"timed_out": 5, "degraded": 5})
	crashed.Services[3] = report.Service{Name: "recs", Ready: false, Restarts: 2}
	back := recs("closed", map[string]uint64{"timed_out": 5, "degraded": 5})
	back.Services[3].Restarts = 3

	var p past
	second := 0
	look := func(s report.Status) { p.observe(moment{at(second), s}); second++ }
	look(ship())
	look(broken)
	look(broken)
	look(probing) // no news: it is not closed
	look(broken)
	look(crashed)
	look(back)
	for range window + 1 {
		look(back)
	}
	want := []string{
		"info fault set on recs: slow, 2s, 50 % of requests", "bad recs: circuit breaker opened", "bad pages go out without recs",
		"good the fault on recs ended", "good recs: circuit breaker closed", "bad recs is not ready", "bad recs was restarted 2 times",
		"good recs takes traffic", "bad recs was restarted", "good pages are whole again, with recs",
	}
	if diff := cmp.Diff(want, p.log()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if p.events[0].Number != int64(len(want)) {
		t.Errorf("the newest event has the number %d, want %d", p.events[0].Number, len(want))
	}
}

func TestPast_KeepsOnlyWhatItShows(t *testing.T) {
	var p past
	for i := range 5 * history {
		s := ship()
		s.Services[3].Restarts = i
		p.observe(moment{at(i), s})
	}
	if len(p.events) != kept || len(p.orders) != history || len(p.looks) != window+1 {
		t.Errorf("kept %d events, %d orders, %d looks; want %d, %d, %d", len(p.events), len(p.orders), len(p.looks), kept, history, window+1)
	}
}

func TestView_ACompartmentFloodsWithItsOutcomes(t *testing.T) {
	down := ship()
	down.Services[3].Ready = false
	restarted := ship()
	restarted.Services[3].Restarts = 1
	alone := ship()
	alone.Services = nil
	for name, tc := range map[string]struct {
		now              report.Status
		state, inventory string
		summary          string
	}{
		"all well":                    {recs("closed", map[string]uint64{"ok": 100, "cancelled": 50}), dry, dry, "All compartments are dry."},
		"one in ten fails":            {recs("closed", map[string]uint64{"ok": 90, "failed": 10}), leaking, dry, "recs takes some water."},
		"half is too late":            {recs("closed", map[string]uint64{"ok": 50, "timed_out": 50}), flooded, dry, "recs is flooded. The walls hold: orders sail on."},
		"its bulkhead is full":        {recs("closed", map[string]uint64{"ok": 10, "rejected_full": 90}), flooded, dry, "recs is flooded. The walls hold: orders sail on."},
		"open, and nobody asks":       {recs("open", nil), flooded, dry, "recs is flooded. The walls hold: orders sail on."},
		"it is tried again":           {recs("half-open", map[string]uint64{"ok": 3}), flooded, dry, "recs is flooded. The walls hold: orders sail on."},
		"a process without a breaker": {recs("none", map[string]uint64{"ok": 3}), dry, dry, "All compartments are dry."},
		"it is down":                  {down, flooded, dry, "recs is flooded. The walls hold: orders sail on."},
		"it was restarted":            {restarted, leaking, dry, "recs takes some water."},
		"nobody has heard":            {alone, dry, unknown, "All compartments are dry."},
	} {
		var p past
		p.observe(moment{at(0), ship()})
		p.observe(moment{at(10), tc.now})
		v := newView(&p, nil)
		if v.Text["recs.state"] != tc.state || v.Text["inventory.state"] != tc.inventory || v.Text["checkout.state"] != dry {
			t.Errorf("%s: recs %s, inventory %s, checkout %s; want %s, %s, dry", name, v.Text["recs.state"], v.Text["inventory.state"], v.Text["checkout.state"], tc.state, tc.inventory)
		}
		if got := v.Text["summary"]; got != tc.summary {
			t.Errorf("%s: summary %q, want %q", name, got, tc.summary)
		}
		if wet := v.Text["recs.height"] != "0"; wet != (tc.state == leaking || tc.state == flooded) {
			t.Errorf("%s: %s, and water of height %s", name, tc.state, v.Text["recs.height"])
		}
	}
}

func TestView_CheckoutOrTheGatewayTakeTheOrdersWithThem(t *testing.T) {
	s := ship()
	s.Upstreams[0].Breaker = "open"
	s.Gateway.Answers = map[string]uint64{report.AnswerOK: 10, report.AnswerShed: 90}
	var p past
	p.observe(moment{at(0), ship()})
	p.observe(moment{at(10), s})
	v := newView(&p, nil)
	if want := "gateway and checkout are flooded, and orders with it."; v.Text["summary"] != want {
		t.Errorf("summary %q, want %q", v.Text["summary"], want)
	}
	if got := strings.TrimLeft(v.Text["gateway.shed"], "\u2007"); got != "9.0" {
		t.Errorf("shed %s a second, want 9.0", got)
	}
}

func TestView_CountsDown(t *testing.T) {
	for left, want := range map[time.Duration]string{
		-time.Second: "0:00", 0: "0:00", time.Millisecond: "0:01", 59 * time.Second: "0:59", 5 * time.Minute: "5:00", 24*time.Hour - time.Second: "23:59:59",
	} {
		if got := countdown(left); got != want {
			t.Errorf("countdown(%v) = %q, want %q", left, got, want)
		}
	}
}

// deck is a bridge behind a real server.
type deck struct {
	*Bridge
	url   string
	drain func()
	set   func(report.Status)
}

func newDeck(t *testing.T, cfg Config, targets ...string) *deck {
	t.Helper()
	var mu sync.Mutex
	now := ship()
	draining := make(chan struct{})
	b, err := New(cfg, Deps{FaultTargets: targets, Draining: draining, Report: func() report.Status {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, r := range b.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return &deck{b, server.URL, sync.OnceFunc(func() { close(draining) }), func(s report.Status) {
		mu.Lock()
		defer mu.Unlock()
		now = s
	}}
}

func usual() Config {
	return Config{MaxStreams: 2, Heartbeat: time.Minute, WriteTimeout: 10 * time.Second, MaxAge: time.Minute}
}

// answer is an answer whose body ends with the test.
type answer struct {
	status int
	header http.Header
	body   io.Reader
}

func (d *deck) ask(t *testing.T, method, path string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, d.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return answer{resp.StatusCode, resp.Header, resp.Body}
}

func (d *deck) page(t *testing.T) (answer, string) {
	t.Helper()
	resp := d.ask(t, http.MethodGet, "/bridge")
	content, err := io.ReadAll(resp.body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(content)
}

func TestPage_ShowsTheShipWithoutScripts(t *testing.T) {
	d := newDeck(t, usual(), "recs", "inventory")
	sick := recs("open", map[string]uint64{"degraded": 7})
	sick.Faults = []report.Fault{{Service: "recs", Fault: fault.Fault{Kind: fault.Poison, Rate: 1, ExpiresAt: time.Now().Add(time.Hour), Match: map[string]string{"product_id": `"><script>alert(1)</script>`}}}}
	d.set(sick)
	resp, body := d.page(t)
	for _, want := range []string{
		`>recs is flooded. The walls hold: orders sail on.<`, `data-text="recs.breaker">open<`, `data-text="degraded.total">7<`, "poison, 100 % of requests, where product_id is",
		`data-state-of="recs.state" data-state="flooded"`, "recs: circuit breaker opened", `<option>crash-on-start</option>`, `form data-fault="inventory"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(body, "alert(1)</script>") || strings.Contains(body, `data-fault="checkout"`) {
		t.Error("a fault's match became markup, or there is a switch for what is no target")
	}
	if len(body) > 100<<10 {
		t.Errorf("the page has %d bytes", len(body))
	}
	policy := resp.header.Get("Content-Security-Policy")
	for _, element := range []string{"style", "script"} {
		_, rest, _ := strings.Cut(body, "<"+element+">")
		content, _, found := strings.Cut(rest, "</"+element+">")
		sum := sha256.Sum256([]byte(content))
		if !found || !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("the policy %q does not allow the page's %s", policy, element)
		}
	}
	if regexp.MustCompile(`\s(style|on[a-z]+)=`).MatchString(body) || strings.Contains(policy, "unsafe") {
		t.Error("inline style or code")
	}
}

func TestPage_HasNoSwitchesWhileFaultsAreDisabled(t *testing.T) {
	_, body := newDeck(t, usual()).page(t)
	if strings.Contains(body, "<form") || strings.Contains(body, `id="clear-all"`) {
		t.Error("there are switches")
	}
}

// The page and its frames speak of the same things: each text that the page has a place for is in the frame.
func TestPage_EveryPlaceHasItsText(t *testing.T) {
	d := newDeck(t, usual(), "recs")
	sick := ship()
	sick.Faults = []report.Fault{{Service: "recs", Fault: fault.Fault{Kind: fault.Crash, ExpiresAt: time.Now().Add(time.Hour)}}}
	d.set(sick)
	_, body := d.page(t)
	shown, _ := d.latest()
	var keys []string
	for _, m := range regexp.MustCompile(`data-(?:text|state-of|show)="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		keys = append(keys, m[1])
	}
	for _, m := range regexp.MustCompile(`data-attr="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		for pair := range strings.FieldsSeq(m[1]) {
			_, key, _ := strings.Cut(pair, "=")
			keys = append(keys, key)
		}
	}
	if len(keys) < 60 {
		t.Fatalf("only %d places found", len(keys))
	}
	for _, key := range keys {
		if _, there := shown.view.Text[key]; !there {
			t.Errorf("the page has a place for %q, which no frame has", key)
		}
	}
}

// stream reads events.
type stream struct {
	t    *testing.T
	scan *bufio.Scanner
}

func (d *deck) open(t *testing.T) *stream {
	t.Helper()
	resp := d.ask(t, http.MethodGet, "/bridge/events")
	if resp.status != http.StatusOK || resp.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %d %v", resp.status, resp.header)
	}
	s := &stream{t, bufio.NewScanner(resp.body)}
	s.scan.Buffer(nil, 1<<20)
	return s
}

// next returns the next line that begins with prefix; found is false at the end of the stream.
func (s *stream) next(prefix string) (rest string, found bool) {
	s.t.Helper()
	for s.scan.Scan() {
		if rest, found = strings.CutPrefix(s.scan.Text(), prefix); found {
			return rest, true
		}
	}
	return "", false
}

func (s *stream) frame() view {
	s.t.Helper()
	data, found := s.next("data: ")
	var v view
	if err := json.Unmarshal([]byte(data), &v); !found || err != nil {
		s.t.Fatalf("no frame: %v in %q", err, data)
	}
	return v
}

func TestEvents_TellEverybodyEachLookUntilTheDrain(t *testing.T) {
	d := newDeck(t, usual())
	look := func() {
		if err := d.look(time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	one, two := d.open(t), d.open(t)
	if got := one.frame().Text["recs.state"] + two.frame().Text["recs.state"]; got != dry+dry {
		t.Errorf("at first recs is %s", got)
	}
	d.set(recs("open", nil))
	look()
	for _, s := range []*stream{one, two} {
		v := s.frame()
		if v.Text["recs.state"] != flooded || len(v.Events) != 1 {
			t.Errorf("after the second look: recs is %s, events %v", v.Text["recs.state"], v.Events)
		}
	}
	if got := d.Streams(); got != 2 {
		t.Errorf("%d streams are open, want 2", got)
	}
	d.drain()
	for _, s := range []*stream{one, two} {
		if line, found := s.next(""); found && line != "" {
			t.Errorf("after the drain: %q", line)
		}
	}
	if resp := d.ask(t, http.MethodGet, "/bridge/events"); resp.status != http.StatusServiceUnavailable || resp.header.Get("Retry-After") == "" {
		t.Errorf("a new stream while draining: %d, Retry-After %q; want 503 and a second or more", resp.status, resp.header.Get("Retry-After"))
	}
}

func TestEvents_AreCappedAndHeadCostsNothing(t *testing.T) {
	d := newDeck(t, usual())
	if err := d.look(time.Now()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.open(t).frame()
	}
	resp := d.ask(t, http.MethodGet, "/bridge/events")
	if resp.status != http.StatusServiceUnavailable || resp.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d, Retry-After %q; want 503 and a second or more", resp.status, resp.header.Get("Retry-After"))
	}
	if resp, _ := d.page(t); resp.status != http.StatusOK {
		t.Errorf("the page: %d", resp.status)
	}
	d.drain()
}

func TestEvents_EndAtTheirAge(t *testing.T) {
	cfg := usual()
	cfg.MaxAge, cfg.Heartbeat = 50*time.Millisecond, 10*time.Millisecond
	s := newDeck(t, cfg).open(t)
	if _, found := s.next(": "); !found {
		t.Error("no heartbeat on a quiet stream")
	}
	for range 1000 {
		if _, found := s.next(""); !found {
			return
		}
	}
	t.Error("the stream does not end")
}

func TestRun_LooksAtOnceAndEndsWithItsContext(t *testing.T) {
	d := newDeck(t, usual())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	s := d.open(t)
	if first, second := s.frame(), s.frame(); first.Text["clock"] == "" || second.Text["clock"] == "" {
		t.Error("frames without a time")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	d.drain()
}
