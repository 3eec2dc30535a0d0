package invoke_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// workers is a server on all loopback addresses at one port.
type workers struct {
	*httptest.Server
	port int

	mu   sync.Mutex
	seen map[string]string // the Host by the dialled address
}

func newWorkers(t *testing.T) *workers {
	t.Helper()
	w := &workers{seen: map[string]string{}}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	w.port = listener.Addr().(*net.TCPAddr).Port
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen[at.AddrPort().Addr().Unmap().String()] = r.Host
	}))
	_ = w.Listener.Close()
	w.Listener = listener
	w.Start()
	t.Cleanup(w.Close)
	return w
}

// hosts returns the called addresses with their Host, and clears them.
func (w *workers) hosts() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = map[string]string{}
	return seen
}

// namedGroup is a group with all endpoints from DNS.
func namedGroup(all map[string]target.DNSMembers) *target.GroupVersion {
	group := &target.GroupVersion{}
	group.SetDefaults()
	group.App, group.Name, group.DNS = "demo", "workers", all
	resolved := group.Resolved()
	return &target.GroupVersion{EndpointGroup: resolved}
}

// invokerOf returns an invoker that uses a name server.
func invokerOf(t *testing.T, server *dnstest.Server, egress web.Egress) *invoke.Invoker {
	t.Helper()
	i := invoke.New(invoke.Options{Egress: egress, NameServers: []netip.AddrPort{server.Address}, Resolver: server.Resolver()})
	t.Cleanup(i.Close)
	return i
}

// callOf returns a call of a job to a group.
func callOf(group *target.GroupVersion, strategy target.Strategy) target.Call {
	f := fleet{group: group}
	return f.call("ping", strategy)
}

func TestAddressesOfANameAreEndpoints(t *testing.T) {
	t.Parallel()
	server, w := dnstest.Start(t), newWorkers(t)
	server.A("workers.test", 60, "127.0.0.7", "127.0.0.8", "127.0.0.9")
	i := invokerOf(t, server, web.Egress{Loopback: true})
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "workers.test", Port: w.port}})
	group.Live = []target.Endpoint{{ID: "declared", Source: target.EndpointStatic,
		StaticEndpoint: target.StaticEndpoint{URL: fmt.Sprintf("http://127.0.0.1:%d", w.port)}}}
	var endpoints []string
	for range 8 {
		endpoints = append(endpoints, mustSucceed(t, i, callOf(group, routing.RoundRobin)))
	}
	slices.Sort(endpoints)
	port := strconv.Itoa(w.port)
	ids := []string{"127-0-0-7-" + port, "127-0-0-8-" + port, "127-0-0-9-" + port, "declared"}
	if diff := cmp.Diff(ids, slices.Compact(endpoints)); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
	host := "workers.test:" + port
	want := map[string]string{"127.0.0.7": host, "127.0.0.8": host, "127.0.0.9": host, "127.0.0.1": "127.0.0.1:" + port}
	if diff := cmp.Diff(want, w.hosts()); diff != "" {
		t.Errorf("hosts (-want +got)\n%s", diff)
	}
	if n := server.Asked("workers.test", dnsmessage.TypeA); n != 1 {
		t.Errorf("the server was asked %d times, want once for its TTL", n)
	}
	group = &target.GroupVersion{EndpointGroup: group.EndpointGroup} // another version of it
	group.ServerName = "fleet.example"
	mustSucceed(t, i, callOf(group, routing.RoundRobin))
	if got := slices.Collect(maps.Values(w.hosts())); !slices.Equal(got, []string{"fleet.example"}) {
		t.Errorf("with a server name, hosts = %v", got)
	}
}

