package sim

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/watertight/lab/scenario"
)

// drawInputs draws a shop that may be far too small for its traffic, so that queues, expiry and rejection all happen.
func drawInputs(t *rapid.T) scenario.Inputs {
	in := scenario.Default()
	duration := func(name string, low, high time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, name))
	}
	in.Rate = float64(rapid.IntRange(1, 600).Draw(t, "rate"))
	in.Workers = rapid.IntRange(1, 20).Draw(t, "workers")
	in.CheckoutWorkers = rapid.IntRange(1, 6).Draw(t, "checkout workers")
	in.SearchWorkers = rapid.IntRange(1, 6).Draw(t, "search workers")
	in.RecsWorkers = rapid.IntRange(1, 6).Draw(t, "recs workers")
	in.Queue = rapid.IntRange(0, 30).Draw(t, "queue")
	in.Patience = duration("patience", time.Millisecond, 2*time.Second)
	in.Duration, in.WarmUp = 4*time.Second, time.Second
	in.ExportDuration = 4 * time.Second
	in.FaultAt = duration("fault at", 0, 3*time.Second)
	in.RedeployAt = in.FaultAt
	in.SlowDelay = duration("slow delay", time.Millisecond, 3*time.Second)
	in.Restart = duration("restart", time.Millisecond, time.Second)
	in.SyncTimeout = duration("sync timeout", time.Millisecond, 2*time.Second)
	in.SyncFallback = rapid.Bool().Draw(t, "sync fallback")
	in.OOMCalls = rapid.IntRange(1, 50).Draw(t, "oom calls")
	in.PoisonShare = rapid.Float64Range(0, 1).Draw(t, "poison share")
	in.Retries = rapid.IntRange(0, 3).Draw(t, "retries")
	return in
}

// drawn is a run that is about to start.
type drawn struct {
	in     scenario.Inputs
	s      scenario.Scenario
	d      scenario.Design
	seed   uint64
	engine engine
}

func draw(t *rapid.T) *drawn {
	r := &drawn{in: drawInputs(t), seed: rapid.Uint64().Draw(t, "seed")}
	r.s = rapid.SampledFrom(scenario.Table(r.in)).Draw(t, "scenario")
	r.d = rapid.SampledFrom(scenario.Designs()).Draw(t, "design")
	if err := r.in.Validate(); err != nil {
		t.Fatal(err)
	}
	r.engine.start(newPlan(r.in, &r.s, &r.d), r.traffic())
	return r
}

func (r *drawn) traffic() *traffic {
	var t traffic
	t.generate(r.in, &r.s, r.seed)
	return &t
}

func (r *drawn) String() string {
	return fmt.Sprintf("%s/%s, seed %d, %+v", r.s.Name, r.d.Name, r.seed, r.in)
}

// inside counts the jobs that reached the pool and have neither left its queue nor its workers.
func (p *pool) inside() (queued, running int64) {
	for _, id := range p.running {
		if id != idle {
			running++
		}
	}
	return int64(p.queue.count), running
}

func TestEngine_LosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		e := &r.engine
		check := func() {
			for i := range e.pools {
				p := &e.pools[i]
				queued, running := p.inside()
				if out := p.refused + p.rejected + p.expired + p.killedQueued + p.admitted + queued; p.arrived != out {
					t.Fatalf("%v: pool %s at %v: %d arrived, %d went somewhere", r, p.name, time.Duration(e.now), p.arrived, out)
				}
				if out := p.completed + p.killedRunning + running; p.admitted != out || running != p.busy {
					t.Fatalf("%v: pool %s at %v: %d admitted, %d accounted for, %d busy of %d", r, p.name, time.Duration(e.now), p.admitted, out, p.busy, running)
				}
				if len(p.free)+int(running) != len(p.running) {
					t.Fatalf("%v: pool %s: %d free and %d running of %d workers", r, p.name, len(p.free), running, len(p.running))
				}
				if queued > 0 && len(p.free) > 0 {
					t.Fatalf("%v: pool %s: %d wait beside %d free workers", r, p.name, queued, len(p.free))
				}
			}
			// A request is decided once, and never while it is still under way.
			decided := 0
			for i := range e.arrivals {
				if e.decided[i] != undecided {
					decided++
				}
			}
			if decided > e.arrivals {
				t.Fatalf("%v: %d decided of %d", r, decided, e.arrivals)
			}
		}
		for steps := 0; e.step(); steps++ {
			if steps%97 == 0 {
				check()
			}
		}
		check()
		for i := range e.traffic.requests {
			if e.decided[i] == undecided {
				t.Fatalf("%v: request %d, which came at %v, was never answered", r, i, time.Duration(e.traffic.requests[i].at))
			}
		}
		for i := range e.pools {
			if queued, running := e.pools[i].inside(); queued+running != 0 {
				t.Fatalf("%v: pool %s: %d queued and %d running after the end", r, e.pools[i].name, queued, running)
			}
		}
	})
}

