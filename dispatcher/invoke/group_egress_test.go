package invoke_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// registered makes the URLs the registered endpoints of the fleet's group, which takes registrations from networks.
func (f *fleet) registered(networks, ports []string, urls ...string) {
	f.group = &target.GroupVersion{EndpointGroup: f.group.EndpointGroup}
	f.group.Registration = &target.Registration{Networks: networks}
	for _, port := range ports {
		n, _ := strconv.Atoi(port)
		f.group.Registration.Ports = append(f.group.Registration.Ports, n)
	}
	for n, url := range urls {
		f.group.Live = append(f.group.Live, target.Endpoint{
			ID: fmt.Sprintf("r%d", n), Source: target.EndpointRegistered, StaticEndpoint: target.StaticEndpoint{URL: url},
		})
	}
}

// A registered endpoint that resolves to an address outside the limits of the group or the app gets nothing, in any
// spelling and whenever the name changes its address: no request, no probe and no secret.
func TestHostileEndpointGetsNothing(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	dns := nameServer(t, map[string]named{
		"loopback.test": {lists: [][]string{{"127.0.0.1"}}}, "metadata.test": {lists: [][]string{{"169.254.169.254"}}},
		"other.test": {lists: [][]string{{"127.0.0.9"}}}, "both.test": {lists: [][]string{{"127.0.0.7", "127.0.0.9"}}},
		"rebound.test": {lists: [][]string{{"127.0.0.7"}, {"127.0.0.9"}}},
	})
	for what, tt := range map[string]struct {
		egress   web.Egress
		networks string
		hosts    []string
	}{
		"networks of the group": {web.Egress{Loopback: true}, "127.0.0.7/32", []string{
			"127.0.0.1", "127.0.0.9", "localhost", "[::1]", "[::ffff:127.0.0.9]", "[64:ff9b::127.0.0.9]", "other.test", "both.test", "rebound.test",
			"loopback.test", "metadata.test",
		}},
		"egress of the node": {web.Egress{}, "0.0.0.0/0", []string{
			"127.0.0.1", "localhost", "loopback.test", "metadata.test", "169.254.169.254", "127.1", "2130706433", "0x7f.1",
			"metadata.google.internal", "0.0.0.0", "192.168.7.7", "10.1.2.3",
		}},
	} {
		i := invoke.New(invoke.Options{Egress: tt.egress, Resolver: &net.Resolver{PreferGo: true, Dial: dns}})
		t.Cleanup(i.Close)
		for _, host := range tt.hosts {
			for _, strategy := range []target.Strategy{routing.RoundRobin, routing.Failover, routing.GlobalBusyOver} {
				f := newFleet(t, 0)
				f.registered([]string{tt.networks}, []string{canary.port}, "http://"+host+":"+canary.port)
				f.group.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("hunter2")}}}
				o := i.Invoke(t.Context(), f.call("ping", strategy))
				if o.State != failed || o.Class != run.ClassNoEndpoint || !strings.Contains(o.Error, "denied") {
					t.Errorf("%s: %s by %s: outcome = %+v, want no endpoint, because egress is denied", what, host, strategy, o)
				}
			}
		}
	}
	if hits := canary.hits.Load(); hits != 0 {
		t.Errorf("%d connections were made", hits)
	}
}

// The limits of registered endpoints apply to each connection: no connection that a webhook or a declared endpoint has
// left open is used for a registered one outside of them.
func TestRegisteredEndpointUsesNoConnectionOfOthers(t *testing.T) {
	t.Parallel()
	f, i := newFleet(t, 1), newInvoker(t)
	address := f.servers[0].URL
	_, port, _ := net.SplitHostPort(f.servers[0].Listener.Addr().String())
	denied := func(what, rule string) {
		t.Helper()
		before := f.counts()[0]
		o := i.Invoke(t.Context(), f.call("ping", routing.RoundRobin))
		if o.Class != run.ClassNoEndpoint || !strings.Contains(o.Error, rule) || f.counts()[0] != before {
			t.Errorf("%s: outcome = %+v, want it denied by %s", what, o, rule)
		}
	}
	mustSucceed(t, i, f.call("ping", routing.RoundRobin)) // leaves a connection open
	f.registered([]string{"127.0.0.7/32"}, []string{port}, address)
	denied("another network", "registration.networks")
	f.registered([]string{"127.0.0.0/8"}, []string{"1"}, address)
	denied("another port", "registration.ports")
	f.registered([]string{"127.0.0.0/8"}, []string{port}, address)
	mustSucceed(t, i, f.call("ping", routing.RoundRobin))
	f.registered([]string{"127.0.0.7/32"}, []string{port}, address)
	denied("a network that was taken away", "registration.networks")
	f.registered([]string{"127.0.0.0/8"}, []string{port}, address)
	f.group.Registration = nil
	denied("no registration any more", "registration.ports")
	f.registered([]string{"127.0.0.0/8"}, []string{port}, address)
	call := within(f.call("ping", routing.RoundRobin), target.Bounds{Egress: target.EgressBounds{Networks: []string{"10.0.0.0/8"}}})
	if o := i.Invoke(t.Context(), call); o.Class != run.ClassNoEndpoint || !strings.Contains(o.Error, "egress.networks") {
		t.Errorf("outside the bounds of the app: outcome = %+v", o)
	}
}

// A redirect is not followed, as with webhooks.
func TestEndpointCannotRedirect(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	f, i := newFleet(t, 1), newInvoker(t)
	f.respond = func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:"+canary.port, http.StatusTemporaryRedirect)
	}
	for strategy, class := range map[target.Strategy]run.Class{
		routing.RoundRobin: run.ClassRedirect, routing.Failover: run.ClassNoEndpoint,
		routing.BusyOver: run.ClassEndpointsBusy,
	} {
		if o := i.Invoke(t.Context(), f.call("ping", strategy)); o.Class != class {
			t.Errorf("%s: outcome = %+v, want %s", strategy, o, class)
		}
	}
	if hits := canary.hits.Load(); hits != 0 {
		t.Errorf("%d connections were made", hits)
	}
}

// A request to an endpoint given by address carries the server name of the group, which its certificate must match.
func TestServerNameIsSentAndChecked(t *testing.T) {
	t.Parallel()
	hosts, names := make(chan string, 10), make(chan string, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	server.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { //nolint:gosec // for a test
		names <- hello.ServerName
		return nil, nil
	}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	at, _ := url.Parse(server.URL)
	f, i := newFleet(t, 0), newInvoker(t)
	f.registered([]string{"127.0.0.0/8"}, []string{at.Port()}, server.URL)
	f.group.TLS = &target.TLS{CACertificates: pemOfX509(server.Certificate())}
	f.group.ServerName = "example.com:8443" // httptest's certificate is for example.com
	for _, method := range []string{"POST", "GET"} {
		call := f.call("ping", routing.RoundRobin)
		call.Target.Group.Method = method
		mustSucceed(t, i, call)
		if host, name := <-hosts, <-names; host != "example.com:8443" || name != "example.com" {
			t.Errorf("%s: Host = %q, name in TLS = %q", method, host, name)
		}
	}
	f.group.ServerName = "example.org"
	f.registered([]string{"127.0.0.0/8"}, []string{at.Port()}, server.URL) // another version of the group
	o := i.Invoke(t.Context(), f.call("ping", routing.RoundRobin))
	if o.Class != run.ClassNoEndpoint || !strings.Contains(o.Error, "example.org") {
		t.Errorf("outcome = %+v, want the certificate refused", o)
	}
}

func pemOfX509(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}
