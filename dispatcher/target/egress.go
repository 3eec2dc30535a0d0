package target

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// neverCalled are networks that targets must not be in: link-local ones, where clouds serve metadata and credentials,
// multicast, and ranges reserved for documentation, benchmarks or protocols. They include deprecated forms of IPv6
// that embed an IPv4 address. For NAT64 the embedded address is checked.
var neverCalled = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("192.0.0.0/24"), // also Oracle Cloud's metadata
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud's metadata
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure's
	netip.MustParsePrefix("::/128"),
	netip.MustParsePrefix("::/96"), // but for ::1, which is loopback
	netip.MustParsePrefix("::ffff:0:0:0/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"),
	netip.MustParsePrefix("2001::/23"), // Teredo and other protocols
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
	netip.MustParsePrefix("5f00::/16"),
	netip.MustParsePrefix("fd00:ec2::/32"),    // EC2's metadata
	netip.MustParsePrefix("fd20:ce::254/128"), // Google Cloud's
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// nat64 embeds IPv4 addresses for networks that have only IPv6 (RFC 6052).
const nat64 = "64:ff9b::/96"

// Dialled returns the address that a packet to addr goes to: without a zone, and as IPv4 if addr
// embeds an IPv4 address.
func Dialled(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if addr.Is6() && netip.MustParsePrefix(nat64).Contains(addr) {
		wrapped := addr.As16()
		return netip.AddrFrom4([4]byte(wrapped[12:]))
	}
	return addr
}

// NeverCalled reports whether targets must not have the address under any configuration of a node. It allows
// loopback.
func NeverCalled(addr netip.Addr) bool {
	addr = Dialled(addr)
	inside := func(network netip.Prefix) bool { return network.Contains(addr) }
	return !addr.IsLoopback() && slices.ContainsFunc(neverCalled, inside)
}

var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"),
}

// Private reports whether a node refuses an address unless its operators or the bounds of the app open its network:
// 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10 and fc00::/7.
func Private(addr netip.Addr) bool {
	return slices.ContainsFunc(privateNetworks, func(network netip.Prefix) bool { return network.Contains(addr) })
}

