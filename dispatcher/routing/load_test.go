package routing_test

import (
	"math/rand/v2"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// request is a request in flight.
type request struct {
	route routing.Route
	index int
	ends  int // the step at which it ends
}

func TestLeastConnectionsChoosesTheFewestInFlightForItsWeight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		n := newNode(t, routing.LeastConnections, seed)
		other, err := n.group.NewRouter(routing.First) // of another job; its requests count, too
		if err != nil {
			t.Fatal(err)
		}
		endpoints := up(6)
		for i := range endpoints {
			endpoints[i].Weight = 1 + random.IntN(5)
		}
		inFlight := make([]int, len(endpoints))
		var requests []request
		for step := range 1000 {
			if random.IntN(10) == 0 {
				e := &endpoints[random.IntN(len(endpoints))]
				e.State = []routing.State{routing.Up, routing.Up, routing.Suspect, routing.Down}[random.IntN(4)]
			}
			left := requests[:0]
			for _, q := range requests {
				if q.ends > step {
					left = append(left, q)
					continue
				}
				q.route.Done()
				inFlight[q.index]--
			}
			requests = left
			router := n.router
			if step%3 == 0 {
				router = other
			}
			route := router.Route(n.group.NewMembers(endpoints), "")
			chosen, ok := route.Next()
			if !ok {
				continue
			}
			for i, e := range endpoints {
				sameClass := choosable(endpoints, e) == choosable(endpoints, endpoints[chosen])
				if router == n.router && sameClass && inFlight[i]*endpoints[chosen].Weight < inFlight[chosen]*e.Weight {
					t.Fatalf("seed %d: with %v in flight at %+v, endpoint %d is chosen", seed, inFlight, endpoints, chosen)
				}
			}
			inFlight[chosen]++
			requests = append(requests, request{route, chosen, step + random.IntN(50)})
		}
	}
}

func TestRequestsInFlightDifferByOneANode(t *testing.T) {
	t.Parallel()
	for nodes := 1; nodes <= 5; nodes++ {
		random := rand.New(rand.NewPCG(uint64(nodes), 3))
		all := newNodes(t, routing.LeastConnections, nodes, 1)
		counts := make([]int, 5)
		members := make([]*routing.Members, nodes)
		for i, n := range all {
			members[i] = n.group.NewMembers(up(5))
		}
		for range 1000 {
			i := random.IntN(nodes)
			route := all[i].router.Route(members[i], "")
			chosen, _ := route.Next()
			counts[chosen]++
		}
		for _, count := range counts {
			if count < 200-nodes || count > 200+nodes {
				t.Errorf("%d nodes: %v in flight, want a difference of %d at most", nodes, counts, nodes)
			}
		}
	}
}

// second returns which of two endpoints the next request of least_connections goes to.
func second(n node, members *routing.Members) int {
	route := n.router.Route(members, "")
	i, _ := route.Next()
	route.Done()
	return i
}

func TestOnlyTheLatestTryIsInFlightUntilItIsDone(t *testing.T) {
	t.Parallel()
	n := newNode(t, routing.LeastConnections, 1)
	members := n.group.NewMembers(up(2))
	route := n.router.Route(members, "")
	refused, _ := route.Next()
	took, _ := route.Next()
	for range 3 {
		if got := second(n, members); got != refused {
			t.Fatalf("endpoint %d is chosen, and it has a request in flight", got)
		}
	}
	// The count outlives the members and the absence of the endpoint.
	n.group.NewMembers(nil)
	members = n.group.NewMembers(up(2))
	for range 3 {
		if got := second(n, members); got == took {
			t.Fatalf("endpoint %d is chosen, and its request in flight is forgotten", got)
		}
	}
	route.Done()
	route.Done()
	first, next := second(n, members), second(n, members)
	if first == next {
		t.Errorf("endpoint %d is chosen twice, and no request is in flight", first)
	}
	if _, ok := route.Next(); ok {
		t.Error("a third of two endpoints is tried")
	}
}

func TestRouteAllocatesNothingUnlessAnEndpointRefuses(t *testing.T) {
	for _, s := range routing.Strategies() {
		n := newNode(t, s, 1)
		members := n.group.NewMembers(up(20))
		if got := testing.AllocsPerRun(100, func() { n.fire(members, "customer/4711") }); got != 0 {
			t.Errorf("%s: %v allocations for each fire, want none", s, got)
		}
	}
}
