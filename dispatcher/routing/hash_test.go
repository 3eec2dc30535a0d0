package routing_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// Another program computed these orders from the comments in router.go. They hold for all nodes, seeds and versions.
// If this test fails, a rolling upgrade sends the fires of one job to two endpoints.
func TestOrderOfKeysNeverChanges(t *testing.T) {
	t.Parallel()
	endpoints := []routing.Endpoint{
		{ID: "worker-1", State: routing.Up}, {ID: "worker-2", State: routing.Up}, {ID: "worker-3", State: routing.Up, Weight: 3},
		{ID: "10.0.0.4:9999", State: routing.Up}, {ID: "späte", State: routing.Up, Weight: 2},
	}
	for key, want := range map[string]string{
		"":               "worker-3 | worker-2 | worker-1 | späte | 10.0.0.4:9999",
		"nightly-report": "worker-3 | späte | 10.0.0.4:9999 | worker-2 | worker-1",
		"customer/4711":  "worker-3 | späte | 10.0.0.4:9999 | worker-2 | worker-1",
		"müller":         "späte | worker-3 | worker-2 | worker-1 | 10.0.0.4:9999",
		"worker-1":       "worker-3 | worker-1 | worker-2 | späte | 10.0.0.4:9999",
	} {
		for seed := range uint64(3) {
			if got := strings.Join(newNode(t, routing.ConsistentHash, seed).order(endpoints, key), " | "); got != want {
				t.Errorf("seed %d: the order for %q is\n%s, want\n%s", seed, key, got, want)
			}
		}
	}
}

// owners returns the first choices for keys.
func owners(t testing.TB, endpoints []routing.Endpoint, keys int) []string {
	t.Helper()
	n := newNode(t, routing.ConsistentHash, 1)
	members := n.group.NewMembers(endpoints)
	all := make([]string, keys)
	for i := range all {
		all[i] = endpoints[n.fire(members, fmt.Sprint("key-", i))].ID
	}
	return all
}

// slack returns how many keys a share may deviate: 5 standard deviations.
func slack(keys int, share float64) float64 { return 5 * math.Sqrt(float64(keys)*share*(1-share)) }

func TestKeysAreSharedByWeight(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	endpoints := up(5)
	total := 0.0
	for i, weight := range []int{1, 2, 5, 10, 32} {
		endpoints[i].Weight = weight
		total += float64(weight)
	}
	counts := map[string]int{}
	for _, id := range owners(t, endpoints, keys) {
		counts[id]++
	}
	for _, e := range endpoints {
		share := float64(e.Weight) / total
		if off := float64(counts[e.ID]) - keys*share; math.Abs(off) > slack(keys, share) {
			t.Errorf("%s has %d keys, want %.0f ± %.0f", e.ID, counts[e.ID], keys*share, slack(keys, share))
		}
	}
}

func TestWeightsAreFrom1ToMaxWeight(t *testing.T) {
	t.Parallel()
	wrong, right := up(4), up(4)
	for i, weights := range [][2]int{{-1, 1}, {0, 1}, {routing.MaxWeight + 1, routing.MaxWeight}, {1 << 40, routing.MaxWeight}} {
		wrong[i].Weight, right[i].Weight = weights[0], weights[1]
	}
	if diff := cmp.Diff(owners(t, right, 300), owners(t, wrong, 300)); diff != "" {
		t.Errorf("owners of keys (-weights from 1 to %d +others):\n%s", routing.MaxWeight, diff)
	}
}

func TestOnlyKeysOfTheEndpointThatChangesMove(t *testing.T) {
	t.Parallel()
	const keys = 300
	rapid.Check(t, func(r *rapid.T) {
		before := up(rapid.IntRange(2, 20).Draw(r, "endpoints"))
		total := 0
		for i := range before {
			before[i].ID = fmt.Sprint(before[i].ID, rapid.IntRange(0, 1000).Draw(r, "id"))
			before[i].Weight = rapid.IntRange(1, 10).Draw(r, "weight")
			total += before[i].Weight
		}
		i := rapid.IntRange(0, len(before)-1).Draw(r, "changed")
		changed := before[i]
		after := append([]routing.Endpoint{}, before...)
		share := float64(changed.Weight) / float64(total)
		switch rapid.IntRange(0, 3).Draw(r, "change") {
		case 0:
			after = append(after[:i], after[i+1:]...)
		case 1:
			after[i].State = rapid.SampledFrom([]routing.State{routing.Suspect, routing.Down, routing.Draining}).Draw(r, "state")
		case 2:
			after[i].Backup = true
		case 3:
			after[i].Weight += rapid.IntRange(1, 10).Draw(r, "more")
			more := float64(after[i].Weight - changed.Weight)
			share = more / (float64(total) + more) // an upper bound: some of its new keys were its own
		}
		moved := 0
		old, updated := owners(t, before, keys), owners(t, after, keys)
		for k := range old {
			if old[k] == updated[k] {
				continue
			}
			moved++
			if old[k] != changed.ID && updated[k] != changed.ID {
				r.Fatalf("key %d moves from %s to %s, but only %s changes", k, old[k], updated[k], changed.ID)
			}
		}
		if float64(moved) > keys*share+slack(keys, share) {
			r.Fatalf("%d keys move, want %.0f and %.0f more at most", moved, keys*share, slack(keys, share))
		}
	})
}

func TestKeysOfARemovedEndpointSpreadOverAllOthers(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	endpoints := up(5)
	old, updated := owners(t, endpoints, keys), owners(t, endpoints[1:], keys)
	counts, moved := map[string]int{}, 0
	for k := range old {
		if old[k] == "a" {
			counts[updated[k]]++
			moved++
		}
	}
	for _, e := range endpoints[1:] {
		if off := float64(counts[e.ID]) - float64(moved)/4; math.Abs(off) > slack(moved, 0.25) {
			t.Errorf("of %d keys, %s gets %d, want a quarter", moved, e.ID, counts[e.ID])
		}
	}
}

// The next choice for a key is the first choice among the others.
func TestFallbackOfAKeyIsItsChoiceAmongTheOthers(t *testing.T) {
	t.Parallel()
	endpoints := up(8)
	n := newNode(t, routing.ConsistentHash, 1)
	for i := range 200 {
		key := fmt.Sprint(i)
		order := n.order(endpoints, key)
		left := endpoints
		for _, id := range order {
			if got := n.order(left, key)[0]; got != id {
				t.Fatalf("key %s: without those before it in %q, %s is first, want %s", key, order, got, id)
			}
			kept := []routing.Endpoint{}
			for _, e := range left {
				if e.ID != id {
					kept = append(kept, e)
				}
			}
			left = kept
		}
	}
}
