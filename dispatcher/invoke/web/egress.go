package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Egress limits the addresses that webhooks may call, with any bounds of their apps. Addresses of target.NeverCalled
// are always denied. The zero value allows only public addresses.
type Egress struct {
	// Loopback allows 127.0.0.0/8 and ::1, and all other addresses of the machine: the node itself.
	Loopback bool
	// Deny lists denied networks.
	Deny []netip.Prefix
	// Private lists the private networks that apps may call if their bounds list no networks: parts of those that
	// target.Private names.
	Private []netip.Prefix
	// Own lists the addresses of the node's API and database, which are denied.
	Own []netip.AddrPort
	// OwnPorts lists the ports on which the node's API listens at all addresses of the machine; they are denied.
	OwnPorts []uint16
}

// guard dials allowed addresses. It checks the IP address that is actually dialled, so no notation of a host, no
// response of a name server and no redirect can avoid the check.
type guard struct {
	Egress
	machine  *machine
	resolver *net.Resolver
	peers    atomic.Pointer[[]netip.AddrPort] // of the APIs of the other nodes
}

func newGuard(e Egress, resolver *net.Resolver) *guard {
	return &guard{Egress: e, machine: &machine{read: net.InterfaceAddrs}, resolver: resolver}
}

// Scope is the owner and the destination of connections: an app, unless all of its bounds of egress are the defaults,
// and the endpoints of a group that differ from any other host.
type Scope struct {
	app string
	target.EgressBounds
	// Registered limits where endpoints may be that registered themselves; nil: the host is not one of them.
	Registered *target.Registration
	// ServerName is the host name in the certificate of the host; empty: that of the URL.
	ServerName string
	// Name is the DNS name of the address in the URL; empty: the URL is from the job or group itself.
	Name string
	// sum is the hash of the scope with its fixed TLS options; nil: it was not computed before.
	sum *[sha256.Size]byte
}

// ScopeOf returns the scope of a call. Apps with the defaults share one, and with it their connections.
func ScopeOf(app string, bounds target.EgressBounds) Scope {
	if bounds.Hosts == nil && bounds.Ports == nil && bounds.Networks == nil {
		return Scope{}
	}
	return Scope{app: app, EgressBounds: bounds}
}

// dialer returns a function that connects to a host for a scope. It refuses a host if any of its addresses is
// denied, because the choice among them is random.
func (g *guard) dialer(of Scope) func(ctx context.Context, network, address string) (net.Conn, error) {
	check := g.checker(of)
	dialer := &net.Dialer{Timeout: attempt.ConnectTimeout, KeepAlive: 15 * time.Second, Resolver: g.resolver}
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		dialled, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		return g.checkDialled(dialled, check)
	}
	return func(ctx context.Context, network, address string) (_ net.Conn, err error) {
		host, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		defer func() { err = attempt.ByName(err, host) }()
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return nil, err
		}
		if err := g.checkTarget(of, host, text); err != nil {
			return nil, err
		}
		if _, err := netip.ParseAddr(host); err != nil {
			addresses, err := dialer.Resolver.LookupNetIP(ctx, "ip", host)
			if err != nil {
				return nil, err
			}
			for _, addr := range addresses {
				if err := check(netip.AddrPortFrom(addr, uint16(port))); err != nil {
					return nil, err
				}
			}
		}
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := checkHeld(ctx); err != nil { // the attempt may not send anything any more
			_ = conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// checkTarget refuses hosts and ports that are denied to a scope at any address.
func (g *guard) checkTarget(of Scope, host, port string) error {
	lower := strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case target.MetadataName(host):
		return attempt.Denied(host, "cloud providers serve metadata and credentials under this name")
	case target.OddAddress(host):
		return attempt.Denied(host, "programs read this notation of an address differently")
	case !g.Loopback && (lower == "localhost" || strings.HasSuffix(lower, ".localhost")):
		return attempt.Denied(host, notLoopback)
	}
	if of.Hosts == nil && of.Ports == nil {
		return nil
	}
	bounds, address := target.Bounds{Egress: of.EgressBounds}, net.JoinHostPort(cmp.Or(of.Name, host), port)
	return attempt.OutOfBounds(bounds.CheckTarget(of.app,
		target.Target{Webhook: &target.Webhook{URL: "http://" + strings.ReplaceAll(address, "%", "%25") + "/"}}))
}

// CheckKnown returns the error with which a dial would be refused for a scope, by a host's known addresses.
func (h *Webhooks) CheckKnown(of Scope, host string, port uint16, addresses []netip.Addr) error {
	if err := h.guard.checkTarget(of, host, strconv.Itoa(int(port))); err != nil {
		return err
	}
	check := h.guard.checker(of)
	for _, addr := range addresses {
		if err := h.guard.checkDialled(netip.AddrPortFrom(addr, port), check); err != nil {
			return err
		}
	}
	return nil
}

