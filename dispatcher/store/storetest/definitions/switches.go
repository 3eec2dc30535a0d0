package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// switchTests test the reasons why triggers do not fire: the app's switch, labels that no node has, pauses.
func switchTests() tests {
	return tests{
		"a disabled app does not fire, however many triggers it has": testDisableManyTriggers,
		"an enabled app fires again, however many triggers it has":   testEnableManyTriggers,
		"a job that is put while its app is switched follows":        testPutJobWhileSwitched,
		"an interrupted switch continues":                            testInterruptedSwitch,
		"a trigger fires once all reasons against it are over":       testReasonsAddUp,
		"triggers wait for a node with their labels":                 testLabelsOfNodes,
		"labels that many jobs require follow in portions":           testLabelsInPortions,
		"a trigger that is declared again fires once":                testDeclaredAgain,
		"an instant that is declared again fires once":               testInstantDeclaredAgain,
		"runs of a deleted app end on any node":                      testRunsOfDeletedApp,
	}
}

// many is more triggers than follow a switch at once, and left is the number of the rest.
const (
	many = 2100
	left = 100
)

// putMany stores many triggers with their first fire a minute after T0, in jobs that require labels.
func (f *wing) putMany(labels input.Labels) {
	f.Helper()
	const each = 100
	for i := range many / each {
		triggers := map[string]dispatcher.Trigger{}
		for k := range each {
			triggers[fmt.Sprint("t", k)] = fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
		}
		j := fixture.Job(fmt.Sprint("job", i), triggers)
		j.NodeLabels = labels
		f.Must(f.PutJob(f.Context(), j, fixture.At(fixture.T0)))
	}
}

// follow updates a portion of triggers.
func (f *wing) follow(limit int) (followed int, more bool) {
	f.Helper()
	followed, more, err := f.FollowSwitches(f.Context(), limit)
	f.Must(err)
	return followed, more
}

// followAll updates all triggers.
func (f *wing) followAll() {
	f.Helper()
	for more := true; more; {
		_, more = f.follow(1000)
	}
}

// dueCount counts the triggers among many that are due a minute after T0, page by page.
func (f *wing) dueCount() int {
	f.Helper()
	query := dispatcher.DueQuery{Until: fixture.T0.Add(time.Minute), Now: fixture.T0, Limit: 1000}
	for n := 0; ; {
		page, err := f.Due(f.Context(), query)
		f.Must(err)
		n += len(page)
		if len(page) < query.Limit {
			return n
		}
		query.AfterTime, query.AfterID = page[len(page)-1].DueAt, page[len(page)-1].ID
	}
}

func testDisableManyTriggers(t *testing.T, f *wing) {
	f.putMany(nil)
	if n := f.dueCount(); n != many {
		t.Fatalf("%d triggers are due, want %d", n, many)
	}
	due := f.DueAll(fixture.T0.Add(time.Minute))
	var advances []dispatcher.Advance
	for _, d := range due {
		advances = append(advances, dispatcher.Advance{
			TriggerID: d.ID, JobID: f.Version(d.ID).JobID, Revision: d.Revision, Next: d.NextFireTime, Then: d.NextFireTime.Add(time.Minute),
		})
	}
	f.SetApp(false)
	check := func(when string) {
		t.Helper()
		late := fixture.T0.Add(time.Hour)
		overdue, err := f.Due(t.Context(), dispatcher.DueQuery{Until: late, Now: late, Overdue: true, Limit: 10})
		f.Must(err)
		apps, err := f.OverdueApps(t.Context(), nil, nil, time.Time{}, late)
		f.Must(err)
		upcoming, err := f.Upcoming(t.Context(), nil, late, 10)
		f.Must(err)
		if n := f.dueCount(); n != 0 || len(overdue) != 0 || len(apps) != 0 || upcoming != 0 {
			t.Errorf("%s: %d due, %d overdue, of apps %v, %d upcoming; want none", when, n, len(overdue), apps, upcoming)
		}
		if won := f.ClaimAll(advances...); len(won) != 0 {
			t.Errorf("%s: %d fires were claimed, want none", when, len(won))
		}
	}
	check("at once")
	followed := 0
	for _, want := range []bool{true, true, false} {
		n, more := f.follow(40)
		if followed += n; more != want {
			t.Errorf("after %d triggers: more to do is %t, want %t", followed, more, want)
		}
		check(fmt.Sprintf("when %d had followed", followed))
	}
	if n, more := f.follow(40); followed != left || n != 0 || more {
		t.Errorf("%d triggers followed, and then %d, want %d and no more", followed, n, left)
	}
}

