package gateway

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestClientLimiter_GivesEachClientItsRateAndOneBurst(t *testing.T) {
	l := newClientLimiter(2, 10)
	now := time.Unix(1000, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range 2 {
		if wait := l.take(a, now); wait != 0 {
			t.Fatalf("request %d waits %v, want it at once", i, wait)
		}
	}
	for range 100 { // refused requests use nothing up
		if wait := l.take(a, now); wait != 500*time.Millisecond {
			t.Fatalf("wait = %v, want 500ms", wait)
		}
	}
	if wait := l.take(b, now); wait != 0 {
		t.Errorf("another client waits %v", wait)
	}
	if wait := l.take(a, now.Add(500*time.Millisecond)); wait != 0 {
		t.Errorf("after half a second: wait = %v, want 0", wait)
	}
}

func TestClientLimiter_ARateBelowOneStillLetsARequestThrough(t *testing.T) {
	l := newClientLimiter(0.25, 10)
	now, a := time.Unix(1000, 0), netip.MustParseAddr("192.0.2.1")
	if wait := l.take(a, now); wait != 0 {
		t.Fatalf("first waits %v", wait)
	}
	if wait := l.take(a, now); wait != 4*time.Second {
		t.Errorf("second waits %v, want 4s", wait)
	}
}

func TestClientLimiter_RemembersABoundedNumberOfClients(t *testing.T) {
	l := newClientLimiter(1, 100)
	now := time.Unix(1000, 0)
	for i := range 10_000 {
		l.take(netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)), now)
	}
	if len(l.buckets) != 100 || l.recent.Len() != 100 {
		t.Errorf("holds %d buckets, %d in order; want 100", len(l.buckets), l.recent.Len())
	}
	if wait := l.take(netip.MustParseAddr("10.0.39.15"), now); wait == 0 { // the last one
		t.Error("the most recent client was forgotten")
	}
}

func TestClientLimiter_AnIPv6NetworkIsOneClient(t *testing.T) {
	l := newClientLimiter(1, 100)
	now := time.Unix(1000, 0)
	l.take(netip.MustParseAddr("2001:db8::1"), now)
	if wait := l.take(netip.MustParseAddr("2001:db8::ffff:1"), now); wait == 0 {
		t.Error("an address of the same /64 got a bucket of its own")
	}
	if wait := l.take(netip.MustParseAddr("2001:db8:0:1::1"), now); wait != 0 {
		t.Error("another /64 shares the bucket")
	}
}

func TestClientLimiter_ClientsWithoutAnAddressShareABucket(t *testing.T) {
	l := newClientLimiter(1, 100)
	now := time.Unix(1000, 0)
	l.take(netip.Addr{}, now)
	if wait := l.take(netip.Addr{}, now); wait == 0 {
		t.Error("no limit without an address")
	}
}
