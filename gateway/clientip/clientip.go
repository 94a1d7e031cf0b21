// Package clientip finds out which address a request comes from. It believes X-Forwarded-For only as far as proxies that were
// named wrote it: everything left of the last such entry is the client's own invention.
package clientip

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks whose X-Forwarded-For entries are believed.
type Proxies []netip.Prefix

// Of returns the address of the client: the socket's, or, when that is a trusted proxy, the rightmost forwarded address that
// is not one. It is not valid when the socket has no IP address.
func (p Proxies) Of(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	if !p.trusted(addr) {
		return addr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, written := range slices.Backward(hops) {
		hop, err := parse(strings.TrimSpace(written))
		if err != nil { // a proxy we trust does not write this: stop at what is known
			return addr
		}
		addr = hop
		if !p.trusted(addr) {
			return addr
		}
	}
	return addr
}

func (p Proxies) trusted(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// parse reads an address with or without a port: proxies write both.
func parse(hop string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(strings.Trim(hop, "[]"))
	if err != nil {
		var withPort netip.AddrPort
		if withPort, err = netip.ParseAddrPort(hop); err != nil {
			return netip.Addr{}, err
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), nil
}
