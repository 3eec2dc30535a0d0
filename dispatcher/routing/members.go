package routing

import (
	"cmp"
	"slices"
)

// State is the state of an endpoint, from health checks and outcomes.
type State string

// The states. Any other value counts as down.
const (
	Up       State = "up"       // takes fires
	Suspect  State = "suspect"  // failed recently; tried after all that are up
	Down     State = "down"     // takes no fires
	Draining State = "draining" // finishes its runs and takes no more
)

// MaxWeight is the largest weight of an endpoint.
const MaxWeight = 100

// Endpoint is a member of a group, with the values that routing needs.
type Endpoint struct {
	ID string // unique in its group; of two with the same ID, the first counts
	// Weight is the endpoint's share compared with others, from 1 to MaxWeight. Less counts as 1, more as
	// MaxWeight.
	Weight int
	Backup bool // takes fires only while no endpoint without Backup is up
	State  State
}

// class is a class of endpoints of a group. A strategy compares only endpoints of one class.
type class int

const (
	upPrimary class = iota
	upBackup
	suspectPrimary
	suspectBackup
	notChosen
	classes = int(notChosen)
)

func (e Endpoint) class() class {
	switch {
	case e.State == Up && !e.Backup:
		return upPrimary
	case e.State == Up:
		return upBackup
	case e.State == Suspect && !e.Backup:
		return suspectPrimary
	case e.State == Suspect:
		return suspectBackup
	default:
		return notChosen
	}
}

// Members is an immutable list of the endpoints of a group. It is safe for concurrent use.
type Members struct {
	entries []entry // by ID
	// tiers are the places in entries that may be chosen, in ascending order; a tier comes completely before the
	// next. No tier is empty.
	tiers [][]int
}

// entry is an endpoint in a list. Its place is its index in Members.entries.
type entry struct {
	id     string
	hash   uint64 // of the ID
	weight int    // 1 to MaxWeight
	index  int    // in the caller's slice
	class  class
	load   *load
}

// NewMembers returns the list of a group's endpoints, which may be in any order. The caller keeps the slice, because
// Route.Next returns indices in it.
func (g *Group) NewMembers(endpoints []Endpoint) *Members {
	m := &Members{entries: make([]entry, 0, len(endpoints))}
	for i, e := range endpoints {
		m.entries = append(m.entries, entry{
			id: e.ID, hash: hash(e.ID), weight: min(max(e.Weight, 1), MaxWeight), index: i, class: e.class(),
		})
	}
	slices.SortStableFunc(m.entries, byID)
	m.entries = slices.CompactFunc(m.entries, func(a, b entry) bool { return a.id == b.id })
	g.count(m.entries)

	var of [classes][]int
	for place, e := range m.entries {
		if e.class != notChosen {
			of[e.class] = append(of[e.class], place)
		}
	}
	order := []class{upPrimary, suspectPrimary}
	if len(of[upPrimary]) == 0 {
		order = []class{upBackup, suspectPrimary, suspectBackup}
	}
	for _, c := range order {
		if len(of[c]) > 0 {
			m.tiers = append(m.tiers, of[c])
		}
	}
	return m
}

func byID(a, b entry) int { return cmp.Compare(a.id, b.id) }

// place returns the place of an endpoint that may be chosen.
func (m *Members) place(id string) (place int, ok bool) {
	place, ok = slices.BinarySearchFunc(m.entries, entry{id: id}, byID)
	if !ok {
		return 0, false
	}
	return place, slices.ContainsFunc(m.tiers, func(tier []int) bool {
		_, found := slices.BinarySearch(tier, place)
		return found
	})
}

// Shard is the part of a broadcast that one endpoint takes.
type Shard struct {
	Index    int    // from 0 to Total - 1
	Total    int    // how many endpoints take part
	Endpoint string // the ID of the endpoint that the shard was made for
}

// Shards divides a broadcast among all endpoints that may be chosen, by ID. The caller keeps the result for all
// attempts of the broadcast: then each shard keeps its index and total even if endpoints are added or removed. The
// caller makes a Route for each shard, with Shard.Endpoint as the key.
func (m *Members) Shards() []Shard {
	places := slices.Concat(m.tiers...)
	slices.Sort(places)
	shards := make([]Shard, len(places))
	for i, place := range places {
		shards[i] = Shard{Index: i, Total: len(places), Endpoint: m.entries[place].id}
	}
	return shards
}
