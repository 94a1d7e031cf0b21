package sim

// kind is what an event is about.
type kind uint8

const (
	reaches   kind = iota // a piece of work reaches its pool; ref is the job
	settles               // a worker is done; ref is the slot
	dies                  // a process ends by a fault
	restarts              // it is back
	redeploys             // it is taken away on purpose
	answers               // a checkout's call comes back well; ref is the checkout's job
	fails                 // or badly
	callEnds              // a checkout waits for its call no longer
	givesUp               // a client waits no longer; ref is the job
)

// event is something that will happen. Those of the same moment happen in the order in which they were planned.
type event struct {
	at    int64
	seq   uint32
	aux   uint32 // which life of the process, or which call
	ref   int32
	kind  kind
	where uint8 // pool or process
}

// before orders events.
func (e *event) before(f *event) bool { return e.at < f.at || (e.at == f.at && e.seq < f.seq) }

// agenda is the events to come: a heap with four children to a node, which is shallow enough for the processor's cache.
type agenda struct {
	heap []event
	seq  uint32
}

const arity = 4

func (a *agenda) reset() { a.heap, a.seq = a.heap[:0], 0 }

func (a *agenda) plan(e event) {
	e.seq = a.seq
	a.seq++
	a.heap = append(a.heap, e)
	heap, i := a.heap, len(a.heap)-1
	for i > 0 {
		parent := (i - 1) / arity
		if heap[parent].before(&e) {
			break
		}
		heap[i] = heap[parent]
		i = parent
	}
	heap[i] = e
}

// take removes the first event; the agenda must not be empty.
func (a *agenda) take() event {
	first := a.heap[0]
	n := len(a.heap) - 1
	last := a.heap[n]
	a.heap = a.heap[:n]
	heap, i := a.heap, 0
	for {
		child := arity*i + 1
		if child >= n {
			break
		}
		least := child
		for c := child + 1; c < min(child+arity, n); c++ {
			if heap[c].before(&heap[least]) {
				least = c
			}
		}
		if last.before(&heap[least]) {
			break
		}
		heap[i] = heap[least]
		i = least
	}
	if n > 0 {
		heap[i] = last
	}
	return first
}
