package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followMeetingTests tell how what follows runs, alerts, backfills and pauses of apps meet.
func followMeetingTests() tests {
	return tests{
		"a job that a pause of its app holds is not expected to succeed": testAlertNoSuccessOfPausedApp,
		"a run of a backfill does not take too long for an alert":        testAlertOverrunOfBackfill,
		"a change of bounds names the jobs whose deliveries it breaks":   testBreaksOfFollows,
		"a run that returns a state is followed, and ends alerts":        testFollowedReturned,
		"a rollback that is skipped sends nothing that follows":          testSkipFollows,
		"a rollback that is replayed sends what follows":                 testReplayFollows,
	}
}

func testAlertNoSuccessOfPausedApp(t *testing.T, f *fixture) {
	f.watched("sync", payments)
	a := pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{NoSuccessFor: input.Duration(10 * time.Minute)}
	f.putAlert(a, t0)
	pause := f.pauseApp(payments)
	for minute := range 60 {
		f.expect("notifications while the app is paused", f.watch(t0.Add(time.Duration(minute)*time.Minute)), 0)
	}
	f.must(f.EndAppPause(t.Context(), "shop", pause.ID, at(t0.Add(time.Hour))))
	f.expect("notifications soon after", f.watch(t0.Add(70*time.Minute-time.Second)), 0)
	other, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "search"}}, at(t0))
	f.must(err)
	f.must(f.EndAppPause(t.Context(), "shop", other.ID, at(t0.Add(80*time.Minute))))
	f.expect("notifications in time, although a pause of other jobs has just ended", f.watch(t0.Add(81*time.Minute)), 1)
}

func testAlertOverrunOfBackfill(_ *testing.T, f *fixture) {
	b := f.backfill(nil)
	a := pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{OverrunAfter: input.Duration(5 * time.Minute)}
	f.putAlert(a, t0)
	f.watch(b.now)
	f.expect("runs of the backfill under way", len(b.feed()), 1)
	f.expect("notifications when one takes an hour", f.watch(b.now.Add(time.Hour)), 0)
	f.expect("what holds", f.firing(), "")
}

func testBreaksOfFollows(_ *testing.T, f *fixture) {
	j := job("parent", nil)
	j.Target.Webhook.URL = "https://hooks.example.org/"
	to := j.Target
	webhook := *j.Target.Webhook
	webhook.URL = "https://elsewhere.example.com/"
	to.Webhook = &webhook
	j.OnFailure = &dispatcher.Follow{Target: &to}
	f.put(j, t0)
	app := f.bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"hooks.example.org"}}})
	if b := app.Breaks; b == nil || b.Count != 1 || b.Jobs[0].Job != "parent" {
		f.Errorf("breaks: %+v, want the job whose on_failure calls another host", app.Breaks)
	}
}

// rolledBack is a database that lost commits: it has an end that nothing has followed yet, a run that is under way, fires
// that are due, and a backfill.
func (f *fixture) rolledBack() *backfilling {
	f.Helper()
	f.put(job("child", nil), t0)
	parent := job("parent", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
	parent.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}
	parent.OnMisfire = parent.OnFailure
	f.put(parent, t0)
	held := f.fireOf("parent")
	f.recordFollowed(held, ended(run.Failed, held.ScheduledAt))
	f.fireOf("parent")
	b := f.backfill(nil)
	f.must(f.DeclareRollback(f.Context(), "restored", at(b.now)))
	f.expect("what follows before the choice", f.followEnds(b.now), 0)
	open, err := f.OpenBackfills(f.Context())
	f.must(err)
	f.expect("backfills that go on before the choice", len(open), 0)
	return b
}

func testSkipFollows(t *testing.T, f *fixture) {
	b := f.rolledBack()
	f.must(f.ResolveRollback(t.Context(), dispatcher.RollbackSkip, at(b.now)))
	for after, more := int64(0), true; more; {
		f.expect("what follows while it is skipped", f.followEnds(b.now), 0)
		done, err := f.SkipRolledBack(t.Context(), after, 10, b.now.Add(time.Minute))
		f.must(err)
		after, more = done.Last, done.More
	}
	f.expect("runs of the parent", f.runsOf("parent"), "schedule lost, schedule failed")
	f.expect("what follows", f.followEnds(b.now.Add(time.Minute)), 0)
	f.expect("runs of the backfill", len(b.feed()), 0)
	found, err := f.Backfill(t.Context(), "shop", repeat.BackfillID(b.id))
	f.must(err)
	if found.State != repeat.BackfillCancelled || found.Error == "" {
		t.Errorf("the backfill is %s, because %q; want it cancelled, and why", found.State, found.Error)
	}
}

func testReplayFollows(t *testing.T, f *fixture) {
	b := f.rolledBack()
	f.must(f.ResolveRollback(t.Context(), dispatcher.RollbackReplay, at(b.now)))
	f.expect("what follows", f.followEnds(b.now), 1)
	f.expect("runs of the child", f.runsOf("child"), "chain queued")
	open, err := f.OpenBackfills(t.Context())
	f.must(err)
	f.expect("backfills that go on", len(open), 1)
}

func testFollowedReturned(_ *testing.T, f *fixture) {
	f.put(job("child", nil), t0)
	runs := f.bounded(2, func(j *dispatcher.Job) {
		carries(j)
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}}
	})
	f.putAlert(pager("night"), t0)
	f.expect("the first", f.acquire(runs[0]), []int{1})
	f.recordFollowed(runs[0], ended(run.Failed, runs[0].ScheduledAt))
	f.must(f.ReleaseSlots(f.Context(), runs[:1]))
	f.expect("what follows the failure", f.followEnds(runs[0].ScheduledAt.Add(time.Second)), 1)
	f.expect("the second", f.acquire(runs[1]), []int{2})
	o := outcome(runs[1].ScheduledAt)
	o.Returned = &run.ReturnedState{State: json.RawMessage(`{"cursor":1}`)}
	r := record(runs[1], o)
	r.Followed = true
	f.must(f.Record(f.Context(), []dispatcher.Record{r}))
	f.expect("what follows the success", f.followEnds(runs[1].ScheduledAt.Add(time.Second)), 2)
	f.expect("what is told", f.told("night"), "tick failure firing, tick failure resolved")
	f.expect("runs of the child", f.runsOf("child"), "chain queued")
	f.expectState(run.CarriedState{State: json.RawMessage(`{"cursor":1}`), Revision: 1, Run: runs[1].String()})
}