func testEnableManyTriggers(t *testing.T, f *wing) {
	f.putMany(nil)
	f.SetApp(false)
	f.followAll()
	f.SetApp(true)
	if n := f.dueCount(); n != many-left {
		t.Errorf("at once %d triggers are due, want %d", n, many-left)
	}
	f.follow(40)
	if n := f.dueCount(); n != many-left+40 {
		t.Errorf("after a portion %d triggers are due, want %d", n, many-left+40)
	}
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("in the end %d triggers are due, want all %d", n, many)
	}
	// A switch that is turned back covers all triggers again.
	f.SetApp(false)
	f.SetApp(true)
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("switched off and on %d triggers are due, want all %d", n, many)
	}
	f.SetApp(true)
	if n, more := f.follow(40); n != 0 || more {
		t.Errorf("after a change of nothing %d triggers follow, want none", n)
	}
}

// Triggers get ids before and after the cursor of a switch.
func testPutJobWhileSwitched(t *testing.T, f *wing) {
	f.putMany(nil)
	f.SetApp(false)
	triggers := map[string]dispatcher.Trigger{}
	for k := range 20 {
		triggers[fmt.Sprint("t", k)] = fixture.Every(time.Minute, fixture.T0.Add(time.Minute))
	}
	f.Put(fixture.Job("new", triggers), fixture.T0)
	f.Put(fixture.Job("job0", triggers), fixture.T0) // 80 of its triggers are removed
	f.followAll()
	if n := f.dueCount(); n != 0 {
		t.Errorf("of the disabled app %d triggers are due, want none", n)
	}
	f.SetApp(true)
	f.Put(fixture.Job("newer", triggers), fixture.T0)
	f.followAll()
	if n, want := f.dueCount(), many-80+40; n != want {
		t.Errorf("of the enabled app %d triggers are due, want %d", n, want)
	}
}

// A portion that fails, or a node that dies between two, leaves the rest to the next node.
func testInterruptedSwitch(t *testing.T, f *wing) {
	f.putMany(nil)
	f.SetApp(false)
	f.follow(40)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, more, err := f.FollowSwitches(dead, 40); !errors.Is(err, context.Canceled) || more {
		t.Errorf("interrupted: %v, more to do is %t; want the error, and not to be called at once again", err, more)
	}
	if n, more := f.follow(1000); n != left-40 || more {
		t.Errorf("after that %d triggers followed, want %d", n, left-40)
	}
	f.SetApp(true)
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("%d triggers are due, want %d", n, many)
	}
}

func testReasonsAddUp(t *testing.T, f *wing) {
	gpu := input.Labels{"gpu": "yes"}
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	j.NodeLabels = gpu
	pause := func(trigger string, paused bool) {
		t.Helper()
		f.Must(f.PauseJob(t.Context(), "shop", "tick", trigger, paused, fixture.At(fixture.T0)))
	}
	f.SetApp(false)
	f.Put(j, fixture.T0)
	pause("", true)
	pause("tick", true)
	f.Put(j, fixture.T0) // a change of the definition does not affect the pauses
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"the job is resumed", func() { pause("", false) }},
		{"the trigger is resumed", func() { pause("tick", false) }},
		{"the app is enabled", func() { f.SetApp(true) }},
		{"a node has its labels", func() {
			f.Must(f.Register(t.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: gpu}, fixture.T0))
		}},
	} {
		if n := f.dueCount(); n != 0 {
			t.Errorf("before %s: %d triggers are due, want none", step.what, n)
		}
		step.do()
	}
	if n := f.dueCount(); n != 1 {
		t.Errorf("when all is over: %d triggers are due, want 1", n)
	}
	// An error that ends leaves the other reasons.
	pause("tick", true)
	revision := f.RevisionOf("tick")
	f.Must(f.Quarantine(t.Context(), run.TriggerID("shop", "tick", "tick"), revision, "unreadable"))
	f.SetApp(false)
	f.Put(j, fixture.T0)
	f.SetApp(true)
	if n := f.dueCount(); n != 0 {
		t.Errorf("paused, and out of quarantine: %d triggers are due, want none", n)
	}
	f.Must(f.Quarantine(t.Context(), run.TriggerID("shop", "tick", "tick"), f.RevisionOf("tick"), "unreadable"))
	pause("tick", false)
	if n := f.dueCount(); n != 1 || f.Trigger("tick").State != dispatcher.TriggerWaiting {
		t.Errorf("resumed out of quarantine: %d triggers are due in state %s, want 1", n, f.Trigger("tick").State)
	}
}

