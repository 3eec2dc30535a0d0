package feeds

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followMeetingTests test combinations of followers, alerts, backfills and pauses of apps.
func followMeetingTests() tests {
	return tests{
		"a job that a pause of its app holds is not expected to succeed": testAlertNoSuccessOfPausedApp,
		"a run of a backfill does not take too long for an alert":        testAlertOverrunOfBackfill,
		"a change of bounds names the jobs whose deliveries it breaks":   testBreaksOfFollows,
		"a run that returns a state is followed, and ends alerts":        testFollowedReturned,
		"a skipped rollback sends no followers":                          testSkipFollows,
		"a replayed rollback sends followers":                            testReplayFollows,
		"the destination of an alert that a job names gets its runs":     testFollowedByAlert,
		"a deleted alert that a job names skips the delivery":            testFollowedByDeletedAlert,
		"missed fires reach the destination of an alert":                 testMissedFiresReachAlert,
	}
}

func testAlertNoSuccessOfPausedApp(t *testing.T, f *wing) {
	f.Watched("sync", fixture.Payments)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{NoSuccessFor: input.Duration(10 * time.Minute)}
	f.DeclareAlert(a, fixture.T0)
	pause := f.PauseLabelled(fixture.Payments)
	for minute := range 60 {
		f.Expect("notifications while the app is paused", f.watch(fixture.T0.Add(time.Duration(minute)*time.Minute)), 0)
	}
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0.Add(time.Hour))))
	f.Expect("notifications soon after", f.watch(fixture.T0.Add(70*time.Minute-time.Second)), 0)
	other, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "search"}}, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.EndAppPause(t.Context(), "shop", other.ID, fixture.At(fixture.T0.Add(80*time.Minute))))
	f.Expect("notifications in time, although a pause of other jobs has just ended", f.watch(fixture.T0.Add(81*time.Minute)), 1)
}

func testAlertOverrunOfBackfill(_ *testing.T, f *wing) {
	b := f.BackfillOfNew(nil)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{OverrunAfter: input.Duration(5 * time.Minute)}
	f.DeclareAlert(a, fixture.T0)
	f.watch(b.Now)
	f.Expect("runs of the backfill under way", len(b.Feed()), 1)
	f.Expect("notifications when one takes an hour", f.watch(b.Now.Add(time.Hour)), 0)
	f.Expect("what holds", f.firing(), "")
}

func testBreaksOfFollows(_ *testing.T, f *wing) {
	j := fixture.Job("parent", nil)
	j.Target.Webhook.URL = "https://hooks.example.org/"
	j.OnFailure = &dispatcher.Follow{FollowDestination: fixture.Hook("https://elsewhere.example.com/")}
	f.Put(j, fixture.T0)
	app := f.Bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"hooks.example.org"}}})
	if b := app.Breaks; b == nil || b.Count != 1 || b.Jobs[0].Job != "parent" {
		f.Errorf("breaks: %+v, want the job whose on_failure calls another host", app.Breaks)
	}
}

