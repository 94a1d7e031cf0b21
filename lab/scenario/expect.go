package scenario

import "time"

// Word is what becomes of a feature, in a word.
type Word string

// The words, from good to bad.
const (
	Fine   Word = "fine"   // it works as on a normal day
	Slower Word = "slower" // it works, but takes half as long again as on a normal day, or more
	Hurt   Word = "hurt"   // requests fail
	Down   Word = "down"   // half of them fail, or more
)

// Meets reports whether what a feature became is what was expected. Hurt is met by Down: a queue at the edge of its capacity
// ends up in either. Where no word is expected, any will do.
func (w Word) Meets(expected Word) bool {
	return expected == "" || w == expected || (expected == Hurt && w == Down)
}

// Where the words begin.
const (
	HurtFrom   = 0.01 // share of the requests that fail
	DownFrom   = 0.5  // the same
	SlowerFrom = 1.5  // median latency, in units of the same design's on a normal day
)

// Judge finds the word for a share of failed requests and a median latency. A normal latency of 0 is one that is not known.
func Judge(failed float64, median, normal time.Duration) Word {
	switch {
	case failed >= DownFrom:
		return Down
	case failed >= HurtFrom:
		return Hurt
	case normal > 0 && float64(median) >= SlowerFrom*float64(normal):
		return Slower
	}
	return Fine
}

// Expectation is what should become of checkout, and of recs, after the fault has begun.
type Expectation struct {
	Checkout Word `json:"checkout"`
	Recs     Word `json:"recs"`
}

// same expects one word of everything: nothing is contained, or there is nothing to contain.
func same(w Word) map[string]Expectation {
	expect := map[string]Expectation{}
	for _, d := range Designs() {
		expect[d.Name] = Expectation{w, w}
	}
	return expect
}

// contained expects recs to be in a bad way in every design, and checkout only where the two share what the fault uses up:
// the process, when it is fatal to that, and otherwise the pool. Waiting for recs shares everything.
func contained(w Word, fatal bool) map[string]Expectation {
	expect := map[string]Expectation{}
	for _, d := range Designs() {
		expect[d.Name] = Expectation{Fine, w}
		if d.CallsRecs || d.OnePool || (fatal && d.OneProcess) {
			expect[d.Name] = Expectation{w, w}
		}
	}
	return expect
}

// exportExpectations: what is sick is the export route, so recs is one of its victims.
func exportExpectations() map[string]Expectation {
	expect := same(Fine)
	expect[SharedPool] = Expectation{Hurt, Hurt}
	return expect
}

// cpuExpectations: pools and processes do not divide a node's cores. A checkout that waits for recs as well needs more
// workers than it has.
func cpuExpectations() map[string]Expectation {
	expect := same(Slower)
	expect[SyncCall] = Expectation{Hurt, Slower}
	return expect
}
