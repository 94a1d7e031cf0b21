// Package shard sends every customer's calls to a fixed few of a service's replicas (shuffle sharding), so that a request
// that kills its server can reach no more than those, however often it is sent. Which few is decided by the customer's key
// and the addresses alone: every client process comes to the same answer, and a replica that crashes is not replaced by the
// next one. It does not detect what kills a replica, and keys that an attacker can choose protect from accidents only.
package shard

import (
	"cmp"
	"context"
	"slices"

	"github.com/cespare/xxhash/v2"
)

type contextKey struct{}

// WithKey returns ctx for calls on behalf of the customer that key stands for. Calls without a key share the subset of the
// empty one: they are confined as any other customer's.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, contextKey{}, key)
}

func keyOf(ctx context.Context) string {
	key, _ := ctx.Value(contextKey{}).(string)
	return key
}

// Subset returns the size of the addresses that key's calls go to, the strongest first; all of them when there are not as
// many. It is rendezvous hashing (highest random weight): adding or removing an address changes the subsets of those keys
// only that gain or lose it, and each address serves about size of every len(addresses) keys. The order of addresses
// does not matter.
func Subset(key string, addresses []string, size int) []string {
	ring := newRendezvous(addresses)
	picked := ring.choose(key, size, nil)
	out := make([]string, len(picked))
	for i, at := range picked {
		out[i] = addresses[at]
	}
	return out
}

// rendezvous holds the hash of each address.
type rendezvous struct {
	hashes []uint64
}

func newRendezvous(addresses []string) rendezvous {
	r := rendezvous{make([]uint64, len(addresses))}
	for i, a := range addresses {
		r.hashes[i] = xxhash.Sum64String(a)
	}
	return r
}

type weighted struct {
	at     int
	weight uint64
}

// choose appends the indexes of the size addresses of most weight for key to into, the heaviest first. It does not allocate
// when into has room.
func (r rendezvous) choose(key string, size int, into []int) []int {
	size = min(size, len(r.hashes))
	var few [8]weighted // subsets are small: that is their point
	best := few[:0]
	hash := xxhash.Sum64String(key)
	for i, address := range r.hashes {
		w := weighted{i, mix(hash ^ address)}
		at, _ := slices.BinarySearchFunc(best, w, r.heavier)
		switch {
		case at >= size:
			continue
		case len(best) == size:
			best = best[:size-1]
		}
		best = slices.Insert(best, at, w)
	}
	for _, w := range best {
		into = append(into, w.at)
	}
	return into
}

// heavier orders by weight, the most first; equal weights, by the address's hash, so that the order in which the addresses
// came decides nothing.
func (r rendezvous) heavier(a, b weighted) int {
	if byWeight := cmp.Compare(b.weight, a.weight); byWeight != 0 {
		return byWeight
	}
	return cmp.Compare(r.hashes[b.at], r.hashes[a.at])
}

// mix spreads every bit of x over all others (the finalizer of MurmurHash3): two hashes that were only combined with xor would
// rank the addresses alike for many keys.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
