package plan

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// hashed returns the n-th of some ids that are spread like hashes.
func hashed(n int64) int64 { return run.TriggerID("app", "job", fmt.Sprint(n)) }

// drawn is a fleet and its nodes' views of it.
type drawn struct {
	live   []dispatcher.Node
	fleets []*Fleet
}

const testDrain = 25 * time.Second

var testLabels = []input.Labels{nil, {"zone": "a"}, {"zone": "b"}, {"disk": "ssd"}, {"zone": "a", "disk": "ssd"}}

// drawNodes draws live nodes that may differ in their apps, in their labels and in yielding.
func drawNodes(t *rapid.T) []dispatcher.Node {
	ids := rapid.SliceOfNDistinct(rapid.Int64Range(1, 1_000_000), 1, 9, rapid.ID[int64]).Draw(t, "ids")
	began := time.Unix(1_000_000, 0)
	nodes := make([]dispatcher.Node, len(ids))
	for i, id := range ids {
		nodes[i] = dispatcher.Node{
			ID: run.NodeID(hashed(id)), Labels: rapid.SampledFrom(testLabels).Draw(t, "labels"),
			Apps:      rapid.SampledFrom([][]string{nil, nil, {"a"}, {"b"}, {"a", "b"}}).Draw(t, "apps"),
			StartedAt: began.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "started")) * time.Hour),
		}
		if rapid.Bool().Draw(t, "long attempts") {
			since := began.Add(time.Minute)
			nodes[i].LongSince = &since
		}
	}
	return nodes
}

// viewsOf returns the fleet as each of its nodes sees it.
func viewsOf(live []dispatcher.Node) drawn {
	d := drawn{live: live}
	for _, node := range live {
		f := NewFleet(time.Minute, testDrain, 5*time.Second)
		f.Joined(node.ID, dispatcher.NodeActive, time.Now())
		f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
		d.fleets = append(d.fleets, f)
	}
	return d
}

func drawTrigger(t *rapid.T) dispatcher.DueTrigger {
	return dispatcher.DueTrigger{
		ID:         hashed(rapid.Int64Range(0, 1_000_000).Draw(t, "trigger")), // rapid prefers small numbers
		AppID:      run.AppID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app")),
		NodeLabels: rapid.SampledFrom(testLabels).Draw(t, "required"),
		Timeout:    rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "timeout"),
	}
}

// Nodes that wait for their rank do not contend, and no fire waits for a node that may not take it.
func TestNodesThatMayFireATriggerHaveOneOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := viewsOf(drawNodes(t))
		trigger := drawTrigger(t)
		var ranks []int
		for i, node := range d.live {
			if node.Serves(trigger.AppID, trigger.NodeLabels) {
				ranks = append(ranks, d.fleets[i].rank(trigger))
			}
		}
		slices.Sort(ranks)
		for want, got := range ranks {
			if got != want {
				t.Fatalf("the ranks are %v, want each node another, from 0 on", ranks)
			}
		}
		for i, node := range d.live {
			if !node.Serves(trigger.AppID, trigger.NodeLabels) && d.fleets[i].rank(trigger) != len(ranks) {
				t.Fatalf("a node that may not fire has rank %d, want %d, behind those that may", d.fleets[i].rank(trigger), len(ranks))
			}
		}
	})
}

// selects reports whether a query for one of the shares returns a trigger of app.
func selects(shares []Share, trigger dispatcher.DueTrigger, app string) bool {
	return slices.ContainsFunc(shares, func(s Share) bool {
		return trigger.ID >= s.from && (s.to == 0 || trigger.ID < s.to) &&
			(len(s.apps) == 0 || slices.Contains(s.apps, app)) &&
			(len(s.labels) == 0 || slices.Contains(s.labels, trigger.NodeLabels.String()))
	})
}

