package limit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ListenerOptions tunes a Listener.
type ListenerOptions struct {
	// Most is the maximum of connections, and PerAddress that of one address; see Key.
	Most, PerAddress int
	// Shared has addresses that many clients share, such as those of load balancers. PerAddress does not apply to them.
	Shared Proxies
	// Refused is called for each connection that is refused or closed to make room; see ReasonNode.
	Refused func(reason string, address netip.Addr)
}

// Reasons why a connection was refused or closed.
const (
	ReasonNode    = "node"    // refused: there are too many, and none is idle
	ReasonAddress = "address" // refused: its address has too many, and none is idle
	ReasonIdle    = "idle"    // closed while it was idle, to make room for another
	ReasonWaiting = "waiting" // closed while the node did not work for it, to make room for another
)

// Listener bounds connections. If there are too many, it closes one of the same address, or of the address with the
// most that it may close: the one that has been idle for the longest time, or else the one with the oldest request
// that the node does not work on, because it waits for the body, for its turn, or for the client to read the
// response; see Hold. So an unused connection takes no place from others, and a client that keeps many only replaces
// its own: a platform's probe gets through, even from the address that floods.
type Listener struct {
	net.Listener
	o ListenerOptions

	mu        sync.Mutex
	count     int
	byAddress map[netip.Addr]map[*conn]struct{}
}

// conn is a connection of a Listener.
type conn struct {
	net.Conn
	of      *Listener
	address netip.Addr
	once    sync.Once
	// busy is true while a request is being served; since is when busy last changed.
	busy  bool
	since time.Time
	// served counts the requests that Transfers serves, and held how often the connection is held for one of them.
	served, held int
}

// Listen returns a Listener over inner.
func Listen(inner net.Listener, o ListenerOptions) *Listener {
	return &Listener{Listener: inner, o: o, byAddress: map[netip.Addr]map[*conn]struct{}{}}
}

// Accept returns the next connection that may stay.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: inner, of: l, address: AddressOf(inner.RemoteAddr().String()), since: clock()}
		replaced, reason := l.add(c)
		if replaced == nil && reason != "" {
			l.o.Refused(reason, c.address)
			_ = inner.Close() // it was not used
			continue
		}
		if replaced != nil {
			l.o.Refused(reason, replaced.address)
			_ = replaced.Close() // its client makes another
		}
		return c, nil
	}
}

// add counts c. If there are too many connections, it returns the one to close for c, or none to close c itself, and
// why.
func (l *Listener) add(c *conn) (replaced *conn, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.byAddress[c.address]
	switch {
	case len(own) >= l.o.PerAddress && !l.o.Shared.Has(c.address):
		replaced, reason = replaceable(own), ReasonAddress
	case l.count >= l.o.Most:
		replaced, reason = replaceable(l.largest()), ReasonNode
	}
	if reason != "" && replaced == nil {
		return nil, reason
	}
	if replaced != nil {
		reason = ReasonIdle
		if replaced.busy {
			reason = ReasonWaiting
		}
		l.remove(replaced)
	}
	if own = l.byAddress[c.address]; own == nil {
		own = map[*conn]struct{}{}
		l.byAddress[c.address] = own
	}
	own[c] = struct{}{}
	l.count++
	return replaced, reason
}

// largest returns the connections of the address with the most that may be closed.
func (l *Listener) largest() (largest map[*conn]struct{}) {
	most := 0
	for _, own := range l.byAddress {
		count := 0
		for c := range own {
			if c.mayClose() {
				count++
			}
		}
		if count > most {
			largest, most = own, count
		}
	}
	return largest
}

// mayClose reports whether the node is not working for the connection.
func (c *conn) mayClose() bool { return !c.busy || c.served > 0 && c.held == 0 }

// replaceable returns the connection that is idle for the longest time, or else the one with the oldest request that
// the node does not work on; nil if it works for all.
func replaceable(conns map[*conn]struct{}) (one *conn) {
	for c := range conns {
		if c.mayClose() && (one == nil || one.busy && !c.busy || one.busy == c.busy && c.since.Before(one.since)) {
			one = c
		}
	}
	return one
}

// remove drops c, once.
func (l *Listener) remove(c *conn) {
	own := l.byAddress[c.address]
	if _, there := own[c]; !there {
		return
	}
	l.count--
	if delete(own, c); len(own) == 0 {
		delete(l.byAddress, c.address)
	}
}

// Count returns how many connections there are.
func (l *Listener) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Close ends the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.remove(c)
	})
	return c.Conn.Close()
}

// serve counts the requests that are served by Transfers. There may be no connection.
func (c *conn) serve(by int) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.served += by
}

// hold counts how often the connection is held.
func (c *conn) hold(by int) {
	if c == nil || by == 0 {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.held += by
}

// Context is for http.Server.ConnContext: it gives Transfers the connection of a request.
func (l *Listener) Context(ctx context.Context, of net.Conn) context.Context {
	if c, ok := plain(of).(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// plain returns the connection under TLS.
func plain(of net.Conn) net.Conn {
	if secure, ok := of.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return of
}

// State is for http.Server.ConnState: it records idle connections, such as one before its first request.
func (l *Listener) State(of net.Conn, state http.ConnState) {
	c, ok := plain(of).(*conn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy, c.since = state == http.StateActive, clock()
}

// AddressOf returns the key of an address such as 192.0.2.1:4711: the address itself, or for IPv6 the network of 64
// bits, because one machine has all its addresses. It is the zero Addr for anything else.
func AddressOf(hostPort string) netip.Addr {
	parsed, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	return Key(parsed.Addr())
}

// Key returns the key under which an address is counted; see AddressOf.
func Key(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if address.Is6() {
		network, _ := address.Prefix(64) // a v6 address has that many bits
		return network.Addr()
	}
	return address
}

// Proxies are the networks of proxies with a trusted X-Forwarded-For.
type Proxies []netip.Prefix

// Has reports whether an address belongs to a proxy.
func (p Proxies) Has(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(address) })
}

// Client returns the address that a request comes from: the peer's, or, if that is a proxy, the last in X-Forwarded-For
// that is not a proxy: each proxy appends the address that it sees, and earlier addresses may be forged.
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
			break // forged, or a form that our proxies do not write
		}
		client = address
		if !p.Has(client) {
			break
		}
	}
	return client.Unmap().WithZone("")
}

// Files returns how many files this process may have open; 0 if that is not known.
func Files() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // it is signed on some systems
}
