package routing_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// newNodes returns nodes with consecutive seeds.
func newNodes(t testing.TB, s routing.Strategy, count int, seed uint64) []node {
	t.Helper()
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i] = newNode(t, s, seed+uint64(i))
	}
	return nodes
}

// spread fires the given number of times, each on a random node, and returns how many fires each endpoint got.
func spread(nodes []node, endpoints []routing.Endpoint, fires int, random *rand.Rand) []int {
	members := make([]*routing.Members, len(nodes))
	for i, n := range nodes {
		members[i] = n.group.NewMembers(endpoints)
	}
	counts := make([]int, len(endpoints))
	for range fires {
		i := random.IntN(len(nodes))
		counts[nodes[i].fire(members[i], "")]++
	}
	return counts
}

func TestDistributionOverSeveralNodes(t *testing.T) {
	t.Parallel()
	const fires = 1000
	equal := up(5)
	unequal := up(5)
	for i, weight := range []int{50, 20, 10, 10, 10} {
		unequal[i].Weight = weight
	}
	sigma := func(share float64) float64 { return math.Sqrt(fires * share * (1 - share)) }
	for _, tt := range []struct {
		strategy  routing.Strategy
		endpoints []routing.Endpoint
		above     func(nodes int, share float64) float64
		below     func(nodes int, share float64) float64
	}{
		{strategy: routing.RoundRobin, endpoints: equal},
		{strategy: routing.LeastFrequentlyUsed, endpoints: equal},
		{strategy: routing.LeastRecentlyUsed, endpoints: equal},
		{strategy: routing.LeastConnections, endpoints: equal},
		{
			strategy: routing.Weighted, endpoints: unequal,
			above: func(nodes int, _ float64) float64 { return float64(nodes) },
			below: func(nodes int, _ float64) float64 { return float64(nodes) * harmonic(5) },
		}, {
			strategy: routing.Weighted, endpoints: equal,
			above: func(nodes int, _ float64) float64 { return float64(nodes) },
			below: func(nodes int, _ float64) float64 { return float64(nodes) * harmonic(5) },
		}, {
			strategy: routing.Random, endpoints: unequal,
			above: func(_ int, share float64) float64 { return 5 * sigma(share) },
			below: func(_ int, share float64) float64 { return 5 * sigma(share) },
		},
	} {
		for nodes := 1; nodes <= 5; nodes++ {
			for seed := range uint64(20) {
				random := rand.New(rand.NewPCG(seed, 7))
				counts := spread(newNodes(t, tt.strategy, nodes, 100*seed), tt.endpoints, fires, random)
				if tt.above == nil {
					if low, high := slices.Min(counts), slices.Max(counts); high-low > nodes {
						t.Errorf("%s, %d nodes: %v, want a difference of %d at most", tt.strategy, nodes, counts, nodes)
					}
					continue
				}
				total := 0
				for _, e := range tt.endpoints {
					total += max(e.Weight, 1)
				}
				for i, e := range tt.endpoints {
					share := float64(max(e.Weight, 1)) / float64(total)
					off := float64(counts[i]) - fires*share
					if off > tt.above(nodes, share) || off < -tt.below(nodes, share) {
						t.Errorf("%s, %d nodes: %v, and %s is %+.1f off its share, want -%.1f to +%.1f", tt.strategy, nodes, counts, e.ID, off,
							tt.below(nodes, share), tt.above(nodes, share))
					}
				}
			}
		}
	}
}

// The first fires after a deployment must not all go to one endpoint.
func TestNodesBeginAtDifferentEndpoints(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{
		routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed, routing.LeastConnections,
	} {
		counts := make([]int, 5)
		for _, n := range newNodes(t, s, 500, 1) {
			counts[n.fire(n.group.NewMembers(up(5)), "")]++
		}
		if low, high := slices.Min(counts), slices.Max(counts); low < 60 || high > 140 {
			t.Errorf("%s: the first fires of 500 nodes are spread as %v, want 60 to 140 each", s, counts)
		}
	}
}

