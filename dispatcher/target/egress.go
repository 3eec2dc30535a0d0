package target

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// neverCalled are the networks that no target may be in: link-local ones, where clouds serve metadata
// and credentials, multicast, and ranges reserved for documentation, benchmarks or protocols. They
// include deprecated forms of IPv6 that embed an IPv4 address. For NAT64 the embedded address is checked.
var neverCalled = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"), // also Oracle Cloud's metadata
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud's metadata
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("::/96"), // but for ::1, which is loopback
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), // Teredo and other protocols
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
	netip.MustParsePrefix("5f00::/16"),
	netip.MustParsePrefix("fd00:ec2::/32"),    // EC2's metadata
	netip.MustParsePrefix("fd20:ce::254/128"), // Google Cloud's
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// nat64 embeds IPv4 addresses for networks that have only IPv6 (RFC 6052).
const nat64 = "64:ff9b::/96"

// Dialled returns the address that a packet to addr goes to: without a zone, and as IPv4 if addr
// embeds an IPv4 address.
func Dialled(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if addr.Is6() && netip.MustParsePrefix(nat64).Contains(addr) {
		wrapped := addr.As16()
		return netip.AddrFrom4([4]byte(wrapped[12:]))
	}
	return addr
}

// NeverCalled reports whether no target may have the address, whatever a node's configuration says.
// It allows loopback.
func NeverCalled(addr netip.Addr) bool {
	addr = Dialled(addr)
	inside := func(network netip.Prefix) bool { return network.Contains(addr) }
	return !addr.IsLoopback() && slices.ContainsFunc(neverCalled, inside)
}

// OddAddress reports whether a host is neither a name nor a usual address but some resolvers read it
// as an address: 127.1, 2130706433, 0177.0.0.1, 0x7f.1.
func OddAddress(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		_, err := strconv.ParseUint(hex, 16, 64)
		return hex == "" || err == nil
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// MetadataName reports whether a cloud serves its metadata under the name.
func MetadataName(host string) bool {
	switch strings.ToLower(strings.TrimSuffix(host, ".")) {
	case "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal":
		return true
	}
	return false
}
