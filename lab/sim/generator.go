package sim

import "math/bits"

// generator is xoshiro256++ 1.0 (Blackman and Vigna, https://prng.di.unimi.it), seeded by SplitMix64 as its authors advise. It
// is written out here so that a seed means the same numbers for ever, on every machine: nothing in it is floating point.
type generator struct{ s [4]uint64 }

// newGenerator returns the generator of a seed's stream. Streams are 2^128 numbers apart and do not overlap.
func newGenerator(seed uint64, stream int) generator {
	var g generator
	for i := range g.s {
		seed, g.s[i] = splitMix(seed)
	}
	for range stream {
		g.jump()
	}
	return g
}

// splitMix is one step of SplitMix64: the next state and the next number.
func splitMix(state uint64) (next, number uint64) {
	state += 0x9e3779b97f4a7c15
	z := state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return state, z ^ z>>31
}

// next returns 64 random bits.
func (g *generator) next() uint64 {
	s0, s1, s2, s3 := g.s[0], g.s[1], g.s[2], g.s[3]
	result := bits.RotateLeft64(s0+s3, 23) + s0
	t := s1 << 17
	s2 ^= s0
	s3 ^= s1
	s1 ^= s2
	s0 ^= s3
	s2 ^= t
	g.s = [4]uint64{s0, s1, s2, bits.RotateLeft64(s3, 45)}
	return result
}

// jump moves on by 2^128 numbers.
func (g *generator) jump() {
	var s [4]uint64
	for _, word := range [4]uint64{0x180ec6d33cfd0aba, 0xd5a61266f0c9392c, 0xa9582618e03fc9aa, 0x39abdc4529b1661c} {
		for bit := range 64 {
			if word>>bit&1 == 1 {
				for i := range s {
					s[i] ^= g.s[i]
				}
			}
			g.next()
		}
	}
	g.s = s
}

// below returns an even number from 0 to n-1. Its bias, n ÷ 2^64, is far below what any run could show.
func (g *generator) below(n int64) int64 {
	high, _ := bits.Mul64(g.next(), uint64(n))
	return int64(high)
}

// exponential returns a time until the next of random arrivals that come mean apart: −ln(u) × mean, in fixed point, because
// logarithms of floating-point numbers differ in the last digit between machines.
func (g *generator) exponential(mean int64) int64 {
	const (
		ln2      = 0xb17217f7d1cf79ac // ln 2 × 2^64
		digits   = 40                 // of the logarithm; less than a nanosecond in any time used here
		fraction = 57                 // binary places of what follows
	)
	u := g.next() | 1 // in units of 2^-64, and not 0
	zeros := bits.LeadingZeros64(u)
	m := u << zeros // 1 ≤ m < 2 in units of 2^-63
	// The binary digits of log2(m): squaring doubles the logarithm, and a square of 2 or more is a digit 1.
	var log uint64
	for range digits {
		high, low := bits.Mul64(m, m)
		digit := high >> 63
		m = high<<(1-digit) | low>>(63+digit)
		log = log<<1 | digit
	}
	minusLog2 := uint64(zeros+1)<<fraction - log<<(fraction-digits)
	minusLn, _ := bits.Mul64(minusLog2, ln2)
	high, low := bits.Mul64(minusLn, uint64(mean))
	return int64(high<<(64-fraction) | low>>fraction)
}

// threshold is the number below which a share p of all 64-bit numbers lies.
func threshold(p float64) uint64 {
	if p >= 1 {
		return ^uint64(0)
	}
	return uint64(p * (1 << 63) * 2)
}
