package invoke

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Egress says which addresses may be called, besides those of dispatcher.NeverCalled, which
// never are. The zero value allows public and private networks.
type Egress struct {
	// Loopback allows 127.0.0.0/8 and ::1, the node itself.
	Loopback bool
	// Deny are networks that are not called.
	Deny []netip.Prefix
	// Private, unless empty, are the only private networks that are called: parts of 10.0.0.0/8,
	// 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7.
	Private []netip.Prefix
	// Own are addresses of the node's own: its API and its database. They are not called.
	Own []netip.AddrPort
}

var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// deniedError says that a host is not called, and why.
type deniedError struct{ host, why string }

func (e *deniedError) Error() string { return e.host + " is not called: " + e.why }

// guard dials what may be called. It judges what is dialled, after every notation of a host and
// every response of a name server has become an address, and so holds for whatever comes
// before: redirects, changing answers, wrapped addresses.
type guard struct {
	Egress
	dialer *net.Dialer
}

func newGuard(e Egress, dialer *net.Dialer) *guard {
	g := &guard{e, dialer}
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error { return g.checkDialled(address) }
	return g
}

// dial refuses a host that has a single address which may not be called: which of them is
// dialled is chance.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := g.checkName(host); err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		addresses, err := g.resolver().LookupNetIP(ctx, "ip", host)
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

func (g *guard) resolver() *net.Resolver {
	if g.dialer.Resolver != nil {
		return g.dialer.Resolver
	}
	return net.DefaultResolver
}

// checkName refuses names that are never called, wherever they lead.
func (g *guard) checkName(host string) error {
	lower := strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case dispatcher.MetadataName(host):
		return &deniedError{host, "clouds serve their metadata and credentials under this name"}
	case dispatcher.OddAddress(host):
		return &deniedError{host, "it is an address in a form that not everybody reads alike"}
	case !g.Loopback && (lower == "localhost" || strings.HasSuffix(lower, ".localhost")):
		return &deniedError{host, notLoopback}
	}
	return nil
}

const notLoopback = "it is the node itself, which is allowed by --egress-loopback only"

// checkDialled is the last word: it is asked before each connection.
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
			return &deniedError{address, "it is the API or the database of this node"}
		}
	}
	return nil
}

// check judges an address.
func (g *guard) check(dialled netip.Addr) error {
	addr := dispatcher.Dialled(dialled)
	deny := func(why string) error { return &deniedError{dialled.String(), why} }
	switch {
	case addr.IsLoopback() && !g.Loopback:
		return deny(notLoopback)
	case dispatcher.NeverCalled(dialled):
		return deny("clouds keep their metadata and credentials there, or it is reserved")
	case within(g.Deny, addr):
		return deny("it is in a network of --egress-deny")
	case len(g.Private) > 0 && within(privateNetworks, addr) && !within(g.Private, addr):
		return deny("it is in no private network of --egress-private")
	}
	return nil
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
