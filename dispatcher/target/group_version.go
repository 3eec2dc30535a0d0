package target

import (
	"cmp"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// GroupVersion is a group as nodes route to it. It never changes: another one follows it.
type GroupVersion struct {
	EndpointGroup
	// Live are the endpoints that the group has, in the order of their ids.
	Live []Endpoint
}

// With returns g with more endpoints. Of two with the same id, that of g counts.
func (g GroupVersion) With(more []Endpoint) GroupVersion {
	all := slices.Concat(g.Live, more)
	slices.SortStableFunc(all, func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	g.Live = slices.CompactFunc(all, func(a, b Endpoint) bool { return a.ID == b.ID })
	return g
}

// A run of a job with the strategy broadcast sends no request of its own. It is the parent of one run for each endpoint that
// takes part, its shards, and ends when all of them have ended. A shard has the key of its parent with another Shard, and
// attempts, retries and a webhook-id of its own.

// BroadcastEndpoints returns the ids of the endpoints that take part in a broadcast that begins now, in order: those that no
// operator drains, without backups unless there are only backups. Whether an endpoint responds does not matter: if it
// does not, another takes its shard.
func (g GroupVersion) BroadcastEndpoints() []string {
	endpoints := make([]routing.Endpoint, len(g.Live))
	for i, e := range g.Live {
		state := routing.Up
		if e.Draining {
			state = routing.Draining
		}
		endpoints[i] = routing.Endpoint{ID: e.ID, Weight: e.Weight, Backup: e.Backup, State: state}
	}
	shards := routing.NewGroup(0).NewMembers(endpoints).Shards()
	ids := make([]string, len(shards))
	for i, shard := range shards {
		ids[i] = shard.Endpoint
	}
	return ids
}

// Strategy returns the strategy of a call to an endpoint group: that of the target or else of the group. It is empty for
// other targets.
func (c *Call) Strategy() Strategy {
	switch {
	case c.Target.Group == nil:
		return ""
	case c.Target.Group.Strategy != "":
		return c.Target.Group.Strategy
	case c.Group != nil && c.Group.Strategy != "":
		return c.Group.Strategy
	}
	return RoundRobin
}
