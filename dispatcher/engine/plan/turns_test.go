package plan

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A node that is gone is never its own keeper: in each round another node that has its turn reaches each node.
func TestTurnsCoverEveryNodeByAnother(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 130; n++ {
		r := &roster{live: make([]dispatcher.Node, n)}
		turns := make([]int, n)
		for round := range n {
			covered, takers := make([]bool, n), 0
			for i := range n {
				mine, reach := r.turn(i, int64(round), turnSweep)
				if !mine {
					continue
				}
				takers++
				turns[i]++
				for rank := 1; rank <= min(reach, n-1); rank++ {
					covered[(i-rank+n)%n] = true
				}
			}
			for i, by := range covered {
				if !by {
					t.Fatalf("of %d nodes, nobody covers node %d in round %d", n, i, round)
				}
			}
			if most := max(2, (n+turnSweep-1)/turnSweep); takers > most {
				t.Fatalf("of %d nodes, %d have their turn in round %d, want at most %d", n, takers, round, most)
			}
		}
		for i, got := range turns {
			if got != turns[0] {
				t.Errorf("of %d nodes, node %d has %d turns in %d rounds, and node 0 has %d", n, i, got, n, turns[0])
			}
		}
	}
}

// Any node may purge, even if the nodes differ, and the history is the same for all.
func TestTwoNodesPurgeInEachInterval(t *testing.T) {
	t.Parallel()
	live := []dispatcher.Node{{ID: 31, Apps: []string{"other"}}}
	for i := range 30 {
		live = append(live, dispatcher.Node{ID: run.NodeID(1 + i)})
	}
	fleets, turns := viewsOf(live).fleets, map[int]int{}
	for round := range int64(len(live)) {
		purging := 0
		for i, f := range fleets {
			if f.TurnToPurge(time.Unix(600*round, 0), 10*time.Minute) {
				purging++
				turns[i]++
			}
		}
		if purging != 2 {
			t.Errorf("in round %d, %d nodes purge, want 2", round, purging)
		}
	}
	if len(turns) != len(live) {
		t.Errorf("%d of %d nodes had a turn", len(turns), len(live))
	}
	if !NewFleet(time.Minute, testDrain, 5*time.Second).TurnToPurge(time.Unix(0, 0), 10*time.Minute) {
		t.Error("a node that knows of no other does not purge")
	}
}

// A sweep of one class of triggers in turns of all nodes would leave out the triggers that few nodes serve.
func TestNodesThatDifferHaveTheirTurnEveryTime(t *testing.T) {
	t.Parallel()
	alike := make([]dispatcher.Node, 30)
	for i := range alike {
		alike[i].ID = run.NodeID(1 + i)
	}
	differ := append([]dispatcher.Node{{ID: 31, Apps: []string{"other"}}}, alike...)
	for name, live := range map[string][]dispatcher.Node{"alike": alike, "differ": differ} {
		f, turns := viewsOf(live).fleets[3], 0
		for second := range int64(30) {
			if mine, _ := f.Turn(time.Unix(1000+second, 0), time.Second, nearSweep, turnSweep); mine {
				turns++
			}
		}
		want := map[string]int{"alike": 3, "differ": 30}[name]
		if turns != want {
			t.Errorf("nodes that are %s: a node has %d turns of 30, want %d", name, turns, want)
		}
	}
}
