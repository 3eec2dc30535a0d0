package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestEveryTriggerIsPreferredByExactlyOneLiveNode(t *testing.T) {
	t.Parallel()
	nodes := []dispatcher.NodeID{11, 22, 33, 44}
	const triggers = 4000
	share := func(ids []dispatcher.NodeID) map[int64]dispatcher.NodeID {
		owner := map[int64]dispatcher.NodeID{}
		var live []dispatcher.Node
		for _, id := range ids {
			live = append(live, dispatcher.Node{ID: id})
		}
		for _, id := range ids {
			f := newFleet(time.Minute)
			f.joined(id, dispatcher.NodeActive, time.Now())
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
			for trigger := range int64(triggers) {
				if !f.prefers(dispatcher.DueTrigger{ID: trigger}) {
					continue
				}
				if other, taken := owner[trigger]; taken {
					t.Fatalf("nodes %s and %s both prefer trigger %d", id, other, trigger)
				}
				owner[trigger] = id
			}
		}
		if len(owner) != triggers {
			t.Fatalf("%d of %d triggers are preferred by a node", len(owner), triggers)
		}
		return owner
	}
	all, three := share(nodes), share(nodes[:3])
	count := map[dispatcher.NodeID]int{}
	for trigger, owner := range all {
		count[owner]++
		if owner != 44 && three[trigger] != owner {
			t.Errorf("trigger %d moved from %s to %s though its node stayed", trigger, owner, three[trigger])
		}
	}
	for id, n := range count {
		if n < triggers/4*8/10 || n > triggers/4*12/10 {
			t.Errorf("node %s has %d of %d triggers, want about a quarter", id, n, triggers)
		}
	}
}

func TestLeaseEndsBeforeOthersMayTakeOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(time.Minute)
		f.joined(1, dispatcher.NodeActive, time.Now())
		sent := time.Now()
		<-time.After(30 * time.Second) // a slow response does not prolong the lease
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, sent)
		<-time.After(28 * time.Second)
		if !f.leased() || !f.active() {
			t.Error("the lease ended 58 s after the heartbeat was sent, want 59 s")
		}
		<-time.After(time.Second)
		if f.leased() || f.active() {
			t.Error("the lease lasts 59 s after the heartbeat was sent, want it ended a second before death")
		}
	})
}

func TestNobodyIsBuriedRightAfterAPauseOfOurOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(10 * time.Second)
		f.joined(1, dispatcher.NodeActive, time.Now())
		heartbeat := func() {
			<-time.After(time.Second)
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		}
		heartbeat()
		if _, may := f.mayMarkDead(); may {
			t.Error("one round was enough, want two")
		}
		heartbeat()
		if _, may := f.mayMarkDead(); !may {
			t.Error("two fresh rounds were not enough")
		}
		<-time.After(time.Minute) // frozen, or the database was away
		if _, may := f.mayMarkDead(); may {
			t.Error("rounds from before the pause were enough")
		}
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive}, time.Now())
		if _, may := f.mayMarkDead(); may {
			t.Error("the first round after a pause was enough, though every heartbeat looks stale then")
		}
	})
}

func TestNobodyIsBuriedRightAfterTheClockOfTheDatabaseLeapt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leap time.Duration
		want bool
	}{
		"ahead":             {time.Hour, false},
		"back":              {-time.Hour, false},
		"by nothing":        {0, true},
		"as answers differ": {500 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(10 * time.Second)
				f.joined(1, dispatcher.NodeActive, time.Now())
				heartbeat := func(leapt time.Duration) {
					<-time.After(time.Second)
					f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, At: time.Now().Add(leapt)}, time.Now())
				}
				for range 4 {
					heartbeat(0)
				}
				heartbeat(tt.leap)
				if _, got := f.mayMarkDead(); got != tt.want {
					t.Errorf("may mark dead others: %v, want %v", got, tt.want)
				}
				heartbeat(tt.leap)
				heartbeat(tt.leap)
				if _, may := f.mayMarkDead(); !may {
					t.Error("two rounds by the new time were not enough")
				}
			})
		})
	}
}

func TestClockIsNeverAheadOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		ahead := 3 * time.Hour // the database's clock against ours
		for _, delay := range []time.Duration{80 * time.Millisecond, time.Millisecond, time.Second} {
			database := time.Now().Add(ahead)
			<-time.After(delay) // the response's way back
			c.add(sample{local: time.Now(), database: database, roundTrip: delay})
			if behind := time.Now().Add(ahead).Sub(c.now()); behind < 0 || behind > delay {
				t.Errorf("after a response that took %s the clock is %s behind, want between 0 and that", delay, behind)
			}
		}
		<-time.After(time.Minute)
		if behind := time.Now().Add(ahead).Sub(c.now()); behind != time.Millisecond {
			t.Errorf("clock is %s behind, want 1ms: that of the best sample", behind)
		}
	})
}

func TestClockFollowsADatabaseThatIsSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		for range 6 {
			<-time.After(5 * time.Second)
			c.add(sample{local: time.Now(), database: time.Now(), roundTrip: time.Millisecond})
		}
		back := 80 * time.Millisecond
		c.add(sample{local: time.Now(), database: time.Now().Add(-back), roundTrip: time.Millisecond})
		if ahead := c.now().Sub(time.Now().Add(-back)); ahead > 0 {
			t.Errorf("clock is %s ahead of the database's, which was set back: fires would be early", ahead)
		}
	})
}