// wantSets checks which sets of labels a live node has.
func (f *wing) wantSets(when string, want ...string) {
	f.Helper()
	sets, err := f.LabelSets(f.Context())
	f.Must(err)
	var got []string
	for _, set := range sets {
		got = append(got, set.String())
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("%s: sets of labels (-want +got):\n%s", when, diff)
	}
}

func testLabelsOfNodes(t *testing.T, f *wing) {
	ctx := t.Context()
	put := func(name string, labels input.Labels) {
		t.Helper()
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
		j.NodeLabels = labels
		f.Put(j, fixture.T0)
	}
	check := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, d := range f.DueAll(fixture.T0.Add(time.Minute)) {
			got = append(got, d.NodeLabels.String())
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: labels of due triggers (-want +got):\n%s", when, diff)
		}
	}
	gpu, eu := input.Labels{"gpu": "yes"}, input.Labels{"zone": "eu"}
	both := input.Labels{"gpu": "yes", "zone": "eu"}
	put("plain", nil)
	put("gpu", gpu)
	put("eu", eu)
	put("both", both)
	check("no node has labels", "")
	f.wantSets("no node has labels")
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeB, Labels: gpu}, fixture.T0))
	check("a node has one of them", "", "gpu=yes")
	f.wantSets("a node has one of them", "gpu=yes")
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeC, Labels: both}, fixture.T0))
	check("another has both", "", "gpu=yes", "gpu=yes,zone=eu", "zone=eu")
	f.wantSets("another has both", "gpu=yes", "gpu=yes,zone=eu", "zone=eu")
	put("gpu", eu)
	put("more", both)
	check("two jobs changed", "", "gpu=yes,zone=eu", "gpu=yes,zone=eu", "zone=eu", "zone=eu")
	f.Must(f.SetNodeState(ctx, fixture.NodeC, dispatcher.NodePaused, fixture.At(fixture.T0)))
	check("the node with both is paused", "", "gpu=yes,zone=eu", "gpu=yes,zone=eu", "zone=eu", "zone=eu")
	f.Must(f.Deregister(ctx, fixture.NodeC))
	check("the node with both has left", "")
	put("gpu", nil)
	put("eu", gpu)
	late := fixture.T0.Add(time.Minute)
	f.Must(f.Register(ctx, dispatcher.Node{ID: fixture.NodeD, Labels: gpu}, fixture.T0))
	check("a job requires what a node has", "", "", "gpu=yes")
	// nodeD dies and, if several nodes are possible, nodeB.
	f.Must(f.Register(ctx, dispatcher.Node{ID: 0x0e}, late))
	f.Must(f.MarkDead(ctx, 0x0e, late, 15*time.Second, late))
	check("the nodes died", "", "")
	f.wantSets("the nodes died")
}

func testLabelsInPortions(t *testing.T, f *wing) {
	gpu := input.Labels{"gpu": "yes"}
	f.putMany(gpu)
	if n := f.dueCount(); n != 0 {
		t.Errorf("without a node %d triggers are due, want none", n)
	}
	f.followAll()
	f.Must(f.Register(t.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: gpu}, fixture.T0))
	if n := f.dueCount(); n != many-left {
		t.Errorf("with a node %d triggers are due at once, want %d", n, many-left)
	}
	if n, more := f.follow(40); n != 40 || !more {
		t.Errorf("%d followed, more to do is %t; want 40 and more", n, more)
	}
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("in the end %d triggers are due, want all %d", n, many)
	}
	f.Must(f.Deregister(t.Context(), fixture.NodeB))
	f.followAll()
	if n := f.dueCount(); n != 0 {
		t.Errorf("after the node has left %d triggers are due, want none", n)
	}
}

