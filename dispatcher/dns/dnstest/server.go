// Package dnstest has a name server for tests.
package dnstest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server is a name server on this machine, over UDP and TCP. Names that it does not know do not exist.
type Server struct {
	// Address is where it listens.
	Address netip.AddrPort

	mu     sync.Mutex
	zone   map[question]Reply
	counts map[question]int
	tcp    int
	conns  map[net.Conn]bool
}

type question struct {
	name string
	of   dnsmessage.Type
}

// Reply is the response of a server to a query.
type Reply struct {
	// Records are those of the response. After a CNAME, the next ones belong to its target.
	Records []dnsmessage.ResourceBody
	// TTL is that of all records, in seconds.
	TTL uint32
	// Code is that of the response.
	Code dnsmessage.RCode
	// NegativeTTL, in seconds, is that of a zone without the records; 0: the response has none.
	NegativeTTL uint32
	// Silent servers do not respond.
	Silent bool
	// Old servers do not understand EDNS.
	Old bool
	// Forged responses to another question precede the response.
	Forged bool
}

// Start starts a server that the end of the test stops.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{zone: map[question]Reply{}, counts: map[question]int{}, conns: map[net.Conn]bool{}}
	listener, socket := listen(t)
	s.Address = netip.MustParseAddrPort(listener.Addr().String())
	var running sync.WaitGroup
	running.Go(func() { s.serveUDP(socket) })
	running.Go(func() { s.serveTCP(listener) })
	t.Cleanup(func() {
		_ = socket.Close()
		_ = listener.Close()
		s.mu.Lock()
		for conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		running.Wait()
	})
	return s
}

// Set sets the response of the server for a name.
func (s *Server) Set(name string, of dnsmessage.Type, reply Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[question{name, of}] = reply
}

// Resolver returns a resolver that queries the server.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Address.String())
	}}
}

// A sets the IPv4 addresses of a name.
func (s *Server) A(name string, ttl uint32, addresses ...string) {
	reply := Reply{TTL: ttl}
	for _, text := range addresses {
		reply.Records = append(reply.Records, &dnsmessage.AResource{A: netip.MustParseAddr(text).As4()})
	}
	s.Set(name, dnsmessage.TypeA, reply)
}

// Asked returns how often the server was queried for records of a name.
func (s *Server) Asked(name string, of dnsmessage.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[question{name, of}]
}

// OverTCP returns how many queries came over TCP.
func (s *Server) OverTCP() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tcp
}

func (s *Server) serveUDP(socket net.PacketConn) {
	packet := make([]byte, 1<<16)
	for {
		n, from, err := socket.ReadFrom(packet)
		if err != nil {
			return
		}
		forged, response, size := s.respond(packet[:n])
		if forged != nil {
			_, _ = socket.WriteTo(forged, from)
		}
		if len(response) > size {
			response = truncated(response)
		}
		if response != nil {
			_, _ = socket.WriteTo(response, from)
		}
	}
}

// listen takes a port that is free for both TCP and UDP.
func listen(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test waits for nothing here
		if err != nil {
			t.Fatal(err)
		}
		socket, err := net.ListenPacket("udp", listener.Addr().String()) //nolint:noctx // as above
		if err == nil {
			return listener, socket
		}
		_ = listener.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

func (s *Server) serveTCP(listener net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.tcp++
		s.mu.Unlock()
		running.Go(func() {
			defer conn.Close()
			var length [2]byte
			if _, err := io.ReadFull(conn, length[:]); err != nil {
				return
			}
			packet := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, packet); err != nil {
				return
			}
			if _, response, _ := s.respond(packet); response != nil {
				sent := binary.BigEndian.AppendUint16(nil, uint16(len(response)))
				_, _ = conn.Write(append(sent, response...))
			}
		})
	}
}

// respond returns the response to a packet, a forged one, and how many bytes of UDP the client accepts.
func (s *Server) respond(packet []byte) (forged, response []byte, size int) {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || len(m.Questions) != 1 {
		return nil, nil, 0
	}
	asked := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(asked.Name.String(), "."))
	s.mu.Lock()
	reply, known := s.zone[question{name, asked.Type}]
	_, exists := s.zone[question{name, dnsmessage.TypeA}]
	s.counts[question{name, asked.Type}]++
	s.mu.Unlock()
	size = 512
	for i := range m.Additionals {
		size = int(m.Additionals[i].Header.Class)
	}
	extended := len(m.Additionals) > 0
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	switch m.RCode = reply.Code; {
	case reply.Silent:
		return nil, nil, 0
	case reply.Old && extended:
		m.RCode = dnsmessage.RCodeFormatError
	case !known && !exists:
		m.RCode = dnsmessage.RCodeNameError
	default:
		m.Answers = answers(asked, reply)
	}
	if reply.NegativeTTL > 0 {
		m.Authorities = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: 1 << 20},
			Body:   &dnsmessage.SOAResource{NS: asked.Name, MBox: asked.Name, MinTTL: reply.NegativeTTL},
		}}
	}
	response, err := m.Pack()
	if err != nil {
		panic(err) // the test sets a response that cannot be written
	}
	if reply.Forged {
		forged = make([]byte, len(response))
		copy(forged, response)
		forged[0]++ // another id
	}
	return forged, response, size
}

// answers returns the records of a reply.
func answers(asked dnsmessage.Question, reply Reply) (all []dnsmessage.Resource) {
	owner := asked.Name
	for _, body := range reply.Records {
		all = append(all, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: owner, Class: asked.Class, TTL: reply.TTL}, Body: body})
		if alias, ok := body.(*dnsmessage.CNAMEResource); ok {
			owner = alias.CNAME
		}
	}
	return all
}

// truncated returns a response without its records, marked as truncated.
func truncated(response []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(response) != nil {
		return nil
	}
	m.Truncated, m.Answers, m.Authorities = true, nil, nil
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}
