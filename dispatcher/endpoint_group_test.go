package dispatcher_test

import (
	"net/netip"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The addresses of a name are checked by this at each dial.
func TestRegistrationTakesAddresses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		networks string
		addr     string
		port     int
		want     bool
	}{
		{"10.0.0.0/8", "10.255.0.1", 80, true},
		{"10.0.0.0/8", "11.0.0.1", 80, false},
		{"10.0.0.0/8", "10.255.0.1", 81, false},
		{"10.0.0.0/8", "::ffff:10.0.0.1", 80, true},
		{"10.0.0.0/8", "64:ff9b::10.0.0.1", 80, true},
		{"fd12::/16", "fd12::1", 80, true},
		{"fd12::/16", "fd13::1", 80, false},
		{"::/0", "10.0.0.1", 80, false},
		{"0.0.0.0/0", "8.8.8.8", 80, true},
		{"0.0.0.0/0", "127.0.0.1", 80, false},
		{"126.0.0.0/7", "127.0.0.1", 80, false},
		{"127.0.0.0/8", "127.0.0.1", 80, true},
		{"127.0.0.1/32", "127.0.0.1", 80, true},
		{"127.0.0.1/32", "127.0.0.2", 80, false},
		{"::/0", "::1", 80, false},
		{"::1/128", "::1", 80, true},
		{"0.0.0.0/0", "169.254.169.254", 80, false},
		{"0.0.0.0/0", "0.0.0.0", 80, false},
		{"0.0.0.0/0", "64:ff9b::169.254.169.254", 80, false},
		{"::/0", "fd00:ec2::254", 80, false},
	} {
		r := &target.Registration{Networks: []string{"192.168.0.0/16", tt.networks}, Ports: []int{443, 80}}
		if got := r.Takes(netip.MustParseAddr(tt.addr), tt.port); got != tt.want {
			t.Errorf("a group of %s takes %s port %d: %v, want %v", tt.networks, tt.addr, tt.port, got, tt.want)
		}
	}
	var none *target.Registration
	if none.Takes(netip.MustParseAddr("10.0.0.1"), 80) {
		t.Error("a group without registration takes an address")
	}
}

// A new field of groups has to be compared, or be read-only.
func TestGroupDeclaresItsOwnDefinition(t *testing.T) {
	t.Parallel()
	whole := target.EndpointGroup{
		App: "a", Name: "g", EndpointGroupSpec: target.EndpointGroupSpec{Description: "d", Path: "/p", Strategy: "first", ServerName: "h",
			TLS:       &target.TLS{MinVersion: "1.3"},
			Auth:      &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Stored: true}}},
			Endpoints: map[string]target.StaticEndpoint{"a": {URL: "https://a"}},
			Registration: &target.Registration{
				Networks: []string{"10.0.0.0/8"}, Ports: []int{80}, Heartbeat: target.DefaultEndpointHeartbeat},
			DNS:         map[string]target.DNSMembers{"a": {Hostname: "a.internal", Port: 80}},
			HealthCheck: &target.HealthCheck{Path: "/health"}, EjectAfter: 3},
	}
	stored := whole.Resolved()
	stored.Revision = 7
	if !stored.Declares(whole) {
		t.Error("a group that is declared as it is stored differs")
	}
	for what, change := range map[string]func(*target.EndpointGroup){
		"description":  func(g *target.EndpointGroup) { g.Description = "" },
		"path":         func(g *target.EndpointGroup) { g.Path = "" },
		"strategy":     func(g *target.EndpointGroup) { g.Strategy = "" },
		"server name":  func(g *target.EndpointGroup) { g.ServerName = "" },
		"tls":          func(g *target.EndpointGroup) { g.TLS = nil },
		"auth":         func(g *target.EndpointGroup) { g.Auth = nil },
		"probe":        func(g *target.EndpointGroup) { g.Probe.IdlePath = "/busy" },
		"endpoints":    func(g *target.EndpointGroup) { g.Endpoints = nil },
		"registration": func(g *target.EndpointGroup) { g.Registration = nil },
		"dns":          func(g *target.EndpointGroup) { g.DNS = nil },
		"health check": func(g *target.EndpointGroup) { g.HealthCheck = &target.HealthCheck{} },
		"ejection":     func(g *target.EndpointGroup) { g.EjectAfter = 0 },
		"secret": func(g *target.EndpointGroup) {
			g.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("x")}}}
		},
	} {
		changed := whole
		change(&changed)
		if stored.Declares(changed) {
			t.Errorf("another %s makes no difference", what)
		}
	}
}
