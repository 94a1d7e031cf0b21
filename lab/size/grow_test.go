package size_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/watertight/lab/size"
)

// near compares a figure with one that was drawn at random: within so many standard deviations' worth of it.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: got %.5f, and %.5f was drawn (seed 19)", what, got, want)
	}
}

func TestShuffleShards_AgreeWithSubsetsThatAreDrawn(t *testing.T) {
	draw := rand.New(rand.NewPCG(19, 1))
	for _, c := range []struct{ n, k int }{{4, 2}, {6, 2}, {8, 2}, {12, 3}, {20, 4}} {
		const draws = 50_000
		shared := make([]float64, c.k+1)
		for range draws {
			mine, hit := map[int]bool{}, 0
			for _, r := range draw.Perm(c.n)[:c.k] {
				mine[r] = true
			}
			for _, r := range draw.Perm(c.n)[:c.k] {
				if mine[r] {
					hit++
				}
			}
			shared[hit] += 1.0 / draws
		}
		f := size.ShuffleShards(c.n, c.k)
		near(t, "disjoint", f.Disjoint, shared[0], 0.012)
		near(t, "the same", f.Same, shared[c.k], 0.012)
		sum := 0.0
		for both := range shared {
			near(t, "overlap", size.Overlap(c.n, c.k, both), shared[both], 0.012)
			sum += size.Overlap(c.n, c.k, both)
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%d of %d: the chances sum up to %v", c.k, c.n, sum)
		}
	}
	if got := size.ShuffleShards(6, 2); got.Subsets != 15 || math.Abs(got.Disjoint-6.0/15) > 1e-12 || math.Abs(size.Overlap(6, 2, 1)-8.0/15) > 1e-12 {
		t.Errorf("2 of 6: got %+v, want 15 subsets, of which 6 share nothing and 8 one", got)
	}
	if got := size.ShuffleShards(3, 2).Disjoint; got != 0 {
		t.Errorf("2 of 3: got %v, want no disjoint subsets", got)
	}
}

func TestFanOut_IsTheTailOfTheSlowest(t *testing.T) {
	draw := rand.New(rand.NewPCG(19, 2))
	for _, n := range []int{1, 10, 100} {
		const draws = 20_000
		slow := 0.0
		for range draws {
			for range n {
				if draw.Float64() < 0.01 {
					slow += 1.0 / draws
					break
				}
			}
		}
		near(t, "slow", size.FanOut(0.01, n), slow, 0.02)
	}
}

// busyUntil is a heap of the moments at which workers are free again.
type busyUntil []float64

func (b *busyUntil) Len() int           { return len(*b) }
func (b *busyUntil) Less(i, j int) bool { return (*b)[i] < (*b)[j] }
func (b *busyUntil) Swap(i, j int)      { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }
func (b *busyUntil) Push(x any)         { *b = append(*b, x.(float64)) }
func (b *busyUntil) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// A queue that is played: random arrivals, exponential times, the first come the first served.
func TestWaits_AgreeWithAQueueThatIsPlayed(t *testing.T) {
	for _, c := range []struct {
		workers int
		load    float64 // of the workers
	}{{1, 0.7}, {4, 0.85}, {16, 0.85}, {64, 0.9}} {
		draw := rand.New(rand.NewPCG(19, uint64(c.workers)))
		const requests, hold = 400_000, 0.02
		rate := c.load * float64(c.workers) / hold
		free := make(busyUntil, c.workers)
		now, waited, total := 0.0, 0.0, 0.0
		for range requests {
			now += draw.ExpFloat64() / rate
			start := max(now, heap.Pop(&free).(float64))
			if start > now {
				waited += 1.0 / requests
			}
			total += (start - now) / requests
			heap.Push(&free, start+draw.ExpFloat64()*hold)
		}
		chance, mean := size.Waits(c.workers, rate, 20*time.Millisecond)
		near(t, "chance to wait", chance, waited, 0.03)
		near(t, "mean wait, ms", 1000*mean.Seconds(), 1000*total, 0.08*1000*total+0.05)
	}
	if chance, mean := size.Waits(4, 200, 20*time.Millisecond); chance != 1 || mean != math.MaxInt64 {
		t.Errorf("a load that keeps all busy: got %v and %v, want waits without end", chance, mean)
	}
}

func TestCalculate_SaysWhatAFleetComesTo(t *testing.T) {
	in := size.Default()
	in.Shards, in.FanOut, in.Cells, in.Waits = []int{8, 2}, 100, 10, true
	got, _ := texts(t, in, size.DefaultRoutes(), nil)
	for name, want := range map[string]string{
		"subsets": "28", "share no replica": "53.57 %", "share all of them": "3.571 %", "replicas a customer can take": "25 %",
		"meets a slow part": "63.4 %", "customers that a cell's loss hits": "10 %", "load of a cell, at most": "90 %",
		"waits in checkout": "1.17 %, 0.079 ms",
	} {
		if got[name] != want {
			t.Errorf("%s: got %q, want %q", name, got[name], want)
		}
	}
}
