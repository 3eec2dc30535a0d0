package routing

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// Group is the shared state of the routers of one endpoint group on one node: the requests in flight, and the source
// of randomness. It is safe for concurrent use.
type Group struct {
	mu     sync.Mutex // guards the fields below, the loads, and the routers
	random *rand.Rand
	loads  map[string]*load // by endpoint ID
	begun  uint64           // how many requests have begun
}

// load is the load of an endpoint from this node, for all jobs.
type load struct {
	inFlight int
	last     uint64 // Group.begun at its latest request
}

// NewGroup returns a Group. Nodes with different seeds begin at different endpoints, so that the first
// fires after a deployment do not all go to one.
func NewGroup(seed uint64) *Group {
	return &Group{random: rand.New(rand.NewPCG(seed, 0)), loads: map[string]*load{}}
}

// count gives each endpoint its load, and drops the loads of absent endpoints without a request in flight.
func (g *Group) count(entries []entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := make(map[string]*load, len(entries))
	for i := range entries {
		e := &entries[i]
		if e.load = g.loads[e.id]; e.load == nil {
			e.load = &load{last: g.begun} // after those that have been idle for longer
		}
		kept[e.id] = e.load
	}
	for id, l := range g.loads {
		if l.inFlight > 0 {
			kept[id] = l
		}
	}
	g.loads = kept
}

// Router chooses endpoints for one job. It is safe for concurrent use.
type Router struct {
	group    *Group
	strategy Strategy
	start    int    // where to begin among equals
	turns    uint64 // how many turns there were
	cursor   string // the ID of the endpoint that had the latest turn
	// standings has an element for each endpoint of members, by place, if the strategy counts by endpoint.
	members   *Members
	standings []standing
}

// NewRouter returns a Router of the group. The error names an unknown strategy.
func (g *Group) NewRouter(s Strategy) (*Router, error) {
	if known := Strategies(); !slices.Contains(known, s) {
		return nil, fmt.Errorf("strategy %q is not known; use one of %q", string(s), known)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Router{group: g, strategy: s, start: int(g.random.Uint32() >> 1)}, nil
}

// Route is the way of one request to an endpoint. Use it in one goroutine, in this way:
//
//	route := router.Route(members, key)
//	defer route.Done()
//	for {
//		i, ok := route.Next()
//		if !ok {
//			break // no endpoint took the request
//		}
//		... ask endpoint i what Strategy.Asks says, and send it the request; leave the loop unless it
//		... refused before it received anything
//	}
type Route struct {
	router  *Router
	members *Members
	key     uint64
	tier    int
	place   int    // of the latest try
	own     int    // under Broadcast, the place of the shard's endpoint until it is tried, otherwise none
	tried   []bool // by place, without the latest try; nil before the second
	load    *load  // of the latest try, while it counts as in flight
}

// none is a place that no endpoint has.
const none = -1

// Route returns the way of a request to one of the members, which must be of the router's group. Under
// ConsistentHash, key decides; under Broadcast, it is the ID of the shard's endpoint, the first choice if that may
// still be chosen. Other strategies ignore it.
func (r *Router) Route(members *Members, key string) Route {
	t := Route{router: r, members: members, place: none, own: none}
	switch r.strategy {
	case ConsistentHash:
		t.key = hash(key)
	case Broadcast:
		t.key = hash(key)
		if place, ok := members.place(key); ok {
			t.own = place
		}
	}
	return t
}

// Next returns the index of the endpoint to try, in the slice that the members were made from. ok is false when all
// that may be chosen have been tried. From now until Done or the following Next, the endpoint has a request in
// flight.
func (t *Route) Next() (index int, ok bool) {
	g := t.router.group
	g.mu.Lock()
	defer g.mu.Unlock()
	t.release()
	if t.place = t.choose(); t.place == none {
		return 0, false
	}
	e := &t.members.entries[t.place]
	g.begun++
	t.load = e.load
	t.load.inFlight++
	t.load.last = g.begun
	return e.index, true
}

// choose returns the place of the best endpoint that was not tried, or none. It takes the endpoint's turn.
func (t *Route) choose() int {
	if t.own != none {
		own := t.own
		t.own = none
		return own
	}
	for ; t.tier < len(t.members.tiers); t.tier++ {
		if candidates := t.untried(t.members.tiers[t.tier]); len(candidates) > 0 {
			return t.router.turn(t.members, candidates, t.key)
		}
	}
	return none
}

// untried returns the places of a tier that were not tried. Most routes end with their first try and
// allocate nothing.
func (t *Route) untried(tier []int) []int {
	if t.place == none && t.tried == nil {
		return tier
	}
	if t.tried == nil {
		t.tried = make([]bool, len(t.members.entries))
	}
	if t.place != none {
		t.tried[t.place] = true
	}
	left := make([]int, 0, len(tier))
	for _, place := range tier {
		if !t.tried[place] {
			left = append(left, place)
		}
	}
	return left
}

// Done reports that the request has ended, or that none was sent. A second call does nothing.
func (t *Route) Done() {
	t.router.group.mu.Lock()
	defer t.router.group.mu.Unlock()
	t.release()
}

func (t *Route) release() {
	if t.load != nil {
		t.load.inFlight--
		t.load = nil
	}
}

// The functions below decide where keys go. All nodes of all versions must agree, because a change moves the keys of
// every group.

// hash returns the first 8 bytes of a text's SHA-256, as a big-endian number.
func hash(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:8])
}

