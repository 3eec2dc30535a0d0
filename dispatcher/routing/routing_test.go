package routing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// node is one of several nodes that route the fires of one job.
type node struct {
	strategy routing.Strategy
	group    *routing.Group
	router   *routing.Router
}

func newNode(t testing.TB, s routing.Strategy, seed uint64) node {
	t.Helper()
	group := routing.NewGroup(seed)
	router, err := group.NewRouter(s)
	if err != nil {
		t.Fatal(err)
	}
	return node{s, group, router}
}

// order returns the IDs of all endpoints in the order in which one fire tries them.
func (n node) order(endpoints []routing.Endpoint, key string) []string {
	var ids []string
	route := n.router.Route(n.group.NewMembers(endpoints), key)
	defer route.Done()
	for i, ok := route.Next(); ok; i, ok = route.Next() {
		ids = append(ids, endpoints[i].ID)
	}
	return ids
}

// fire returns the index of the endpoint that gets a fire, which ends at once.
func (n node) fire(members *routing.Members, key string) int {
	route := n.router.Route(members, key)
	defer route.Done()
	i, _ := route.Next()
	return i
}

// up returns endpoints that are up, with weights 1, and the IDs a, b and so on.
func up(count int) []routing.Endpoint {
	endpoints := make([]routing.Endpoint, count)
	for i := range endpoints {
		endpoints[i] = routing.Endpoint{ID: string(rune('a' + i)), State: routing.Up}
	}
	return endpoints
}

func TestStrategiesWithoutCountersKeepTheOrderOfIDs(t *testing.T) {
	t.Parallel()
	endpoints := up(4)
	slices.Reverse(endpoints)
	endpoints[1].State = routing.Suspect // c
	for _, tt := range []struct {
		strategy routing.Strategy
		want     []string
	}{
		{routing.First, []string{"a", "b", "d", "c"}},
		{routing.Last, []string{"d", "b", "a", "c"}},
		{routing.Failover, []string{"a", "b", "d", "c"}},
		{routing.BusyOver, []string{"a", "b", "d", "c"}},
		{routing.GlobalBusyOver, []string{"a", "b", "d", "c"}},
	} {
		n := newNode(t, tt.strategy, 1)
		for range 3 {
			if diff := cmp.Diff(tt.want, n.order(endpoints, "")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.strategy, diff)
			}
		}
	}
}