// Fires that are refused at the same time can give an endpoint two turns in a row. Least frequently used evens that
// out; least recently used does not.
func TestLeastFrequentlyUsedEvensOut(t *testing.T) {
	t.Parallel()
	for s, want := range map[routing.Strategy][3]int{
		routing.LeastFrequentlyUsed: {3, 3, 3}, routing.LeastRecentlyUsed: {3, 4, 2},
	} {
		for seed := range uint64(10) {
			n := newNode(t, s, seed)
			members := n.group.NewMembers(up(3))
			one, two, three := n.router.Route(members, ""), n.router.Route(members, ""), n.router.Route(members, "")
			counts := map[int]int{}
			turn := func(route *routing.Route) int {
				i, _ := route.Next()
				counts[i]++
				return i
			}
			a, b, c := turn(&one), turn(&one), turn(&two)
			turn(&two)   // a
			turn(&three) // b
			turn(&two)   // b, because this fire has tried the others
			for range 3 {
				counts[n.fire(members, "")]++
			}
			if got := [3]int{counts[a], counts[b], counts[c]}; got != want {
				t.Errorf("%s, seed %d: turns are spread as %v, want %v", s, seed, got, want)
			}
		}
	}
}

// world is a group with changing members, and the fires that each endpoint has had on each node.
type world struct {
	nodes     []node
	endpoints []routing.Endpoint
	counts    map[string][]int
}

// step changes a member or fires on a node. Endpoints a and b stay as they are.
func (w *world) step(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
		other := routing.Endpoint{
			ID:     string(rune('A' + rapid.IntRange(0, 63).Draw(t, "id"))),
			State:  rapid.SampledFrom([]routing.State{routing.Up, routing.Up, routing.Suspect, routing.Down}).Draw(t, "state"),
			Weight: rapid.IntRange(1, 5).Draw(t, "weight"), Backup: rapid.IntRange(0, 4).Draw(t, "backup") == 0,
		}
		if other.ID == "a" || other.ID == "b" {
			return
		}
		w.endpoints = slices.DeleteFunc(w.endpoints, func(e routing.Endpoint) bool { return e.ID == other.ID })
		if rapid.Bool().Draw(t, "stays") {
			w.endpoints = append(w.endpoints, other)
		}
		return
	}
	i := rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")
	n := w.nodes[i]
	id := w.endpoints[n.fire(n.group.NewMembers(w.endpoints), "")].ID
	if w.counts[id] == nil {
		w.counts[id] = make([]int, len(w.nodes))
	}
	w.counts[id][i]++
}

func TestEndpointsTakeTurnsWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		strategy            routing.Strategy
		inPeriod, fromStart int // how much counts may differ on one node
	}{{routing.RoundRobin, 1, 1}, {routing.LeastRecentlyUsed, 1, 1}, {routing.LeastFrequentlyUsed, 2, 1}} {
		t.Run(string(tt.strategy), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) {
				w := world{counts: map[string][]int{}, endpoints: up(2)}
				w.nodes = newNodes(t, tt.strategy, rapid.IntRange(1, 3).Draw(r, "nodes"), rapid.Uint64().Draw(r, "seed"))
				w.counts["a"], w.counts["b"] = make([]int, len(w.nodes)), make([]int, len(w.nodes))
				low, high := make([]int, len(w.nodes)), make([]int, len(w.nodes))
				for range rapid.IntRange(1, 300).Draw(r, "steps") {
					w.step(r)
					for i := range w.nodes {
						ahead := w.counts["a"][i] - w.counts["b"][i]
						low[i], high[i] = min(low[i], ahead), max(high[i], ahead)
						if high[i]-low[i] > tt.inPeriod || high[i] > tt.fromStart || low[i] < -tt.fromStart {
							r.Fatalf("on node %d, a was %d to %d fires ahead of b", i, low[i], high[i])
						}
					}
				}
			})
		})
	}
}

func TestNewEndpointIsNeitherFloodedNorStarved(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{
		routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed, routing.LeastConnections,
	} {
		for name, before := range map[string]routing.State{"is new": "", "was down": routing.Down, "was suspect": routing.Suspect} {
			for seed := range uint64(20) {
				n := newNode(t, s, seed)
				endpoints := append(up(5), routing.Endpoint{ID: "y", State: routing.Suspect}) // y is never used
				endpoints[2].State = before
				old := endpoints
				if before == "" {
					old = slices.Delete(slices.Clone(endpoints), 2, 3)
				}
				spread([]node{n}, old, 1000+int(seed), rand.New(rand.NewPCG(seed, 1)))
				for range 100 { // another endpoint comes, has one fire and goes
					both := append(slices.Clone(old), routing.Endpoint{ID: "z", State: routing.Up})
					for range 20 {
						if n.fire(n.group.NewMembers(both), "") == len(old) {
							break
						}
					}
					n.fire(n.group.NewMembers(old), "")
				}
				endpoints[2].State = routing.Up
				members := n.group.NewMembers(endpoints)
				got := ""
				for range 20 {
					got += endpoints[n.fire(members, "")].ID
				}
				if count := strings.Count(got, "c"); count < 3 || count > 5 || strings.Contains(got, "cc") {
					t.Errorf("%s, seed %d: of 20 fires after c %s, it gets %d: %s", s, seed, name, count, got)
				}
				next := s == routing.LeastRecentlyUsed || s == routing.LeastFrequentlyUsed && before != ""
				if next && got[0] != 'c' {
					t.Errorf("%s, seed %d: c %s, and the next fire goes to %c", s, seed, name, got[0])
				}
			}
		}
	}
}

