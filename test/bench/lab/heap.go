package lab

import "container/heap"

// pending is how many events wait at a time: about as many as in the simulation of a normal day.
const pending = 64

// event is as large as the simulation's, and ordered as they are.
type event struct{ at, sequence, ref int64 }

// agenda is the standard library's heap as its documentation has it.
type agenda []event

func (a *agenda) Len() int      { return len(*a) }
func (a *agenda) Swap(i, j int) { (*a)[i], (*a)[j] = (*a)[j], (*a)[i] }
func (a *agenda) Less(i, j int) bool {
	e, f := &(*a)[i], &(*a)[j]
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

// Push is for container/heap.
func (a *agenda) Push(e any) { *a = append(*a, e.(event)) } //nolint:errcheck,forcetypeassert // only events are pushed

// Pop is for container/heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	*a = (*a)[:last]
	return e
}

// bareHeap takes events from a heap and puts each back at a later time; nothing happens at any of them.
func bareHeap(events int64) {
	a := agenda{}
	random := uint64(19)
	later := func() int64 {
		random = random*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		return int64(random >> 40)
	}
	for n := range int64(pending) {
		heap.Push(&a, event{at: later(), sequence: n, ref: n})
	}
	for n := range events {
		e := heap.Pop(&a).(event) //nolint:errcheck,forcetypeassert // see Push
		e.at, e.sequence = e.at+later(), pending+n
		heap.Push(&a, e)
	}
}
