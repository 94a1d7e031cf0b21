package sim

import (
	"time"

	"example.com/watertight/lab/scenario"
	"example.com/watertight/platform/fault"
)

// engine plays one seed's traffic against one design in one scenario, on a virtual clock. It is reused from run to run, so that a
// run allocates nothing once the first has shown how much room it takes.
type engine struct {
	plan     plan
	traffic  *traffic
	arrivals int // of the traffic, so far

	now       int64
	agenda    agenda
	pools     []pool
	processes []process
	jobs      []job
	decided   []verdict // by request
	latency   []int64   // by request; of those that went well
	sampleAt  int64
	handled   int64 // events
}

// plan is a scenario in a design, worked out before the run.
type plan struct {
	pools    []poolPlan
	poolOf   []uint8 // by route
	patience []int64 // by route
	process  int     // how many
	recs     uint8   // the route of recs

	network      bool
	gateway      int64
	callsRecs    bool
	callTimeout  int64
	fallback     bool
	retries      int
	fault        scenario.Fault
	bitten       []bool // by route
	luck         uint64 // a request below it is bitten
	victim       uint8  // the process that a fault or a redeploy ends
	away         int64  // and for how long
	warm, length int64
}

type poolPlan struct {
	name           string
	process        uint8
	workers, queue int
}

// process is what a crash ends.
type process struct {
	down  bool
	life  uint32 // counts its ends
	calls int    // leaking requests since its start
}

// job is one piece of work for one pool: a client's attempt, or a checkout's call to recs.
type job struct {
	request  int32
	parent   int32 // the checkout's job that waits for this one; −1 for a client's attempt
	waitsFor int32 // the call that this one waits for, or −1
	route    uint8
	attempt  uint8
	answered bool // whoever asked knows the outcome
	slot     uint16
	deadline int64 // when whoever asked gives up
	takes    int64
	back     int64
	luck     uint64

	queued, started, ended int64 // for the tests; 0 is never
}

const none = -1

// verdict is how a request ended for its client.
type verdict uint8

const (
	undecided verdict = iota
	ok
	timedOut   // the client gave up
	refused    // the process was away
	killed     // the process ended
	rejected   // the queue was full
	dependency // the checkout's call failed
	verdicts
)

// sampleEvery is how far apart the samples of the queues' lengths are.
const sampleEvery = int64(100 * time.Millisecond)

// start prepares a run.
func (e *engine) start(p plan, t *traffic) {
	e.plan, e.traffic, e.arrivals, e.now, e.handled = p, t, 0, 0, 0
	e.agenda.reset()
	e.jobs, e.sampleAt = e.jobs[:0], sampleEvery
	e.pools = resized(e.pools, len(p.pools))
	for i, pp := range p.pools {
		e.pools[i].reset(pp.name, pp.process, pp.workers, pp.queue, int(p.length/sampleEvery))
	}
	e.processes = resized(e.processes, p.process)
	clear(e.processes)
	e.decided, e.latency = resized(e.decided, len(t.requests)), resized(e.latency, len(t.requests))
	clear(e.decided)
	clear(e.latency)
	if p.fault.Kind == scenario.Redeploy {
		e.agenda.plan(event{at: int64(p.fault.At), kind: redeploys, where: p.victim})
	}
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		grown := make([]T, n)
		copy(grown, s[:cap(s)]) // what they hold is reused
		return grown
	}
	return s[:n]
}

// run plays to the end: nothing is left in the system afterwards.
func (e *engine) run() {
	for e.step() {
	}
	e.advance(max(e.now, e.plan.length))
}

// step handles the next event and reports whether there was one. A request that arrives comes before anything else of its moment.
func (e *engine) step() bool {
	if e.arrivals < len(e.traffic.requests) {
		r := &e.traffic.requests[e.arrivals]
		if len(e.agenda.heap) == 0 || r.at <= e.agenda.heap[0].at {
			e.advance(r.at)
			e.handled++
			e.arrivals++
			e.send(int32(e.arrivals-1), 0)
			return true
		}
	}
	if len(e.agenda.heap) == 0 {
		return false
	}
	next := e.agenda.take()
	e.advance(next.at)
	e.handled++
	e.handle(&next)
	return true
}

