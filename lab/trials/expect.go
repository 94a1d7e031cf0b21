package trials

import (
	"cmp"
	"slices"
	"time"

	"example.com/watertight/platform/bulkhead"
)

// Expect works out how a trial ends, exactly.
func (s Setup) Expect(t Trial) Outcome {
	answers := expect(s.pools(t), s.calls(t))
	endings := make([]ending, len(answers))
	for i, a := range answers {
		endings[i] = a.ending
	}
	return tally(endings)
}

// answer is what a caller gets, and when, from its arrival.
type answer struct {
	ending ending
	after  time.Duration
}

// model is bulkheads in virtual time.
type model struct {
	calls   []call
	answers []answer
	signals []time.Duration // when each call is told to stop
	now     time.Duration
	events  []event // sorted, the next one last
	taken   []int   // slots, by pool
	queues  [][]int // calls, by pool
	configs []bulkhead.Config
}

// event is something that happens to a call. At one moment slots are freed first, and callers who leave do so before others come.
type event struct {
	at   time.Duration
	kind eventKind
	call int
}

type eventKind int

const (
	settled  eventKind = iota // its work is over
	deadline                  // its caller waits no longer
	arrives
)

// expect plays calls on pools by the four rules of package bulkhead.
func expect(configs []bulkhead.Config, calls []call) []answer {
	m := model{
		calls: calls, answers: make([]answer, len(calls)), signals: make([]time.Duration, len(calls)), configs: configs,
		taken: make([]int, len(configs)), queues: make([][]int, len(configs)),
	}
	for i, c := range calls {
		m.plan(event{c.at, arrives, i})
	}
	for len(m.events) > 0 {
		next := m.events[len(m.events)-1]
		m.events = m.events[:len(m.events)-1]
		m.now = next.at
		switch next.kind {
		case arrives:
			m.arrive(next.call)
		case deadline:
			m.leave(next.call)
		case settled:
			m.settle(next.call)
		}
	}
	return m.answers
}

func (m *model) plan(e event) {
	at, _ := slices.BinarySearchFunc(m.events, e, func(a, b event) int {
		return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(b.kind, a.kind), cmp.Compare(b.call, a.call))
	})
	m.events = slices.Insert(m.events, at, e)
}

// arrive: with a slot free, take it; else wait in turn; with the queue full, be gone at once (rule 4).
func (m *model) arrive(i int) {
	c := m.calls[i]
	switch cfg := m.configs[c.pool]; {
	case m.taken[c.pool] < cfg.Size:
		m.taken[c.pool]++
		m.start(i)
	case len(m.queues[c.pool]) < cfg.Queue:
		m.queues[c.pool] = append(m.queues[c.pool], i)
	default:
		m.answer(i, full)
		return
	}
	m.plan(event{c.at + c.deadline, deadline, i})
}

// start: the time-out runs from here, capped by the deadline, and is a signal (rule 2). Work that hears it ends; work that
// does not keeps its slot until it is done (rule 3).
func (m *model) start(i int) {
	c := m.calls[i]
	m.signals[i] = min(m.now+c.timeout, c.at+c.deadline)
	ends := m.now + c.takes
	if !c.deaf {
		ends = min(ends, m.signals[i])
	}
	m.plan(event{ends, settled, i})
}

// leave: the caller is freed, whether it waited for a slot or for its work (rule 1).
func (m *model) leave(i int) {
	queue := &m.queues[m.calls[i].pool]
	if at := slices.Index(*queue, i); at >= 0 {
		*queue = slices.Delete(*queue, at, at+1)
	}
	m.answer(i, failed)
}

// settle: only now is the slot free, and it goes to the first in the queue.
func (m *model) settle(i int) {
	c := m.calls[i]
	if m.now < m.signals[i] {
		m.answer(i, ok)
	} else {
		m.answer(i, failed)
	}
	queue := &m.queues[c.pool]
	if len(*queue) == 0 {
		m.taken[c.pool]--
		return
	}
	first := (*queue)[0]
	*queue = (*queue)[1:]
	m.start(first)
}

// answer tells the caller, if it is still there.
func (m *model) answer(i int, e ending) {
	if m.answers[i].ending == unanswered {
		m.answers[i] = answer{e, m.now - m.calls[i].at}
	}
}
