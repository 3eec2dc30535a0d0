package target

import (
	"cmp"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Resolved returns g with defaults for the fields that it leaves out, as it is stored and shown.
func (g EndpointGroup) Resolved() EndpointGroup {
	g.Kind = cmp.Or(g.Kind, GroupHTTP)
	g.Strategy = cmp.Or(g.Strategy, RoundRobin)
	g.Probe = Probe{
		AlivePath: cmp.Or(g.Probe.AlivePath, DefaultAlivePath), IdlePath: cmp.Or(g.Probe.IdlePath, DefaultIdlePath),
		Timeout: cmp.Or(g.Probe.Timeout, DefaultProbeTimeout),
	}
	if g.Registration != nil {
		r := *g.Registration
		r.Heartbeat, r.ExpireAfter = cmp.Or(r.Heartbeat, DefaultEndpointHeartbeat), cmp.Or(r.ExpireAfter, DefaultEndpointExpireAfter)
		g.Registration = &r
	}
	g.Endpoints = maps.Clone(g.Endpoints)
	for id, e := range g.Endpoints {
		g.Endpoints[id] = e.Resolved()
	}
	if len(g.Endpoints) == 0 {
		g.Endpoints = nil
	}
	g.DNS = maps.Clone(g.DNS)
	for label, d := range g.DNS {
		g.DNS[label] = d.Resolved()
	}
	if len(g.DNS) == 0 {
		g.DNS = nil
	}
	if g.HealthCheck != nil {
		check := g.HealthCheck.Resolved()
		g.HealthCheck = &check
	}
	return g
}

// Resolved returns e with defaults for the fields that it leaves out.
func (e StaticEndpoint) Resolved() StaticEndpoint {
	e.Weight = cmp.Or(e.Weight, 1)
	if len(e.Labels) == 0 {
		e.Labels = nil
	}
	return e
}

// Takes reports whether an endpoint that registered itself may have an address and a port. Loopback addresses count
// as part of a network only if it has no others, so that 0.0.0.0/0 does not lead to the node itself.
func (r *Registration) Takes(addr netip.Addr, port int) bool {
	return r != nil && slices.Contains(r.Ports, port) && r.takesAddress(addr)
}

func (r *Registration) takesAddress(addr netip.Addr) bool {
	addr = Dialled(addr)
	return !NeverCalled(addr) && slices.ContainsFunc(r.prefixes(), func(network netip.Prefix) bool {
		return network.Contains(addr) && (!addr.IsLoopback() || loopbackOnly(network))
	})
}

// loopbackOnly reports whether all addresses of a network are loopback addresses.
func loopbackOnly(network netip.Prefix) bool {
	return network.Addr().IsLoopback() && (network.Addr().Is6() || network.Bits() >= 8)
}

// prefixes returns the networks, without those that are not valid.
func (r *Registration) prefixes() []netip.Prefix {
	all := make([]netip.Prefix, 0, len(r.Networks))
	for _, text := range r.Networks {
		if network, err := netip.ParsePrefix(text); err == nil {
			all = append(all, network)
		}
	}
	return all
}

// CheckEndpoint returns everything wrong with an endpoint that registers itself, as Problems with JSON pointers in
// it, or nil. It does not check the addresses that a name resolves to, which only a request knows.
func (r *Registration) CheckEndpoint(e StaticEndpoint) error {
	if err := e.Validate(); err != nil {
		return err
	}
	var problems input.Problems
	u, err := url.Parse(e.URL)
	if err != nil {
		return err // Validate has parsed it
	}
	if port := portOf(u); !slices.Contains(r.Ports, port) {
		problems.Add("/url", input.CodeEgressDenied, "port %d is not one from which the group takes registrations (registration.ports)", port)
	}
	host := hostName(u)
	addr, err := netip.ParseAddr(host)
	// Names of the node itself stand for its loopback addresses; the addresses of other names are checked whenever
	// they are dialled.
	mayBeSelf := func() bool { return slices.ContainsFunc(r.prefixes(), loopbackOnly) }
	if err == nil && !r.takesAddress(addr) || err != nil && loopbackName(host) && !mayBeSelf() {
		problems.Add("/url", input.CodeEgressDenied, "host %s is not in a network from which the group takes registrations "+
			"(registration.networks)", input.Echo(host))
	}
	return problems.Err()
}

func (r *Registration) check(problems *input.Problems, at string) {
	if r == nil {
		return
	}
	r.checkNetworks(problems, at+"/networks")
	r.checkPorts(problems, at+"/ports")
	if r.Heartbeat != 0 {
		r.Heartbeat.CheckRange(problems, at+"/heartbeat", time.Second, time.Hour)
	}
	if r.ExpireAfter != 0 {
		r.ExpireAfter.CheckRange(problems, at+"/expire_after", 2*time.Second, input.MaxDuration)
	}
	heartbeat, expireAfter := cmp.Or(r.Heartbeat, DefaultEndpointHeartbeat), cmp.Or(r.ExpireAfter, DefaultEndpointExpireAfter)
	if expireAfter < 2*heartbeat {
		problems.Add(at+"/expire_after", input.CodeDurationMin,
			"expire_after %s is less than twice the heartbeat of %s, so that one lost heartbeat "+
				"would remove an endpoint; lengthen it, or shorten the heartbeat", expireAfter, heartbeat)
	}
}

func (r *Registration) checkNetworks(problems *input.Problems, at string) {
	switch n := len(r.Networks); {
	case n == 0:
		problems.Add(at, input.CodeRequired, "networks are missing; list those that endpoints may register from, such as 10.0.0.0/16")
	case n > maxBoundPatterns:
		problems.Add(at, input.CodeTooMany, "%d networks are given; the maximum is %d", n, maxBoundPatterns)
		return
	}
	for i, text := range r.Networks {
		network, err := netip.ParsePrefix(text)
		one := at + "/" + strconv.Itoa(i)
		switch {
		case err != nil:
			problems.Add(one, input.CodeNetwork, "network %s is not in CIDR notation; write it as 10.0.0.0/16", input.Echo(text))
		case network.Addr().Is4In6():
			problems.Add(one, input.CodeNetwork, "network %s is one of IPv4 addresses in IPv6 notation; write it as 10.0.0.0/16", input.Echo(text))
		case network != network.Masked():
			problems.Add(one, input.CodeNetwork, "network %s names an address in it; write the network as %s", input.Echo(text), network.Masked())
		case NeverCalled(network.Addr()) && network.Bits() > 0:
			problems.Add(one, input.CodeEgressDenied, "network %s is never called: it is reserved, or clouds serve metadata and credentials there",
				input.Echo(text))
		}
	}
}

func (r *Registration) checkPorts(problems *input.Problems, at string) {
	switch n := len(r.Ports); {
	case n == 0:
		problems.Add(at, input.CodeRequired, "ports are missing; list those that endpoints may listen on, such as 8080")
	case n > maxBoundPatterns:
		problems.Add(at, input.CodeTooMany, "%d ports are given; the maximum is %d", n, maxBoundPatterns)
		return
	}
	for i, port := range r.Ports {
		if port < 1 || port > 65535 {
			problems.Add(at+"/"+strconv.Itoa(i), input.CodeCountRange, "port %d is not in 1 to 65535", port)
		}
	}
}
