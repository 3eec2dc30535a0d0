package routing_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/routing"
)

// harmonic returns 1 + 1/2 + ... + 1/n.
func harmonic(n int) float64 {
	sum := 0.0
	for i := range n {
		sum += 1 / float64(i+1)
	}
	return sum
}

func TestFirstFiresOfNodesAreWeighted(t *testing.T) {
	t.Parallel()
	endpoints := up(3)
	endpoints[1].Weight = 8
	counts := make([]int, 3)
	for _, n := range newNodes(t, routing.Weighted, 500, 1) {
		counts[n.fire(n.group.NewMembers(endpoints), "")]++
	}
	if counts[0] < 25 || counts[1] < 350 || counts[2] < 25 {
		t.Errorf("the first fires of 500 nodes are spread as %v, want about 50, 400 and 50", counts)
	}
}

func TestWeightedMixesEvenly(t *testing.T) {
	t.Parallel()
	endpoints := up(4)
	endpoints[0].Weight = 3
	for seed := range uint64(20) {
		n := newNode(t, routing.Weighted, seed)
		members := n.group.NewMembers(endpoints)
		var got strings.Builder
		for range 600 {
			got.WriteString(endpoints[n.fire(members, "")].ID)
		}
		if strings.Contains(got.String(), "aaa") || strings.Count(got.String(), "a") < 299 {
			t.Errorf("seed %d: half of all fires go to a, but they are not mixed: %s", seed, got.String())
		}
	}
}

// The share of an endpoint is the number of fires that it should have had; it is added up at each fire, for the
// members of that time.
func TestWeightedIsNeverFarOffTheShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		endpoints := up(rapid.IntRange(1, 20).Draw(r, "endpoints"))
		total := 0
		for i := range endpoints {
			endpoints[i].Weight = rapid.IntRange(1, routing.MaxWeight).Draw(r, "weight")
			total += endpoints[i].Weight
		}
		n := newNode(t, routing.Weighted, rapid.Uint64().Draw(r, "seed"))
		members := n.group.NewMembers(endpoints)
		counts := make([]int, len(endpoints))
		for fires := 1; fires <= 500; fires++ {
			counts[n.fire(members, "")]++
			for i, e := range endpoints {
				off := float64(counts[i]) - float64(fires*e.Weight)/float64(total)
				if off >= 1 || off < -harmonic(len(endpoints)) {
					r.Fatalf("after %d fires, %+v of %+v is %+.2f off its share", fires, e, endpoints, off)
				}
			}
		}
	})
}

func TestWeightedKeepsSharesWhileMembersComeAndGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		w := world{counts: map[string][]int{"a": {0}}, endpoints: up(2)}
		w.nodes = newNodes(t, routing.Weighted, 1, rapid.Uint64().Draw(r, "seed"))
		w.endpoints[0].Weight = rapid.IntRange(1, 10).Draw(r, "weight")
		share, before := 0.0, 0
		for range 300 {
			w.step(r)
			total, fires := 0, 0
			for _, e := range w.endpoints {
				if choosable(w.endpoints, e) == 0 {
					total += max(e.Weight, 1)
				}
			}
			for _, counts := range w.counts {
				fires += counts[0]
			}
			if fires > before {
				share += float64(w.endpoints[0].Weight) / float64(total)
				before = fires
			}
			if off := float64(w.counts["a"][0]) - share; math.Abs(off) > 5 {
				r.Fatalf("after %d fires, a is %+.1f off its share of %.1f", fires, off, share)
			}
		}
	})
}