// Endpoints that come up together begin equal, regardless of their earlier use.
func TestEndpointsThatReturnTogetherTakeTurns(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed} {
		n := newNode(t, s, 1)
		endpoints := up(3)
		endpoints[0].State = routing.Down
		random := rand.New(rand.NewPCG(1, 1))
		spread([]node{n}, endpoints, 100, random)
		endpoints[1].State, endpoints[2].State = routing.Suspect, routing.Suspect
		spread([]node{n}, endpoints, 100, random)
		for i := range endpoints {
			endpoints[i].State = routing.Up
		}
		if counts := spread([]node{n}, endpoints, 9, random); slices.Min(counts) < 2 {
			t.Errorf("%s: after all have come up together, 9 fires are spread as %v", s, counts)
		}
	}
}

func TestFlappingEndpointDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{
		routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed, routing.LeastConnections,
	} {
		for _, gone := range []bool{false, true} {
			if gone && s == routing.LeastRecentlyUsed {
				continue // one that registers again has the next turn
			}
			n := newNode(t, s, 1)
			counts := make([]int, 5)
			for range 1000 {
				endpoints := up(5)
				counts[n.fire(n.group.NewMembers(endpoints), "")]++
				if endpoints[4].State = routing.Down; gone {
					endpoints = endpoints[:4]
				}
				n.router.Route(n.group.NewMembers(endpoints), "")
				counts[n.fire(n.group.NewMembers(endpoints), "")]++
			}
			if low, high := slices.Min(counts[:4]), slices.Max(counts[:4]); low < high-2 || counts[4] > low {
				t.Errorf("%s: while the last flaps (gone: %t), fires are spread as %v", s, gone, counts)
			}
		}
	}
}

// One of five endpoints refuses all connections, and its state is not yet known.
func TestFiresOfARefusingEndpointSpreadOverAllOthers(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{
		routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed, routing.LeastConnections,
	} {
		n := newNode(t, s, 1)
		members := n.group.NewMembers(up(5))
		counts := make([]int, 5)
		for range 1000 {
			route := n.router.Route(members, "")
			i, _ := route.Next()
			counts[i]++
			for i == 2 {
				i, _ = route.Next()
				counts[i]++
			}
			route.Done()
		}
		refused := counts[2]
		took := slices.Delete(counts, 2, 3)
		if low, high := slices.Min(took), slices.Max(took); low < 249 || high > 251 || refused < 199 || refused > 251 {
			t.Errorf("%s: while one refuses %d tries, the others take %v; want 249 to 251 each, and 199 to 251 refused", s, refused, took)
		}
	}
}

func TestManyGoroutinesShareOneRouter(t *testing.T) {
	t.Parallel()
	for _, s := range []routing.Strategy{
		routing.RoundRobin, routing.Weighted, routing.LeastFrequentlyUsed, routing.LeastRecentlyUsed,
	} {
		n := newNode(t, s, 1)
		endpoints := up(5)
		members := n.group.NewMembers(endpoints)
		counts := make([]atomic.Int64, len(endpoints))
		var goroutines sync.WaitGroup
		for range 8 {
			goroutines.Go(func() {
				for range 500 {
					counts[n.fire(members, "")].Add(1)
				}
			})
		}
		goroutines.Wait()
		for i := range counts {
			if got := counts[i].Load(); got != 800 {
				t.Errorf("%s: endpoint %d got %d of 4,000 fires, want 800", s, i, got)
			}
		}
	}
}

func TestManyGoroutinesWithChangingMembers(t *testing.T) {
	t.Parallel()
	for _, s := range routing.Strategies() {
		n := newNode(t, s, 1)
		var goroutines sync.WaitGroup
		for g := range 8 {
			goroutines.Go(func() {
				for i := range 100 {
					endpoints := up(2 + (i+g)%4)
					if got := n.order(endpoints, fmt.Sprint(i)); len(got) != len(endpoints) {
						t.Errorf("%s: %q are tried, want all %d", s, got, len(endpoints))
					}
				}
			})
		}
		goroutines.Wait()
	}
}
