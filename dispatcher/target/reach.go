package target

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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

func (r Reach) hasVault() bool { return r.VaultAddress != "" }

func (u *Unreachable) secrets(at string, all map[string]Secret) {
	for _, path := range input.SortedKeys(all) {
		path, reference := at+path+"/reference", all[path].Reference
		switch r, _ := splitReference(reference); {
		case !r.Source.Managed():
		case r.Source == SecretVault && !slices.ContainsFunc(u.Nodes, Reach.hasVault):
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
