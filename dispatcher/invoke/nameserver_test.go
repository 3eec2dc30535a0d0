package invoke_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// named is the response of a name server for a name. Other names do not exist.
type named struct {
	lists  [][]string // its addresses: one list after the other, and the last one from then on
	code   dnsmessage.RCode
	silent bool
	after  time.Duration // how late it responds
}

// nameServer starts a name server for A records. It returns a function that dials it.
func nameServer(t *testing.T, names map[string]named) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var clients []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		asked := map[string]int{}
		packet := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(packet)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(packet[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			name := strings.TrimSuffix(m.Questions[0].Name.String(), ".")
			of, known := names[name]
			if m.RCode = of.code; !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			found := responseA(&m, of.lists, asked[name])
			if found {
				asked[name]++
			}
			if packed, err := m.Pack(); err == nil && !of.silent {
				time.AfterFunc(of.after, func() { _, _ = socket.WriteTo(packed, from) })
			}
		}
	}()
	t.Cleanup(func() {
		_ = socket.Close()
		<-done
		mu.Lock()
		defer mu.Unlock()
		for _, c := range clients {
			_ = c.Close() // otherwise a resolver that awaits a response goes on for some seconds
		}
	})
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "udp", socket.LocalAddr().String())
		if err == nil {
			mu.Lock()
			clients = append(clients, c)
			mu.Unlock()
		}
		return c, err
	}
}

// responseA turns a query into its response. It reports whether the query was for the addresses of an existing name.
func responseA(m *dnsmessage.Message, lists [][]string, asked int) bool {
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	if len(lists) == 0 || q.Type != dnsmessage.TypeA {
		return false
	}
	for _, text := range lists[min(asked, len(lists)-1)] {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(text).As4()},
		})
	}
	return true
}