// advance moves the clock, and samples the queues on the way.
func (e *engine) advance(to int64) {
	for e.sampleAt <= min(to, e.plan.length) {
		for i := range e.pools {
			e.pools[i].samples = append(e.pools[i].samples, int32(e.pools[i].queue.count))
		}
		e.sampleAt += sampleEvery
	}
	e.now = to
}

func (e *engine) handle(ev *event) {
	switch ev.kind {
	case reaches:
		e.reach(ev.ref)
	case settles:
		if p := &e.pools[ev.where]; e.processes[p.process].life == ev.aux {
			e.settle(p, ev.ref)
		}
	case dies:
		if e.processes[ev.where].life == ev.aux {
			e.end(ev.where)
		}
	case redeploys:
		e.end(ev.where)
	case restarts:
		if pr := &e.processes[ev.where]; pr.life == ev.aux {
			pr.down, pr.calls = false, 0
		}
	case answers, fails, callEnds:
		if e.jobs[ev.ref].waitsFor == int32(ev.aux) {
			e.resume(ev.ref, ev.kind == answers)
		}
	case givesUp:
		if j := &e.jobs[ev.ref]; !j.answered {
			j.answered = true
			e.again(j.request, j.attempt, timedOut)
		}
	}
}

// send is a client's attempt.
func (e *engine) send(request int32, attempt uint8) {
	r := &e.traffic.requests[request]
	id := int32(len(e.jobs))
	deadline := e.now + e.plan.patience[r.route]
	e.jobs = append(e.jobs, job{
		request: request, parent: none, waitsFor: none, route: uint8(r.route), attempt: attempt,
		deadline: deadline, takes: r.takes, back: r.back, luck: r.luck,
	})
	if e.plan.retries > 0 {
		e.agenda.plan(event{at: deadline, kind: givesUp, ref: id})
	}
	if e.plan.network {
		e.agenda.plan(event{at: e.now + e.plan.gateway + r.there, kind: reaches, ref: id})
		return
	}
	e.jobs[id].back = 0
	e.reach(id)
}

// reach is where a job's pool takes it, queues it or turns it away.
func (e *engine) reach(id int32) {
	j := &e.jobs[id]
	where := e.plan.poolOf[j.route]
	p := &e.pools[where]
	p.arrived++
	j.queued = e.now
	switch {
	case e.processes[p.process].down:
		p.refused++
		e.fail(id, refused)
	case len(p.free) > 0:
		e.begin(p, where, id)
	case p.bound > 0 && p.queue.count >= p.bound:
		p.rejected++
		e.fail(id, rejected)
	default:
		p.queue.push(id)
		p.longest = max(p.longest, p.queue.count)
	}
}

// begin gives a job a worker.
func (e *engine) begin(p *pool, where uint8, id int32) {
	j := &e.jobs[id]
	last := len(p.free) - 1
	j.slot = p.free[last]
	p.free = p.free[:last]
	p.running[j.slot] = id
	p.admitted++
	p.track(e.now, e.plan.warm, e.plan.length)
	p.busy++
	j.started = e.now
	if e.plan.bitten[j.route] && e.now >= int64(e.plan.fault.At) && j.luck < e.plan.luck && e.bite(p, j) {
		return
	}
	if e.plan.callsRecs && j.parent == none && e.traffic.requests[j.request].call != none {
		e.call(id)
		return
	}
	e.finishAt(p, where, j)
}

func (e *engine) finishAt(p *pool, where uint8, j *job) {
	e.agenda.plan(event{at: e.now + j.takes, kind: settles, where: where, ref: int32(j.slot), aux: e.processes[p.process].life})
}

// bite does to a job what the fault does; it reports whether the job will never finish.
func (e *engine) bite(p *pool, j *job) bool {
	f := &e.plan.fault
	pr := &e.processes[p.process]
	switch f.Kind {
	case fault.Slow, fault.DBLock:
		j.takes = int64(f.Delay)
	case fault.CPU:
		j.takes = scaled(j.takes, f.Factor)
	case fault.OOM:
		if pr.calls++; pr.calls < f.Calls {
			return false
		}
		fallthrough
	case fault.Crash, fault.Poison:
		e.agenda.plan(event{at: e.now + int64(f.Delay), kind: dies, where: p.process, aux: pr.life})
		return true
	}
	return false
}