// OddAddress reports whether a host is neither a name nor a usual address but some resolvers read it
// as an address: 127.1, 2130706433, 0177.0.0.1, 0x7f.1.
func OddAddress(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(strings.ToLower(last), "0x"); ok {
		_, err := strconv.ParseUint(hex, 16, 64)
		return hex == "" || err == nil
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// MetadataName reports whether a cloud serves its metadata under the name.
func MetadataName(host string) bool {
	switch strings.ToLower(strings.TrimSuffix(host, ".")) {
	case "metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal":
		return true
	}
	return false
}

// TLS tunes the connections to an https target.
type TLS struct {
	// CACertificates are PEM certificates of the authorities to trust for the target, instead of those of the node's
	// system.
	CACertificates string `json:"ca_certificates,omitempty" schema:"max=65536"`
	// ClientCertificate is the PEM chain that the node presents, and ClientKey its PEM private key.
	ClientCertificate string `json:"client_certificate,omitempty" schema:"max=65536"`
	// PEM private key of the client certificate.
	ClientKey *Secret `json:"client_key,omitempty"`
	// MinVersion is "1.2" or "1.3"; empty means 1.2.
	MinVersion string `json:"min_version,omitempty" schema:"enum=1.2|1.3"`
}

// TLSVersions are the values of MinVersion.
var TLSVersions = []string{"1.2", "1.3"}

func (t *TLS) check(problems *input.Problems, path string) {
	if t == nil {
		return
	}
	for _, one := range []struct{ name, text string }{{"ca_certificates", t.CACertificates}, {"client_certificate", t.ClientCertificate}} {
		switch at := path + "/" + one.name; {
		case one.text == "":
		case len(one.text) > MaxSecret:
			problems.Add(at, input.CodeTextTooLong, "certificates have %d bytes; the maximum is 64 KiB", len(one.text))
		case !certificates(one.text):
			problems.Add(at, input.CodeTLSCertificate, "text is not only PEM certificates (BEGIN CERTIFICATE)")
		}
	}
	if (t.ClientCertificate == "") != (t.ClientKey == nil) {
		problems.Add(path, input.CodeTLSCertificate, "client_certificate and client_key go together; one of them is missing")
	}
	if t.ClientKey != nil {
		t.ClientKey.check(problems, path+"/client_key", func(value string) error {
			if _, err := tls.X509KeyPair([]byte(t.ClientCertificate), []byte(value)); err != nil {
				return &input.Problem{Code: input.CodeTLSCertificate, Message: "client key is not the PEM private key of the client certificate"}
			}
			return nil
		})
	}
	if t.MinVersion != "" {
		input.CheckEnum(problems, path+"/min_version", "version", t.MinVersion, TLSVersions)
	}
}

// certificates reports whether a text consists of PEM certificates only.
func certificates(text string) bool {
	all, err := parseCertificates(text)
	return err == nil && len(all) > 0
}

// parseCertificates reads PEM certificates.
func parseCertificates(text string) (all []*x509.Certificate, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all, nil
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err == nil && block.Type != "CERTIFICATE" {
			err = fmt.Errorf("%s is no certificate", block.Type)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// CertificateEnd returns when the first certificate of the chain that t presents expires; nil if it presents none.
func (t *TLS) CertificateEnd() *time.Time {
	if t == nil {
		return nil
	}
	chain, err := parseCertificates(t.ClientCertificate)
	if err != nil || len(chain) == 0 {
		return nil
	}
	first := chain[0].NotAfter.UTC()
	for _, one := range chain[1:] {
		if one.NotAfter.Before(first) {
			first = one.NotAfter.UTC()
		}
	}
	return &first
}

// CertificateEnd returns when the client certificate of t expires; nil if it has none.
func (t Target) CertificateEnd() *time.Time {
	if t.Webhook == nil {
		return nil
	}
	return t.Webhook.TLS.CertificateEnd()
}

// Reach is what a node can call and read besides public addresses, as far as it knows that without a request.
type Reach struct {
	// EgressPrivate are the private networks that apps may call, and EgressLoopback is whether they may call the node.
	EgressPrivate []string `json:"egress_private,omitempty"`
	// Whether apps may call the node itself.
	EgressLoopback bool `json:"egress_loopback,omitempty"`
	// AWSRegion is the region in the node's environment or files, which names without a region are in.
	AWSRegion string `json:"aws_region,omitempty"`
	// VaultAddress is where the node reads secrets of Vault.
	VaultAddress string `json:"vault_address,omitempty"`
}

// Unreachable collects warnings of what no node of an app can call or read. Only an attempt knows the addresses of names
// and what an identity may do.
type Unreachable struct {
	Nodes    []Reach
	Bounds   EgressBounds // of the app
	Problems input.Problems
}

// Target checks a target at a JSON pointer.
func (u *Unreachable) Target(at string, t Target) {
	if t.Alert != nil {
		u.Destination(at+"/alert", *t.Alert)
		return
	}
	u.secrets(at, Secrets(t))
	if t.Webhook != nil {
		u.webhook(at+"/webhook", *t.Webhook)
	}
	if t.Lambda != nil && t.AWSRegion() == "" && !slices.ContainsFunc(u.Nodes, Reach.hasRegion) {
		u.Problems.Add(at+"/lambda/function", input.CodeNodeIdentity, "no live node has an AWS region, so no node finds function %s; set "+
			"AWS_REGION on the nodes, or give region or an ARN", input.Echo(t.Lambda.Function))
	}
}

// Destination checks the destination of an alert at a JSON pointer.
func (u *Unreachable) Destination(at string, d AlertDestination) {
	u.secrets(at, Secrets(d))
	if d.Webhook != nil {
		u.webhook(at+"/webhook", d.Webhook.Webhook)
	}
}

// Group checks an endpoint group.
func (u *Unreachable) Group(g EndpointGroup) {
	u.secrets("", Secrets(g))
	u.tokenURL("/auth", g.Auth)
	for _, id := range input.SortedKeys(g.Endpoints) {
		u.url(input.Pointer("endpoints", id, "url"), g.Endpoints[id].URL)
	}
}

func (r Reach) hasRegion() bool { return r.AWSRegion != "" }

func (u *Unreachable) secrets(at string, all map[string]Secret) {
	for _, path := range input.SortedKeys(all) {
		path, reference := at+path+"/reference", all[path].Reference
		switch r, _ := splitReference(reference); {
		case !r.Source.Managed():
		case r.Source == SecretVault && !slices.ContainsFunc(u.Nodes, func(n Reach) bool { return n.VaultAddress != "" }):
			u.Problems.Add(path, input.CodeNodeIdentity, "no live node has the address of Vault, so no node can read %s; start nodes with "+
				"--vault-address", input.Echo(reference))
		case r.Source != SecretVault && r.Region() == "" && !slices.ContainsFunc(u.Nodes, Reach.hasRegion):
			u.Problems.Add(path, input.CodeNodeIdentity, "no live node has an AWS region, so no node can read %s; set AWS_REGION on the "+
				"nodes, or use an ARN", input.Echo(reference))
		}
	}
}

func (u *Unreachable) webhook(at string, w Webhook) {
	u.url(at+"/url", w.URL)
	u.tokenURL(at+"/auth", w.Auth)
}

func (u *Unreachable) tokenURL(at string, a *Auth) {
	if o := a.oauth2(); o != nil {
		u.url(at+"/oauth2/token_url", o.TokenURL)
	}
}

// url checks the host of a URL, if it is an address, as a node does before it connects.
func (u *Unreachable) url(at, text string) {
	parsed, err := url.Parse(text)
	if err != nil {
		return // Validate reports it
	}
	host := hostName(parsed)
	addr, _ := netip.ParseAddr(host) // of a name, it is in no network
	addr = Dialled(addr)
	contains := func(network string) bool {
		prefix, err := netip.ParsePrefix(network)
		return err == nil && prefix.Contains(addr)
	}
	switch networks := u.Bounds.Networks; {
	case addr.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost"):
		if !slices.ContainsFunc(u.Nodes, func(r Reach) bool { return r.EgressLoopback }) {
			u.Problems.Add(at, input.CodeNodeEgress, "%s is the node itself, and no live node opens that; give an address of another machine, "+
				"or start nodes with --egress-loopback", host)
		}
	case !Private(addr) || slices.ContainsFunc(networks, contains):
	case networks != nil:
		u.Problems.Add(at, input.CodeNodeEgress, "%s is in a private network, and the bounds of the app allow %s (egress.networks); ask an "+
			"operator to list its network there", host, cmp.Or(strings.Join(networks, ", "), "none"))
	case !slices.ContainsFunc(u.Nodes, func(r Reach) bool { return slices.ContainsFunc(r.EgressPrivate, contains) }):
		// Which networks the nodes do open is for operators.
		u.Problems.Add(at, input.CodeNodeEgress, "no live node opens the private network of %s; start nodes with --egress-private %s, or "+
			"ask an operator to list its network in the bounds of the app (egress.networks)", host, netip.PrefixFrom(addr, addr.BitLen()))
	}
}