func TestServicesAreEndpointsWithWeightsAndBackups(t *testing.T) {
	t.Parallel()
	server, w := dnstest.Start(t), newWorkers(t)
	server.A("a.test", 60, "127.0.0.7")
	server.A("b.test", 60, "127.0.0.8")
	server.A("c.test", 60, "127.0.0.9")
	service := func(target string, priority, weight uint16) dnsmessage.ResourceBody {
		return &dnsmessage.SRVResource{
			Target: dnsmessage.MustNewName(target), Port: uint16(w.port), Priority: priority, Weight: weight,
		}
	}
	server.Set("_http._tcp.test", dnsmessage.TypeSRV, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		service("a.test.", 1, 300), service("b.test.", 1, 100), service("c.test.", 2, 0),
	}})
	i := invokerOf(t, server, web.Egress{Loopback: true})
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "_http._tcp.test", Type: "SRV"}})
	counts := map[string]int{}
	for range 8 {
		counts[mustSucceed(t, i, callOf(group, routing.Weighted))]++
	}
	port := strconv.Itoa(w.port)
	if diff := cmp.Diff(map[string]int{"a_test-" + port: 6, "b_test-" + port: 2}, counts); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"127.0.0.7": "a.test:" + port, "127.0.0.8": "b.test:" + port}, w.hosts()); diff != "" {
		t.Errorf("hosts (-want +got)\n%s", diff)
	}
	var weights []string
	members, _ := i.Members(t.Context(), group.EndpointGroup, target.EgressBounds{})
	for _, e := range members {
		weights = append(weights, fmt.Sprintf("%s %d %t %s", e.ID, e.Weight, e.Backup, e.Source))
	}
	want := []string{"a_test-" + port + " 100 false dns", "b_test-" + port + " 33 false dns", "c_test-" + port + " 1 true dns"}
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(weights))); diff != "" {
		t.Errorf("members (-want +got)\n%s", diff)
	}
}

// When a name changes its addresses, requests follow within its TTL.
func TestEndpointsFollowTheirName(t *testing.T) {
	t.Parallel()
	server, w := dnstest.Start(t), newWorkers(t)
	server.A("workers.test", 0, "127.0.0.7") // counts as 1s
	i := invokerOf(t, server, web.Egress{Loopback: true})
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "workers.test", Port: w.port}})
	began := time.Now() // before the answer
	first := mustSucceed(t, i, callOf(group, routing.First))
	server.A("workers.test", 60, "127.0.0.8")
	late, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	second := first
	for ; second == first; second = mustSucceed(t, i, callOf(group, routing.First)) {
		if late.Err() != nil {
			t.Fatal("the new address gets no request")
		}
	}
	changed := time.Now()
	if want := "127-0-0-8-" + strconv.Itoa(w.port); second != want || changed.Sub(began) < time.Second {
		t.Errorf("after %s, requests go to %s, want %s after a second", changed.Sub(began), second, want)
	}
}

func TestTwoHundredAddressesAreAllEndpoints(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	var addresses []string
	for n := range 600 {
		addresses = append(addresses, fmt.Sprintf("127.0.%d.%d", n/250, 1+n%250))
	}
	server.A("workers.test", 60, addresses[:200]...)
	server.A("many.test", 60, addresses...)
	i := invokerOf(t, server, web.Egress{Loopback: true})
	for name, want := range map[string]int{"workers.test": 200, "many.test": target.MaxEndpoints} {
		group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: name, Port: 80}})
		members, _ := i.Members(t.Context(), group.EndpointGroup, target.EgressBounds{})
		if got := len(members); got != want {
			t.Errorf("%s has %d endpoints, want %d", name, got, want)
		}
	}
}

