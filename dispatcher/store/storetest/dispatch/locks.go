package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// take takes locks for a minute at most and ten seconds at least.
func (f *fixture) take(node run.NodeID, now time.Time, names ...string) map[string]int64 {
	f.Helper()
	locks, err := f.Lock(f.Context(), dispatcher.LockRequest{Node: node, Names: names, AtMost: time.Minute,
		AtLeast: 10 * time.Second, Now: now})
	f.must(err)
	fences := map[string]int64{}
	for _, lock := range locks {
		if lock.Node != node {
			f.Errorf("lock %s is held by %s, want %s", lock.Name, lock.Node, node)
		}
		fences[lock.Name] = lock.Fence
	}
	return fences
}

func (f *fixture) giveBack(node run.NodeID, name string, fence int64) {
	f.Helper()
	f.must(f.Unlock(f.Context(), []dispatcher.Lock{{Name: name, Node: node, Fence: fence}}))
}

func testLocks(t *testing.T, f *fixture) {
	expect := func(what string, got map[string]int64, want map[string]int64) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	none := map[string]int64{}
	expect("nothing asked for", f.take(nodeA, t0), none)
	expect("two new ones, one of them twice", f.take(nodeA, t0, "b", "a", "b"), map[string]int64{"a": 1, "b": 1})
	expect("those that are held, and one that is not", f.take(nodeB, t0.Add(time.Second), "a", "b", "c"), map[string]int64{"c": 1})
	expect("its own", f.take(nodeA, t0.Add(time.Second), "a"), none)
	expect("to the end", f.take(nodeB, t0.Add(time.Minute-time.Millisecond), "a"), none)
	expect("when at most has passed", f.take(nodeB, t0.Add(time.Minute), "a"), map[string]int64{"a": 2})

	// Who lost it gives back nothing; who has it keeps others away for at least.
	later := t0.Add(time.Minute)
	f.giveBack(nodeA, "a", 1)
	f.giveBack(nodeB, "a", 1)
	f.giveBack(nodeA, "a", 2)
	expect("of another", f.take(nodeA, later.Add(20*time.Second), "a"), none)
	f.giveBack(nodeB, "a", 2)
	expect("before at least has passed", f.take(nodeA, later.Add(10*time.Second-time.Millisecond), "a"), none)
	expect("when it has", f.take(nodeA, later.Add(10*time.Second), "a"), map[string]int64{"a": 3})

	// A clock that was set back by an hour leaves no lock for an hour.
	expect("set back a little", f.take(nodeB, later, "a"), none)
	expect("set back far", f.take(nodeB, t0.Add(-time.Hour), "a"), map[string]int64{"a": 4})

	many := make([]string, 3000)
	for i := range many {
		many[i] = dispatcher.LockApp(fmt.Sprintf("app-%04d", i))
	}
	if got := f.take(nodeA, t0, many...); len(got) != len(many) {
		t.Errorf("took %d locks in one statement, want %d", len(got), len(many))
	}
}

// Only what a node can do something about makes it ask for the lock of an app.
func testOverdueApps(t *testing.T, f *fixture) {
	for _, app := range []string{"calm", "late", "off", "pinned"} {
		f.putApp(app)
		j := job("tick", map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(1))})
		if j.App = app; app == "calm" {
			j.Triggers = map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(9))}
		}
		if app == "pinned" {
			j.NodeLabels = input.Labels{"disk": "ssd"}
		}
		f.put(j, t0)
	}
	f.must(f.PutApp(t.Context(), access.App{Name: "off"}, at(t0)))
	f.putEvery("paused", time.Minute)
	f.must(f.PauseJob(t.Context(), "shop", "paused", "", true, at(t0)))
	ssd := input.Labels{"disk": "ssd"}
	f.must(f.Register(t.Context(), dispatcher.Node{ID: nodeB, Labels: ssd}, t0))
	for _, tt := range []struct {
		what   string
		apps   []string
		labels input.Labels
		from   time.Time
		now    time.Time
		want   []string
	}{
		{"at the threshold", nil, ssd, time.Time{}, minutes(2), nil},
		{"past it", nil, ssd, time.Time{}, minutes(2).Add(time.Millisecond), []string{"late", "pinned"}},
		{"without the label", nil, nil, time.Time{}, minutes(3), []string{"late"}},
		{"of apps that are served", []string{"pinned", "calm"}, ssd, time.Time{}, minutes(3), []string{"pinned"}},
		{"from when they were due", nil, ssd, minutes(1), minutes(3), []string{"late", "pinned"}},
		{"from later", nil, ssd, minutes(1).Add(time.Millisecond), minutes(3), nil},
	} {
		got, err := f.OverdueApps(t.Context(), tt.apps, tt.labels, tt.from, tt.now)
		f.must(err)
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}

// However many ask at once, a lock has one holder at a time, and its fences are without holes.
func testLockRace(t *testing.T, f *fixture) {
	const nodes, rounds = 6, 20
	names := []string{"x", "y", "z"}
	var mu sync.Mutex
	holders := map[string]int{} // by name and fence
	for round := range rounds {
		now := t0.Add(time.Duration(round) * time.Minute)
		var wg sync.WaitGroup
		for node := range nodes {
			wg.Go(func() {
				locks, err := f.Lock(t.Context(), dispatcher.LockRequest{Node: run.NodeID(node + 1), Names: names,
					AtMost: time.Minute, Now: now})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, lock := range locks {
					holders[fmt.Sprintf("%s %d", lock.Name, lock.Fence)]++
				}
			})
		}
		wg.Wait()
	}
	for _, name := range names {
		for fence := range rounds {
			if n := holders[fmt.Sprintf("%s %d", name, fence+1)]; n != 1 {
				t.Errorf("lock %s was taken %d times under fence %d, want once", name, n, fence+1)
			}
		}
	}
	if len(holders) != len(names)*rounds {
		t.Errorf("%d times was a lock taken, want %d", len(holders), len(names)*rounds)
	}
}
