package target

import (
	"cmp"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// DNSMembers are the endpoints that a name of DNS stands for. Nodes ask for them again whenever the answer expires.
type DNSMembers struct {
	// Name is what is asked for: absolute, in lower case and without the dot that may end it.
	Name string `json:"name" schema:"required,max=253"`
	// Type is the type of the records; empty means A. Each address is an endpoint; each service of SRV is one, too.
	Type DNSType `json:"type,omitempty"`
	// Port is that of each address, 1 to 65535; services have their own.
	Port int `json:"port,omitempty" schema:"max=65535,min=1"`
	// Scheme is http or https; empty means http.
	Scheme string `json:"scheme,omitempty" schema:"enum=http|https"`
	// Weight and Backup are those of each address, as of StaticEndpoint; services have their own. 0 means 1.
	Weight int `json:"weight,omitempty" schema:"max=100,min=1"`
	// As that of a declared endpoint, for each address. Of records of type SRV, those are backups that have
	// not the best priority.
	Backup bool `json:"backup,omitempty"`
	// Labels are those of each endpoint.
	Labels input.Labels `json:"labels,omitempty"`
}

// DNSType is the type of records of DNS.
type DNSType string

// The types of records that stand for endpoints.
const (
	DNSTypeA    DNSType = "A"    // IPv4 addresses
	DNSTypeAAAA DNSType = "AAAA" // IPv6 addresses
	DNSTypeSRV  DNSType = "SRV"  // services, RFC 2782
)

// DNSTypes lists the types.
var DNSTypes = []DNSType{DNSTypeA, DNSTypeAAAA, DNSTypeSRV}

// MaxDNSMembers bounds the names of a group.
const MaxDNSMembers = 10

// SetDefaults gives a decoded block the values of fields that its JSON leaves out.
func (d *DNSMembers) SetDefaults() { *d = DNSMembers{}.Resolved() }

// Resolved returns d with the defaults of what it leaves out.
func (d DNSMembers) Resolved() DNSMembers {
	d.Type, d.Scheme, d.Weight = cmp.Or(d.Type, DNSTypeA), cmp.Or(d.Scheme, "http"), cmp.Or(d.Weight, 1)
	if len(d.Labels) == 0 {
		d.Labels = nil
	}
	return d
}

// checkDNS checks the names of a group.
func (g EndpointGroup) checkDNS(problems *input.Problems) {
	if len(g.DNS) > MaxDNSMembers {
		problems.Add("/dns", input.CodeTooMany, "group has %d names of DNS; the maximum is %d", len(g.DNS), MaxDNSMembers)
		return
	}
	for _, label := range input.SortedKeys(g.DNS) {
		at := input.Pointer("dns", label)
		input.CheckName(problems, at, label)
		g.DNS[label].check(problems, at)
	}
}

// dnsNamePattern is that of names: labels of letters, digits, - and _, the last of which is not a number.
var dnsNamePattern = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (d DNSMembers) check(problems *input.Problems, at string) {
	switch {
	case d.Name == "":
		problems.Add(at+"/name", input.CodeRequired, "name is missing; give one such as workers.internal")
	case len(d.Name) > 253 || !dnsNamePattern.MatchString(d.Name):
		problems.Add(at+"/name", input.CodeURLHost,
			"name %s is not one of DNS in lower case; write it as workers.internal, without a dot at its end", input.Echo(d.Name))
	case MetadataName(d.Name):
		problems.Add(at+"/name", input.CodeEgressDenied, "name %s is never called: clouds serve metadata and credentials there",
			input.Echo(d.Name))
	}
	if d.Type != "" {
		input.CheckEnum(problems, at+"/type", "type", d.Type, DNSTypes)
	}
	if d.Scheme != "" {
		input.CheckEnum(problems, at+"/scheme", "scheme", d.Scheme, []string{"http", "https"})
	}
	d.Labels.Check(problems, at+"/labels")
	if d.Type == DNSTypeSRV {
		d.checkService(problems, at)
		return
	}
	switch {
	case d.Port == 0:
		problems.Add(at+"/port", input.CodeRequired, "port is missing; addresses have none, only type SRV has")
	default:
		input.CheckRange(problems, at+"/port", d.Port, 1, 65535)
	}
	if d.Weight != 0 {
		input.CheckRange(problems, at+"/weight", d.Weight, 1, MaxEndpointWeight)
	}
}

// checkService refuses what each service says for itself.
func (d DNSMembers) checkService(problems *input.Problems, at string) {
	if d.Port != 0 {
		problems.Add(at+"/port", input.CodeCountRange, "port is given, but each record of type SRV has its own; leave it out")
	}
	if d.Weight > 1 { // the default is 1
		problems.Add(at+"/weight", input.CodeCountRange, "weight is given, but each record of type SRV has its own; leave it out")
	}
	if d.Backup {
		problems.Add(at+"/backup", input.CodeCountRange,
			"backup is given, but records of type SRV say it by their priority; leave it out")
	}
}

// Host is the name and port of all addresses, as Host and certificates have it; empty: each service has its own.
func (d DNSMembers) Host() string {
	switch {
	case d.Type == DNSTypeSRV:
		return ""
	case d.Scheme == "https" && d.Port == 443, d.Scheme != "https" && d.Port == 80:
		return d.Name
	}
	return net.JoinHostPort(d.Name, strconv.Itoa(d.Port))
}

// origin tells apart where secrets of the group may go.
func (d DNSMembers) origin() string {
	d = d.Resolved()
	if d.Type == DNSTypeSRV {
		return "services of " + d.Scheme + "://" + d.Name
	}
	return StaticEndpoint{URL: d.url()}.origin()
}

// url is that of an address by the name of all.
func (d DNSMembers) url() string {
	return d.Scheme + "://" + net.JoinHostPort(d.Name, strconv.Itoa(d.Port))
}

// AddressEndpoint returns the endpoint at an address that the name of a resolved d has. Its id depends on address and port
// alone.
func (d DNSMembers) AddressEndpoint(addr netip.Addr) Endpoint {
	port := strconv.Itoa(d.Port)
	return Endpoint{
		ID: addressID(addr) + "-" + port, Source: EndpointDNS, ServerName: d.Host(),
		StaticEndpoint: StaticEndpoint{
			URL: d.Scheme + "://" + net.JoinHostPort(addr.String(), port), Weight: d.Weight, Backup: d.Backup, Labels: d.Labels,
		},
	}
}

// addressID writes an address as the beginning of a name.
func addressID(addr netip.Addr) string {
	if addr.Is4() {
		return strings.ReplaceAll(addr.String(), ".", "-")
	}
	groups := make([]string, 0, 8)
	bytes := addr.As16()
	for i := 0; i < len(bytes); i += 2 {
		groups = append(groups, strconv.FormatUint(uint64(bytes[i])<<8|uint64(bytes[i+1]), 16))
	}
	return strings.Join(groups, "-")
}

// ServiceEndpoint returns the endpoint that a service stands for; ok is false if no request can go there. weight is that of
// a StaticEndpoint. The id depends on target and port alone.
func (d DNSMembers) ServiceEndpoint(target string, port, weight int, backup bool) (e Endpoint, ok bool) {
	if !dnsNamePattern.MatchString(target) || MetadataName(target) || port == 0 {
		return Endpoint{}, false
	}
	const most = 63
	id := strings.ReplaceAll(target, ".", "_") + "-" + strconv.Itoa(port)
	if len(id) > most || strings.Contains(target, "_") {
		id = "srv-" + strconv.FormatInt(run.HashID("endpoint", target), 36) + "-" + strconv.Itoa(port)
	}
	return Endpoint{
		ID: id, Source: EndpointDNS,
		StaticEndpoint: StaticEndpoint{
			URL: d.Scheme + "://" + net.JoinHostPort(target, strconv.Itoa(port)), Weight: weight, Backup: backup, Labels: d.Labels,
		},
	}, true
}

// DNSStatus is what a node knows of a name of a group.
type DNSStatus struct {
	Name string  `json:"name"`
	Type DNSType `json:"type"`
	// Members is how many endpoints the name stands for now.
	Members int `json:"members"`
	// Refused is how many more it stands for that may not be called, and RefusedBecause why, each reason once.
	Refused int `json:"refused,omitempty"`
	// Why they may not be called, each reason once.
	RefusedBecause []string `json:"refused_because,omitempty"`
	// ResolvedAt is when the latest answer with members arrived; nil: there was none.
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
	// ExpiresAt is from when on the name is asked for again.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Error is why the latest question had no members in its answer; empty: it had some.
	Error string `json:"error,omitempty"`
}

// dnsPaths names the name in problems of a URL that was made of it.
func dnsPaths(err error) error {
	problems, _ := err.(input.Problems) //nolint:errorlint // CheckEndpoint returns Problems
	for i := range problems {
		problems[i].Path = "/name"
	}
	return err
}
