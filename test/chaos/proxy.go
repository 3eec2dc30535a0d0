package main

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// proxy sits between one node and the database, and breaks their connections like a network.
type proxy struct {
	to       string
	listener net.Listener

	mode  atomic.Int32
	delay atomic.Int64 // nanoseconds per forwarded piece
	// responses and requests are how many of the next writes to cut: after the commit and before
	// the response is forwarded, or before they reach the database.
	responses, requests atomic.Int32

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// The modes of a proxy.
const (
	passing int32 = iota
	holding       // nothing passes, without an error
	closing       // nothing passes, and connections are reset at once
)

func startProxy(ctx context.Context, host, to string) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", host+":0")
	if err != nil {
		return nil, err
	}
	p := &proxy{to: to, listener: listener, conns: map[net.Conn]struct{}{}}
	go p.accept(ctx)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.cut()
}

func (p *proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(ctx, client)
	}
}

func (p *proxy) serve(ctx context.Context, client net.Conn) {
	defer p.forget(client)
	p.remember(client)
	if p.mode.Load() == closing {
		return
	}
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.to)
	if err != nil {
		return
	}
	defer p.forget(server)
	p.remember(server)
	// withheld: the response to the current write is withheld. inside: a transaction is open.
	var withheld, inside atomic.Bool
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		p.pipe(server, client, func(piece []byte) bool {
			// The database ends a response with one of these, with the first after a commit.
			committed := bytes.HasSuffix(piece, []byte("Z\x00\x00\x00\x05I"))
			switch {
			case !withheld.Load():
				inside.Store(!committed && (inside.Load() || bytes.HasSuffix(piece, []byte("Z\x00\x00\x00\x05T"))))
				return true
			case committed:
				p.reset(client, server)
			}
			return false
		})
	}()
	p.pipe(client, server, func(piece []byte) bool {
		switch {
		case !writes(piece, inside.Load()):
		case take(&p.requests):
			p.reset(client, server)
			return false
		case take(&p.responses):
			withheld.Store(true)
		}
		return true
	})
	_ = server.Close()
	<-answered
}

// signs are parts of the statements whose loss matters: claims, records, adoptions, and next fires of fixed delays.
var signs = [][]byte{
	[]byte("UPDATE trigger_clock AS t SET prev_fire_time"), []byte("INSERT INTO runs (scheduled_at"),
	[]byte("UPDATE live_runs AS r SET"), []byte("UPDATE trigger_clock AS t SET next_fire_time"),
}

// writes recognizes these statements and, inside a transaction, its end: earlier statements are not
// committed, so losing their responses tests nothing.
func writes(piece []byte, inside bool) bool {
	if inside {
		return bytes.Contains(piece, []byte("commit"))
	}
	return slices.ContainsFunc(signs, func(sign []byte) bool { return bytes.Contains(piece, sign) })
}

func take(n *atomic.Int32) bool {
	for have := n.Load(); have > 0; have = n.Load() {
		if n.CompareAndSwap(have, have-1) {
			return true
		}
	}
	return false
}

// pipe forwards the pieces that may permits, until either end closes.
func (p *proxy) pipe(from, to net.Conn, may func([]byte) bool) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if d := p.delay.Load(); d > 0 {
			<-time.After(time.Duration(d))
		}
		for p.mode.Load() == holding {
			<-time.After(10 * time.Millisecond)
		}
		if !may(buffer[:n]) {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		p.reset(conn)
	}
}

// reset closes connections like a crashed peer.
func (p *proxy) reset(conns ...net.Conn) {
	for _, conn := range conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

func (p *proxy) remember(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = struct{}{}
}

func (p *proxy) forget(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// partition blocks all traffic until heal.
func (p *proxy) partition(silently bool) {
	if silently {
		p.mode.Store(holding)
		return
	}
	p.mode.Store(closing)
	p.cut()
}

// heal accepts new connections; earlier ones are lost.
func (p *proxy) heal() {
	p.delay.Store(0)
	p.responses.Store(0)
	p.requests.Store(0)
	if p.mode.Swap(passing) != passing {
		p.cut()
	}
}
