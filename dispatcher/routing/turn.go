package routing

import (
	"cmp"
	"slices"
)

// standing is a router's record of an endpoint.
type standing struct {
	uses uint64 // LeastFrequentlyUsed: its turns, to compare with others of its class
	last uint64 // Router.turns at its latest turn; 0 if it is new
	// Weighted: how many turns it is behind its share; negative if it is ahead. A turn leaves the sum as it is.
	credit float64
}

// turn chooses one of the candidates, which are places in one tier in ascending order, and takes its
// turn.
func (r *Router) turn(m *Members, candidates []int, key uint64) int {
	switch r.strategy {
	case Weighted, LeastFrequentlyUsed, LeastRecentlyUsed:
		if r.members != m {
			r.align(m)
		}
	}
	place := r.pick(m, candidates, key)
	r.turns++
	r.cursor = m.entries[place].id
	if r.standings != nil {
		r.standings[place].uses++
		r.standings[place].last = r.turns
	}
	return place
}

func (r *Router) pick(m *Members, candidates []int, key uint64) int {
	switch r.strategy {
	case Last:
		return candidates[len(candidates)-1]
	case Random:
		return r.draw(m, candidates)
	case RoundRobin:
		return r.following(m, candidates)
	case Weighted:
		return r.mostBehind(m, candidates)
	case ConsistentHash, Broadcast:
		return m.highestScore(candidates, key)
	case LeastFrequentlyUsed:
		return r.least(candidates, func(a, b int) int {
			x, y := &r.standings[a], &r.standings[b]
			if x.uses != y.uses {
				return cmp.Compare(x.uses, y.uses)
			}
			return cmp.Compare(x.last, y.last)
		})
	case LeastRecentlyUsed:
		return r.least(candidates, func(a, b int) int { return cmp.Compare(r.standings[a].last, r.standings[b].last) })
	case LeastConnections:
		return r.least(candidates, func(a, b int) int {
			x, y := &m.entries[a], &m.entries[b]
			if busier := cmp.Compare(x.load.inFlight*y.weight, y.load.inFlight*x.weight); busier != 0 {
				return busier
			}
			return cmp.Compare(x.load.last, y.load.last)
		})
	default: // First, and strategies that ask endpoints in the order of their IDs
		return candidates[0]
	}
}

// draw returns a random candidate, in proportion to the weights.
func (r *Router) draw(m *Members, candidates []int) int {
	point := r.group.random.IntN(m.totalWeight(candidates))
	for _, place := range candidates {
		if point -= m.entries[place].weight; point < 0 {
			return place
		}
	}
	return candidates[len(candidates)-1]
}

func (m *Members) totalWeight(places []int) int {
	total := 0
	for _, place := range places {
		total += m.entries[place].weight
	}
	return total
}

// following returns the candidate after the one that had the latest turn. It searches by ID and not by place: so two
// endpoints that stay take turns, even if others are added and removed between them.
func (r *Router) following(m *Members, candidates []int) int {
	if r.turns == 0 {
		return candidates[r.start%len(candidates)]
	}
	next, _ := slices.BinarySearchFunc(candidates, r.cursor, func(place int, id string) int {
		if m.entries[place].id <= id {
			return -1
		}
		return 1
	})
	return candidates[next%len(candidates)]
}

// mostBehind gives each candidate its share of this turn, and the turn to the one that is most behind. The first turn
// is random, because otherwise every node would begin with the heaviest endpoint.
//
// With n endpoints that stay, none is ever behind by more than 1 + 1/2 + ... + 1/n turns. Credits sum to 0, and the k
// endpoints most behind can gain on average only if one that is even more behind has the turn, so the average of the
// first k exceeds that of the first k+1 by 1/(k+1) at most.
func (r *Router) mostBehind(m *Members, candidates []int) int {
	unit := 1 / float64(m.totalWeight(candidates))
	for _, place := range candidates {
		r.standings[place].credit += float64(m.entries[place].weight) * unit
	}
	var chosen int
	if r.turns == 0 {
		chosen = r.draw(m, candidates)
	} else {
		chosen = r.least(candidates, func(a, b int) int { return cmp.Compare(r.standings[b].credit, r.standings[a].credit) })
	}
	r.standings[chosen].credit--
	return chosen
}

// least returns the least candidate; among equals, the first one counted from the router's start.
func (r *Router) least(candidates []int, compare func(a, b int) int) int {
	start := r.start % len(candidates)
	least := candidates[start]
	for _, part := range [2][]int{candidates[start+1:], candidates[:start]} {
		for _, place := range part {
			if compare(place, least) < 0 {
				least = place
			}
		}
	}
	return least
}

// align adapts the standings to other members. Endpoints that stay keep theirs, removed ones are dropped, and new
// ones begin with zero: under Weighted that is the average, and under LeastRecentlyUsed it gives them the next turn.
func (r *Router) align(m *Members) {
	var old []entry
	if r.members != nil {
		old = r.members.entries
	}
	standings := make([]standing, len(m.entries))
	comes := make([]bool, len(m.entries)) // comes to its class, from outside the group or from another class
	at := 0
	for place, e := range m.entries {
		for at < len(old) && old[at].id < e.id {
			at++
		}
		switch {
		case at < len(old) && old[at].id == e.id:
			standings[place] = r.standings[at]
			comes[place] = old[at].class != e.class
		case r.strategy == LeastFrequentlyUsed:
			standings[place].last = r.turns // after those that have waited with as few turns
			comes[place] = true
		}
	}
	r.members, r.standings = m, standings
	if r.strategy == LeastFrequentlyUsed {
		for c := range class(classes) {
			r.level(c, comes)
		}
	}
}

// level gives the endpoints that come to a class the fewest uses of those that stay in it, or 0. With fewer they
// would be flooded; with more they would starve.
func (r *Router) level(c class, comes []bool) {
	fewest, found := uint64(0), false
	for place, e := range r.members.entries {
		if uses := r.standings[place].uses; e.class == c && !comes[place] && (!found || uses < fewest) {
			fewest, found = uses, true
		}
	}
	for place, e := range r.members.entries {
		if e.class == c && comes[place] {
			r.standings[place].uses = fewest
		}
	}
}
