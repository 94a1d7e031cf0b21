package bridge

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/gateway/report"
)

// The states of a breaker, as the status has them.
const (
	breakerOpen     = "open"
	breakerHalfOpen = "half-open"
)

// The states of a compartment.
const (
	dry     = "dry"
	leaking = "leaking"
	flooded = "flooded"
	unknown = "unknown"
)

// The ship's drawing: where its compartments are, in its own units.
const (
	shipLeft, shipRight = 92.0, 636.0
	shipDeck, shipKeel  = 112.0, 216.0
	wall                = 6.0 // between two compartments
)

// view is what the page shows, all in words: the template writes it into the page, and the page's script writes the next one
// over it, so that there is one place that says how things look.
type view struct {
	Text   map[string]string `json:"text"` // by the names in the template
	Events []event           `json:"events"`

	compartments []compartment
	targets      []string
}

// compartment is one part of the shop.
type compartment struct {
	Name, About string
	Outcomes    []outcome
	Guarded     bool // by a bulkhead and a breaker of the gateway
	Edge        bool // it is the gateway
	Target      bool // it can be made sick
	X, Width    string
	Middle      string
}

// outcome is one line of a compartment's rates.
type outcome struct{ Key, Label string }

// place is the order of the compartments from bow to stern; others follow.
func place() []string {
	return []string{"gateway", "checkout", "search", "recs", "inventory", "payment"}
}

func about(name string) string {
	return map[string]string{
		"gateway": "the edge: every page and every request", "checkout": "takes orders and leads them to their end", "search": "finds products",
		"recs": "what goes well together", "inventory": "sets stock aside", "payment": "charges and refunds", "monolith": "every feature in one process",
	}[name]
}

func callOutcomes() []outcome {
	return []outcome{
		{"ok", "answered"}, {"timed_out", "too late"}, {"failed", "failed"}, {"rejected_open", "kept back by the breaker"},
		{"rejected_full", "turned away, full"}, {"cancelled", "caller left"},
	}
}

func answerClasses() []outcome {
	return []outcome{{report.AnswerOK, "answered"}, {report.AnswerRefused, "refused"}, {report.AnswerShed, "shed"}, {report.AnswerFailed, "failed"}}
}

func newView(p *past, targets []string) view {
	now := p.now()
	v := view{Text: map[string]string{}, Events: p.events, targets: targets}
	v.compartments = compartmentsOf(now.Status, targets)
	var wet, sick []string
	for _, c := range v.compartments {
		switch v.fill(p, c) {
		case flooded:
			sick = append(sick, c.Name)
		case leaking:
			wet = append(wet, c.Name)
		}
	}
	v.Text["summary"] = summary(sick, wet)
	v.Text["ship"] = map[bool]string{true: "hurt", false: "sound"}[len(sick) > 0]
	v.Text["clock"] = now.at.UTC().Format(time.TimeOnly) + " UTC"
	v.Text["version"], v.Text["design"] = now.Version, now.Design
	v.orders(p)
	var pages, total float64
	for _, u := range now.Upstreams {
		pages += p.rate(u.Name, "degraded")
		total += float64(u.Outcomes["degraded"])
	}
	v.Text["degraded.rate"], v.Text["degraded.total"] = perSecond(pages), strconv.FormatFloat(total, 'f', 0, 64)
	if len(now.Faults) > 0 {
		v.Text["faults"] = strconv.Itoa(len(now.Faults))
	}
	return v
}

