package group

import (
	"cmp"
	"net"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// scopes are those of connections to the endpoints of a group. A node makes them once for a version of the group,
// because the hash of a scope takes longer than all else that a group adds to a request.
type scopes struct {
	version              *target.GroupVersion
	egress               target.EgressBounds // of the app
	declared, registered web.Scope
	named                map[string]web.Scope // of addresses from DNS that have a name of their own, by Endpoint.ServerName
}

// of returns the scope of connections to an endpoint.
func (s *scopes) of(endpoint *target.Endpoint) web.Scope {
	switch {
	case endpoint.Source == target.EndpointRegistered:
		return s.registered
	case endpoint.ServerName != "":
		return s.named[endpoint.ServerName]
	}
	return s.declared
}

// scopesOf returns the scopes of the endpoints of a group, of an app with some bounds.
func (s *state) scopesOf(group *target.GroupVersion, egress target.EgressBounds) *scopes {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.scopes; known == nil || known.version != group || !sameEgress(known.egress, egress) {
		s.scopes = newScopes(group, egress)
	}
	return s.scopes
}

func newScopes(group *target.GroupVersion, egress target.EgressBounds) *scopes {
	declared := web.ScopeOf(group.App, egress)
	declared.ServerName = withoutPort(group.ServerName)
	registered := declared
	if registered.Registered = group.Registration; group.Registration == nil {
		registered.Registered = &target.Registration{} // allows nothing
	}
	all := &scopes{version: group, egress: egress, named: map[string]web.Scope{}}
	all.declared, all.registered = declared.Hashed(group.TLS), registered.Hashed(group.TLS)
	for _, members := range group.DNS {
		if host := members.Resolved().Host(); host != "" {
			named := declared
			named.Name, named.ServerName = withoutPort(host), withoutPort(cmp.Or(group.ServerName, host))
			all.named[host] = named.Hashed(group.TLS)
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
