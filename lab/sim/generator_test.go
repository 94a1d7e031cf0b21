package sim

import (
	"math"
	"testing"
)

func TestGenerator_GivesTheAuthorsNumbers(t *testing.T) {
	// From the authors' C program with the state 0, 0, 0, 1, before and after a jump.
	before := []uint64{
		0x0000000000800000, 0x0000000000800011, 0x0002200000800011, 0x0002200044000020, 0x00022000448008A1,
		0x01102100802208A0, 0x0114002284200880, 0x0402896644A64095, 0x8A14A0A244ACC891, 0x8C88BA4680B20495,
	}
	after := []uint64{
		0x88F9A31AFDB439F5, 0x38134A20DFA1A232, 0x21D6A25A297797C7, 0xFCA0846CC616D4F8, 0x1A9D1B267D52627A,
		0xC4345D87063BFE30, 0x88B7215CC87F6B88, 0xF5EF8FA1470DE5EE, 0x8AAA468BB80BAF3B, 0x7649B52B78BB4634,
	}
	fresh, jumped := generator{[4]uint64{0, 0, 0, 1}}, generator{[4]uint64{0, 0, 0, 1}}
	jumped.jump()
	for i := range before {
		if got := fresh.next(); got != before[i] {
			t.Errorf("number %d: got %#x, want %#x", i, got, before[i])
		}
		if got := jumped.next(); got != after[i] {
			t.Errorf("number %d after a jump: got %#x, want %#x", i, got, after[i])
		}
	}
}

func TestSplitMix_GivesItsPublishedNumbers(t *testing.T) {
	state := uint64(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		var got uint64
		if state, got = splitMix(state); got != want {
			t.Errorf("number %d: got %d, want %d", i, got, want)
		}
	}
}

func TestExponential_IsMinusTheLogarithm(t *testing.T) {
	const mean = 1_000_000_000_000
	g := newGenerator(1, 0)
	for range 10_000 {
		peek := g
		u := float64(peek.next()|1) / math.Exp2(64)
		got, want := float64(g.exponential(mean)), -math.Log(u)*mean
		if math.Abs(got-want) > 2+1e-11*mean {
			t.Fatalf("u = %v: got %v, want %v", u, got, want)
		}
	}
}

func TestExponential_HasTheMeanAndTheSpreadOfItsLaw(t *testing.T) {
	const n, mean = 1_000_000, 5_000_000
	g := newGenerator(19, 0)
	var sum, squares float64
	for range n {
		x := float64(g.exponential(mean)) / mean
		sum += x
		squares += x * x
	}
	// Both are 1 for an exponential law in units of its mean; five standard errors are allowed.
	m := sum / n
	if variance := squares/n - m*m; math.Abs(m-1) > 5/math.Sqrt(n) || math.Abs(variance-1) > 5*math.Sqrt(8/float64(n)) {
		t.Errorf("got mean %v and variance %v in units of the mean, want 1 and 1", m, variance)
	}
}

func TestBelow_IsEven(t *testing.T) {
	const n, cells = 700_000, 7
	g := newGenerator(3, 2)
	var counts [cells]int
	for range n {
		counts[g.below(cells)]++
	}
	chi := 0.0
	for _, c := range counts {
		d := float64(c) - n/cells
		chi += d * d / (n / cells)
	}
	if chi > 27.9 { // one in ten thousand for six degrees of freedom
		t.Errorf("got %v, chi-square %v, want an even spread", counts, chi)
	}
}

func TestThreshold_KeepsItsEnds(t *testing.T) {
	for p, want := range map[float64]uint64{0: 0, 0.5: 1 << 63, 1: math.MaxUint64, 0.25: 1 << 62} {
		if got := threshold(p); got != want {
			t.Errorf("threshold(%v): got %#x, want %#x", p, got, want)
		}
	}
}
