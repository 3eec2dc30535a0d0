package dns

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Type is the type of the requested records.
type Type string

// The types.
const (
	A    Type = "A"    // IPv4 addresses
	AAAA Type = "AAAA" // IPv6 addresses
	SRV  Type = "SRV"  // services
)

var types = map[Type]dnsmessage.Type{A: dnsmessage.TypeA, AAAA: dnsmessage.TypeAAAA, SRV: dnsmessage.TypeSRV}

// Record is one of the records of a name.
type Record struct {
	// Host is an address or, for a service, the name of its target, in lower case and without the final dot.
	Host string
	// Port, Priority and Weight are those of a service. A lower priority is preferred.
	Port, Priority, Weight uint16
}

// Answer is the answer of a server.
type Answer struct {
	Records []Record
	// TTL is how long it is valid.
	TTL time.Duration
}

// NegativeError means that a server reported that a name has no such records.
type NegativeError struct {
	Name string
	Type Type
	// Missing means that the name does not exist; otherwise, it has other records.
	Missing bool
}

func (e *NegativeError) Error() string {
	if e.Missing {
		return fmt.Sprintf("name %s does not exist", e.Name)
	}
	return fmt.Sprintf("name %s has no records of type %s", e.Name, e.Type)
}

// Bounds of a query.
const (
	exchangeTimeout = 2 * time.Second // for one server
	rounds          = 2               // how often each server is queried
	packetSize      = 1232            // of UDP, which passes every network without fragments
	mostRecords     = 2000            // of an answer
	mostAliases     = 16              // from a name to its records
)

// Client queries name servers. It is safe for concurrent use, and keeps no connections.
type Client struct {
	servers []netip.AddrPort
}

// New returns a Client that queries some servers; none: those of /etc/resolv.conf.
func New(servers []netip.AddrPort) *Client { return &Client{servers: servers} }

// Lookup looks up the records of a name. It queries one server after the other until one knows. The error is a
// *NegativeError if a server reported that there are none; any other error means that no server gave a usable answer.
func (c *Client) Lookup(ctx context.Context, name string, of Type) (Answer, error) {
	full, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return Answer{}, fmt.Errorf("name %s: %w", name, err)
	}
	asked := dnsmessage.Question{Name: full, Type: types[of], Class: dnsmessage.ClassINET}
	all := c.servers
	if len(all) == 0 {
		all = servers(configFile)
	}
	var failure error
	for range rounds {
		for _, server := range all {
			answer, err := exchange(ctx, server, asked, of)
			var negative *NegativeError
			switch {
			case err == nil, errors.As(err, &negative):
				return answer, err
			case ctx.Err() != nil:
				return Answer{}, fmt.Errorf("no response of name server %s in time", server)
			}
			failure = fmt.Errorf("name server %s: %w", server, err)
		}
	}
	return Answer{}, failure
}

// exchange queries one server, over UDP and, if its response does not fit, over TCP.
func exchange(ctx context.Context, server netip.AddrPort, asked dnsmessage.Question, of Type) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	reply, err := ask(ctx, "udp", server, asked, true)
	if err == nil && (reply.RCode == dnsmessage.RCodeFormatError || reply.RCode == dnsmessage.RCodeNotImplemented) {
		reply, err = ask(ctx, "udp", server, asked, false) // an old server without EDNS
	}
	if err == nil && reply.Truncated {
		reply, err = ask(ctx, "tcp", server, asked, true)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("no response in time")
		}
		return Answer{}, err
	}
	return read(reply, asked, of)
}

// ask sends a query to a server and returns its response.
func ask(
	ctx context.Context, network string, server netip.AddrPort, asked dnsmessage.Question, extended bool,
) (*dnsmessage.Message, error) {
	question, err := pack(asked, extended)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if network == "tcp" {
		return overTCP(conn, question, asked)
	}
	return overUDP(conn, question, asked)
}

// pack returns a query with a random id.
func pack(asked dnsmessage.Question, extended bool) ([]byte, error) {
	var id [2]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Questions: []dnsmessage.Question{asked},
	}
	if extended {
		var header dnsmessage.ResourceHeader
		if err := header.SetEDNS0(packetSize, dnsmessage.RCodeSuccess, false); err != nil {
			return nil, err
		}
		m.Additionals = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.OPTResource{}}}
	}
	return m.Pack()
}

// overUDP ignores packets that do not respond to the query: anyone can send some.
func overUDP(conn net.Conn, question []byte, asked dnsmessage.Question) (*dnsmessage.Message, error) {
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	packet := make([]byte, 1<<16)
	for {
		n, err := conn.Read(packet)
		if err != nil {
			return nil, err
		}
		if reply := responseTo(question, asked, packet[:n]); reply != nil {
			return reply, nil
		}
	}
}

func overTCP(conn net.Conn, question []byte, asked dnsmessage.Question) (*dnsmessage.Message, error) {
	sent := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(question)), uint16(len(question)))
	if _, err := conn.Write(append(sent, question...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	packet := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return nil, err
	}
	if reply := responseTo(question, asked, packet); reply != nil {
		return reply, nil
	}
	return nil, errors.New("the response is to another question")
}