func TestEngine_ServesFirstComeFirstServed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		r.engine.run()
		last := make([]int64, len(r.engine.pools)) // when the one before it in the pool's queue got its worker
		for _, id := range byQueue(&r.engine) {
			j := &r.engine.jobs[id]
			p := r.engine.plan.poolOf[j.route]
			if j.started == 0 {
				continue
			}
			if j.started < last[p] || j.started < j.queued {
				t.Fatalf("%v: job %d, queued at %v, started at %v, before one ahead of it at %v", r, id,
					time.Duration(j.queued), time.Duration(j.started), time.Duration(last[p]))
			}
			last[p] = j.started
		}
	})
}

// byQueue returns the jobs that reached a pool, in the order in which they did.
func byQueue(e *engine) []int32 {
	var ids []int32
	for id := range e.jobs {
		if e.jobs[id].queued > 0 {
			ids = append(ids, int32(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return int(e.jobs[a].queued - e.jobs[b].queued) })
	return ids
}

func TestEngine_NeverGivesAWorkerTwoJobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		r.engine.run()
		type worker struct{ pool, slot int }
		free := map[worker]int64{} // since when
		ids := byQueue(&r.engine)
		slices.SortStableFunc(ids, func(a, b int32) int { return int(r.engine.jobs[a].started - r.engine.jobs[b].started) })
		for _, id := range ids {
			j := &r.engine.jobs[id]
			if j.started == 0 {
				continue
			}
			w := worker{int(r.engine.plan.poolOf[j.route]), int(j.slot)}
			if j.started < free[w] || j.ended < j.started {
				t.Fatalf("%v: worker %+v took job %d at %v (until %v) and was busy until %v", r, w, id,
					time.Duration(j.started), time.Duration(j.ended), time.Duration(free[w]))
			}
			free[w] = j.ended
		}
	})
}

func TestEngine_NeverStartsExpiredWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		r.engine.run()
		for id := range r.engine.jobs {
			if j := &r.engine.jobs[id]; j.started > j.queued && j.started > j.deadline {
				t.Fatalf("%v: job %d waited until %v, its client only until %v", r, id, time.Duration(j.started), time.Duration(j.deadline))
			}
		}
	})
}

// alone leaves only one route's requests.
func alone(t *traffic, route int32) *traffic {
	return &traffic{calls: t.calls, requests: slices.DeleteFunc(slices.Clone(t.requests), func(r request) bool { return r.route != route })}
}

func TestSplit_IsIndependentQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		r.d = rapid.SampledFrom([]scenario.Design{scenario.Designs()[2], scenario.Designs()[3]}).Draw(t, "roles or split")
		all := r.traffic()
		p := newPlan(r.in, &r.s, &r.d)
		r.engine.start(p, all)
		r.engine.run()
		for route := range r.s.Routes {
			var single engine
			mine := alone(all, int32(route))
			single.start(p, mine)
			single.run()
			at := 0
			for i := range all.requests {
				if all.requests[i].route != int32(route) {
					continue
				}
				if r.engine.decided[i] != single.decided[at] || r.engine.latency[i] != single.latency[at] {
					t.Fatalf("%v: request %d of %s: verdict %d after %d ns among the others, %d after %d ns alone", r, at,
						r.s.Routes[route].Feature, r.engine.decided[i], r.engine.latency[i], single.decided[at], single.latency[at])
				}
				at++
			}
		}
	})
}

