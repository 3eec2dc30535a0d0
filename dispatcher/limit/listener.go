package limit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// ListenerOptions tunes a Listener.
type ListenerOptions struct {
	// Most is how many connections there may be, and PerAddress how many of one address; see Key.
	Most, PerAddress int
	// Shared has the addresses that many clients share, such as those of load balancers. PerAddress does not count for them.
	Shared Proxies
	// Refused is called for each connection that is refused or closed to make room, with why: one of Reasons.
	Refused func(reason string, address netip.Addr)
}

// Reasons says why a connection was refused, or closed.
const (
	ReasonNode    = "node"    // refused: there are too many, and none is idle
	ReasonAddress = "address" // refused: its address has too many, and none is idle
	ReasonIdle    = "idle"    // closed while it was idle, to make room for another
)

// Listener bounds connections. Where there are too many, it closes the one of the same address, or of the address that
// has the most, that has been idle for the longest time. So an idle connection costs others nothing, and who keeps many
// only replaces their own: a platform's probe gets through, even from the address that floods.
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
	// busy tells that a request is being served; since is when that, or its opposite, began.
	busy  bool
	since time.Time
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
		now := time.Now() //nolint:forbidigo // only for the order
		c := &conn{Conn: inner, of: l, address: AddressOf(inner.RemoteAddr().String()), since: now}
		idle, reason := l.add(c)
		if idle != nil {
			l.o.Refused(ReasonIdle, idle.address)
			_ = idle.Close() // its client makes another
		}
		if reason == "" {
			return c, nil
		}
		l.o.Refused(reason, c.address)
		_ = inner.Close() // it was not used
	}
}

// add counts c, and returns the connection that is to be closed for it, or why c is to be closed.
func (l *Listener) add(c *conn) (idle *conn, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.byAddress[c.address]
	switch {
	case len(own) >= l.o.PerAddress && !l.o.Shared.Has(c.address):
		if idle = longestIdle(own); idle == nil {
			return nil, ReasonAddress
		}
	case l.count >= l.o.Most:
		if idle = longestIdle(l.largest()); idle == nil {
			return nil, ReasonNode
		}
	}
	if idle != nil {
		l.remove(idle)
	}
	if own = l.byAddress[c.address]; own == nil {
		own = map[*conn]struct{}{}
		l.byAddress[c.address] = own
	}
	own[c] = struct{}{}
	l.count++
	return idle, ""
}

// largest returns the connections of the address that has the most of them, of those with an idle one.
func (l *Listener) largest() (most map[*conn]struct{}) {
	for _, own := range l.byAddress {
		if len(own) > len(most) && longestIdle(own) != nil {
			most = own
		}
	}
	return most
}

func longestIdle(conns map[*conn]struct{}) (longest *conn) {
	for c := range conns {
		if !c.busy && (longest == nil || c.since.Before(longest.since)) {
			longest = c
		}
	}
	return longest
}

// remove forgets c, once.
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

// State is http.Server.ConnState: it learns which connections are idle. One that has not sent a request yet is.
func (l *Listener) State(of net.Conn, state http.ConnState) {
	if secure, ok := of.(interface{ NetConn() net.Conn }); ok { // TLS
		of = secure.NetConn()
	}
	c, ok := of.(*conn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy, c.since = state == http.StateActive, time.Now() //nolint:forbidigo // only for the order
}
