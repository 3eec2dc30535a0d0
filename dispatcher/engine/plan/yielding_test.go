package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// fleetOf makes nodes 1, 2, ...
func fleetOf(started ...at) []dispatcher.Node {
	t0 := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	live := make([]dispatcher.Node, len(started))
	for i, at := range started {
		live[i] = dispatcher.Node{ID: run.NodeID(i + 1), StartedAt: t0.Add(time.Duration(at[0]) * time.Minute)}
		if at[1] >= 0 {
			since := t0.Add(time.Duration(at[1]) * time.Minute)
			live[i].LongSince = &since
		}
	}
	return live
}

func TestNodesYieldLongAttemptsToADeployment(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		live []dispatcher.Node
		want []run.NodeID
	}{
		"no node has long attempts":                 {fleetOf(at{0, none}, at{0, none}), nil},
		"all have some, and none is new":            {fleetOf(at{0, 5}, at{0, 6}, at{4, 7}), nil},
		"as many new as old":                        {fleetOf(at{0, 5}, at{0, 6}, at{9, none}, at{9, none}), ids{1, 2}},
		"the new ones have long attempts soon, too": {fleetOf(at{0, 5}, at{0, 6}, at{9, 10}, at{9, 10}), ids{1, 2}},
		"one node is added to many":                 {fleetOf(at{0, 5}, at{0, 6}, at{0, 6}, at{9, none}), nil},
		"an old one that is free takes its share":   {fleetOf(at{0, 5}, at{0, none}, at{9, none}, at{9, none}), ids{1}},
		"its spell began after the new ones":        {fleetOf(at{0, 12}, at{0, 6}, at{9, none}, at{9, none}), ids{2}},
		"a deployment on top of one": {fleetOf(at{0, 5}, at{9, 10}, at{9, 11},
			at{20, none}, at{20, 21}, at{20, 21}), ids{1, 2, 3}},
		"the last old one, when the others are replaced": {fleetOf(at{0, 5}, at{9, 10}, at{9, 10}), ids{1}},
		"a single node with a long attempt":              {fleetOf(at{0, 5}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(yielding(tt.live)))); diff != "" {
				t.Error("yielding (-want +got):\n" + diff)
			}
		})
	}
}

// Nodes that yield come last for long attempts, and all nodes agree on the order; nothing changes for other attempts.
func TestYieldingNodesRankBehindNewerOnes(t *testing.T) {
	t.Parallel()
	const drain = 110 * time.Second
	live := fleetOf(at{0, 5}, at{0, 6}, at{9, none}, at{9, 10})
	live[0].Labels = input.Labels{"disk": "ssd"}
	fleets := make([]*Fleet, len(live))
	for i, node := range live {
		fleets[i] = NewFleet(time.Minute, drain, 5*time.Second)
		fleets[i].Joined(node.ID, dispatcher.NodeActive, time.Now())
		fleets[i].Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
	}
	ranks := func(trigger dispatcher.DueTrigger) (all [4]int) {
		for i, f := range fleets {
			all[i] = f.rank(trigger)
		}
		return all
	}
	preferred := map[int]int{}
	for i := range int64(400) {
		id := hashed(i)
		long := ranks(dispatcher.DueTrigger{ID: id, Timeout: drain + 1})
		if max(long[2], long[3]) != 1 || min(long[0], long[1]) != 2 || long[0]+long[1]+long[2]+long[3] != 6 {
			t.Fatalf("trigger %d: the ranks for a long attempt are %v, want 0 and 1 for the new nodes, 2 and 3 for the old", id, long)
		}
		preferred[long[2]]++
		for i, rank := range ranks(dispatcher.DueTrigger{ID: id, Timeout: drain}) {
			if rank == 0 {
				preferred[10+i]++
			}
		}
		if rank := fleets[0].rank(dispatcher.DueTrigger{ID: id, Timeout: drain + 1, NodeLabels: live[0].Labels}); rank != 0 {
			t.Fatalf("trigger %d: the only node with its label has rank %d, want 0", id, rank)
		}
	}
	for what, n := range preferred {
		if n < 60 {
			t.Errorf("of 400 triggers, only %d went to %d; want the new nodes to share the long ones, and all the others", n, what)
		}
	}
	if !fleets[0].Yields() || fleets[3].Yields() {
		t.Errorf("the old node yields: %t, the new one: %t; want only the old one to", fleets[0].Yields(), fleets[3].Yields())
	}
}

// at is when a node started, and when its spell of long attempts began, in minutes; none: no spell.
type at [2]int

const none = -1

// ids are nodes that yield.
type ids = []run.NodeID