// responseTo returns the message in a packet, if it responds to a query; otherwise nil.
func responseTo(question []byte, asked dnsmessage.Question, packet []byte) *dnsmessage.Message {
	var m dnsmessage.Message
	if len(packet) < 2 || packet[0] != question[0] || packet[1] != question[1] {
		return nil
	}
	// For a truncated message, the header is enough.
	var p dnsmessage.Parser
	header, err := p.Start(packet)
	if err != nil || !header.Response {
		return nil
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 || questions[0].Type != asked.Type || questions[0].Class != asked.Class ||
		!strings.EqualFold(questions[0].Name.String(), asked.Name.String()) {
		return nil
	}
	if header.Truncated {
		m.Header = header
		return &m
	}
	if err := m.Unpack(packet); err != nil {
		return nil
	}
	return &m
}

// read returns the records in a response to a query. It follows aliases within the response, because a server for stub
// resolvers resolves them itself.
func read(reply *dnsmessage.Message, asked dnsmessage.Question, of Type) (Answer, error) {
	name := strings.TrimSuffix(asked.Name.String(), ".")
	switch reply.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return negative(reply), &NegativeError{Name: name, Type: of, Missing: true}
	default:
		return Answer{}, fmt.Errorf("it responded %s", strings.TrimPrefix(reply.RCode.String(), "RCode"))
	}
	if len(reply.Answers) > mostRecords {
		return Answer{}, fmt.Errorf("it returned %d records; the maximum is %d", len(reply.Answers), mostRecords)
	}
	owner, ttl, err := canonical(reply, asked.Name)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	for i := range reply.Answers {
		one := &reply.Answers[i]
		record, ok := recordOf(one.Body)
		if !ok || one.Header.Type != asked.Type || key(one.Header.Name) != owner {
			continue
		}
		answer.Records = append(answer.Records, record)
		ttl = min(ttl, one.Header.TTL)
	}
	if len(answer.Records) == 0 {
		return negative(reply), &NegativeError{Name: name, Type: of}
	}
	answer.TTL = seconds(ttl)
	return answer, nil
}

// canonical follows the aliases of a name. It returns the last name, and the shortest TTL on the way.
func canonical(reply *dnsmessage.Message, name dnsmessage.Name) (owner string, ttl uint32, err error) {
	aliases := map[string]*dnsmessage.Resource{}
	for i := range reply.Answers {
		if one := &reply.Answers[i]; one.Header.Type == dnsmessage.TypeCNAME {
			aliases[key(one.Header.Name)] = one
		}
	}
	owner, ttl = key(name), mostTTL
	for range mostAliases {
		alias, ok := aliases[owner]
		if !ok {
			return owner, ttl, nil
		}
		body, ok := alias.Body.(*dnsmessage.CNAMEResource)
		if !ok {
			break
		}
		owner, ttl = key(body.CNAME), min(ttl, alias.Header.TTL)
	}
	return "", 0, errors.New("the aliases of the name lead nowhere")
}

// recordOf returns the record in the body of a resource. A service with the root as its target does not exist (RFC
// 2782).
func recordOf(body dnsmessage.ResourceBody) (Record, bool) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		return Record{Host: netip.AddrFrom4(r.A).String()}, true
	case *dnsmessage.AAAAResource:
		return Record{Host: netip.AddrFrom16(r.AAAA).String()}, true
	case *dnsmessage.SRVResource:
		target := key(r.Target)
		return Record{Host: target, Port: r.Port, Priority: r.Priority, Weight: r.Weight}, target != "" && r.Port != 0
	}
	return Record{}, false
}

// negative returns the answer that there are none, with the TTL of the zone (RFC 2308).
func negative(reply *dnsmessage.Message) (answer Answer) {
	for i := range reply.Authorities {
		if soa, ok := reply.Authorities[i].Body.(*dnsmessage.SOAResource); ok {
			answer.TTL = seconds(min(reply.Authorities[i].Header.TTL, soa.MinTTL))
		}
	}
	return answer
}

// mostTTL is the longest TTL, in seconds; longer ones count as 0 (RFC 2181).
const mostTTL = 1<<31 - 1

func seconds(ttl uint32) time.Duration {
	if ttl > mostTTL {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// key returns a name in the form in which names are compared.
func key(name dnsmessage.Name) string { return strings.ToLower(strings.TrimSuffix(name.String(), ".")) }

// configFile names the servers of the machine. It is read for each query: queries are rare, and containers change it
// without notice.
const configFile = "/etc/resolv.conf"

// mostServers is how many servers of the file are queried, as by other resolvers.
const mostServers = 3

// port is that of name servers.
const port = 53

// servers returns the servers in the file. Without any, it returns the machine itself, like other resolvers.
func servers(file string) []netip.AddrPort {
	local := []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)}
	opened, err := os.Open(file)
	if err != nil {
		return local
	}
	defer opened.Close()
	var all []netip.AddrPort
	for lines := bufio.NewScanner(opened); lines.Scan() && len(all) < mostServers; {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			all = append(all, netip.AddrPortFrom(addr, port))
		}
	}
	if len(all) == 0 {
		return local
	}
	return all
}