// highestScore returns the candidate with the highest score for a key; among equals, the first. Scores of endpoints
// do not depend on each other, so a key moves only to an added endpoint, or from a removed one. This is rendezvous
// hashing; unlike a ring, it has exact shares, and needs no rebuilding when members change.
func (m *Members) highestScore(candidates []int, key uint64) int {
	best, highest := candidates[0], uint64(0)
	for _, place := range candidates {
		if s := m.entries[place].score(key); s > highest {
			best, highest = place, s
		}
	}
	return best
}

// score returns how well an endpoint suits a key. It has as many virtual nodes as its weight. Their scores are the
// numbers of SplitMix64 from the common seed of key and endpoint; the highest counts.
func (e *entry) score(key uint64) uint64 {
	seed, highest := e.hash^key, uint64(0)
	for range e.weight {
		seed += 0x9e3779b97f4a7c15
		x := seed
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		highest = max(highest, x^x>>31)
	}
	return highest
}

// Strategy is how a job chooses among the endpoints of a group.
type Strategy string

// The strategies. Weights count where the comment says so; all others ignore them.
const (
	// First is the endpoint with the lowest ID, Last the one with the highest.
	First Strategy = "first"
	Last  Strategy = "last"
	// Random chooses an endpoint at random. Weights are probabilities.
	Random Strategy = "random"
	// RoundRobin goes through the endpoints by ID.
	RoundRobin Strategy = "round_robin"
	// Weighted gives each endpoint fires in proportion to its weight, evenly mixed rather than in bursts.
	Weighted Strategy = "weighted"
	// ConsistentHash sends equal keys to the same endpoint. Weights are shares of the keys.
	ConsistentHash Strategy = "consistent_hash"
	// LeastFrequentlyUsed is the endpoint with the fewest turns; among equals, the one with the oldest last turn. An
	// endpoint that is new or comes up again begins with the fewest turns of the others.
	LeastFrequentlyUsed Strategy = "least_frequently_used"
	// LeastRecentlyUsed is the endpoint with the oldest last turn. A new one has the next turn.
	LeastRecentlyUsed Strategy = "least_recently_used"
	// LeastConnections is the endpoint with the fewest requests in flight from this node, divided by its weight;
	// among equals, the one that got its last request longest ago.
	LeastConnections Strategy = "least_connections"
	// Failover is the first endpoint by ID that is alive, BusyOver the first that is not busy with this job, and
	// GlobalBusyOver the first that is not busy at all; see [Strategy.Asks].
	Failover       Strategy = "failover"
	BusyOver       Strategy = "busyover"
	GlobalBusyOver Strategy = "global_busyover"
	// Broadcast is all endpoints, each with a shard; see [Members.Shards].
	Broadcast Strategy = "broadcast"
)

// Strategies returns all strategies, in the order in which the documentation explains them.
func Strategies() []Strategy {
	return []Strategy{
		First, Last, Random, RoundRobin, Weighted, ConsistentHash, LeastFrequentlyUsed, LeastRecentlyUsed, LeastConnections,
		Failover, BusyOver, GlobalBusyOver, Broadcast,
	}
}

// Question is a caller's question to an endpoint before it sends a fire. If the endpoint says no or does not respond,
// the caller goes on to the next one.
type Question string

// The questions.
const (
	AskNothing    Question = ""             // send the fire at once
	AskAlive      Question = "alive"        // does the endpoint respond?
	AskIdleForJob Question = "idle_for_job" // does it neither run this job nor have it queued?
	AskIdle       Question = "idle"         // does it neither run any job nor have one queued?
)

// Asks returns the question that a strategy requires.
func (s Strategy) Asks() Question {
	switch s {
	case Failover:
		return AskAlive
	case BusyOver:
		return AskIdleForJob
	case GlobalBusyOver:
		return AskIdle
	default:
		return AskNothing
	}
}
