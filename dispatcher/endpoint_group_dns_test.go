package dispatcher_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestMembersFromDNSAreChecked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	for what, tt := range map[string]struct {
		member target.DNSMembers
		want   []string
	}{
		"address":           {target.DNSMembers{Hostname: "workers.internal", Port: 8080}, nil},
		"one label":         {target.DNSMembers{Hostname: "workers", Port: 8080, Type: "AAAA", Scheme: "https"}, nil},
		"service":           {target.DNSMembers{Hostname: "_http._tcp.workers.internal", Type: "SRV"}, nil},
		"no name":           {target.DNSMembers{Port: 1}, []string{"/dns/d/hostname required"}},
		"upper case":        {target.DNSMembers{Hostname: "Workers", Port: 1}, []string{"/dns/d/hostname url_host"}},
		"dot at the end":    {target.DNSMembers{Hostname: "workers.", Port: 1}, []string{"/dns/d/hostname url_host"}},
		"address as a name": {target.DNSMembers{Hostname: "10.0.0.1", Port: 1}, []string{"/dns/d/hostname url_host"}},
		"long label":        {target.DNSMembers{Hostname: long + ".internal", Port: 1}, []string{"/dns/d/hostname url_host"}},
		"user":              {target.DNSMembers{Hostname: "a@b.internal", Port: 1}, []string{"/dns/d/hostname url_host"}},
		"metadata":          {target.DNSMembers{Hostname: "metadata.google.internal", Port: 1}, []string{"/dns/d/hostname egress_denied"}},
		"type":              {target.DNSMembers{Hostname: "a.b", Port: 1, Type: "MX"}, []string{"/dns/d/type enum"}},
		"scheme":            {target.DNSMembers{Hostname: "a.b", Port: 1, Scheme: "ftp"}, []string{"/dns/d/scheme enum"}},
		"no port":           {target.DNSMembers{Hostname: "a.b"}, []string{"/dns/d/port required"}},
		"port":              {target.DNSMembers{Hostname: "a.b", Port: 65536}, []string{"/dns/d/port count_range"}},
		"weight":            {target.DNSMembers{Hostname: "a.b", Port: 1, Weight: 101}, []string{"/dns/d/weight count_range"}},
		"service of its own": {target.DNSMembers{Hostname: "_a._tcp.b", Type: "SRV", Port: 1, Weight: 2, Backup: true}, []string{
			"/dns/d/port count_range", "/dns/d/weight count_range", "/dns/d/backup count_range"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			group := target.EndpointGroup{App: "a", Name: "g",
				EndpointGroupSpec: target.EndpointGroupSpec{DNS: map[string]target.DNSMembers{"d": tt.member}}}
			if diff := cmp.Diff(tt.want, codesOf(group.Validate())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// codesOf lists paths and codes of problems.
func codesOf(err error) (all []string) {
	var problems input.Problems
	errors.As(err, &problems)
	for _, p := range problems {
		all = append(all, p.Path+" "+p.Code)
	}
	return all
}

func TestHealthChecksAreChecked(t *testing.T) {
	t.Parallel()
	group := target.EndpointGroup{App: "a", Name: "g",
		EndpointGroupSpec: target.EndpointGroupSpec{EjectAfter: -1, HealthCheck: &target.HealthCheck{
			Path: "health", Interval: 1, Timeout: 1, HealthyThreshold: 11, UnhealthyThreshold: -1,
		}}}
	want := []string{"/health_check/path url_syntax", "/health_check/interval duration_min", "/health_check/timeout duration_min",
		"/health_check/healthy_threshold count_range", "/health_check/unhealthy_threshold count_range", "/eject_after count_range"}
	if diff := cmp.Diff(want, codesOf(group.Validate())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, check := range []target.HealthCheck{{}, target.HealthCheck{Interval: input.Duration(1e9)}.Resolved()} {
		group.HealthCheck, group.EjectAfter = &check, 0
		if err := group.Validate(); err != nil {
			t.Errorf("%+v: %v", check, err)
		}
	}
}

func TestEndpointsFromDNSHaveStableValidIDs(t *testing.T) {
	t.Parallel()
	d := target.DNSMembers{Hostname: "workers.internal", Port: 8080}.Resolved()
	seen := map[string]bool{}
	for addr, want := range map[string][2]string{
		"10.20.0.11":              {"10-20-0-11-8080", "http://10.20.0.11:8080"},
		"2001:db8::1":             {"2001-db8-0-0-0-0-0-1-8080", "http://[2001:db8::1]:8080"},
		"::ffff:10.20.0.11":       {"0-0-0-0-0-ffff-a14-b-8080", "http://[::ffff:10.20.0.11]:8080"},
		"ffff:ffff:ffff:ffff::ff": {"ffff-ffff-ffff-ffff-0-0-0-ff-8080", "http://[ffff:ffff:ffff:ffff::ff]:8080"},
	} {
		e := d.AddressEndpoint(netip.MustParseAddr(addr))
		if e.ID != want[0] || e.URL != want[1] || e.ServerName != "workers.internal:8080" || e.Weight != 1 {
			t.Errorf("%s: %+v, want %v", addr, e, want)
		}
		seen[e.ID] = true
	}
	services := target.DNSMembers{Hostname: "_http._tcp.internal", Type: "SRV"}.Resolved()
	deep := strings.Repeat("pod.", 20) + "internal"
	for _, target := range []string{"pod-1.workers.internal", "pod-1_workers.internal", "_pod.internal", deep, "a." + deep} {
		e, ok := services.ServiceEndpoint(target, 9000, 3, true)
		if !ok || seen[e.ID] || e.URL != "http://"+target+":9000" || e.Weight != 3 || !e.Backup || e.ServerName != "" {
			t.Errorf("%s: %+v, %v", target, e, ok)
		}
		seen[e.ID] = true
	}
	for id := range seen {
		var problems input.Problems
		if input.CheckName(&problems, "", id); problems != nil {
			t.Errorf("id %s: %v", id, problems)
		}
	}
	for _, target := range []string{"10.0.0.1", "metadata.google.internal", "a b.internal", "user@a.internal", "a.internal/x"} {
		if e, ok := services.ServiceEndpoint(target, 9000, 1, false); ok {
			t.Errorf("target %s is endpoint %+v", target, e)
		}
	}
}

// A stored secret goes only to names that it was given for.
func TestStoredSecretIsBoundToNamesOfDNS(t *testing.T) {
	t.Parallel()
	group := func(url string, all ...target.DNSMembers) target.EndpointGroup {
		g := target.EndpointGroup{App: "a", Name: "g", EndpointGroupSpec: target.EndpointGroupSpec{DNS: map[string]target.DNSMembers{}}}
		g.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Stored: true}}}
		if url != "" {
			g.Endpoints = map[string]target.StaticEndpoint{"one": {URL: url}}
		}
		for n, d := range all {
			g.DNS[string(rune('a'+n))] = d
		}
		return g
	}
	at := target.DNSMembers{Hostname: "workers.internal", Port: 8080}
	six, backup, moved, other, secure := at, at, at, at, at
	six.Type, backup.Backup, moved.Port, other.Hostname, secure.Scheme = "AAAA", true, 8081, "other.internal", "https"
	services := target.DNSMembers{Hostname: "workers.internal", Type: "SRV"}
	for what, tt := range map[string]struct {
		old, now target.EndpointGroup
		refused  bool
	}{
		"the same":             {group("", at), group("", at), false},
		"fewer":                {group("", at, other), group("", other), false},
		"backup":               {group("", at), group("", backup), false},
		"the other addresses":  {group("", at), group("", at, six), false},
		"another name":         {group("", at), group("", other), true},
		"one more name":        {group("", at), group("", at, other), true},
		"another port":         {group("", at), group("", moved), true},
		"another scheme":       {group("", at), group("", secure), true},
		"services of the name": {group("", at), group("", services), true},
		"declared before":      {group("http://workers.internal:8080/x"), group("", at), false},
		"declared now":         {group("", at), group("http://workers.internal:8080/x"), false},
		"first name":           {group("https://a.internal"), group("https://a.internal", at), true},
	} {
		err := tt.now.CheckKept(tt.old)
		if got := slices.Contains(codesOf(err), "/auth/bearer/token/stored "+input.CodeSecretOrigin); got != tt.refused {
			t.Errorf("%s: %v, want a refusal: %v", what, err, tt.refused)
		}
	}
}

func TestBoundsHoldForNamesOfDNS(t *testing.T) {
	t.Parallel()
	bounds := target.Bounds{Egress: target.EgressBounds{Hosts: []string{"*.internal"}, Ports: []int{8080}}}
	group := target.EndpointGroup{App: "a", Name: "g", EndpointGroupSpec: target.EndpointGroupSpec{DNS: map[string]target.DNSMembers{
		"fits": {Hostname: "workers.internal", Port: 8080}, "host": {Hostname: "workers.example", Port: 8080},
		"port": {Hostname: "workers.internal", Port: 22}, "srv": {Hostname: "_http._tcp.example", Type: "SRV"},
	}}}
	want := []string{"/dns/host/hostname bound_egress", "/dns/port/hostname bound_egress"}
	if diff := cmp.Diff(want, codesOf(bounds.CheckGroup(group))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
