package shard_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/watertight/platform/shard"
)

func pods(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.%d.%d:50051", i/250, i%250)
	}
	return out
}

func shuffled(list []string, t *rapid.T) []string {
	return rapid.Permutation(list).Draw(t, "order")
}

func TestSubset_IsTheSameWhateverTheOrderOfTheAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addresses := pods(rapid.IntRange(0, 40).Draw(t, "replicas"))
		size := rapid.IntRange(1, 12).Draw(t, "size")
		key := rapid.String().Draw(t, "key")
		got := shard.Subset(key, addresses, size)
		if want := min(size, len(addresses)); len(got) != want {
			t.Fatalf("%d addresses chosen, want %d", len(got), want)
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(got))); len(distinct) != len(got) {
			t.Fatalf("an address was chosen twice: %v", got)
		}
		if diff := cmp.Diff(got, shard.Subset(key, shuffled(addresses, t), size)); diff != "" {
			t.Fatalf("another order, another subset:\n%s", diff)
		}
	})
}

func TestSubset_ChangesOnlyWithTheAddressThatCameOrWent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addresses := pods(rapid.IntRange(2, 40).Draw(t, "replicas"))
		size := rapid.IntRange(1, 8).Draw(t, "size")
		key := rapid.String().Draw(t, "key")
		at := rapid.IntRange(0, len(addresses)-1).Draw(t, "one of them")
		one, others := addresses[at], slices.Delete(slices.Clone(addresses), at, at+1)

		all, without := shard.Subset(key, addresses, size), shard.Subset(key, others, size)
		kept := slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == one })
		// Without one, those who had it keep the rest and gain one; with it, they lose at most one.
		if diff := cmp.Diff(kept, without[:len(kept)]); diff != "" {
			t.Fatalf("%s came or went, and the others moved:\n%s", one, diff)
		}
		if len(without) > len(kept)+1 {
			t.Fatalf("with %s: %v, without: %v; more than one place changed", one, all, without)
		}
	})
}

// With 10 addresses and subsets of 2, of n keys each address should have n/5 and each of the 45 pairs n/45. The bounds are the
// 99.99 % quantiles of chi-square with 9 and 44 degrees of freedom.
func TestSubset_SpreadsKeysEvenlyOverAddressesAndPairs(t *testing.T) {
	const keys = 45000
	addresses := pods(10)
	random := rand.New(rand.NewPCG(19, 19))
	for name, key := range map[string]func(int) string{
		"counted": func(i int) string { return fmt.Sprintf("c-%d", i) },
		"random":  func(int) string { return fmt.Sprintf("%016x", random.Uint64()) },
	} {
		single, pair := map[string]float64{}, map[[2]string]float64{}
		for i := range keys {
			got := shard.Subset(key(i), addresses, 2)
			slices.Sort(got)
			single[got[0]]++
			single[got[1]]++
			pair[[2]string{got[0], got[1]}]++
		}
		if chi := chiSquare(single, keys/5, 10) * 1.25; chi > 33.7 { // two of ten without replacement vary by 4/5 of a multinomial
			t.Errorf("%s keys: chi-square over addresses %.1f, want at most 33.7: %v", name, chi, single)
		}
		if chi := chiSquare(pair, keys/45, 45); chi > 88 {
			t.Errorf("%s keys: chi-square over pairs %.1f, want at most 88: %v", name, chi, pair)
		}
	}
}

func chiSquare[K comparable](seen map[K]float64, want float64, cells int) float64 {
	sum := float64(cells-len(seen)) * want
	for _, n := range seen {
		sum += (n - want) * (n - want) / want
	}
	return sum
}

func TestSubset_OneCustomerSharesBothReplicasWithFewOthers(t *testing.T) {
	addresses := pods(6)
	poisoned := shard.Subset("poison", addresses, 2)
	slices.Sort(poisoned)
	both := 0
	for i := range 3000 {
		other := shard.Subset(fmt.Sprintf("c-%d", i), addresses, 2)
		slices.Sort(other)
		if slices.Equal(poisoned, other) {
			both++
		}
	}
	// One in C(6,2) = 15: 200 of 3000, with a standard deviation of 13.7.
	if both < 130 || both > 270 {
		t.Errorf("%d of 3000 customers share both replicas, want about 200", both)
	}
}

func BenchmarkSubset(b *testing.B) {
	addresses := pods(20)
	b.ReportAllocs()
	for b.Loop() {
		shard.Subset("c-1", addresses, 2)
	}
}