func TestBackupsServeOnlyWhileNoPrimaryIsUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, b, c, d routing.State // c and d are backups
		want       []string
	}{
		"a primary is up":              {routing.Up, routing.Suspect, routing.Up, routing.Up, []string{"a", "b"}},
		"primaries are suspect":        {routing.Suspect, routing.Down, routing.Up, routing.Suspect, []string{"c", "a", "d"}},
		"primaries are down":           {routing.Down, routing.Draining, routing.Up, routing.Up, []string{"c", "d"}},
		"only suspect primaries exist": {routing.Suspect, routing.Suspect, routing.Down, routing.Draining, []string{"a", "b"}},
		"only a suspect backup exists": {routing.Down, routing.Down, routing.Down, routing.Suspect, []string{"d"}},
		"no choice":                    {routing.Down, routing.Draining, "asleep", "", nil},
	} {
		endpoints := up(4)
		for i, state := range []routing.State{tt.a, tt.b, tt.c, tt.d} {
			endpoints[i].State = state
			endpoints[i].Backup = i >= 2
		}
		if diff := cmp.Diff(tt.want, newNode(t, routing.First, 1).order(endpoints, "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOfTwoEndpointsWithOneIDTheFirstCounts(t *testing.T) {
	t.Parallel()
	endpoints := append(up(2), routing.Endpoint{ID: "a", State: routing.Up})
	if diff := cmp.Diff([]string{"a", "b"}, newNode(t, routing.First, 1).order(endpoints, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnknownStrategyIsRefused(t *testing.T) {
	t.Parallel()
	router, err := routing.NewGroup(1).NewRouter("rond")
	want := `strategy "rond" is not known; use one of ["first" "last" "random" "round_robin" "weighted" "consistent_hash" ` +
		`"least_frequently_used" "least_recently_used" "least_connections" "failover" "busyover" "global_busyover" "broadcast"]`
	if router != nil || err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestQuestionsOfStrategies(t *testing.T) {
	t.Parallel()
	want := map[routing.Strategy]routing.Question{
		routing.Failover: "alive", routing.BusyOver: "idle_for_job", routing.GlobalBusyOver: "idle",
	}
	for _, s := range routing.Strategies() {
		if got := s.Asks(); got != want[s] {
			t.Errorf("%s asks %q, want %q", s, got, want[s])
		}
	}
}

func TestShardsCoverEachEndpointOnce(t *testing.T) {
	t.Parallel()
	endpoints := up(5)
	slices.Reverse(endpoints)
	endpoints[4].State = routing.Suspect  // a
	endpoints[2].State = routing.Draining // c
	endpoints[3].Backup = true            // b
	want := []routing.Shard{{Total: 3, Endpoint: "a"}, {Index: 1, Total: 3, Endpoint: "d"}, {Index: 2, Total: 3, Endpoint: "e"}}
	if diff := cmp.Diff(want, routing.NewGroup(1).NewMembers(endpoints).Shards()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestShardGoesToItsEndpointWhileThatMayBeChosen(t *testing.T) {
	t.Parallel()
	endpoints := up(4)
	n := newNode(t, routing.Broadcast, 1)
	for _, tt := range []struct {
		state routing.State
		first bool
	}{{routing.Up, true}, {routing.Suspect, true}, {routing.Down, false}, {routing.Draining, false}} {
		endpoints[1].State = tt.state
		order := n.order(endpoints, "b")
		if (order[0] == "b") != tt.first {
			t.Errorf("b is %s: the order is %q", tt.state, order)
		}
		slices.Sort(order)
		if want := 4; tt.first && len(slices.Compact(order)) != want {
			t.Errorf("b is %s: %q are tried, want %d", tt.state, order, want)
		}
	}
}

func TestShardsOfRemovedEndpointsSpreadOverAllOthers(t *testing.T) {
	t.Parallel()
	n := newNode(t, routing.Broadcast, 1)
	endpoints := up(5)
	members := n.group.NewMembers(endpoints)
	counts := make([]int, len(endpoints))
	for shard := range 1000 {
		counts[n.fire(members, fmt.Sprint("gone-", shard))]++
	}
	if low, high := slices.Min(counts), slices.Max(counts); low < 150 || high > 250 {
		t.Errorf("1,000 shards of gone endpoints are spread as %v, want 150 to 250 each", counts)
	}
}

// choosable returns the rank of the state and kind of an endpoint, by other code than the product: 0 is first, and -1
// is never.
func choosable(endpoints []routing.Endpoint, e routing.Endpoint) int {
	primaryIsUp := slices.ContainsFunc(endpoints, func(e routing.Endpoint) bool { return !e.Backup && e.State == routing.Up })
	switch {
	case e.State != routing.Up && e.State != routing.Suspect, e.Backup && primaryIsUp:
		return -1
	case e.State == routing.Up:
		return 0
	case !e.Backup:
		return 1
	default:
		return 2
	}
}

// checkOrder checks that a fire tries each endpoint that may be chosen exactly once, class by class; only
// the endpoint of a shard comes before its class.
func checkOrder(t testing.TB, n node, endpoints []routing.Endpoint, key string) {
	t.Helper()
	var tried []string
	latest := 0
	route := n.router.Route(n.group.NewMembers(endpoints), key)
	defer route.Done()
	for i, ok := route.Next(); ok; i, ok = route.Next() {
		e := endpoints[i]
		rank := choosable(endpoints, e)
		ofShard := n.strategy == routing.Broadcast && len(tried) == 0 && e.ID == key
		if rank < 0 || rank < latest || slices.Contains(tried, e.ID) {
			t.Fatalf("%s, key %q: of %+v, %+v is tried after %q", n.strategy, key, endpoints, e, tried)
		}
		if !ofShard {
			latest = rank
		}
		tried = append(tried, e.ID)
	}
	for _, e := range endpoints {
		if choosable(endpoints, e) >= 0 && !slices.Contains(tried, e.ID) {
			t.Fatalf("%s, key %q: of %+v, %+v is not tried", n.strategy, key, endpoints, e)
		}
	}
}

// FuzzOrder has a byte of text for each endpoint, and changes the members between fires.
func FuzzOrder(f *testing.F) {
	for i := range routing.Strategies() {
		f.Add(uint8(i), uint64(i), "c", []byte{0, 1, 2, 3, 4, 5, 6, 7, 0xff, 0x80})
		f.Add(uint8(i), uint64(i), "a", []byte{4, 5, 6, 7, 0x15, 0x21, 0x30})
		f.Add(uint8(i), uint64(i), "", []byte{})
	}
	states := []routing.State{routing.Up, routing.Suspect, routing.Down, routing.Draining}
	f.Fuzz(func(t *testing.T, strategy uint8, seed uint64, key string, text []byte) {
		n := newNode(t, routing.Strategies()[int(strategy)%len(routing.Strategies())], seed)
		random := rand.New(rand.NewPCG(seed, 1))
		text = slices.Clone(text[:min(len(text), 50)])
		for range 5 {
			endpoints := make([]routing.Endpoint, 0, len(text))
			for i, b := range text {
				if random.IntN(4) > 0 {
					endpoints = append(endpoints, routing.Endpoint{
						ID: string(rune('a' + i)), State: states[b&3], Backup: b&4 != 0, Weight: int(b>>3) * 4,
					})
				}
			}
			random.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
			checkOrder(t, n, endpoints, key)
			if len(text) > 0 {
				text[random.IntN(len(text))] ^= byte(1 << random.IntN(8))
			}
		}
	})
}