// rolledBack prepares a database that lost commits: it has an end without queued followers, a run in progress, due
// fires, and a backfill.
func (f *wing) rolledBack() *fixture.Backfilling {
	f.Helper()
	f.Put(fixture.Job("child", nil), fixture.T0)
	parent := fixture.Job("parent", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	parent.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
	parent.OnMisfire = parent.OnFailure
	f.Put(parent, fixture.T0)
	held := f.FireOf("parent")
	f.RecordFollowed(held, fixture.Ended(run.Failed, held.ScheduledAt))
	f.FireOf("parent")
	b := f.BackfillOfNew(nil)
	f.Must(f.DeclareRollback(f.Context(), "restored", fixture.At(b.Now)))
	f.Expect("what follows before the choice", f.FollowAll(b.Now), 0)
	open, err := f.OpenBackfills(f.Context())
	f.Must(err)
	f.Expect("backfills that go on before the choice", len(open), 0)
	return b
}

func testSkipFollows(t *testing.T, f *wing) {
	b := f.rolledBack()
	f.Must(f.ResolveRollback(t.Context(), dispatcher.RollbackSkip, fixture.At(b.Now)))
	for after, more := int64(0), true; more; {
		f.Expect("what follows while it is skipped", f.FollowAll(b.Now), 0)
		done, err := f.SkipRolledBack(t.Context(), after, 10, b.Now.Add(time.Minute))
		f.Must(err)
		after, more = done.Last, done.More
	}
	f.Expect("runs of the parent", f.RunsOf("parent"), "schedule lost, schedule failed")
	f.Expect("what follows", f.FollowAll(b.Now.Add(time.Minute)), 0)
	f.Expect("runs of the backfill", len(b.Feed()), 0)
	found, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.ID))
	f.Must(err)
	if found.State != repeat.BackfillCancelled || found.Error == "" {
		t.Errorf("the backfill is %s, because %q; want it cancelled, and why", found.State, found.Error)
	}
}

func testReplayFollows(t *testing.T, f *wing) {
	b := f.rolledBack()
	f.Must(f.ResolveRollback(t.Context(), dispatcher.RollbackReplay, fixture.At(b.Now)))
	f.Expect("what follows", f.FollowAll(b.Now), 1)
	f.Expect("runs of the child", f.RunsOf("child"), "chain queued")
	open, err := f.OpenBackfills(t.Context())
	f.Must(err)
	f.Expect("backfills that go on", len(open), 1)
}

func testFollowedReturned(_ *testing.T, f *wing) {
	f.Put(fixture.Job("child", nil), fixture.T0)
	runs := f.Bounded(2, func(j *dispatcher.Job) {
		fixture.Carries(j)
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}}
	})
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Expect("the first", f.AcquireSlots(runs[0]), []int{1})
	f.RecordFollowed(runs[0], fixture.Ended(run.Failed, runs[0].ScheduledAt))
	f.Must(f.ReleaseSlots(f.Context(), runs[:1]))
	f.Expect("what follows the failure", f.FollowAll(runs[0].ScheduledAt.Add(time.Second)), 1)
	f.Expect("the second", f.AcquireSlots(runs[1]), []int{2})
	o := fixture.Outcome(runs[1].ScheduledAt)
	o.Returned = &run.ReturnedState{State: json.RawMessage(`{"cursor":1}`)}
	r := fixture.Record(runs[1], o)
	r.Followed = true
	f.Must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.Expect("what follows the success", f.FollowAll(runs[1].ScheduledAt.Add(time.Second)), 2)
	f.Expect("what is told", f.told("night"), "tick failure firing, tick failure resolved")
	f.Expect("runs of the child", f.RunsOf("child"), "chain queued")
	f.ExpectState(run.CarriedState{State: json.RawMessage(`{"cursor":1}`), Revision: 1, Run: runs[1].String()})
}

