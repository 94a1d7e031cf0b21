// Package size works out, from rates and service times alone, how many workers a shop needs, where its time-outs must lie
// and what its failures will cost. The formulas are means: they say where a queue grows without bound, not how long it is
// on the way there. Nothing is simulated here, and nothing is measured: rates and times come from flags, or from a Prometheus server.
package size

import (
	"math"
	"time"
)

// Busy is the mean number of workers that requests keep busy (Little's law, L = λW): arrivals a second, and the mean time
// that each holds a worker.
func Busy(rate float64, hold time.Duration) float64 { return float64(rate * hold.Seconds()) }

// MeanTime is the mean of service times that spread evenly around base while a share of them takes factor times as long.
func MeanTime(base time.Duration, share, factor float64) time.Duration {
	return time.Duration(math.Round(float64(base) * (1 + float64(share*(factor-1)))))
}

// FillTime is how long requests that never end take to fill all workers: workers ÷ rate. It is a rough figure: arrivals come
// in bursts, and some workers are busy to begin with.
func FillTime(workers int, rate float64) time.Duration { return seconds(float64(workers) / rate) }

// TimeoutBoundary is the time-out of slow requests at which a pool is exactly full in the mean:
// (workers − what the others keep busy) ÷ rate of the slow. Above it the queue grows without bound; at it nothing is safe.
// It is 0 when the others fill the pool already.
func TimeoutBoundary(workers int, others, rate float64) time.Duration {
	return SafeTimeout(workers, others, rate, 1)
}

// SafeTimeout is the time-out that leaves the pool at the given utilisation when every slow request runs into it:
// (workers × utilisation − others) ÷ rate.
func SafeTimeout(workers int, others, rate, utilisation float64) time.Duration {
	return seconds(max(float64(float64(workers)*utilisation)-others, 0) / rate)
}

// PoolSize is the least number of workers that a load keeps busy to the given utilisation at most: ⌈L ÷ utilisation⌉.
func PoolSize(busy, utilisation float64) int {
	const rounding = 1e-9 // 12 ÷ 0.75 is 16, whatever its last binary digit says
	return max(int(math.Ceil(busy/utilisation-rounding)), 1)
}

// PerReplica is what each of some callers may have in flight, so that together they stay within what an upstream can take.
// It is at least 1: with more callers than that, the sum is above the limit.
func PerReplica(limit, callers int) int { return max(limit/max(callers, 1), 1) }

// Series is the availability of parts that must all work, when their failures are independent: the product of all.
func Series(availability float64, parts int) float64 {
	product := 1.0
	for range parts {
		product *= availability
	}
	return product
}

// RedeployLoss is how many requests come while nothing serves them: rate × time away.
func RedeployLoss(rate float64, away time.Duration) float64 { return float64(rate * away.Seconds()) }

// UpFraction is the share of the time that a process in a crash loop is up: time to the next crash ÷ (that + restart).
func UpFraction(toCrash, restart time.Duration) float64 {
	return toCrash.Seconds() / (toCrash + restart).Seconds()
}

// TimeToCrash is how long a process is up when requests at this rate end it, each so long after its start: 1 ÷ rate + after.
func TimeToCrash(rate float64, after time.Duration) time.Duration { return seconds(1/rate) + after }

// HopCost is what a gateway and a network add to a request: gateway + there + back.
func HopCost(gateway, hop time.Duration) time.Duration { return gateway + 2*hop }

func seconds(s float64) time.Duration {
	if math.IsInf(s, 0) || s > math.MaxInt64/1e9 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(s * float64(time.Second)))
}