// settle frees a worker and gives it to the first in the queue whose client still waits. The others are discarded there, and
// only there, at no cost to the worker.
func (e *engine) settle(p *pool, slot int32) {
	id := p.running[slot]
	e.vacate(p, slot)
	p.completed++
	j := &e.jobs[id]
	j.ended = e.now
	where := e.plan.poolOf[j.route]
	e.answer(id)
	e.next(p, where)
}

func (e *engine) vacate(p *pool, slot int32) {
	p.running[slot] = idle
	p.free = append(p.free, uint16(slot))
	p.track(e.now, e.plan.warm, e.plan.length)
	p.busy--
}

func (e *engine) next(p *pool, where uint8) {
	for p.queue.count > 0 && len(p.free) > 0 {
		id := p.queue.pop()
		if e.now > e.jobs[id].deadline {
			p.expired++
			e.fail(id, timedOut)
			continue
		}
		e.begin(p, where, id)
	}
}

// answer hands on a result that may come too late.
func (e *engine) answer(id int32) {
	j := &e.jobs[id]
	arrives := e.now + j.back
	switch {
	case j.parent != none:
		e.agenda.plan(event{at: arrives, kind: answers, ref: j.parent, aux: uint32(id)})
	case j.answered:
	case arrives > j.deadline:
		e.fail(id, timedOut)
	default:
		j.answered = true
		e.decided[j.request] = ok
		e.latency[j.request] = arrives - e.traffic.requests[j.request].at
	}
}

// fail tells whoever asked, unless it knows already.
func (e *engine) fail(id int32, why verdict) {
	j := &e.jobs[id]
	switch {
	case j.answered:
	case j.parent != none:
		e.agenda.plan(event{at: e.now + j.back, kind: fails, ref: j.parent, aux: uint32(id)})
	case why == timedOut && e.plan.retries > 0:
		// The client's own clock tells it, at its deadline.
	default:
		j.answered = true
		e.again(j.request, j.attempt, why)
	}
}

// again tries a request once more, as long as its client does.
func (e *engine) again(request int32, attempt uint8, why verdict) {
	if int(attempt) < e.plan.retries {
		e.send(request, attempt+1)
		return
	}
	e.decided[request] = why
}

// end is a process's: everything in it is lost, queued or running, whichever pool it was in.
func (e *engine) end(which uint8) {
	pr := &e.processes[which]
	pr.down = true
	pr.life++
	e.agenda.plan(event{at: e.now + e.plan.away, kind: restarts, where: which, aux: pr.life})
	for i := range e.pools {
		p := &e.pools[i]
		if p.process != which {
			continue
		}
		for slot, id := range p.running {
			if id == idle {
				continue
			}
			e.vacate(p, int32(slot))
			p.killedRunning++
			e.jobs[id].ended, e.jobs[id].waitsFor = e.now, none
			e.fail(id, killed)
		}
		for p.queue.count > 0 {
			p.killedQueued++
			e.fail(p.queue.pop(), killed)
		}
	}
}

// call sends a checkout's question to recs; the checkout keeps its worker.
func (e *engine) call(id int32) {
	c := &e.traffic.calls[e.traffic.requests[e.jobs[id].request].call]
	sub := int32(len(e.jobs))
	e.jobs[id].waitsFor = sub
	e.jobs = append(e.jobs, job{
		request: e.jobs[id].request, parent: id, waitsFor: none, route: e.plan.recs, deadline: e.now + e.plan.callTimeout,
		takes: c.takes, back: c.back, luck: c.luck,
	})
	e.agenda.plan(event{at: e.now + c.there, kind: reaches, ref: sub})
	e.agenda.plan(event{at: e.now + e.plan.callTimeout, kind: callEnds, ref: id, aux: uint32(sub)})
}

// resume is what a checkout does when it has the answer of its call, or has given up on it.
func (e *engine) resume(id int32, well bool) {
	j := &e.jobs[id]
	e.jobs[j.waitsFor].answered = true
	j.waitsFor = none
	where := e.plan.poolOf[j.route]
	p := &e.pools[where]
	if well || e.plan.fallback {
		e.finishAt(p, where, j)
		return
	}
	slot := int32(j.slot)
	e.vacate(p, slot)
	p.completed++
	j.ended = e.now
	if e.now+j.back > j.deadline {
		e.fail(id, timedOut)
	} else {
		e.fail(id, dependency)
	}
	e.next(p, where)
}