// A fire is claimed ahead of its instant, and the job is deleted and declared again before that.
func testDeclaredAgain(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	instant, now := fixture.T0.Add(time.Minute), fixture.T0.Add(time.Minute-time.Second)
	claim := func(when string, want int) {
		t.Helper()
		var advances []dispatcher.Advance
		for _, d := range f.DueAll(instant) {
			advances = append(advances, f.Advance(d))
		}
		held, err := f.Claim(ctx, dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Lead: 5 * time.Second, Advances: advances,
			Now: now})
		f.Must(err)
		if len(held) != want {
			t.Errorf("%s: %d fires of %s were claimed, want %d", when, len(held), instant, want)
		}
	}
	claim("ahead of its instant", 1)
	again := func(when string, put dispatcher.Job, at time.Time) {
		t.Helper()
		stored := f.Put(put, at)
		if next := stored.Triggers["tick"].NextFireTime; next == nil || !next.Equal(fixture.T0.Add(2*time.Minute)) {
			t.Errorf("%s: next fire is %v, want %s", when, next, fixture.T0.Add(2*time.Minute))
		}
		claim(when, 0)
	}
	declared := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, instant)})
	for _, when := range []string{"deleted and declared again", "and once more"} {
		f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(now)))
		again(when, declared, now)
	}
	f.Put(fixture.Job("tick", nil), now)
	again("removed and declared again", declared, now)
	// Fires claimed at their instant or after have a later now.
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(instant)))
	again("declared again later", declared, instant)
	if prev := f.Trigger("tick").PrevFireTime; prev != nil {
		t.Errorf("the trigger that was declared again fired at %s, want never", prev)
	}
}

// The only fire of such a trigger was claimed: the trigger is complete, without an error.
func testInstantDeclaredAgain(t *testing.T, f *wing) {
	ctx := t.Context()
	once := dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule:     dispatcher.Schedule{Expression: "at(2026-05-01T10:01:00Z)"},
			MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
		},
	}
	declared := fixture.Job("once", map[string]dispatcher.Trigger{"tick": once})
	f.Put(declared, fixture.T0)
	now := fixture.T0.Add(time.Minute - time.Second)
	held, err := f.Claim(ctx, dispatcher.ClaimBatch{
		Node: fixture.NodeA, Token: f.NextToken(), Lead: 5 * time.Second, Advances: []dispatcher.Advance{f.NextAdvance()}, Now: now,
	})
	f.Must(err)
	if len(held) != 1 {
		t.Fatalf("%d fires were claimed ahead of the instant, want 1", len(held))
	}
	f.Must(f.DeleteJob(ctx, "shop", "once", fixture.At(now)))
	stored, _, err := f.PutJob(ctx, declared, fixture.At(now))
	f.Must(err)
	if got := stored.Triggers["tick"]; got.State != dispatcher.TriggerComplete || got.NextFireTime != nil {
		t.Errorf("declared again: state %s, next fire %v; want it complete", got.State, got.NextFireTime)
	}
}

func testRunsOfDeletedApp(t *testing.T, f *wing) {
	labelled := fixture.Job("labelled", nil)
	labelled.NodeLabels = input.Labels{"zone": "nowhere"}
	f.Put(labelled, fixture.T0)
	queued := f.Requested("labelled")
	held, wait := f.ClaimOne("tick"), fixture.WaitOf("tick", "down.example.com")
	f.Waits(held, wait)
	f.SetApp(false)
	for _, name := range []string{"labelled", "tick"} {
		f.Must(f.DeleteJob(t.Context(), "shop", name, fixture.At(fixture.T0)))
	}
	now := wait.ProbeAt
	fixture.WantDiff(t, "runs of a disabled app", 0, len(f.AdoptIdle(fixture.NodeA, now))+len(f.HostsDue(now)))
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
	if got := f.AdoptIdle(fixture.NodeA, now); len(got) != 1 || got[0].Key != queued {
		t.Errorf("adopted %+v, want the queued run, so that its node ends it", got)
	}
	fixture.WantDiff(t, "waits for hosts that are due", 1, len(f.HostsDue(now)))
	fixture.WantDiff(t, "runs that wait for a host and may go", 1, len(f.WaitingFor(wait, now)))
}