func TestClockOffsetIsWhatTheQuickestOfTheLatestAnswersSays(t *testing.T) {
	t.Parallel()
	c := newClock(nil)
	now := time.Now()
	for i, tt := range []struct{ offset, roundTrip, want time.Duration }{
		{5 * time.Second, time.Millisecond, 5 * time.Second},
		{9 * time.Second, 20 * time.Millisecond, 5 * time.Second}, // a slow response says little
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, 5 * time.Second},
		{-40 * time.Second, 5 * time.Millisecond, -40 * time.Second}, // the wall clock was set
	} {
		at := now.Add(time.Duration(i) * time.Second)
		c.add(sample{local: at, database: at, roundTrip: tt.roundTrip, offset: tt.offset})
		if got := c.offset(); got != tt.want {
			t.Errorf("after %d answers the offset is %s, want %s", i+1, got, tt.want)
		}
	}
}

func TestNodeWhoseClockIsFarOffIsNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.Ready(); err != nil {
		t.Fatalf("Ready = %v", err)
	}
	for range offsetSamples {
		r.clock.add(sample{local: time.Now(), database: time.Now(), offset: -31 * time.Second})
	}
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "31s off") {
		t.Errorf("Ready = %v, want the clock to be the reason", err)
	}
}

func TestHeartbeatsTellWhatTheNodeDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("busy", "* * * * * ?", nil)
	r.poll(5 * time.Second)
	for range 3 {
		r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	}
	r.settled()
	if err := r.heartbeatOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	nodes, err := r.store.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The instants lie some twenty seconds back; see newRig.
	if n := nodes[0]; n.Fires != 3 || n.Share != 1 || n.Lag.Std() < 10*time.Second || n.ClockOffset.Std().Abs() > time.Second {
		t.Errorf("node = %+v, want its 3 fires, all of the fleet's, and how late they were", n)
	}
	if again := r.report(); again.Lag != 0 || again.Fires != 3 {
		t.Errorf("the next report = %+v, want the lag forgotten and the fires of the minute", again)
	}
}

// Only nodes that may fire a trigger count: else its fires would wait a grace for nobody.
func TestPreferenceIsAmongTheNodesThatServeTheTrigger(t *testing.T) {
	t.Parallel()
	live := []dispatcher.Node{
		{ID: 1}, {ID: 2, Labels: dispatcher.Labels{"zone": "a"}}, {ID: 3, Apps: []string{"other"}, Labels: dispatcher.Labels{"zone": "a"}},
	}
	count := map[dispatcher.NodeID]int{}
	for _, node := range live {
		f := newFleet(time.Minute)
		f.joined(node.ID, dispatcher.NodeActive, time.Now())
		f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
		for id := range int64(300) {
			pinned := dispatcher.DueTrigger{ID: id, AppID: dispatcher.AppID("shop"), NodeLabels: dispatcher.Labels{"zone": "a"}}
			if node.Serves(pinned.AppID, pinned.NodeLabels) && f.prefers(pinned) {
				count[node.ID]++
			}
		}
	}
	if count[1] != 0 || count[2] != 300 || count[3] != 0 {
		t.Errorf("preferred: %v, want all 300 by node 2, which alone has the label and serves the app", count)
	}
}

// A job that requires labels is claimed, settled and adopted by nodes that have them only.
func TestPinnedJobWaitsForANodeThatHasItsLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	pinned := dispatcher.Job{
		App: "app", Name: "pinned", Enabled: true, NodeLabels: dispatcher.Labels{"disk": "ssd"},
		Target:   dispatcher.Target{Webhook: &dispatcher.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: dispatcher.DefaultTimeout}},
		Triggers: map[string]dispatcher.Trigger{"only": {}},
	}
	trigger := pinned.Triggers["only"]
	trigger.SetDefaults()
	trigger.Expression, trigger.MisfireAfter = "rate(1s)", dispatcher.Duration(time.Second)
	pinned.Triggers["only"] = trigger
	if _, _, err := r.store.PutJob(t.Context(), pinned, dispatcher.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.RequestRun(t.Context(), "app", "pinned", dispatcher.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	work := func() (runs int) {
		planned := r.poll(5 * time.Second)
		if err := errors.Join(r.settle(t.Context(), nil, r.now.Add(10*time.Second)), r.adopt(t.Context())); err != nil {
			t.Fatal(err)
		}
		r.settled()
		return planned + len(r.calls)
	}
	if got := work(); got != 0 {
		t.Errorf("a node without the label did %d things", got)
	}
	r.opts.Labels = dispatcher.Labels{"disk": "ssd", "zone": "a"}
	if got := work(); got != 3 {
		t.Errorf("a node with the label did %d things, want a planned fire, a catch-up run and the manual run", got)
	}
}

// Who waits its turn in line does not contend: after n graces only the n first of the line want
// a fire.
func TestOnlyTheNextInLineTakesWhatWasLeft(t *testing.T) {
	t.Parallel()
	live := []dispatcher.Node{{ID: 11}, {ID: 22}, {ID: 33}, {ID: 44}}
	for trigger := range int64(200) {
		ranks := map[int]bool{}
		for _, node := range live {
			f := newFleet(time.Minute)
			f.joined(node.ID, dispatcher.NodeActive, time.Now())
			f.heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: live}, time.Now())
			ranks[f.rank(dispatcher.DueTrigger{ID: trigger})] = true
		}
		for rank := range len(live) {
			if !ranks[rank] {
				t.Fatalf("trigger %d: the ranks are %v, want each node another, from 0 on", trigger, ranks)
			}
		}
	}
}

func TestTimelineKnowsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	line := newTimeline(noneSlow)
	line.add(planned(1, 1, now))
	if line.overdue(now) {
		t.Error("overdue at its instant")
	}
	if !line.overdue(now.Add(time.Millisecond)) {
		t.Error("not overdue after its instant")
	}
	line.take(now, 1, func(lane) bool { return false }, keep)
	if !line.overdue(now) {
		t.Error("not overdue while it waits for a place")
	}
}
