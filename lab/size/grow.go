package size

import (
	"math"
	"time"
)

// Shards is what shuffle sharding comes to: each customer has a subset of the replicas of its own.
type Shards struct {
	Subsets  float64 // how many there are: n choose k
	Disjoint float64 // chance that another customer's subset shares no replica with a given one: (n−k choose k) ÷ (n choose k)
	Same     float64 // chance that it is the same: 1 ÷ (n choose k)
}

// ShuffleShards are the figures of subsets of k among n replicas, when each subset is as likely as any other. That k replicas of one
// customer are down hurts in full the share Same of the others.
func ShuffleShards(n, k int) Shards {
	all := choose(n, k)
	return Shards{Subsets: all, Disjoint: choose(n-k, k) / all, Same: 1 / all}
}

// Overlap is the chance that a given customer's subset shares exactly so many replicas with another's: hypergeometric.
func Overlap(n, k, shared int) float64 {
	return choose(k, shared) * choose(n-k, k-shared) / choose(n, k)
}

// choose is the binomial coefficient, 0 where there is none.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	product := 1.0
	for i := 1; i <= k; i++ {
		product = float64(product*float64(n-k+i)) / float64(i)
	}
	return math.Round(product)
}

// FanOut is the chance that a request which asks n parts and waits for the slowest meets at least one slow answer, when each part is
// slow with that chance by itself: 1 − (1 − p)^n.
func FanOut(slow float64, n int) float64 { return 1 - Series(1-slow, n) }

// Waits is the chance that a request finds all workers busy, and the mean time that all requests wait (Erlang C: arrivals at random,
// exponential service times, an endless queue). Where the workers cannot do the work there is no mean, and it is as long as can be.
func Waits(workers int, rate float64, hold time.Duration) (chance float64, mean time.Duration) {
	busy := Busy(rate, hold)
	if busy >= float64(workers) {
		return 1, math.MaxInt64
	}
	// Erlang B by its recursion, which needs no factorials: B(0) = 1, B(c) = aB(c−1) ÷ (c + aB(c−1)).
	blocked := 1.0
	for c := 1; c <= workers; c++ {
		blocked = float64(busy*blocked) / (float64(c) + float64(busy*blocked))
	}
	chance = blocked / (1 - float64(busy/float64(workers)*(1-blocked)))
	return chance, seconds(chance * hold.Seconds() / (float64(workers) - busy))
}

// CellLoad is the share of its capacity that a cell may use, so that the others can take over what one has: (c − 1) ÷ c.
func CellLoad(cells int) float64 { return float64(cells-1) / float64(cells) }