// compartmentsOf lists the parts that the design has, as far as anybody has said.
func compartmentsOf(r report.Status, targets []string) []compartment {
	names := map[string]bool{"gateway": true}
	for _, u := range r.Upstreams {
		names[u.Name] = true
	}
	for _, s := range r.Services {
		names[s.Name] = true
	}
	if r.Design == "split" {
		for _, name := range place() {
			names[name] = true
		}
	}
	all := make([]compartment, 0, len(names))
	for name := range names {
		c := compartment{Name: name, About: about(name), Target: slices.Contains(targets, name), Edge: name == "gateway"}
		c.Guarded = slices.ContainsFunc(r.Upstreams, func(u report.Upstream) bool { return u.Name == name })
		switch {
		case c.Edge:
			c.Outcomes = answerClasses()
		case c.Guarded:
			c.Outcomes = callOutcomes()
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b compartment) int {
		if d := rank(a.Name) - rank(b.Name); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	width := (shipRight-shipLeft+wall)/float64(len(all)) - wall
	for i := range all {
		x := shipLeft + float64(i)*(width+wall)
		all[i].X, all[i].Width, all[i].Middle = decimal(x), decimal(width), decimal(x+width/2)
	}
	return all
}

func rank(name string) int {
	if i := slices.Index(place(), name); i >= 0 {
		return i
	}
	return len(place())
}

// fill writes a compartment's words and returns its state.
func (v *view) fill(p *past, c compartment) string {
	now, set := p.now(), func(key, value string) { v.Text[c.Name+"."+key] = value }
	var share float64 // of what was asked of it lately and did not come out well
	state := unknown
	if c.Edge {
		state, share = dry, v.fillEdge(p)
		set("in_flight", column(strconv.Itoa(now.Gateway.InFlight), 4))
		set("queue", column(strconv.Itoa(now.Gateway.EventStreams), 4))
	}
	if i := slices.IndexFunc(now.Upstreams, func(u report.Upstream) bool { return u.Name == c.Name }); i >= 0 {
		u := now.Upstreams[i]
		state, share = dry, v.fillRates(p, u.Name)
		set("in_flight", ofMost(u.InFlight, u.Limits.MaxInFlight))
		set("queue", ofMost(u.Queued, u.Limits.MaxQueue))
		set("breaker", u.Breaker)
		switch u.Breaker {
		case breakerOpen:
			share = 1
		case breakerHalfOpen:
			share = max(share, threshold)
		}
	}
	set("restarts", "not heard of")
	if i := slices.IndexFunc(now.Services, func(s report.Service) bool { return s.Name == c.Name }); i >= 0 {
		s := now.Services[i]
		set("restarts", strconv.Itoa(s.Restarts))
		if state == unknown {
			state = dry
		}
		if !s.Ready {
			share = 1
		} else if p.restarted(c.Name) {
			share = max(share, slight)
		}
	}
	if i := slices.IndexFunc(now.Faults, func(f report.Fault) bool { return f.Service == c.Name }); i >= 0 {
		set("fault", describe(now.Faults[i]))
		set("fault_ends", countdown(now.Faults[i].ExpiresAt.Sub(now.at)))
	}
	switch {
	case share >= threshold:
		state = flooded
	case share >= noticed && state != unknown:
		state = leaking
	}
	set("state", state)
	set("words", map[string]string{dry: "dry", leaking: "taking water", flooded: "flooded", unknown: "no word"}[state])
	v.level(c, state, share)
	return state
}

// Shares of bad outcomes.
const (
	noticed   = 0.005 // from here on a compartment takes water
	slight    = 0.15  // what a leak shows at least
	threshold = 0.5   // from here on it is flooded
)

// level draws the water.
func (v *view) level(c compartment, state string, share float64) {
	switch state {
	case dry, unknown:
		share = 0
	case leaking:
		share = max(share, slight)
	case flooded:
		share = max(share, 0.85) // it is as good as full
	}
	height := share * (shipKeel - shipDeck)
	v.Text[c.Name+".y"], v.Text[c.Name+".height"] = decimal(shipKeel-height), decimal(height)
}

// fillEdge writes the gateway's rates and returns the share of bad answers.
func (v *view) fillEdge(p *past) float64 {
	of := map[string]float64{}
	var all float64
	for _, o := range answerClasses() {
		of[o.Key] = p.answers(o.Key)
		all += of[o.Key]
		v.Text["gateway."+o.Key] = column(perSecond(of[o.Key]), 6)
	}
	return ratio(of[report.AnswerFailed]+of[report.AnswerShed], all)
}

// fillRates writes an upstream's rates and returns the share of bad outcomes. Who left says nothing about it.
func (v *view) fillRates(p *past, name string) float64 {
	of := map[string]float64{}
	for _, o := range callOutcomes() {
		of[o.Key] = p.rate(name, o.Key)
		v.Text[name+"."+o.Key] = column(perSecond(of[o.Key]), 6)
	}
	worse := of["timed_out"] + of["failed"] + of["rejected_open"] + of["rejected_full"]
	return ratio(worse, worse+of["ok"])
}

func ratio(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// restarted says whether the service was started again within the window.
func (p *past) restarted(name string) bool {
	count := func(m moment) int {
		if i := slices.IndexFunc(m.Services, func(s report.Service) bool { return s.Name == name }); i >= 0 {
			return m.Services[i].Restarts
		}
		return -1
	}
	before := count(p.looks[0])
	return before >= 0 && count(p.now()) > before
}

// orders writes how the orders go, and their line.
func (v *view) orders(p *past) {
	now := p.now()
	v.Text["orders.rate"] = perSecond(now.Orders.PerSecond)
	v.Text["orders.oldest"] = "–"
	if age := now.Orders.OldestPendingSeconds; age != nil {
		v.Text["orders.oldest"] = strconv.FormatFloat(*age, 'f', 0, 64) + " s"
	}
	most := slices.Max(p.orders)
	v.Text["orders.most"] = perSecond(most)
	v.Text["sailing"] = map[bool]string{true: "yes", false: "no"}[now.Orders.PerSecond > 0]
	points := make([]string, 0, len(p.orders))
	top := max(1, most) * 1.15
	for i, rate := range p.orders {
		x := float64(history - len(p.orders) + i)
		points = append(points, decimal(x)+","+decimal(60-58*rate/top))
	}
	v.Text["orders.line"] = strings.Join(points, " ")
}

// summary is the state of the ship in a sentence.
func summary(sick, wet []string) string {
	switch {
	case len(sick) == 0 && len(wet) == 0:
		return "All compartments are dry."
	case len(sick) == 0:
		return list(wet) + " " + areOr(wet, "takes", "take") + " some water."
	}
	is := list(sick) + " " + areOr(sick, "is", "are") + " flooded"
	for _, vital := range []string{"gateway", "checkout", "monolith"} {
		if slices.Contains(sick, vital) {
			return is + ", and orders with it."
		}
	}
	return is + ". The walls hold: orders sail on."
}

func areOr(names []string, one, several string) string {
	if len(names) == 1 {
		return one
	}
	return several
}

// list is "a", "a and b", or "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// countdown is minutes and seconds, or hours too.
func countdown(left time.Duration) string {
	s := int64(math.Ceil(max(0, left.Seconds())))
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

// column fills a number up on its left with spaces as wide as a digit, so that nothing beside it moves when it grows.
func column(number string, width int) string {
	const figureSpace = "\u2007"
	return strings.Repeat(figureSpace, max(0, width-len(number))) + number
}

func ofMost(n, most int) string {
	limit := strconv.Itoa(most)
	return column(strconv.Itoa(n), len(limit)) + " of " + limit
}

// decimal is a number for a drawing.
func decimal(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
