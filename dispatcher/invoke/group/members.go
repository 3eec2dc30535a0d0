package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// namedEndpoint is an endpoint of a DNS name. because is Refused in words that name neither an address nor a target.
type namedEndpoint struct {
	target.Endpoint
	because string
}

// endpoints returns the endpoints of a name, including those that a judge refuses.
func (k knownName) endpoints(d target.DNSMembers, j judge) []namedEndpoint {
	if d.Type == target.DNSTypeSRV {
		// Those without the best priority are backups. Weights are scaled down to those of endpoints if one is larger.
		best, heaviest := uint16(math.MaxUint16), target.MaxEndpointWeight
		for _, record := range k.records {
			best, heaviest = min(best, record.Priority), max(heaviest, int(record.Weight))
		}
		all := make([]namedEndpoint, 0, len(k.records))
		for _, record := range k.records {
			weight := max(1, int(record.Weight)*target.MaxEndpointWeight/heaviest)
			e, ok := d.ServiceEndpoint(record.Host, int(record.Port), weight, record.Priority > best)
			if !ok {
				continue
			}
			e.RegisteredAt = k.since[record].Truncate(time.Millisecond)
			all = append(all, j.service(e, record, k.targets[record.Host]))
		}
		return all
	}
	all := make([]namedEndpoint, 0, len(k.records))
	for _, record := range k.records {
		addr, err := netip.ParseAddr(record.Host)
		if err != nil {
			continue // impossible: it was made of an address
		}
		e := d.AddressEndpoint(addr)
		e.RegisteredAt = k.since[record].Truncate(time.Millisecond)
		all = append(all, j.address(e, addr, uint16(d.Port))) //nolint:gosec // a port was checked
	}
	return all
}

// merged is a group with the endpoints of its DNS names.
type merged struct {
	of       *target.GroupVersion
	versions map[string]uint64 // of the lists of names
	egress   target.EgressBounds
	peers    *[]netip.AddrPort // see web.Webhooks.Peers
	version  *target.GroupVersion
}

// withNames returns the group of a call with the endpoints of its DNS names that may be called. It returns the same
// group as long as its endpoints do not change. If two have the same id, the declared or registered one counts.
func (g *Groups) withNames(
	ctx context.Context, state *state, call target.Call, now time.Time, wait bool,
) *target.GroupVersion {
	group, egress, peers := call.Group, call.Bounds.Egress, g.hooks.Peers()
	if len(group.DNS) == 0 {
		return group
	}
	all := g.names.of(ctx, &group.EndpointGroup, now, wait)
	state.mu.Lock()
	defer state.mu.Unlock()
	if m := &state.merged; m.is(group, all) && sameEgress(m.egress, egress) && m.peers == peers {
		return m.version
	}
	versions := make(map[string]uint64, len(all))
	for label, known := range all {
		versions[label] = known.version
	}
	members, _ := namedEndpoints(&group.EndpointGroup, all, g.judge(&group.EndpointGroup, egress))
	version := new(group.With(members))
	state.merged = merged{group, versions, egress, peers, version}
	return version
}

// is reports whether m was made of a group and lists.
func (m *merged) is(group *target.GroupVersion, all map[string]knownName) bool {
	if m.of != group {
		return false
	}
	for label, known := range all {
		if m.versions[label] != known.version {
			return false
		}
	}
	return true
}

// Members returns the endpoints of a group's DNS names, by their ids: those that an app with some bounds may call from
// this node, and those that are refused. It may wait for name servers.
func (g *Groups) Members(
	ctx context.Context, group target.EndpointGroup, egress target.EgressBounds,
) (members, refused []target.Endpoint) {
	return namedEndpoints(&group, g.names.of(ctx, &group, time.Now(), true), g.judge(&group, egress))
}

// GroupStatus returns this node's view of a group of an app with some bounds, and of its endpoints, without the id of
// the node. It may wait for name servers.
func (g *Groups) GroupStatus(
	ctx context.Context, group target.GroupVersion, egress target.EgressBounds,
) target.GroupStatus {
	now := time.Now()
	state := g.known.state(groupKey{group.App, group.Name})
	if state == nil {
		state = newState() // it has sent no requests
	}
	status := target.GroupStatus{DNS: map[string]target.DNSStatus{}, Endpoints: []target.EndpointStatus{}}
	all, j := g.names.of(ctx, &group.EndpointGroup, now, true), g.judge(&group.EndpointGroup, egress)
	for label, known := range all {
		d := group.DNS[label].Resolved()
		one := target.DNSStatus{Hostname: d.Hostname, Type: d.Type, Error: known.err}
		one.Members, one.Refused, one.RefusedBecause = counted(known.endpoints(d, j))
		if !known.resolvedAt.IsZero() {
			one.ResolvedAt = new(known.resolvedAt.UTC().Truncate(time.Millisecond))
		}
		if !known.askAt.IsZero() {
			one.ExpiresAt = new(known.askAt.UTC().Truncate(time.Millisecond))
		}
		status.DNS[label] = one
	}
	members, _ := namedEndpoints(&group.EndpointGroup, all, j)
	live := group.With(members).Live
	state.mu.Lock()
	defer state.mu.Unlock()
	for n := range live {
		status.Endpoints = append(status.Endpoints, state.status(&group.EndpointGroup, &live[n], now))
	}
	return status
}