// putNaming stores a job that names an alert in two events, and returns its warnings.
func (f *wing) putNaming() string {
	f.Helper()
	parent := fixture.Job("parent", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	parent.RunbookURL, parent.Labels = "https://wiki.example.com/parent", fixture.Payments
	parent.OnFailure, parent.OnMisfire = &dispatcher.Follow{Alert: "night"}, &dispatcher.Follow{Alert: "night"}
	stored, _, err := f.PutJob(f.Context(), parent, fixture.At(fixture.T0))
	f.Must(err)
	return fmt.Sprint(fixture.ProblemCodes(input.Problems(stored.Warnings)))
}

// naming is an alert that watches no job of these tests.
func naming() alert.Alert {
	a := fixture.Pager("night")
	a.Jobs = []string{"other"}
	return a
}

// delivered returns what the only run that a node adopts gets as payload.
func (f *wing) delivered(now time.Time) (n target.AlertNotification) {
	f.Helper()
	queued := f.AdoptIdle(fixture.NodeA, now)
	f.Expect("runs that a node adopts", len(queued), 1)
	all, err := f.RunInputs(f.Context(), []run.Key{queued[0].Key})
	f.Must(err)
	f.Must(json.Unmarshal(all[queued[0].Key].Payload, &n))
	return n
}

func testFollowedByAlert(t *testing.T, f *wing) {
	const missing = "[follow_unknown /on_failure/alert follow_unknown /on_misfire/alert]"
	f.Expect("warnings before the alert exists", f.putNaming(), missing)
	held := f.Ends("parent", run.Failed)
	f.Expect("what the run is followed by", len(f.RunOf(held.Key).FollowedBy), 0)

	f.DeclareAlert(naming(), fixture.T0)
	f.Expect("warnings when it exists", f.putNaming(), "[]")
	held = f.FireOf("parent")
	o := fixture.Ended(run.Failed, held.ScheduledAt)
	o.Response = &run.Response{Body: "no\nmoney"}
	f.RecordFollowed(held, o)
	f.Expect("deliveries", f.FollowAll(held.ScheduledAt), 1)
	f.Expect("runs of the delivery", f.RunsOf("night.alert"), "follow queued")
	fixture.WantDiff(t, "what the destination gets", target.AlertNotification{
		App: "shop", Alert: "night", Job: "parent", Condition: "on_failure", Transition: target.AlertFollowed, At: o.EndedAt, Since: o.EndedAt,
		Trigger: "tick", Run: held.String(), Class: o.Class, Error: o.Error, ScheduledAt: &held.ScheduledAt, Response: "no money",
		RunbookURL: "https://wiki.example.com/parent", Labels: fixture.Payments,
	}, f.delivered(held.ScheduledAt))
	if refs := f.RunOf(held.Key).FollowedBy; len(refs) != 1 || refs[0].Job != "night.alert" {
		t.Errorf("the run is followed by %+v, want a delivery for alert night", refs)
	}

	other := naming()
	other.Destination.Webhook.URL = "https://other.example.com/"
	f.DeclareAlert(other, fixture.T0)
	delivery := f.Prepared(other.Attached().Key())
	f.Expect("where it goes after a change of the alert", delivery.Target.Alert.Webhook.URL, "https://other.example.com/")
}

func testFollowedByDeletedAlert(t *testing.T, f *wing) {
	f.DeclareAlert(naming(), fixture.T0)
	f.Expect("warnings", f.putNaming(), "[]")
	f.Must(f.DeleteAlert(t.Context(), "shop", "night", fixture.At(fixture.T0)))
	held := f.Ends("parent", run.Failed)
	f.Expect("runs of the delivery", f.RunsOf("night.alert"), "follow skipped")
	key, err := run.ParseKey(f.RunOf(held.Key).FollowedBy[0].Run)
	f.Must(err)
	skipped := f.RunOf(key)
	f.Expect("why it was skipped", skipped.Error, "alert night was deleted at "+input.FormatInstant(fixture.T0)+
		", and on_failure of job parent names it; create it again, or take its name out")
	f.Expect("what it follows", skipped.Cause.Run, held.String())
	f.DeclareAlert(naming(), fixture.T0)
	f.Ends("parent", run.Failed)
	f.Expect("runs of the delivery", f.RunsOf("night.alert"), "follow queued, follow skipped")
}

func testMissedFiresReachAlert(_ *testing.T, f *wing) {
	f.DeclareAlert(naming(), fixture.T0)
	f.putNaming()
	f.SettleAll("parent", fixture.Minutes(3))
	f.Expect("deliveries", f.FollowAll(fixture.Minutes(4)), 1)
	n := f.delivered(fixture.Minutes(4))
	f.Expect("the title", n.Title(), "Job shop/parent missed 3 fires")
}
