package invoke_test

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// anAddress matches an address of IPv4 or IPv6 in an error, except the networks of rules.
var anAddress = regexp.MustCompile(`\d+[.-]\d+[.-]\d+[.-]\d+|\[[0-9a-f:]+\]|[0-9a-f]*::[0-9a-f]+`)

// closedPort returns a port of this machine without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port
}

// An app must not learn the nodes' network from the errors of its attempts. Only operators see a name's addresses.
func TestErrorsDoNotNameTheAddressOfAName(t *testing.T) {
	t.Parallel()
	server, reset := dnstest.Start(t), newCanary(t)
	server.A("private.test", 60, "10.9.9.9")
	server.A("metadata.test", 60, "169.254.169.254")
	server.A("loopback.test", 60, "127.0.0.7")
	server.Set("six.test", dnsmessage.TypeAAAA, dnstest.Reply{TTL: 60, Records: []dnsmessage.ResourceBody{
		&dnsmessage.AAAAResource{AAAA: netip.MustParseAddr("fd00:1::9").As16()},
	}})
	server.Set("broken.test", dnsmessage.TypeA, dnstest.Reply{Code: dnsmessage.RCodeServerFailure})
	closed := closedPort(t)
	i := invokerOf(t, server, web.Egress{Loopback: true})
	i.DenyAPIs([]string{"127.0.0.7:9"})
	webhook := func(host string) target.Call { return callTo("http://"+host+"/", "POST", ample) }
	static := func(host string) target.Call {
		group := namedGroup(nil)
		group.Name = strings.NewReplacer(".", "-", ":", "-").Replace(host)
		group.Live = []target.Endpoint{{ID: "one", Source: target.EndpointStatic,
			StaticEndpoint: target.StaticEndpoint{URL: "http://" + host}}}
		return callOf(group, routing.RoundRobin)
	}
	token := func(host string) target.Call {
		call := callTo("http://receiver.test/", "POST", ample)
		call.Target.Webhook.Auth = &target.Auth{OAuth2: &target.OAuth2Auth{TokenURL: "http://" + host + "/token", ClientID: "c",
			ClientSecret: &target.Secret{Value: input.NewSensitive("hunter2")}}}
		return call
	}
	for name, tt := range map[string]struct {
		call  target.Call
		class run.Class
		says  string
		kept  string // for operators
	}{
		"a private network":           {webhook("private.test"), "egress_denied", "private.test", "10.9.9.9"},
		"a private network of IPv6":   {webhook("six.test"), "egress_denied", "six.test", "fd00:1::9"},
		"metadata":                    {webhook("metadata.test"), "egress_denied", "metadata.test", "169.254.169.254"},
		"the API of a node":           {webhook("loopback.test:9"), "egress_denied", "loopback.test", "127.0.0.7:9"},
		"a refused connection":        {webhook("loopback.test:" + closed), "connect_refused", "refused", "127.0.0.7:" + closed},
		"a connection that is reset":  {webhook("loopback.test:" + reset.port), "reset", "", ""},
		"a name server":               {webhook("broken.test"), "dns", "broken.test", ":53"},
		"a name that does not exist":  {webhook("missing.test"), "dns", "missing.test", ":53"},
		"an endpoint":                 {static("private.test"), "no_endpoint", "private.test", "10.9.9.9"},
		"an endpoint that refuses":    {static("loopback.test:" + closed), "no_endpoint", "refused", "127.0.0.7:" + closed},
		"a token endpoint":            {token("private.test"), "egress_denied", "private.test", "10.9.9.9"},
		"a token endpoint that fails": {token("loopback.test:" + closed), "oauth2", "refused", "127.0.0.7:" + closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := i.Invoke(t.Context(), tt.call)
			if o.Class != tt.class || !strings.Contains(o.Error, tt.says) || anAddress.MatchString(o.Error) {
				t.Errorf("outcome = %s %q, want %s with %q and without an address", o.Class, o.Error, tt.class, tt.says)
			}
			if tt.kept != "" && (o.Response == nil || !strings.Contains(fmt.Sprint(o.Response.Addresses), tt.kept)) {
				t.Errorf("response = %+v, want address %s for operators", o.Response, tt.kept)
			}
		})
	}
}

// An address in the job itself is no secret to its app.
func TestErrorsNameTheAddressThatTheJobNames(t *testing.T) {
	t.Parallel()
	server, closed := dnstest.Start(t), closedPort(t)
	i := invokerOf(t, server, web.Egress{Loopback: true})
	for host, says := range map[string]string{
		"10.9.9.9": "egress to 10.9.9.9 is denied", "[fd00:1::9]": "egress to fd00:1::9 is denied", "127.0.0.7:" + closed: "127.0.0.7:" + closed,
	} {
		if o := i.Invoke(t.Context(), callTo("http://"+host+"/", "POST", ample)); !strings.Contains(o.Error, says) {
			t.Errorf("%s: error = %q, want %q", host, o.Error, says)
		}
	}
}

// Health checks and probes reveal no more than attempts.
func TestStatusOfAnEndpointDoesNotNameItsAddress(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.A("private.test", 60, "10.9.9.9")
	i := invokerOf(t, server, web.Egress{})
	for _, strategy := range []target.Strategy{routing.RoundRobin, routing.Failover, routing.BusyOver} {
		group := namedGroup(nil)
		group.Name = strings.ReplaceAll(string(strategy), "_", "-")
		group.Live = []target.Endpoint{{ID: "one", Source: target.EndpointStatic,
			StaticEndpoint: target.StaticEndpoint{URL: "http://private.test"}}}
		o := i.Invoke(t.Context(), callOf(group, strategy))
		for _, one := range i.GroupStatus(t.Context(), *group, target.EgressBounds{}).Endpoints {
			if one.Reason == "" || anAddress.MatchString(one.Reason) || anAddress.MatchString(o.Error) {
				t.Errorf("%s: reason = %q, error = %q, want both without an address", strategy, one.Reason, o.Error)
			}
		}
	}
}

func TestNameServersAreNotNamed(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.Set("broken.test", dnsmessage.TypeA, dnstest.Reply{Code: dnsmessage.RCodeServerFailure})
	i := invokerOf(t, server, web.Egress{})
	group := namedGroup(map[string]target.DNSMembers{"all": {Hostname: "broken.test", Port: 80}})
	o := i.Invoke(t.Context(), callOf(group, routing.RoundRobin))
	status := i.GroupStatus(t.Context(), *group, target.EgressBounds{}).DNS["all"]
	if anAddress.MatchString(o.Error) || !strings.Contains(o.Error, "ServerFailure") || !strings.Contains(status.Error, "ServerFailure") {
		t.Errorf("error = %q, status = %+v, want the response, and no address of a name server in the error", o.Error, status)
	}
	if port := strconv.Itoa(int(server.Address.Port())); o.Response == nil || !strings.Contains(fmt.Sprint(o.Response.Addresses), port) {
		t.Errorf("response = %+v, want the name server for operators", o.Response)
	}
}
