package invoke

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Egress limits the addresses that webhooks may call. Addresses of dispatcher.NeverCalled are
// always denied. The zero value allows public and private networks.
type Egress struct {
	// Loopback allows 127.0.0.0/8 and ::1, the node itself.
	Loopback bool
	// Deny lists denied networks.
	Deny []netip.Prefix
	// Private lists the allowed private networks: parts of 10.0.0.0/8, 172.16.0.0/12,
	// 192.168.0.0/16, 100.64.0.0/10 and fc00::/7. Empty allows all of them.
	Private []netip.Prefix
	// Own lists the addresses of the node's API and database, which are denied.
	Own []netip.AddrPort
}

var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// guard dials allowed addresses. It checks the IP address that is actually dialled, so no notation
// of a host, no response of a name server and no redirect can avoid the check.
type guard struct {
	Egress
	dialer *net.Dialer
}

func newGuard(e Egress, dialer *net.Dialer) *guard {
	g := &guard{e, dialer}
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return g.checkDialled(address)
	}
	return g
}

// dial connects to a host. It refuses a host if any of its addresses is denied, because the choice
// among them is random.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := g.checkName(host); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		addresses, err := g.dialer.Resolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, addr := range addresses {
			if err := g.check(addr); err != nil {
				return nil, err
			}
		}
	}
	return g.dialer.DialContext(ctx, network, address)
}

// checkName refuses names that are denied no matter what they resolve to.
func (g *guard) checkName(host string) error {
	lower := strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case dispatcher.MetadataName(host):
		return denied(host, "cloud providers serve metadata and credentials under this name")
	case dispatcher.OddAddress(host):
		return denied(host, "programs read this notation of an address differently")
	case !g.Loopback && (lower == "localhost" || strings.HasSuffix(lower, ".localhost")):
		return denied(host, notLoopback)
	}
	return nil
}

const notLoopback = "it is the node itself; --egress-loopback allows it"

// checkDialled makes the final check, before each connection.
func (g *guard) checkDialled(address string) error {
	dialled, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	if err := g.check(dialled.Addr()); err != nil {
		return err
	}
	addr := dispatcher.Dialled(dialled.Addr())
	for _, own := range g.Own {
		if own.Port() == dialled.Port() && dispatcher.Dialled(own.Addr()) == addr {
			return denied(address, "it is the API or the database of this node")
		}
	}
	return nil
}

// check refuses a denied address.
func (g *guard) check(dialled netip.Addr) error {
	addr := dispatcher.Dialled(dialled)
	deny := func(why string) error { return denied(dialled.String(), why) }
	switch {
	case addr.IsLoopback() && !g.Loopback:
		return deny(notLoopback)
	case dispatcher.NeverCalled(dialled):
		return deny("it is reserved, or cloud providers serve metadata and credentials there")
	case within(g.Deny, addr):
		return deny("it is in a network that --egress-deny lists")
	case len(g.Private) > 0 && within(privateNetworks, addr) && !within(g.Private, addr):
		return deny("it is in a private network that --egress-private does not list")
	}
	return nil
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(addr) })
}
