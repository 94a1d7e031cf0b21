package sim

// pool is some workers and the queue in front of them.
type pool struct {
	name    string
	process uint8
	bound   int // places in the queue; 0 is no limit
	queue   ring

	running []int32 // the job of each worker, or idle
	free    []uint16
	poolCounts

	busy    int64 // workers
	since   int64 // when that last changed
	area    int64 // worker-nanoseconds inside the counted time
	samples []int32
}

const idle = -1

// poolCounts is what became of the work that reached a pool. Work is admitted when a worker takes it.
//
//	arrived  = refused + rejected + expired + killed in the queue + admitted + queued
//	admitted = completed + killed while it ran + running
type poolCounts struct {
	arrived, refused, rejected, expired, admitted, completed int64
	killedQueued, killedRunning                              int64
	longest                                                  int // the queue's greatest length
}

func (p *pool) reset(name string, process uint8, workers, bound, samples int) {
	queue, running, free, kept := p.queue, p.running[:0], p.free[:0], p.samples[:0]
	queue.clear()
	for i := range workers {
		running = append(running, idle)
		free = append(free, uint16(workers-1-i))
	}
	if cap(kept) < samples {
		kept = make([]int32, 0, samples)
	}
	*p = pool{name: name, process: process, bound: bound, queue: queue, running: running, free: free, samples: kept}
}

// track adds the busy workers' time up to now, as far as it lies between from and to.
func (p *pool) track(now, from, to int64) {
	if a, b := max(p.since, from), min(now, to); b > a {
		p.area += p.busy * (b - a)
	}
	p.since = now
}

// ring is a first-in-first-out queue of jobs.
type ring struct {
	jobs        []int32 // a power of two of them
	head, count int
}

func (r *ring) clear() { r.head, r.count = 0, 0 }

func (r *ring) push(job int32) {
	if r.count == len(r.jobs) {
		r.grow()
	}
	r.jobs[(r.head+r.count)&(len(r.jobs)-1)] = job
	r.count++
}

func (r *ring) pop() int32 {
	job := r.jobs[r.head]
	r.head = (r.head + 1) & (len(r.jobs) - 1)
	r.count--
	return job
}

func (r *ring) grow() {
	wider := make([]int32, max(64, 2*len(r.jobs)))
	for i := range r.count {
		wider[i] = r.jobs[(r.head+i)&(len(r.jobs)-1)]
	}
	r.jobs, r.head = wider, 0
}