// checker returns a function that refuses the addresses that a scope may not call.
func (g *guard) checker(of Scope) func(netip.AddrPort) error {
	networks := prefixes(of.Networks)
	return func(dialled netip.AddrPort) error {
		if r := of.Registered; r != nil && !r.Takes(dialled.Addr(), int(dialled.Port())) {
			return attempt.Denied(dialled.String(), fmt.Sprintf("its group takes registrations from networks %s and ports %v alone "+
				"(registration.networks, registration.ports)", strings.Join(r.Networks, ", "), r.Ports))
		}
		return g.check(dialled.Addr(), of, networks)
	}
}

// prefixes returns the networks of some bounds without NetworkPublic.
func prefixes(networks []string) (all []netip.Prefix) {
	for _, text := range networks {
		if network, err := netip.ParsePrefix(text); err == nil {
			all = append(all, network)
		}
	}
	return all
}

const notLoopback = "it is the node itself; --egress-loopback allows it"

// checkDialled makes the final check, before each connection.
func (g *guard) checkDialled(dialled netip.AddrPort, check func(netip.AddrPort) error) error {
	if err := check(dialled); err != nil {
		return err
	}
	addr := target.Dialled(dialled.Addr())
	at := func(one netip.AddrPort) bool {
		return one.Port() == dialled.Port() && target.Dialled(one.Addr()) == addr
	}
	switch peers := g.peers.Load(); {
	case slices.ContainsFunc(g.Own, at),
		slices.Contains(g.OwnPorts, dialled.Port()) && (addr.IsLoopback() || g.machine.has(addr)):
		return attempt.Denied(dialled.String(), "it is the API or the database of this node")
	case peers != nil && slices.ContainsFunc(*peers, at):
		return attempt.Denied(dialled.String(), "it is the API of a node")
	}
	return nil
}

// check refuses a denied address.
func (g *guard) check(dialled netip.Addr, of Scope, networks []netip.Prefix) error {
	addr := target.Dialled(dialled)
	deny := func(why string) error { return attempt.Denied(dialled.String(), why) }
	itself := addr.IsLoopback() || g.machine.has(addr)
	private := target.Private(addr)
	public := of.Networks == nil || slices.Contains(of.Networks, target.NetworkPublic) // all public addresses may be called
	switch {
	case target.NeverCalled(dialled):
		return deny("it is reserved, or cloud providers serve metadata and credentials there")
	case within(g.Deny, addr):
		return deny("it is in a network that --egress-deny lists")
	case itself && !g.Loopback:
		return deny(notLoopback)
	case within(networks, addr), public && (itself || !private), of.Networks == nil && within(g.Private, addr):
		return nil
	case private && of.Networks == nil:
		return deny("it is in a private network; an operator opens it with --egress-private of the nodes, " +
			"or for one app with egress.networks in the bounds of the app")
	}
	return deny(fmt.Sprintf("it is in no network that app %s may call; its bounds allow %s (egress.networks)",
		of.app, cmp.Or(strings.Join(of.Networks, ", "), "none")))
}

func within(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// machine is the addresses of this machine's interfaces.
type machine struct {
	read func() ([]net.Addr, error)

	mu    sync.Mutex
	until time.Time // when the addresses are read again
	addrs map[netip.Addr]bool
}

// machineAge is how long the addresses of the machine are used before they are read again.
const machineAge = time.Second

// has reports whether an address is one of this machine. If the addresses cannot be read, the last ones stay.
func (m *machine) has(addr netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); !now.Before(m.until) {
		if all, err := m.read(); err == nil {
			m.addrs = make(map[netip.Addr]bool, len(all))
			for _, one := range all {
				if prefix, err := netip.ParsePrefix(one.String()); err == nil {
					m.addrs[target.Dialled(prefix.Addr())] = true
				}
			}
		}
		m.until = now.Add(machineAge)
	}
	return m.addrs[addr]
}

// Connect makes the connection that a webhook to a URL would need, with TLS for https, and closes it. It sends no
// request. It returns the address that it reached.
func (e Egress) Connect(ctx context.Context, target string) (netip.AddrPort, error) {
	u, err := url.Parse(target)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" || u.Hostname() == "" {
		return netip.AddrPort{}, errors.New("it is not the URL of a webhook, https://HOST/PATH")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	conn, err := newGuard(e, nil).dialer(Scope{})(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	reached, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err == nil && u.Scheme == "https" {
		encrypted := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
		if err = encrypted.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("TLS with %s: %w", reached, err)
		}
	}
	return reached, err
}

// heldKey is the key of Call.Held in the context of an attempt. The transport passes it to the dialer, which has no
// other access to the attempt.
type heldKey struct{}

// checkHeld returns attempt.ErrNotHeld if the attempt of ctx may not send anything any more.
func checkHeld(ctx context.Context) error {
	if held, ok := ctx.Value(heldKey{}).(func() bool); ok && !held() {
		return attempt.ErrNotHeld
	}
	return nil
}
