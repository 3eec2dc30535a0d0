package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// judge tells which of the endpoints that the names of a group stand for an app may call from this node. The others are no
// members of the group: nothing is sent to them, and only operators see them. Otherwise an app would learn the network of the
// node by names of its choice. What it allows is checked again whenever it is dialled.
type judge struct {
	hooks  *web.Webhooks
	scopes *scopes
}

func (g *Groups) judge(group *target.EndpointGroup, egress target.EgressBounds) judge {
	return judge{g.hooks, newScopes(&target.GroupVersion{EndpointGroup: *group}, egress)}
}

// address judges an endpoint at an address.
func (j judge) address(e target.Endpoint, addr netip.Addr, port uint16) namedEndpoint {
	err := j.hooks.CheckKnown(j.scopes.of(&e), addr.String(), port, []netip.Addr{addr})
	return refusedFor(e, err, "")
}

// service judges an endpoint that a service stands for. One without an address is refused, so that nothing tells its name.
func (j judge) service(e target.Endpoint, service dns.Record, addresses []netip.Addr) namedEndpoint {
	err := j.hooks.CheckKnown(j.scopes.of(&e), service.Host, service.Port, addresses)
	if err == nil && len(addresses) == 0 {
		err = attempt.Denied(service.Host, "its name has no address")
	}
	return refusedFor(e, err, "its host or port is none that the bounds of the app allow (egress.hosts, egress.ports)")
}

// refusedFor returns an endpoint that is refused because of err, unless that is nil. Bounds that refuse name the host: hidden
// stands for what they say, unless it is empty.
func refusedFor(e target.Endpoint, err error, hidden string) namedEndpoint {
	if err == nil {
		return namedEndpoint{Endpoint: e}
	}
	e.Refused = err.Error()
	var refused *attempt.DeniedError
	if errors.As(err, &refused) {
		return namedEndpoint{e, refused.Why}
	}
	return namedEndpoint{e, cmp.Or(hidden, err.Error())}
}

// namedEndpoints returns the endpoints that the names of a group stand for, by their ids: as many members as a group may have,
// and those that are refused.
func namedEndpoints(group *target.EndpointGroup, all map[string]knownName, j judge) (members, refused []target.Endpoint) {
	var found []target.Endpoint
	for _, label := range slices.Sorted(maps.Keys(group.DNS)) {
		for _, one := range all[label].endpoints(group.DNS[label].Resolved(), j) {
			found = append(found, one.Endpoint)
		}
	}
	slices.SortStableFunc(found, func(a, b target.Endpoint) int {
		return cmp.Or(byID(a, b), cmp.Compare(a.Refused, b.Refused)) // one that may be called comes first
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

// unresolved says why the names of the group of a call stand for nothing that may be called, and which addresses of name
// servers it leaves out.
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
