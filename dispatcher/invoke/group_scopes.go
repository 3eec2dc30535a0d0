package invoke

import (
	"cmp"
	"net"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupScopes are the scopes of connections to the endpoints of a group. A node makes them once for a version of the group,
// because the hash of a scope takes longer than all else that a group adds to a request.
type groupScopes struct {
	version              *target.GroupVersion
	egress               target.EgressBounds // of the app
	declared, registered scope
	named                map[string]scope // of addresses from DNS that have a name of their own, by Endpoint.ServerName
}

// of returns the scope of connections to an endpoint.
func (s *groupScopes) of(endpoint *target.Endpoint) scope {
	switch {
	case endpoint.Source == target.EndpointRegistered:
		return s.registered
	case endpoint.ServerName != "":
		return s.named[endpoint.ServerName]
	}
	return s.declared
}

// scopesOf returns the scopes of the endpoints of a group, of an app with some bounds.
func (s *groupState) scopesOf(group *target.GroupVersion, egress target.EgressBounds) *groupScopes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.scopes; known == nil || known.version != group || !sameEgress(known.egress, egress) {
		s.scopes = newGroupScopes(group, egress)
	}
	return s.scopes
}

func newGroupScopes(group *target.GroupVersion, egress target.EgressBounds) *groupScopes {
	declared := scopeOf(group.App, egress)
	declared.serverName = withoutPort(group.ServerName)
	registered := declared
	if registered.registered = group.Registration; group.Registration == nil {
		registered.registered = &target.Registration{} // allows nothing
	}
	all := &groupScopes{version: group, egress: egress, named: map[string]scope{}}
	all.declared, all.registered = declared.hashed(group.TLS), registered.hashed(group.TLS)
	for _, members := range group.DNS {
		if host := members.Resolved().Host(); host != "" {
			named := declared
			named.name, named.serverName = withoutPort(host), withoutPort(cmp.Or(group.ServerName, host))
			all.named[host] = named.hashed(group.TLS)
		}
	}
	return all
}

// withoutPort returns the host of a host with a port or without.
func withoutPort(text string) string {
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}

func sameEgress(a, b target.EgressBounds) bool {
	return sameBound(a.Hosts, b.Hosts) && sameBound(a.Ports, b.Ports) && sameBound(a.Networks, b.Networks)
}

// sameBound compares two lists of bounds: a missing one differs from an empty one, which allows nothing.
func sameBound[T comparable](a, b []T) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) }