// queueOf is a second way to the same answer, without events: each request of a first-come-first-served pool gets the worker
// that is free first (Kiefer and Wolfowitz), unless its client has given up by then.
func queueOf(workers int, arrive, deadline, takes []int64) (starts []int64) {
	free := make([]int64, workers)
	for i := range arrive {
		first := 0
		for w := range free {
			if free[w] < free[first] {
				first = w
			}
		}
		start := max(arrive[i], free[first])
		if start > arrive[i] && start > deadline[i] {
			starts = append(starts, -1)
			continue
		}
		free[first] = start + takes[i]
		starts = append(starts, start)
	}
	return starts
}

func TestEngine_AgreesWithTheRecursionOfAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := draw(t)
		r.in.Queue = 0
		r.s = rapid.SampledFrom(scenario.Table(r.in)[:2]).Draw(t, "normal or slow")
		r.d = rapid.SampledFrom(scenario.Designs()[:4]).Draw(t, "design without calls")
		r.engine.start(newPlan(r.in, &r.s, &r.d), r.traffic())
		r.engine.run()
		e := &r.engine
		for p := range e.pools {
			var ids []int32
			var arrive, deadline, takes []int64
			for _, id := range byQueue(e) {
				if j := &e.jobs[id]; int(e.plan.poolOf[j.route]) == p {
					ids = append(ids, id)
					arrive, deadline, takes = append(arrive, j.queued), append(deadline, j.deadline), append(takes, j.takes)
				}
			}
			starts := queueOf(len(e.pools[p].running), arrive, deadline, takes)
			for i, id := range ids {
				if got := e.jobs[id].started; got != max(starts[i], 0) {
					t.Fatalf("%v: pool %s, job %d: started at %d, the recursion says %d", r, e.pools[p].name, i, got, starts[i])
				}
			}
		}
	})
}

func TestEngine_MeasuresTheQueueOverTime(t *testing.T) {
	in := scenario.Default()
	s, d := scenario.Table(in)[1], scenario.Designs()[0]
	var tr traffic
	tr.generate(in, &s, 19)
	var e engine
	e.start(newPlan(in, &s, &d), &tr)
	e.run()
	p := &e.pools[0]
	if len(p.samples) != int(s.Length/time.Duration(sampleEvery)) {
		t.Fatalf("got %d samples, want one each 100 ms of %v", len(p.samples), s.Length)
	}
	if before := slices.Max(p.samples[:19]); before > 1 {
		t.Errorf("before the fault up to %d wait, want next to none", before)
	}
	if top := int(slices.Max(p.samples)); top < 200 || top > p.longest {
		t.Errorf("with the fault up to %d wait in the samples, want more than 200 and at most the longest, %d", top, p.longest)
	}
}

func TestEngine_AllocatesNothingOnceItIsWarm(t *testing.T) {
	in := scenario.Default()
	s, d := scenario.Table(in)[1], scenario.Designs()[3]
	var tr traffic
	tr.generate(in, &s, 19)
	var e engine
	p := newPlan(in, &s, &d)
	play := func() {
		e.start(p, &tr)
		e.run()
	}
	play()
	if n := testing.AllocsPerRun(5, play); n != 0 {
		t.Errorf("got %v allocations in a run of %d events, want none", n, e.handled)
	}
}

func BenchmarkEngine(b *testing.B) {
	in := scenario.Default()
	table := scenario.Table(in)
	for _, s := range table {
		for _, d := range []scenario.Design{scenario.Designs()[0], scenario.Designs()[3]} {
			b.Run(s.Name+"/"+d.Name, func(b *testing.B) {
				var tr traffic
				tr.generate(in, &s, 19)
				var e engine
				p := newPlan(in, &s, &d)
				var events int64
				before := processorTime(b)
				for b.Loop() {
					e.start(p, &tr)
					e.run()
					events += e.handled
				}
				// Of processor time: on a shared machine a second of the clock is anything.
				b.ReportMetric(float64(events)/(processorTime(b)-before).Seconds()/1e6, "Mevents/cpu-s")
			})
		}
	}
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
