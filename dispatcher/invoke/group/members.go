package group

import (
	"cmp"
	"context"
	"maps"
	"math"
	"net/netip"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

func byID(a, b target.Endpoint) int { return cmp.Compare(a.ID, b.ID) }

// namedEndpoint is an endpoint that a name stands for. because is Refused in words that name neither an address nor a target.
type namedEndpoint struct {
	target.Endpoint
	because string
}

// endpoints returns the endpoints that a name stands for, also those that a judge refuses.
func (k knownName) endpoints(d target.DNSMembers, j judge) []namedEndpoint {
	if d.Type == target.DNSTypeSRV {
		return k.services(d, j)
	}
	all := make([]namedEndpoint, 0, len(k.records))
	for _, record := range k.records {
		addr, err := netip.ParseAddr(record.Host)
		if err != nil {
			continue // never: it was made of an address
		}
		e := d.AddressEndpoint(addr)
		e.RegisteredAt = k.since[record]
		all = append(all, j.address(e, addr, uint16(d.Port))) //nolint:gosec // a port was checked
	}
	return all
}

// services returns the endpoints of records of type SRV. Those that have not the best priority are backups. Weights are
// scaled down to those of endpoints if one is larger.
func (k knownName) services(d target.DNSMembers, j judge) []namedEndpoint {
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
		e.RegisteredAt = k.since[record]
		all = append(all, j.service(e, record, k.targets[record.Host]))
	}
	return all
}

// merged is a group with the endpoints that its names stand for.
type merged struct {
	of       *target.GroupVersion
	versions map[string]uint64 // of the lists of names
	egress   target.EgressBounds
	peers    *[]netip.AddrPort // see webhooks.Peers
	version  *target.GroupVersion
}

// withNames returns the group of a call with the endpoints that its names stand for and that may be called. It returns the same
// group as long as that has the same endpoints. Of two with the same id, one that is declared or registered counts.
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

// is tells whether m was made of a group and lists.
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

// Members returns the endpoints that the names of a group stand for, by their ids: those that an app with some bounds may call
// from this node, and those that are refused. It may wait for name servers.
func (g *Groups) Members(
	ctx context.Context, group target.EndpointGroup, egress target.EgressBounds,
) (members, refused []target.Endpoint) {
	return namedEndpoints(&group, g.names.of(ctx, &group, time.Now(), true), g.judge(&group, egress))
}

// GroupStatus returns what this node knows of a group of an app with some bounds and the endpoints that it has, but for the id
// of the node. It may wait for name servers.
func (g *Groups) GroupStatus(
	ctx context.Context, group target.GroupVersion, egress target.EgressBounds,
) target.GroupStatus {
	now := time.Now()
	state := g.known.state(groupKey{group.App, group.Name})
	if state == nil {
		state = newState() // it made no requests
	}
	status := target.GroupStatus{DNS: map[string]target.DNSStatus{}, Endpoints: []target.EndpointStatus{}}
	all, j := g.names.of(ctx, &group.EndpointGroup, now, true), g.judge(&group.EndpointGroup, egress)
	for label, known := range all {
		d := group.DNS[label].Resolved()
		one := target.DNSStatus{Name: d.Name, Type: d.Type, Error: known.err}
		one.Members, one.Refused, one.RefusedBecause = counted(known.endpoints(d, j))
		if !known.resolvedAt.IsZero() {
			one.ResolvedAt = new(known.resolvedAt.UTC())
		}
		if !known.askAt.IsZero() {
			one.ExpiresAt = new(known.askAt.UTC())
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

// CountEndpoints counts the endpoints of the groups that this node has sent requests to since a time, by their states.
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
