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

// DNSMembers are the endpoints that a name of DNS stands for. Nodes query it again whenever the answer expires.
type DNSMembers struct {
	// Hostname is the queried name: absolute, in lower case and without a dot at the end.
	Hostname string `json:"hostname" schema:"required,max=253"`
	// Type is the type of the records; empty means A. Each address is an endpoint; each service of SRV is one, too.
	Type DNSType `json:"type,omitempty"`
	// Port is the port of each address, 1 to 65535; services have their own.
	Port int `json:"port,omitempty" schema:"max=65535,min=1"`
	// Scheme is http or https; empty means http.
	Scheme string `json:"scheme,omitempty" schema:"enum=http|https"`
	// Weight and Backup apply to each address, as in StaticEndpoint; services have their own. 0 means 1.
	Weight int `json:"weight,omitempty" schema:"max=100,min=1"`
	// As for a declared endpoint, for each address. For records of type SRV, services without the best priority are
	// backups.
	Backup bool `json:"backup,omitempty"`
	// Labels are the labels of each endpoint.
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

// Resolved returns d with defaults for the fields that it leaves out.
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

// dnsNamePattern matches names: labels of letters, digits, - and _; the last one is not a number.
var dnsNamePattern = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (d DNSMembers) check(problems *input.Problems, at string) {
	switch {
	case d.Hostname == "":
		problems.Add(at+"/hostname", input.CodeRequired, "hostname is missing; give one such as workers.internal")
	case len(d.Hostname) > 253 || !dnsNamePattern.MatchString(d.Hostname):
		problems.Add(at+"/hostname", input.CodeURLHost,
			"hostname %s is not a name of DNS in lower case; write it as workers.internal, without a dot at its end", input.Echo(d.Hostname))
	case MetadataName(d.Hostname):
		problems.Add(at+"/hostname", input.CodeEgressDenied, "hostname %s is never called: clouds serve metadata and credentials there",
			input.Echo(d.Hostname))
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

// checkService refuses fields that each service sets itself.
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

// Host returns the name and port of all addresses, for Host and certificates; empty if each service has its own.
func (d DNSMembers) Host() string {
	switch {
	case d.Type == DNSTypeSRV:
		return ""
	case d.Scheme == "https" && d.Port == 443, d.Scheme != "https" && d.Port == 80:
		return d.Hostname
	}
	return net.JoinHostPort(d.Hostname, strconv.Itoa(d.Port))
}

// origin identifies a place where secrets of the group may go.
func (d DNSMembers) origin() string {
	d = d.Resolved()
	if d.Type == DNSTypeSRV {
		return "services of " + d.Scheme + "://" + d.Hostname
	}
	return StaticEndpoint{URL: d.url()}.origin()
}

// url returns the URL of an address, with the name as host.
func (d DNSMembers) url() string {
	return d.Scheme + "://" + net.JoinHostPort(d.Hostname, strconv.Itoa(d.Port))
}

// AddressEndpoint returns the endpoint at an address of the name of d, which is resolved. Its id depends only on
// address and port.
func (d DNSMembers) AddressEndpoint(addr netip.Addr) Endpoint {
	port := strconv.Itoa(d.Port)
	return Endpoint{
		ID: addressID(addr) + "-" + port, Source: EndpointDNS, ServerName: d.Host(),
		StaticEndpoint: StaticEndpoint{
			URL: d.Scheme + "://" + net.JoinHostPort(addr.String(), port), Weight: d.Weight, Backup: d.Backup, Labels: d.Labels,
		},
	}
}

// addressID returns an address as the beginning of a name.
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

// ServiceEndpoint returns the endpoint of a service; ok is false if no request can go there. weight is as in
// StaticEndpoint. The id depends only on target and port.
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

// DNSStatus is the state of a name of a group, as one node sees it.
type DNSStatus struct {
	Hostname string  `json:"hostname"`
	Type     DNSType `json:"type"`
	// Members is how many endpoints the name currently stands for.
	Members int `json:"members"`
	// Refused is how many more endpoints may not be called, and RefusedBecause has the reasons, each once.
	Refused int `json:"refused,omitempty"`
	// The reasons why they may not be called, each once.
	RefusedBecause []string `json:"refused_because,omitempty"`
	// ResolvedAt is when the latest answer with members arrived; nil if none has.
	ResolvedAt *time.Time `json:"resolved_at,omitempty"`
	// ExpiresAt is when the name is queried again.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Error is why the latest query returned no members; empty if it returned some.
	Error string `json:"error,omitempty"`
}

// dnsPaths points problems of a URL at the name that it was made from.
func dnsPaths(err error) error {
	problems, _ := err.(input.Problems) //nolint:errorlint // CheckEndpoint returns Problems
	for i := range problems {
		problems[i].Path = "/hostname"
	}
	return err
}
