package invoke_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// canary counts the connections to a port of this machine, on all its addresses.
type canary struct {
	port string
	hits atomic.Int32
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{}
	_, c.port, _ = net.SplitHostPort(l.Addr().String())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.hits.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return c
}

// loopbackNames returns the names of loopback addresses in /etc/hosts, such as ip6-localhost on
// Debian. Every resolver knows them.
func loopbackNames(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Logf("no names of /etc/hosts are tried: %v", err)
	}
	var names []string
	for line := range strings.Lines(string(table)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if addr, err := netip.ParseAddr(fields[0]); err == nil && addr.IsLoopback() {
			names = append(names, fields[1:]...)
		}
	}
	return names
}

// Denied addresses are never called, in any notation and with any resolver.
func TestEgressToDeniedHostsIsRefused(t *testing.T) {
	canary := newCanary(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:"+canary.port)
	}
	dns := nameServer(t, map[string]named{
		"loopback.test": {lists: [][]string{{"127.0.0.1"}}}, "both.test": {lists: [][]string{{"93.184.215.14", "127.0.0.1"}}},
		"metadata.test": {lists: [][]string{{"169.254.169.254"}}},
		"rebound.test":  {lists: [][]string{{"93.184.215.14"}, {"127.0.0.1"}}},
	})
	hosts := []string{
		"127.0.0.1", "localhost", "LOCALHOST.", "x.localhost", "127.1", "127.0.1", "2130706433", "0177.0.0.1",
		"0x7f000001", "0x7f.0.0.1", "0x7f.1", "0", "0x0",
		"0177.1", "00000177.0.0.1", "127.000.000.001", "127.0.0.01", "0x7F.0x0.0x0.0x1", "0x7f000001.",
		"017700000001", "6425673729", "a.127.0.0.1", "127.255.255.254", "127.0.0.1.", "0.0.0.0", "[::]", "[::1]",
		"[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
		"[64:ff9b::127.0.0.1]",
		"①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "ⓛocalhost",
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376",
		"[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]",
		"[2002:a9fe:a9fe::]", "[2002:7f00:1::1]", "[2001:0:0:0::1]", "[fd00:ec2::254]", "[fd00:ec2::23]", "[fe80::1]",
		"[fe80::a9fe:a9fe%25lo]", "[febf:ffff::1]", "[fec0::1]", "[ff02::1]",
		"[fd20:ce::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal",
		"metadata.google.internal.", "METADATA.goog", "metadata", "instance-data",
		"①⑥⑨.②⑤④.①⑥⑨.②⑤④", "１６９．２５４．１６９．２５４",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"192.0.2.1", "198.51.100.7", "203.0.113.9", "198.18.0.1",
		"[2001:db8::1]", "[100::1]", "[3fff::1]", "[::ffff:0:127.0.0.1]", "[64:ff9b:1::1]", "0.1.2.3",
		"loopback.test", "both.test", "metadata.test", "rebound.test",
		"example.com@127.0.0.1", "user:pw@localhost",
	}
	hosts = append(hosts, loopbackNames(t)...)
	for resolver, preferGo := range map[string]bool{"Go's resolver": true, "the system's": false} {
		i := invoke.New(invoke.Options{Resolver: &net.Resolver{PreferGo: preferGo, Dial: dns}})
		t.Cleanup(i.Close)
		for _, host := range hosts {
			if !preferGo && strings.HasSuffix(host, ".test") {
				continue // another resolver does not use our name server
			}
			for _, method := range []string{"POST", "GET"} {
				for _, scheme := range []string{"http", "https"} {
					url := fmt.Sprintf("%s://%s:%s/?key=hunter2", scheme, host, canary.port)
					o := i.Invoke(t.Context(), callTo(url, method, ample))
					if o.State != run.Failed || o.Class != run.ClassEgressDenied ||
						strings.Contains(o.Error, "hunter2") {
						t.Errorf("%s: %s %s://%s: outcome = %+v, want failed as egress_denied", resolver, method, scheme, host, o)
					}
				}
			}
		}
		for _, url := range []string{"file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "unix:///run/x.sock"} {
			if o := i.Invoke(t.Context(), callTo(url, "POST", ample)); o.Class != run.ClassEgressDenied {
				t.Errorf("%s: outcome = %+v, want egress_denied", url, o)
			}
		}
	}
	if hits := canary.hits.Load(); hits != 0 {
		t.Errorf("%d connections were made", hits)
	}
}

