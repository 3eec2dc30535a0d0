package routing

import (
	"cmp"
	"slices"
)

// standing is what a router remembers of an endpoint.
type standing struct {
	uses uint64 // LeastFrequentlyUsed: its turns, to compare with others of its class
	last uint64 // Router.turns at its latest turn; 0 if it is new
	// Weighted: how many turns it is behind its share; negative if it is ahead. In a class, the sum is about 0.
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
	default: // First, and what asks the endpoints in the order of their IDs
		return candidates[0]
	}
}

// draw returns a candidate by chance, in proportion to the weights.
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

// following returns the candidate after the one that had the latest turn. It looks for an ID and not for
// a place: so two endpoints that stay take turns, even if others come and go between them.
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

// mostBehind gives each candidate its share of this turn, and the turn to the one that is most behind. The
// first turn is drawn, or every node would begin with the heaviest endpoint.
//
// Of n endpoints that stay, none is ever behind by more than 1 + 1/2 + ... + 1/n turns. Credits sum to 0, and the
// k endpoints most behind can gain on average only if one that is even more behind than they has the turn, so
// the average of the first k exceeds that of the first k+1 by 1/(k+1) at most.
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

// align makes the standings those of other members. It forgets endpoints that are gone. An endpoint that
// comes to a class, from outside the group or from another class, must neither be flooded nor starve
// there, so its class decides with what it begins.
func (r *Router) align(m *Members) {
	standings := make([]standing, len(m.entries))
	stays := make([]bool, len(m.entries))
	old := 0
	for place, e := range m.entries {
		for r.members != nil && old < len(r.members.entries) && r.members.entries[old].id < e.id {
			old++
		}
		if r.members != nil && old < len(r.members.entries) && r.members.entries[old].id == e.id {
			standings[place] = r.standings[old]
			stays[place] = r.members.entries[old].class == e.class
		} else if r.strategy == LeastFrequentlyUsed {
			standings[place].last = r.turns // after those that have waited with as few turns
		}
	}
	r.members, r.standings = m, standings
	for c := range class(classes) {
		r.welcome(c, stays)
	}
}

// welcome puts those that stay in a class and those that come to it on one scale. Those that come begin
// with the fewest uses. Those that stay are 0 turns behind on average: where a new one begins, and near
// which one that returns has stopped.
func (r *Router) welcome(c class, stays []bool) {
	fewest, behind, staying := uint64(0), 0.0, 0
	for place, e := range r.members.entries {
		if e.class != c || !stays[place] {
			continue
		}
		if s := r.standings[place]; staying == 0 || s.uses < fewest {
			fewest = s.uses
		}
		behind += r.standings[place].credit
		staying++
	}
	for place, e := range r.members.entries {
		switch {
		case e.class != c:
		case stays[place]:
			r.standings[place].credit -= behind / float64(staying)
		default:
			r.standings[place].uses = fewest
		}
	}
}