// A node reads all that it fires. A fire is found in time in no other way.
func TestSharesContainWhatTheirNodeFires(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := viewsOf(drawNodes(t))
		app := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "app of the trigger")
		trigger := drawTrigger(t)
		trigger.AppID = run.AppID(app)
		for i, node := range d.live {
			required := slices.DeleteFunc(slices.Clone(testLabels[1:]), func(l input.Labels) bool { return !node.Labels.Have(l) })
			f := d.fleets[i]
			rank, serves := f.rank(trigger), node.Serves(trigger.AppID, trigger.NodeLabels)
			if own, _ := f.Shares(node.Apps, required); serves && rank == 0 && !selects(own, trigger, app) {
				t.Fatalf("node %d of %v is the first to fire %+v and does not read it: %+v", i, d.live, trigger, own)
			}
			if near, _ := f.neighbours(node.Apps, required, 2); serves && (rank == 1 || rank == 2) && !selects(near, trigger, app) {
				t.Fatalf("node %d of %v has rank %d for %+v and does not sweep it: %+v", i, d.live, rank, trigger, near)
			}
		}
	})
}

func TestEqualNodesReadDisjointEqualShares(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 100; n++ {
		live := make([]dispatcher.Node, n)
		for i := range live {
			live[i].ID = run.NodeID(hashed(int64(i)))
		}
		d := viewsOf(live)
		ids := make([]idRange, n)
		for i, f := range d.fleets {
			own, _ := f.Shares(nil, nil)
			if len(own) != 1 || own[0].apps != nil || own[0].labels != nil {
				t.Fatalf("one of %d equal nodes reads %+v, want one range", n, own)
			}
			ids[i] = own[0].idRange
		}
		slices.SortFunc(ids, func(a, b idRange) int { return int(a.from>>40 - b.from>>40) })
		least, most := int64(math.MaxInt64), int64(0)
		for i, r := range ids {
			end := r.to
			if i == n-1 {
				if r.to != 0 {
					t.Fatalf("the last of %d shares ends at %d, want no end", n, r.to)
				}
				end = math.MaxInt64
			} else if r.to != ids[i+1].from {
				t.Fatalf("share %d of %d ends at %d, and the next begins at %d", i, n, r.to, ids[i+1].from)
			}
			least, most = min(least, end-r.from), max(most, end-r.from)
		}
		if ids[0].from != 0 || most-least > 2 {
			t.Errorf("of %d shares, the first begins at %d, and they have from %d to %d ids", n, ids[0].from, least, most)
		}
	}
}

// Where others serve all apps, a node that serves one app takes its part of that app alone.
func TestNodesOfDifferentAppsShareTheirCommonTriggers(t *testing.T) {
	t.Parallel()
	live := []dispatcher.Node{{ID: 1}, {ID: 2}, {ID: 3, Apps: []string{"shop"}}, {ID: 4, Apps: []string{"shop"}}}
	d := viewsOf(live)
	count := map[string][4]int{}
	const triggers = 4000
	for _, app := range []string{"shop", "other"} {
		var of [4]int
		for i := range int64(triggers) {
			trigger := dispatcher.DueTrigger{ID: hashed(i), AppID: run.AppID(app)}
			for node, f := range d.fleets {
				if live[node].Serves(trigger.AppID, nil) && f.Prefers(trigger) {
					of[node]++
				}
			}
		}
		count[app] = of
	}
	for node := range live {
		if n := count["shop"][node]; n < triggers/4*8/10 || n > triggers/4*12/10 {
			t.Errorf("node %d has %d of %d triggers of the app that all serve, want about a quarter", node, n, triggers)
		}
	}
	if of := count["other"]; of[2]+of[3] != 0 || of[0]+of[1] != triggers || of[0] < triggers*4/10 || of[1] < triggers*4/10 {
		t.Errorf("of the other apps' %d triggers the nodes have %v, want half for each of the first two", triggers, of)
	}
}

