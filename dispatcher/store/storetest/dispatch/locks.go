package dispatch

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
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// take takes locks for at most a minute and at least ten seconds.
func (f *wing) take(node run.NodeID, now time.Time, names ...string) map[string]int64 {
	f.Helper()
	locks, err := f.Lock(f.Context(), dispatcher.LockRequest{Node: node, Names: names, AtMost: time.Minute,
		AtLeast: 10 * time.Second, Now: now})
	f.Must(err)
	fences := map[string]int64{}
	for _, lock := range locks {
		if lock.Node != node {
			f.Errorf("lock %s is held by %s, want %s", lock.Name, lock.Node, node)
		}
		fences[lock.Name] = lock.Fence
	}
	return fences
}

func (f *wing) giveBack(node run.NodeID, name string, fence int64) {
	f.Helper()
	f.Must(f.Unlock(f.Context(), []dispatcher.Lock{{Name: name, Node: node, Fence: fence}}))
}

func testLocks(t *testing.T, f *wing) {
	expect := func(what string, got map[string]int64, want map[string]int64) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	none := map[string]int64{}
	expect("nothing asked for", f.take(fixture.NodeA, fixture.T0), none)
	expect("two new ones, one of them twice", f.take(fixture.NodeA, fixture.T0, "b", "a", "b"), map[string]int64{"a": 1, "b": 1})
	expect("those that are held, and one that is not", f.take(fixture.NodeB, fixture.T0.Add(time.Second), "a", "b", "c"),
		map[string]int64{"c": 1})
	expect("its own", f.take(fixture.NodeA, fixture.T0.Add(time.Second), "a"), none)
	expect("to the end", f.take(fixture.NodeB, fixture.T0.Add(time.Minute-time.Millisecond), "a"), none)
	expect("when at most has passed", f.take(fixture.NodeB, fixture.T0.Add(time.Minute), "a"), map[string]int64{"a": 2})

	// A former holder cannot give it back; the holder excludes others for the minimum time.
	later := fixture.T0.Add(time.Minute)
	f.giveBack(fixture.NodeA, "a", 1)
	f.giveBack(fixture.NodeB, "a", 1)
	f.giveBack(fixture.NodeA, "a", 2)
	expect("of another", f.take(fixture.NodeA, later.Add(20*time.Second), "a"), none)
	f.giveBack(fixture.NodeB, "a", 2)
	expect("before at least has passed", f.take(fixture.NodeA, later.Add(10*time.Second-time.Millisecond), "a"), none)
	expect("when it has", f.take(fixture.NodeA, later.Add(10*time.Second), "a"), map[string]int64{"a": 3})

	// A clock that was set back by an hour leaves no lock for an hour.
	expect("set back a little", f.take(fixture.NodeB, later, "a"), none)
	expect("set back far", f.take(fixture.NodeB, fixture.T0.Add(-time.Hour), "a"), map[string]int64{"a": 4})

	many := make([]string, 3000)
	for i := range many {
		many[i] = dispatcher.LockApp(fmt.Sprintf("app-%04d", i))
	}
	if got := f.take(fixture.NodeA, fixture.T0, many...); len(got) != len(many) {
		t.Errorf("took %d locks in one statement, want %d", len(got), len(many))
	}
}

// A node asks for the lock of an app only for triggers that it can settle.
func testOverdueApps(t *testing.T, f *wing) {
	for _, app := range []string{"calm", "late", "off", "pinned"} {
		f.DeclareApp(app)
		j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
		if j.App = app; app == "calm" {
			j.Triggers = map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(9))}
		}
		if app == "pinned" {
			j.NodeLabels = input.Labels{"disk": "ssd"}
		}
		f.Put(j, fixture.T0)
	}
	f.Must(f.PutApp(t.Context(), access.App{Name: "off"}, fixture.At(fixture.T0)))
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	ssd := input.Labels{"disk": "ssd"}
	f.Must(f.Register(t.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: ssd}, fixture.T0))
	for _, tt := range []struct {
		what   string
		apps   []string
		labels input.Labels
		from   time.Time
		now    time.Time
		want   []string
	}{
		{"at the threshold", nil, ssd, time.Time{}, fixture.Minutes(2), nil},
		{"past it", nil, ssd, time.Time{}, fixture.Minutes(2).Add(time.Millisecond), []string{"late", "pinned"}},
		{"without the label", nil, nil, time.Time{}, fixture.Minutes(3), []string{"late"}},
		{"of apps that are served", []string{"pinned", "calm"}, ssd, time.Time{}, fixture.Minutes(3), []string{"pinned"}},
		{"from when they were due", nil, ssd, fixture.Minutes(1), fixture.Minutes(3), []string{"late", "pinned"}},
		{"from later", nil, ssd, fixture.Minutes(1).Add(time.Millisecond), fixture.Minutes(3), nil},
	} {
		got, err := f.OverdueApps(t.Context(), tt.apps, tt.labels, tt.from, tt.now)
		f.Must(err)
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.what, diff)
		}
	}
}

// However many nodes ask at once, a lock has one holder at a time, and its fences have no gaps.
func testLockRace(t *testing.T, f *wing) {
	const nodes, rounds = 6, 20
	names := []string{"x", "y", "z"}
	var mu sync.Mutex
	holders := map[string]int{} // by name and fence
	for round := range rounds {
		now := fixture.T0.Add(time.Duration(round) * time.Minute)
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