// CountEndpoints counts the endpoints of the groups that this node has used since a time, by their states.
func (g *Groups) CountEndpoints(since, now time.Time) []target.GroupCount {
	known := g.known
	known.mu.Lock()
	states := maps.Clone(known.groups)
	known.mu.Unlock()
	var all []target.GroupCount
	for key, state := range states {
		if counts := state.count(since, now); counts != nil {
			all = append(all, target.GroupCount{App: key.app, Group: key.group, States: counts})
		}
	}
	return all
}

// count counts the endpoints of a group by their states; nil: it was not used since a time.
func (s *state) count(since, now time.Time) map[target.EndpointState]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil || s.used.Before(since) {
		return nil
	}
	counts := map[target.EndpointState]int{}
	for n := range s.latest.Live {
		counts[target.EndpointState(s.stateOf(&s.latest.EndpointGroup, &s.latest.Live[n], now))]++
	}
	return counts
}

// judge decides which endpoints of a group's DNS names an app may call from this node. The others are no members of the
// group: nothing is sent to them, and only operators see them. Otherwise an app could explore the network of the node
// by names of its choice. An allowed address is checked again at each dial.
type judge struct {
	hooks  *web.Webhooks
	scopes *scopes
}

func (g *Groups) judge(group *target.EndpointGroup, egress target.EgressBounds) judge {
	return judge{g.hooks, newScopes(&target.GroupVersion{EndpointGroup: *group}, egress)}
}

func (j judge) address(e target.Endpoint, addr netip.Addr, port uint16) namedEndpoint {
	err := j.hooks.CheckKnown(j.scopes.of(&e), addr.String(), port, []netip.Addr{addr})
	return refusedFor(e, err, "")
}

// service judges the endpoint of a service. One without an address is refused, so that its name does not show.
func (j judge) service(e target.Endpoint, service dns.Record, addresses []netip.Addr) namedEndpoint {
	err := j.hooks.CheckKnown(j.scopes.of(&e), service.Host, service.Port, addresses)
	if err == nil && len(addresses) == 0 {
		err = attempt.Denied(service.Host, "its name has no address")
	}
	return refusedFor(e, err, "its host or port is none that the bounds of the app allow (egress.hosts, egress.ports)")
}

// refusedFor returns an endpoint that is refused because of err, unless that is nil. An error of the bounds names the
// host: hidden replaces its text, unless it is empty.
func refusedFor(e target.Endpoint, err error, hidden string) namedEndpoint {
	if err == nil {
		return namedEndpoint{Endpoint: e}
	}
	e.Refused = err.Error()
	if refused, is := errors.AsType[*attempt.DeniedError](err); is {
		return namedEndpoint{e, refused.Why}
	}
	return namedEndpoint{e, cmp.Or(hidden, err.Error())}
}

// namedEndpoints returns the endpoints of a group's DNS names, by their ids: as many members as a group may have, and
// those that are refused.
func namedEndpoints(group *target.EndpointGroup, all map[string]knownName, j judge) (members, refused []target.Endpoint) {
	var found []target.Endpoint
	for _, label := range slices.Sorted(maps.Keys(group.DNS)) {
		for _, one := range all[label].endpoints(group.DNS[label].Resolved(), j) {
			found = append(found, one.Endpoint)
		}
	}
	slices.SortStableFunc(found, func(a, b target.Endpoint) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Refused, b.Refused)) // one that may be called comes first
	})
	for _, e := range slices.CompactFunc(found, func(a, b target.Endpoint) bool { return a.ID == b.ID }) {
		if e.Refused == "" {
			members = append(members, e)
		} else {
			refused = append(refused, e)
		}
	}
	return members[:min(len(members), target.MaxEndpoints)], refused[:min(len(refused), target.MaxEndpoints)]
}

// counted counts the endpoints of a name, and returns why some are refused, each reason once.
func counted(all []namedEndpoint) (members, refused int, because []string) {
	for _, one := range all {
		if one.Refused == "" {
			members++
			continue
		}
		refused++
		because = append(because, one.because)
	}
	slices.Sort(because)
	return members, refused, slices.Compact(because)
}

// unresolved explains why the DNS names of a call's group have no endpoint that may be called, and returns the
// addresses of name servers that it leaves out.
func (g *Groups) unresolved(ctx context.Context, call target.Call, now time.Time) (text string, servers []string) {
	group := &call.Group.EndpointGroup
	all, j := g.names.of(ctx, group, now, false), g.judge(group, call.Bounds.Egress)
	for _, label := range slices.Sorted(maps.Keys(all)) {
		known := all[label]
		if known.err != "" {
			text += fmt.Sprintf("; dns %s: %s", label, known.err)
		}
		if _, refused, because := counted(known.endpoints(group.DNS[label].Resolved(), j)); refused > 0 {
			text += fmt.Sprintf("; dns %s: egress to %d of its endpoints is denied: %s", label, refused, because[0])
		}
	}
	return target.HideAddresses(text, netip.Addr{})
}

// scopes are those of connections to the endpoints of a group. A node makes them once for a version of the group,
// because the hash of a scope takes longer than all other work that a group adds to a request.
type scopes struct {
	version              *target.GroupVersion
	egress               target.EgressBounds // of the app
	declared, registered web.Scope
	named                map[string]web.Scope // of addresses from DNS with a name of their own, by Endpoint.ServerName
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
		registered.Registered = &target.Registration{} // it allows nothing
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