// While the nodes learn of a change one after the other, a live node fires each trigger.
func TestEachTriggerHasANodeWhileNodesComeAndGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := drawNodes(t)
		d := viewsOf(before)
		after := slices.Clone(before)
		if len(before) == 1 || rapid.Bool().Draw(t, "a node comes") {
			one := drawNodes(t)[0]
			one.ID = run.NodeID(hashed(rapid.Int64Range(1_000_001, 2_000_000).Draw(t, "new")))
			after = append(after, one)
		} else {
			after = append(after[:0:0], before[1:]...)
		}
		learn := func(f *Fleet) {
			f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: after}, time.Now())
		}
		// The new node knows at once; some of the others don't yet.
		fleets := map[run.NodeID]*Fleet{}
		for i, node := range before {
			fleets[node.ID] = d.fleets[i]
		}
		for _, node := range after {
			if fleets[node.ID] == nil {
				fleets[node.ID] = NewFleet(time.Minute, testDrain, 5*time.Second)
				fleets[node.ID].Joined(node.ID, dispatcher.NodeActive, time.Now())
				learn(fleets[node.ID])
			} else if rapid.Bool().Draw(t, "knows") {
				learn(fleets[node.ID])
			}
		}
		trigger := drawTrigger(t)
		for n := range int64(100) {
			trigger.ID = hashed(n)
			able, firing := 0, 0
			for _, node := range after {
				if node.Serves(trigger.AppID, trigger.NodeLabels) {
					able++
					if fleets[node.ID].fires(trigger) {
						firing++
					}
				}
			}
			// The triggers of a node that left have no node until the others know: they sweep them.
			left := len(after) < len(before) && before[0].Serves(trigger.AppID, trigger.NodeLabels) && d.fleets[0].Prefers(trigger)
			if able > 0 && firing == 0 && !left {
				t.Fatalf("nobody fires %+v: before %+v, after %+v", trigger, before, after)
			}
		}
	})
}

func TestPartsOfTheIdsTouch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 10_000).Draw(t, "parts")
		i := rapid.IntRange(0, n-1).Draw(t, "part")
		from := startOf(i, n)
		if got := partOf(from, n); got != i {
			t.Errorf("part %d of %d begins at %d, which is in part %d", i, n, from, got)
		}
		if i > 0 && partOf(from-1, n) != i-1 {
			t.Errorf("before part %d of %d, which begins at %d, is part %d", i, n, from, partOf(from-1, n))
		}
		if partOf(math.MaxInt64, n) != n-1 || startOf(n, n) != 0 {
			t.Errorf("the greatest id is in part %d of %d, and no part follows that", partOf(math.MaxInt64, n), n)
		}
	})
}

func TestFormerShareIsGivenUpAfterTwoHeartbeats(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := NewFleet(time.Minute, testDrain, 5*time.Second)
	f.Joined(1, dispatcher.NodeActive, now)
	heartbeat := func(after time.Duration, live ...dispatcher.Node) (moved bool) {
		_, moved = f.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, now.Add(after))
		return moved
	}
	all := func() (fired, read int) {
		shares, _ := f.Shares(nil, nil)
		for i := range int64(1000) {
			trigger := dispatcher.DueTrigger{ID: hashed(i)}
			if f.fires(trigger) {
				fired++
			}
			if selects(shares, trigger, "app") {
				read++
			}
		}
		return fired, read
	}
	alone, pair := []dispatcher.Node{{ID: 1}}, []dispatcher.Node{{ID: 1}, {ID: 2}}
	if !heartbeat(0, alone...) || !heartbeat(5*time.Second, pair...) || heartbeat(10*time.Second, pair...) {
		t.Error("the shares do not move exactly when the nodes change")
	}
	if fired, read := all(); fired != 1000 || read != 1000 {
		t.Errorf("a heartbeat after another node came, this one fires %d of 1000 triggers and reads %d, want all", fired, read)
	}
	_, before := f.Shares(nil, nil)
	heartbeat(15*time.Second, pair...)
	if fired, read := all(); fired < 400 || fired > 600 || read != fired {
		t.Errorf("two heartbeats after another node came, this one fires %d of 1000 triggers and reads %d, want half", fired, read)
	}
	if _, after := f.Shares(nil, nil); after == before {
		t.Error("the version of the shares is the same though they changed")
	}
}