// Every address of a denied network is refused, in any notation.
func TestEgressToReservedNetworksIsRefused(t *testing.T) {
	t.Parallel()
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	networks := []string{"0.0.0.0/8", "169.254.0.0/16", "192.0.2.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"}
	rapid.Check(t, func(r *rapid.T) {
		network := netip.MustParsePrefix(rapid.SampledFrom(networks).Draw(r, "network"))
		first := network.Addr().As4()
		b := binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(first[:])|rapid.Uint32().Draw(r, "host")>>network.Bits())
		n := binary.BigEndian.Uint32(b)
		host := rapid.SampledFrom([]string{
			fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]), fmt.Sprint(n), fmt.Sprintf("0x%x", n),
			fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3]),
			fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff),
			fmt.Sprintf("0x%X.%d.%d", b[0], b[1], n&0xffff),
			fmt.Sprintf("[::ffff:%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[64:ff9b::%x:%x]", n>>16, n&0xffff),
			fmt.Sprintf("[::%x:%x]", n>>16, n&0xffff),
			fmt.Sprintf("[2002:%x:%x::1]", n>>16, n&0xffff), fmt.Sprintf("[2001:0:1::%x:%x]", ^n>>16, ^n&0xffff),
			fmt.Sprintf("[::ffff:0:%x:%x]", n>>16, n&0xffff),
		}).Draw(r, "host")
		if host == "[::0:1]" {
			r.Skip("loopback")
		}
		o := i.Invoke(t.Context(), callTo("http://"+host+":9/", "POST", ample))
		if o.Class != run.ClassEgressDenied {
			r.Errorf("%s: outcome = %+v, want egress_denied", host, o)
		}
	})
}

func TestEgressOptionsAllowAndDenyNetworks(t *testing.T) {
	t.Parallel()
	listener := newCanary(t)
	prefix := netip.MustParsePrefix
	own := netip.MustParseAddrPort("127.0.0.1:" + listener.port)
	for name, tt := range map[string]struct {
		egress web.Egress
		host   string
		denied bool
	}{
		"loopback where it is allowed": {web.Egress{Loopback: true}, "127.0.0.1", false},
		"a network that is denied": {
			web.Egress{Loopback: true, Deny: []netip.Prefix{prefix("127.0.0.0/31")}}, "127.0.0.1", true,
		},
		"the network next to it": {
			web.Egress{Loopback: true, Deny: []netip.Prefix{prefix("127.0.0.0/31")}}, "127.0.0.2", false,
		},
		"wrapped in IPv6": {
			web.Egress{Loopback: true, Deny: []netip.Prefix{prefix("127.0.0.0/31")}}, "[::ffff:127.0.0.1]", true,
		},
		"private, and none is listed":       {web.Egress{}, "10.2.0.1", true},
		"unique local, and none is listed":  {web.Egress{}, "[fd12::1]", true},
		"shared, and none is listed":        {web.Egress{}, "100.64.0.1", true},
		"private, with others allowed":      {web.Egress{Private: []netip.Prefix{prefix("10.1.0.0/16")}}, "10.2.0.1", true},
		"unique local, with others allowed": {web.Egress{Private: []netip.Prefix{prefix("10.1.0.0/16")}}, "[fd12::1]", true},
		"shared, with others allowed":       {web.Egress{Private: []netip.Prefix{prefix("10.1.0.0/16")}}, "100.64.0.1", true},
		"the node's own API":                {web.Egress{Loopback: true, Own: []netip.AddrPort{own}}, "127.0.0.1", true},
		"the same as IPv6 writes it":        {web.Egress{Loopback: true, Own: []netip.AddrPort{own}}, "[::ffff:7f00:1]", true},
		"the API on all addresses":          {web.Egress{Loopback: true, OwnPorts: []uint16{own.Port()}}, "127.0.0.4", true},
		"another address of the same port":  {web.Egress{Loopback: true, Own: []netip.AddrPort{own}}, "127.0.0.3", false},
	} {
		i := invoke.New(invoke.Options{Egress: tt.egress})
		before := listener.hits.Load()
		o := i.Invoke(t.Context(), callTo("http://"+tt.host+":"+listener.port+"/", "POST", ample))
		i.Close()
		if denied := o.Class == run.ClassEgressDenied; denied != tt.denied || denied && listener.hits.Load() != before {
			t.Errorf("%s: outcome = %+v after %d connections, want denied %v", name, o, listener.hits.Load()-before, tt.denied)
		}
	}
}