// Without an address, nothing is sent, and the status shows the reason.
func TestNameWithoutAnswerHasNoEndpoints(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.Set("broken.test", dnsmessage.TypeA, dnstest.Reply{Code: dnsmessage.RCodeServerFailure})
	server.Set("silent.test", dnsmessage.TypeA, dnstest.Reply{Silent: true})
	server.A("empty.test", 60)
	i := invokerOf(t, server, web.Egress{Loopback: true})
	for name, want := range map[string]string{
		"missing.test": "name missing.test does not exist", "empty.test": "name empty.test has no records of type A",
		"broken.test": "it responded ServerFailure", "silent.test": "no response",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: name, Port: 80}})
			group.Name = strings.TrimSuffix(name, ".test")
			call := callOf(group, routing.RoundRobin)
			if name == "silent.test" {
				call.Target.Group.Timeout = input.Duration(500 * time.Millisecond)
			}
			if o := i.Invoke(t.Context(), call); o.Class != run.ClassNoEndpoint || !o.NotSent ||
				name != "silent.test" && !strings.Contains(o.Error, want) {
				t.Errorf("outcome = %+v, want no endpoint and nothing sent, because %s", o, want)
			}
			status := i.GroupStatus(t.Context(), *group, target.EgressBounds{}).DNS["all"]
			if status.Members != 0 || status.ResolvedAt != nil || !strings.Contains(status.Error, want) {
				t.Errorf("status = %+v, want %s", status, want)
			}
		})
	}
}

// An address of a name is called only if the node and the bounds of the app allow the address, its name and its port.
func TestHostileNameGetsNothing(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	port, _ := strconv.Atoi(canary.port)
	server := dnstest.Start(t)
	server.A("metadata.test", 60, "169.254.169.254")
	server.A("loopback.test", 60, "127.0.0.1")
	server.A("other.test", 60, "127.0.0.9")
	for name, address := range map[string]string{"six.test": "::1", "mapped.test": "::ffff:127.0.0.9", "nat64.test": "64:ff9b::127.0.0.9"} {
		server.Set(name, dnsmessage.TypeAAAA, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
			&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(address).As16()},
		}})
	}
	server.Set("_http._tcp.test", dnsmessage.TypeSRV, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		&dnsmessage.SRVResource{Target: dnsmessage.MustNewName("other.test."), Port: uint16(port)},
	}})
	own := target.EgressBounds{Networks: []string{"127.0.0.7/32"}}
	hosts := target.EgressBounds{Hosts: []string{"*.allowed.test"}, Networks: []string{"127.0.0.0/8"}}
	for what, tt := range map[string]struct {
		egress web.Egress
		bounds target.EgressBounds
		names  []string
	}{
		"the node itself": {web.Egress{}, target.EgressBounds{}, []string{
			"metadata.test", "loopback.test", "other.test", "six.test", "mapped.test"}},
		"networks of another app": {web.Egress{Loopback: true}, own, []string{
			"other.test", "six.test", "mapped.test", "nat64.test", "_http._tcp.test"}},
		"hosts of the app": {web.Egress{Loopback: true}, hosts, []string{"other.test", "_http._tcp.test"}},
		"metadata":         {web.Egress{Loopback: true}, target.EgressBounds{}, []string{"metadata.test"}},
	} {
		i := invokerOf(t, server, tt.egress)
		for _, name := range tt.names {
			member := target.DNSMembers{Hostname: name, Port: port}
			switch {
			case strings.HasPrefix(name, "_"):
				member = target.DNSMembers{Hostname: name, Type: "SRV"}
			case slices.Contains([]string{"six.test", "mapped.test", "nat64.test"}, name):
				member.Type = "AAAA"
			}
			for _, strategy := range []target.Strategy{routing.RoundRobin, routing.Failover} {
				group := namedGroup(map[string]target.DNSMembers{"all": member})
				group.HealthCheck = &target.HealthCheck{}
				group.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("hunter2")}}}
				call := callOf(group, strategy)
				bounds := target.Bounds{Egress: tt.bounds}.WithDefaults(call.App)
				call.Bounds = &bounds
				now := time.Now()
				i.CheckHealth(t.Context(), []target.Call{call}, now)
				i.CheckHealth(t.Context(), []target.Call{call}, now.Add(time.Hour))
				o := i.Invoke(t.Context(), call)
				if o.Class != run.ClassNoEndpoint || !strings.Contains(o.Error, "denied") && !strings.Contains(o.Error, "may call") {
					t.Errorf("%s: %s by %s: outcome = %+v, want no endpoint, because egress is denied", what, name, strategy, o)
				}
			}
		}
		i.Close() // after its health checks
	}
	if hits := canary.hits.Load(); hits != 0 {
		t.Errorf("%d connections were made", hits)
	}
}

