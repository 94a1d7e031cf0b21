package bridge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/watertight/gateway/report"
)

const (
	// window is over how many looks rates are taken.
	window = 10
	// history is how many looks the line of orders goes back.
	history = 180
	// kept is how many events the log shows.
	kept = 40
)

// moment is one look.
type moment struct {
	at time.Time
	report.Status
}

// event is one line of the log.
type event struct {
	Number int64     `json:"n"` // from 1, over the life of the process
	At     time.Time `json:"at"`
	Clock  string    `json:"clock"`
	Kind   string    `json:"kind"`
	Text   string    `json:"text"`
}

// The kinds of events.
const (
	bad  = "bad"
	good = "good"
	info = "info"
)

// condition is something that lasts, and is news when it begins and when it ends.
type condition struct {
	key          string // the same condition has the same key at each look
	kind         string // of its beginning; an end is good
	began, ended string
}

func (c condition) same(other condition) bool { return c.key == other.key }

// past is what the page remembers. It belongs to the bridge's lock.
type past struct {
	looks    []moment // the last window+1, oldest first
	orders   []float64
	lasting  []condition
	events   []event // newest first
	numbered int64
}

// now is the latest look.
func (p *past) now() moment { return p.looks[len(p.looks)-1] }

// observe adds a look, and notes what is new in it.
func (p *past) observe(m moment) {
	before := m
	if len(p.looks) > 0 {
		before = p.now()
	}
	p.looks = last(append(p.looks, m), window+1)
	p.orders = last(append(p.orders, m.Orders.PerSecond), history)

	conditions := p.conditions()
	for _, c := range p.lasting {
		if !slices.ContainsFunc(conditions, c.same) {
			p.note(good, c.ended)
		}
	}
	for _, c := range conditions {
		if !slices.ContainsFunc(p.lasting, c.same) {
			p.note(c.kind, c.began)
		}
	}
	p.lasting = conditions
	p.noteRestarts(before.Services)
}

func (p *past) noteRestarts(before []report.Service) {
	for _, s := range p.now().Services {
		i := slices.IndexFunc(before, func(b report.Service) bool { return b.Name == s.Name })
		if i < 0 || s.Restarts <= before[i].Restarts {
			continue
		}
		times := s.Restarts - before[i].Restarts
		p.note(bad, fmt.Sprintf("%s was restarted%s", s.Name, map[bool]string{true: fmt.Sprintf(" %d times", times)}[times > 1]))
	}
}

func (p *past) note(kind, text string) {
	p.numbered++
	at := p.now().at.UTC().Truncate(time.Second)
	p.events = append([]event{{p.numbered, at, at.Format(time.TimeOnly), kind, text}}, p.events[:min(len(p.events), kept-1)]...)
}

// conditions lists what lasts at the latest look.
func (p *past) conditions() []condition {
	now := p.now()
	var all []condition
	for _, f := range now.Faults {
		all = append(all, condition{
			"fault " + f.Service + f.ExpiresAt.String(), info, "fault set on " + f.Service + ": " + describe(f), "the fault on " + f.Service + " ended",
		})
	}
	for _, u := range now.Upstreams {
		if u.Breaker == breakerOpen || u.Breaker == breakerHalfOpen {
			all = append(all, condition{"breaker " + u.Name, bad, u.Name + ": circuit breaker opened", u.Name + ": circuit breaker closed"})
		}
		if p.rate(u.Name, "rejected_full") > 0 {
			all = append(all, condition{"full " + u.Name, bad, u.Name + ": bulkhead full, calls are turned away", u.Name + ": bulkhead has room again"})
		}
		if p.rate(u.Name, "degraded") > 0 {
			all = append(all, condition{"degraded " + u.Name, bad, "pages go out without " + u.Name, "pages are whole again, with " + u.Name})
		}
	}
	for _, s := range now.Services {
		if !s.Ready {
			all = append(all, condition{"down " + s.Name, bad, s.Name + " is not ready", s.Name + " takes traffic"})
		}
	}
	return all
}

// rate is how often an upstream's calls had the outcome, per second over the window.
func (p *past) rate(name, outcome string) float64 {
	return p.perSecond(func(r report.Status) uint64 {
		if i := slices.IndexFunc(r.Upstreams, func(u report.Upstream) bool { return u.Name == name }); i >= 0 {
			return r.Upstreams[i].Outcomes[outcome]
		}
		return 0
	})
}

// answers is how often the gateway gave answers of the class, per second over the window.
func (p *past) answers(class string) float64 {
	return p.perSecond(func(r report.Status) uint64 { return r.Gateway.Answers[class] })
}

func (p *past) perSecond(count func(report.Status) uint64) float64 {
	first, now := p.looks[0], p.now()
	seconds := now.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0
	}
	return float64(count(now.Status)-count(first.Status)) / seconds
}

// describe says what a fault does.
func describe(f report.Fault) string {
	words := []string{string(f.Kind)}
	if f.DelayMS > 0 {
		words = append(words, (time.Duration(f.DelayMS) * time.Millisecond).String())
	}
	if f.Code != "" {
		words = append(words, f.Code)
	}
	words = append(words, strconv.FormatFloat(f.Rate*100, 'f', -1, 64)+" % of requests")
	for field, value := range f.Match {
		words = append(words, "where "+field+" is "+value)
	}
	slices.Sort(words[len(words)-len(f.Match):])
	return strings.Join(words, ", ")
}

func last[T any](all []T, most int) []T { return all[max(0, len(all)-most):] }
