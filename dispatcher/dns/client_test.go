package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
)

func name(text string) dnsmessage.Name { return dnsmessage.MustNewName(text) }

// clientOf returns a client of some servers.
func clientOf(all ...*dnstest.Server) *dns.Client {
	var addresses []netip.AddrPort
	for _, server := range all {
		addresses = append(addresses, server.Address)
	}
	return dns.New(addresses)
}

func addresses(n int) (all []string, records []dns.Record) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.20.%d.%d", i/250, 1+i%250))
		records = append(records, dns.Record{Host: all[i]})
	}
	return all, records
}

func TestLookupReturnsRecordsAndTheirTTL(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	two, wantTwo := addresses(2)
	many, wantMany := addresses(200)
	server.A("workers.test", 30, two...)
	server.A("many.test", 5, many...)
	server.Set("six.test", dnsmessage.TypeAAAA, dnstest.Reply{TTL: 7, Records: []dnsmessage.ResourceBody{
		&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("2001:db8::7").As16()},
	}})
	server.Set("alias.test", dnsmessage.TypeA, dnstest.Reply{TTL: 9, Records: []dnsmessage.ResourceBody{
		&dnsmessage.CNAMEResource{CNAME: name("Workers.test.")}, &dnsmessage.AResource{A: [4]byte{10, 20, 0, 1}},
	}})
	server.Set("old.test", dnsmessage.TypeA, dnstest.Reply{Old: true, TTL: 3, Records: []dnsmessage.ResourceBody{
		&dnsmessage.AResource{A: [4]byte{10, 20, 0, 2}},
	}})
	server.Set("forged.test", dnsmessage.TypeA, dnstest.Reply{Forged: true, TTL: 3, Records: []dnsmessage.ResourceBody{
		&dnsmessage.AResource{A: [4]byte{10, 20, 0, 1}},
	}})
	server.Set("_http._tcp.test", dnsmessage.TypeSRV, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		&dnsmessage.SRVResource{Target: name("A.workers.test."), Port: 8080, Priority: 10, Weight: 3},
		&dnsmessage.SRVResource{Target: name("b.workers.test."), Port: 8081, Priority: 20},
		&dnsmessage.SRVResource{Target: name("."), Port: 1},
	}})
	for _, tt := range []struct {
		name string
		of   dns.Type
		want dns.Answer
	}{
		{"workers.test", dns.A, dns.Answer{Records: wantTwo, TTL: 30 * time.Second}},
		{"WORKERS.test.", dns.A, dns.Answer{Records: wantTwo, TTL: 30 * time.Second}},
		{"many.test", dns.A, dns.Answer{Records: wantMany, TTL: 5 * time.Second}},
		{"six.test", dns.AAAA, dns.Answer{Records: []dns.Record{{Host: "2001:db8::7"}}, TTL: 7 * time.Second}},
		{"alias.test", dns.A, dns.Answer{Records: []dns.Record{{Host: "10.20.0.1"}}, TTL: 9 * time.Second}},
		{"old.test", dns.A, dns.Answer{Records: []dns.Record{{Host: "10.20.0.2"}}, TTL: 3 * time.Second}},
		{"forged.test", dns.A, dns.Answer{Records: []dns.Record{{Host: "10.20.0.1"}}, TTL: 3 * time.Second}},
		{"_http._tcp.test", dns.SRV, dns.Answer{TTL: time.Minute, Records: []dns.Record{
			{Host: "a.workers.test", Port: 8080, Priority: 10, Weight: 3}, {Host: "b.workers.test", Port: 8081, Priority: 20},
		}}},
	} {
		got, err := clientOf(server).Lookup(t.Context(), tt.name, tt.of)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s %s: error %v, (-want +got)\n%s", tt.name, tt.of, err, diff)
		}
	}
	if got := server.OverTCP(); got != 1 {
		t.Errorf("%d questions came over TCP, want 1: that for 200 records", got)
	}
}

func TestNegativeAnswersHaveTheirTTL(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.A("four.test", 30, "10.20.0.1")
	server.Set("four.test", dnsmessage.TypeAAAA, dnstest.Reply{NegativeTTL: 12})
	for _, tt := range []struct {
		name    string
		of      dns.Type
		missing bool
		ttl     time.Duration
	}{{"four.test", dns.AAAA, false, 12 * time.Second}, {"nothing.test", dns.A, true, 0}} {
		got, err := clientOf(server).Lookup(t.Context(), tt.name, tt.of)
		var negative *dns.NegativeError
		if !errors.As(err, &negative) || negative.Missing != tt.missing || got.TTL != tt.ttl {
			t.Errorf("%s %s = %+v, %v, want none for %s", tt.name, tt.of, got, err, tt.ttl)
		}
	}
}

func TestNextServerIsAskedWhenOneFails(t *testing.T) {
	t.Parallel()
	broken, well := dnstest.Start(t), dnstest.Start(t)
	broken.Set("workers.test", dnsmessage.TypeA, dnstest.Reply{Code: dnsmessage.RCodeServerFailure})
	well.A("workers.test", 30, "10.20.0.1")
	got, err := clientOf(broken, well).Lookup(t.Context(), "workers.test", dns.A)
	if err != nil || len(got.Records) != 1 {
		t.Errorf("Lookup = %+v, %v, want the answer of the second server", got, err)
	}
	_, err = clientOf(broken).Lookup(t.Context(), "workers.test", dns.A)
	if err == nil || !strings.Contains(err.Error(), broken.Address.String()+": it responded ServerFailure") {
		t.Errorf("error = %v, want the server and what it responded", err)
	}
}

func TestSilentServerEndsWithTheTimeOfTheCaller(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.Set("workers.test", dnsmessage.TypeA, dnstest.Reply{Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := clientOf(server).Lookup(ctx, "workers.test", dns.A); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("error = %v, want no response in time", err)
	}
}

func TestAliasesThatLeadInCirclesAreAnError(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.Set("loop.test", dnsmessage.TypeA, dnstest.Reply{Records: []dnsmessage.ResourceBody{
		&dnsmessage.CNAMEResource{CNAME: name("pool.test.")}, &dnsmessage.CNAMEResource{CNAME: name("loop.test.")},
	}})
	if _, err := clientOf(server).Lookup(t.Context(), "loop.test", dns.A); err == nil || !strings.Contains(err.Error(), "lead nowhere") {
		t.Errorf("error = %v", err)
	}
}