// When a name changes from an allowed address to another one, nothing is sent to it from then on.
func TestNameThatChangesItsAddressGetsNothing(t *testing.T) {
	t.Parallel()
	server, w := dnstest.Start(t), newWorkers(t)
	server.A("rebound.test", 0, "127.0.0.7")
	i := invokerOf(t, server, web.Egress{Loopback: true})
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "rebound.test", Port: w.port}})
	call := callOf(group, routing.RoundRobin)
	bounds := target.Bounds{Egress: target.EgressBounds{Networks: []string{"127.0.0.7/32"}}}.WithDefaults(call.App)
	call.Bounds = &bounds
	mustSucceed(t, i, call)
	server.A("rebound.test", 0, "127.0.0.9", "169.254.169.254")
	late, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for i.Invoke(t.Context(), call).Class != run.ClassNoEndpoint {
		if late.Err() != nil {
			t.Fatal("the name leads to its first address still")
		}
	}
	if diff := cmp.Diff([]string{"127.0.0.7"}, slices.Sorted(maps.Keys(w.hosts()))); diff != "" {
		t.Errorf("addresses (-want +got)\n%s", diff)
	}
}

// The certificate of an address must have the name that resolves to it.
func TestCertificateHasTheNameOfTheGroup(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.A("example.com", 60, "127.0.0.1")
	server.A("other.test", 60, "127.0.0.1")
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(secure.Close)
	i := invokerOf(t, server, web.Egress{Loopback: true})
	port := secure.Listener.Addr().(*net.TCPAddr).Port
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	for name, well := range map[string]bool{"example.com": true, "other.test": false} {
		group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: name, Port: port, Scheme: "https"}})
		group.Name, group.TLS = strings.ReplaceAll(name, ".", "-"), &target.TLS{CACertificates: authority}
		if o := i.Invoke(t.Context(), callOf(group, routing.RoundRobin)); (o.State == run.Succeeded) != well {
			t.Errorf("%s: outcome = %+v, want success: %v", name, o, well)
		}
	}
}

// An app that may call only some hosts may call addresses by a name among them.
func TestBoundsOfHostsAllowAddressesByTheirName(t *testing.T) {
	t.Parallel()
	server, w := dnstest.Start(t), newWorkers(t)
	server.A("workers.allowed.test", 60, "127.0.0.7")
	server.A("workers.other.test", 60, "127.0.0.7")
	i := invokerOf(t, server, web.Egress{Loopback: true})
	for name, want := range map[string]run.State{
		"workers.allowed.test": run.Succeeded, "workers.other.test": run.Failed,
	} {
		group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: name, Port: w.port}})
		group.Name = strings.ReplaceAll(name, ".", "-")
		call := callOf(group, routing.RoundRobin)
		egress := target.EgressBounds{Hosts: []string{"*.allowed.test"}, Ports: []int{w.port}}
		bounds := target.Bounds{Egress: egress}.WithDefaults(call.App)
		call.Bounds = &bounds
		if o := i.Invoke(t.Context(), call); o.State != want {
			t.Errorf("%s: outcome = %+v, want %s", name, o, want)
		}
	}
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "workers.allowed.test", Port: w.port}})
	call := callOf(group, routing.RoundRobin)
	bounds := target.Bounds{Egress: target.EgressBounds{Hosts: []string{"*.allowed.test"}, Ports: []int{1}}}.WithDefaults(call.App)
	call.Bounds = &bounds
	if o := i.Invoke(t.Context(), call); o.Class != run.ClassNoEndpoint {
		t.Errorf("at another port: outcome = %+v, want no endpoint", o)
	}
}
