package limit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// AddressOf returns the key of an address such as 192.0.2.1:4711: the address itself, or of IPv6 the network of 64 bits,
// of which one machine has all addresses. It is the zero Addr for anything else.
func AddressOf(hostPort string) netip.Addr {
	parsed, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	return Key(parsed.Addr())
}

// Key returns what an address is counted by; see AddressOf.
func Key(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if address.Is6() {
		network, _ := address.Prefix(64) // a v6 address has that many bits
		return network.Addr()
	}
	return address
}

// Proxies are the networks of proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// Has tells whether an address belongs to a proxy.
func (p Proxies) Has(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// Client returns the address that a request comes from: the peer's, or, if that is a proxy, the last in X-Forwarded-For
// that is not: each proxy appends the address that it sees, and what stands before may be made up.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := peer.Addr()
	if len(p) == 0 || !p.Has(client) {
		return client.Unmap().WithZone("")
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, one := range slices.Backward(forwarded) {
		one = strings.TrimSpace(one)
		address, err := netip.ParseAddr(one)
		if withPort, wrong := netip.ParseAddrPort(one); wrong == nil { // some proxies write the port, too
			address, err = withPort.Addr(), nil
		}
		if err != nil {
			break // made up, or a form that no proxy of ours writes
		}
		client = address
		if !p.Has(client) {
			break
		}
	}
	return client.Unmap().WithZone("")
}
