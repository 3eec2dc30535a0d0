package feeds

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alertTests are the tests of alerts.
func alertTests() tests {
	return tests{
		"alerts are created, replaced, listed and deleted":                      testAlerts,
		"an alert that is put again changes nothing":                            testAlertUnchanged,
		"an app with alerts is not empty":                                       testAppWithAlerts,
		"an alert keeps to the bounds of its app":                               testAlertBounds,
		"a failure and a recovery are notified once":                            testAlertTransitions,
		"a notification has the response, the runbook and the last success":     testAlertDetails,
		"an alert applies to the jobs that it selects":                          testAlertSelection,
		"jobs of a large app follow a change of alerts in portions":             testAlertSweep,
		"runs that began late are notified":                                     testAlertLate,
		"fires that have not begun in time are notified":                        testAlertLateNotBegun,
		"a retry of a fire that began in time is not late":                      testAlertLateRetried,
		"a fire that was late while its job failed is not told afterwards":      testAlertLateWhileFailing,
		"a late fire that is counted as missed is no longer late":               testAlertLateThenMissed,
		"fires that a pause has held are not notified as late":                  testAlertLateAfterPause,
		"a late fire is told until it begins or is given up":                    testAlertLateUntilItBegins,
		"runs that wait for a slot are notified as late":                        testAlertLateInQueue,
		"runs that wait for their host are notified as late":                    testAlertLateForHost,
		"runs that take too long are notified":                                  testAlertOverrun,
		"a job without success for too long is notified":                        testAlertNoSuccess,
		"excluded fires do not count as time without success":                   testAlertNoSuccessExcluded,
		"a disabled or paused job is not expected to succeed":                   testAlertNoSuccessOfPaused,
		"a muted alert notifies firing conditions when the mute ends":           testAlertMute,
		"an acknowledged alert is notified again when its acknowledgement ends": testAlertAcknowledgement,
		"an alert of a deleted job ends":                                        testAlertOfDeletedJob,
		"an alert of a renamed job continues":                                   testAlertOfRenamedJob,
		"states that an alert no longer watches end":                            testAlertChanged,
		"a deleted alert delivers no more notifications":                        testAlertDeleted,
		"an undelivered notification shows in the state":                        testAlertUndelivered,
		"late and no_success are held back while the job fails":                 testAlertOfFailingJob,
		"a notification that waits is sent after a rollback":                    testAlertAfterRollback,
		"an overtaken notification is not sent":                                 testAlertOvertaken,
		"jobs that fail together are told by one run for each host":             testAlertGrouped,
		"a notification waits for the previous one":                             testAlertInOrder,
		"followers of a backfill are not notified":                              testAlertOfBackfillFollower,
		"an alert can be tested":                                                testAlertTest,
		"a success that was recorded before the failure ends an alert in time":  testAlertRecoveryRace,
		"events of alerts are kept as long as the history of their app":         testAlertEventsExpire,
		"an app moves with its alerts":                                          testAlertImport,
		"outdated states are removed":                                           testAlertStatesExpire,
		"an alert names its selectors that match no job":                        testAlertOfNoJob,
		"a job that a slot blocks is notified until it may run":                 testAlertBlocked,
	}
}

// told returns the transitions delivered by the runs of an alert, oldest first.
func (f *wing) told(alert string) string {
	f.Helper()
	var all []string
	for _, n := range f.notifications(alert) {
		all = append(all, n.Job+" "+string(n.Condition)+" "+string(n.Transition))
	}
	return strings.Join(all, ", ")
}

func (f *wing) notifications(alert string) (all []target.AlertNotification) {
	f.Helper()
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: alert + ".alert", Page: input.Page{Limit: 1000}})
	f.Must(err)
	for _, listed := range slices.Backward(runs) {
		run, err := f.Store.Run(f.Context(), listed.ID)
		f.Must(err)
		var n target.AlertNotification
		f.Must(json.Unmarshal(run.Payload, &n))
		all = append(all, n.All()...)
	}
	return all
}

// alertEvents returns the transitions in the app's history, oldest first; those not notified are in brackets.
func (f *wing) alertEvents() string {
	f.Helper()
	var all []string
	query := alert.EventQuery{App: "shop", Page: input.Page{Limit: 2}}
	for {
		page, err := f.AlertEvents(f.Context(), query)
		f.Must(err)
		for _, e := range page {
			text := e.Job + " " + string(e.Condition) + " " + string(e.Transition)
			if e.Kept != "" {
				text = "[" + text + " " + string(e.Kept) + "]"
			}
			all = append(all, text)
		}
		if len(page) < 2 {
			slices.Reverse(all)
			return strings.Join(all, ", ")
		}
		query.Page.Cursor = page[1].Cursor
	}
}

// inAnyOrder sorts the result of told or alertEvents: the app's salt decides the order of transitions of one instant.
func inAnyOrder(list string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(list, ", ")), ", ")
}

// firing returns the firing conditions, as job and condition.
func (f *wing) firing() string {
	f.Helper()
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Firing: true, Now: fixture.T0,
		Page: input.Page{Limit: 1000}})
	f.Must(err)
	var all []string
	for _, s := range states {
		all = append(all, s.Job+" "+string(s.Condition))
	}
	return strings.Join(all, ", ")
}

// watch does the handler's work for alerts, and returns how many notifications it queued.
func (f *wing) watch(now time.Time) (notified int) {
	f.Helper()
	late := &alert.LateFire{}
	for range 100 {
		done, next, err := f.WatchAlerts(f.Context(), late, 3, now)
		f.Must(err)
		notified += done.Notified
		if late = next; !done.More {
			return notified
		}
	}
	f.Fatal("the watch of alerts does not end")
	return 0
}

func testAlerts(t *testing.T, f *wing) {
	a := fixture.Pager("night")
	a.Jobs, a.Labels = []string{"b", "a"}, input.Labels{"team": "x"}
	a.Mutes = []alert.MuteWindow{{Schedule: "0 0 2 * * ?", Duration: input.Duration(time.Hour), Timezone: "Europe/Berlin"}}
	stored := f.DeclareAlert(a, fixture.T0)
	f.Expect("the revision of a new alert", stored.Revision, int64(1))
	a.Description = "changed"
	stored = f.DeclareAlert(a, fixture.T0.Add(time.Second))
	f.Expect("the revision of a changed alert", stored.Revision, int64(2))
	want := a.Resolved()
	want.Revision, want.CreatedAt, want.UpdatedAt = 2, fixture.T0, fixture.T0.Add(time.Second)
	want.Warnings = stored.Warnings // about missing jobs, see testAlertOfNoJob
	fixture.WantDiff(t, "the alert", want, stored)
	f.DeclareAlert(fixture.Pager("all"), fixture.T0)
	list, err := f.Alerts(t.Context(), "shop", input.Page{Limit: 10, Cursor: "all"})
	f.Must(err)
	f.Expect("alerts after the first", len(list), 1)
	err = f.DeleteAlert(t.Context(), "shop", "night", input.Change{IfRevision: 1, Now: fixture.T0})
	if !errors.Is(err, dispatcher.ErrPrecondition) {
		t.Errorf("DeleteAlert of an old revision: %v", err)
	}
	f.Must(f.DeleteAlert(t.Context(), "shop", "night", fixture.At(fixture.T0)))
	if _, err := f.Alert(t.Context(), "shop", "night"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("Alert after DeleteAlert: %v", err)
	}
	f.Expect("the revision of an alert that is declared again", f.DeclareAlert(fixture.Pager("night"), fixture.T0).Revision, int64(3))
	if _, _, err := f.PutAlert(t.Context(), alert.Alert{App: "shop", Name: "x"}, fixture.At(fixture.T0)); err == nil {
		t.Error("PutAlert takes an alert without conditions and destination")
	}
	jobs, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 10})
	f.Must(err)
	f.Expect("jobs that are listed", len(jobs), 0)
}

func testAlertUnchanged(t *testing.T, f *wing) {
	first := f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	_, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Reason: "quiet"}, fixture.At(fixture.T0))
	f.Must(err)
	again := f.DeclareAlert(fixture.Pager("night"), fixture.T0.Add(time.Hour))
	f.Expect("the revision after the same was put", again.Revision, first.Revision)
	f.Expect("the mute after the same was put", again.Muted.Reason, "quiet")
}

func testAppWithAlerts(t *testing.T, f *wing) {
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	err := f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0))
	if !errors.Is(err, dispatcher.ErrNotEmpty) || !strings.Contains(err.Error(), `alert "night"`) {
		t.Errorf("DeleteApp of an app with an alert: %v", err)
	}
	f.Must(f.DeleteAlert(t.Context(), "shop", "night", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
}

func testAlertBounds(_ *testing.T, f *wing) {
	f.Bound(target.Bounds{Egress: target.EgressBounds{Hosts: []string{"allowed.example.com"}}})
	_, _, err := f.PutAlert(f.Context(), fixture.Pager("night"), fixture.At(fixture.T0))
	f.WantProblem("an alert to another host", err, "bound_egress /destination/webhook/url")
}

func testAlertTransitions(t *testing.T, f *wing) {
	f.Watched("sync", input.Labels{"team": "x"})
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Succeeded)
	failed := f.Ends("sync", run.Failed)
	f.Ends("sync", run.Lost, run.TimedOut)
	f.Expect("what holds", f.firing(), "sync failure")
	f.RecordFollowed(failed, fixture.Ended(run.Failed, failed.ScheduledAt)) // again, as after a lost response
	f.Expect("runs that the same end queues", f.FollowAll(failed.ScheduledAt), 0)
	f.Ends("sync", run.Succeeded, run.Succeeded, run.Failed)
	f.Expect("what is told", f.told("night"), "sync failure firing, sync failure resolved, sync failure firing")
	f.Expect("events", f.alertEvents(), f.told("night"))
	n := f.notifications("night")[0]
	fixture.WantDiff(t, "the first notification", target.AlertNotification{App: "shop", Alert: "night", Job: "sync", Trigger: "tick",
		Condition: target.AlertFailure, Transition: target.AlertFiring, At: n.At, Since: failed.ScheduledAt.Add(time.Second), Count: 1,
		Run: failed.String(), Class: run.ClassHTTP5xx, Error: "broken", ScheduledAt: &failed.ScheduledAt, Description: "wake somebody",
		LastSuccess: new(failed.ScheduledAt.Add(-time.Minute + time.Second)), Labels: input.Labels{"team": "x"}, Sequence: 1}, n)
	f.Expect("the count of the recovery", f.notifications("night")[1].Count, 3)
	alert, err := f.Alert(t.Context(), "shop", "night")
	f.Must(err)
	f.Expect("how many conditions hold", alert.Firing, 1)
}

func testAlertSelection(_ *testing.T, f *wing) {
	for name, labels := range map[string]input.Labels{"named": nil, "labelled": {"team": "x", "tier": "1"}, "other": {"team": "y"}} {
		f.Watched(name, labels)
	}
	named, labelled := fixture.Pager("named"), fixture.Pager("labelled")
	named.Jobs, labelled.Labels = []string{"named"}, input.Labels{"team": "x"}
	for _, a := range []alert.Alert{named, labelled, fixture.Pager("default")} {
		f.DeclareAlert(a, fixture.T0)
	}
	f.Watched("late", input.Labels{"team": "x"}) // declared after the alerts
	for _, name := range []string{"named", "labelled", "other", "late"} {
		f.Ends(name, run.Failed)
	}
	f.Expect("what the alert of a name tells", f.told("named"), "named failure firing")
	f.Expect("what the alert of a label tells", inAnyOrder(f.told("labelled")), "labelled failure firing, late failure firing")
	f.Expect("what the default tells", f.told("default"), "other failure firing")
}

func testAlertSweep(_ *testing.T, f *wing) {
	f.InCheck()
	const jobs = 510 // more than follow at once
	for i := range jobs {
		f.Put(fixture.Job("job-"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26), nil), fixture.T0)
	}
	a := fixture.Pager("night")
	a.NoSuccessFor = input.Duration(time.Hour)
	f.DeclareAlert(a, fixture.T0)
	count := func() int {
		all, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Now: fixture.T0, Page: input.Page{Limit: 1000}})
		f.Must(err)
		return len(all)
	}
	f.Expect("jobs that follow at once", count(), 500)
	f.watch(fixture.T0)
	f.Expect("jobs that follow in the end", count(), jobs)
}

func testAlertOverrun(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{OverrunAfter: input.Duration(5 * time.Minute)}
	f.DeclareAlert(a, fixture.T0)
	f.watch(fixture.T0)
	held := f.FireOf("sync")
	begun := held.ClaimedAt
	f.Expect("notifications in time", f.watch(begun.Add(5*time.Minute)), 0)
	_, err := f.UnfoldClaims(f.Context(), fixture.NodeA, time.Minute, begun.Add(5*time.Minute))
	f.Must(err)
	f.Expect("notifications when it takes longer", f.watch(begun.Add(5*time.Minute+time.Second)), 1)
	f.Expect("what is told in words", f.notifications("night")[0].Title(), "Job shop/sync has run for 5m1s, allowed are 5m0s")
	f.Expect("the run", f.notifications("night")[0].Run, held.String())
	f.Expect("notifications while it takes longer", f.watch(begun.Add(10*time.Minute)), 0)
	f.RecordFollowed(held, fixture.Ended(run.Succeeded, begun.Add(time.Second)))
	f.FollowAll(begun.Add(11 * time.Minute))
	f.Expect("notifications when it has ended", f.watch(begun.Add(12*time.Minute)), 1)
	f.Expect("what is told", f.told("night"), "sync overrun firing, sync overrun resolved")
}

func testAlertNoSuccess(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{NoSuccessFor: input.Duration(10 * time.Minute)}
	f.DeclareAlert(a, fixture.T0)
	for range 6 {
		f.Ends("sync", run.Succeeded) // the last ends at T0 + 6m + 1s
	}
	f.Ends("sync", run.Failed)
	last := fixture.T0.Add(6*time.Minute + time.Second)
	f.Expect("notifications after ten minutes", f.watch(fixture.T0.Add(10*time.Minute)), 0)
	f.Expect("notifications just before", f.watch(last.Add(10*time.Minute-time.Millisecond)), 0)
	f.Expect("notifications when it is time", f.watch(last.Add(10*time.Minute)), 1)
	f.Expect("notifications later", f.watch(last.Add(30*time.Minute)), 0)
	n := f.notifications("night")[0]
	f.Expect("since when", n.Since, last.Add(10*time.Minute))
	f.Expect("what is said", n.Title(), "Job shop/sync has not succeeded since 2026-05-01T10:06:01.000Z")
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Firing: true, Now: last, Page: input.Page{Limit: 9}})
	f.Must(err)
	f.Expect("what attention says", states[0].Error, "has not succeeded since 2026-05-01T10:06:01.000Z")
	f.Ends("sync", run.Succeeded)
	f.Expect("what is told", f.told("night"), "sync no_success firing, sync no_success resolved")
	f.Expect("what holds", f.firing(), "")
}

func testAlertNoSuccessOfPaused(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{NoSuccessFor: input.Duration(10 * time.Minute)}
	f.DeclareAlert(a, fixture.T0)
	_, err := f.PauseJob(f.Context(), "shop", "sync", "", true, fixture.At(fixture.T0))
	f.Must(err)
	for minute := range 60 {
		f.Expect("notifications while the job is paused", f.watch(fixture.T0.Add(time.Duration(minute)*time.Minute)), 0)
	}
	_, err = f.PauseJob(f.Context(), "shop", "sync", "", false, fixture.At(fixture.T0.Add(time.Hour)))
	f.Must(err)
	f.Expect("notifications soon after", f.watch(fixture.T0.Add(70*time.Minute-time.Second)), 0)
	f.Expect("notifications in time", f.watch(fixture.T0.Add(81*time.Minute)), 1)
	f.Expect("what is said", f.notifications("night")[0].Title(), "Job shop/sync has never succeeded since it was declared at "+
		input.FormatInstant(fixture.T0))
}

func testAlertTest(t *testing.T, f *wing) {
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	r, err := f.TestAlert(t.Context(), "shop", "night", input.Change{Actor: "ann", Now: fixture.T0})
	f.Must(err)
	f.Expect("the kind of the run", r.Kind, run.KindAlert)
	n := f.notifications("night")[0]
	f.Expect("the transition", n.Transition, target.AlertTest)
	f.Expect("who tests", n.By, "ann")
	f.Expect("runs that a node adopts", len(f.AdoptIdle(fixture.NodeA, fixture.T0)), 1)

	duty := fixture.Pager("duty")
	webhook := duty.Destination.Webhook
	webhook.Format, webhook.RoutingKey = target.AlertFormatPagerDuty, &target.Secret{Reference: "env:SECRET_SHOP_KEY"}
	f.DeclareAlert(duty, fixture.T0)
	_, err = f.TestAlert(t.Context(), "shop", "duty", input.Change{Actor: "ann", Now: fixture.T0})
	f.Must(err)
	f.Expect("what opens and ends an incident", f.told("duty"), " failure test,  failure resolved")
	f.Expect("the end, while the test is not delivered", f.order(f.adoptNotifications(fixture.T0)...), ", held")
}

func testAlertRecoveryRace(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	failed, succeeded := f.FireOf("sync"), f.FireOf("sync")
	f.RecordFollowed(succeeded, fixture.Ended(run.Succeeded, succeeded.ScheduledAt)) // before the failure is known
	f.RecordFollowed(failed, fixture.Ended(run.Failed, failed.ScheduledAt))
	f.FollowAll(succeeded.ScheduledAt.Add(time.Second))
	f.Expect("what is told at first", f.told("night"), "sync failure firing")
	f.Expect("notifications a while later", f.watch(succeeded.ScheduledAt.Add(2*time.Minute)), 1)
	f.Expect("what is told in the end", f.told("night"), "sync failure firing, sync failure resolved")
}

func testAlertStatesExpire(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed, run.Succeeded)
	count := func() int {
		all, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Now: fixture.T0, Page: input.Page{Limit: 9}})
		f.Must(err)
		return len(all)
	}
	f.watch(fixture.T0.Add(23 * time.Hour))
	f.Expect("states within a day", count(), 1)
	f.watch(fixture.T0.Add(25 * time.Hour))
	f.Expect("states after a day", count(), 0)
}

func testAlertEventsExpire(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	f.Ends("sync", run.Failed)
	f.PurgeAll(fixture.T0.Add(input.DefaultRetention.Std()))
	f.Expect("events within the retention", f.alertEvents(), "sync failure firing")
	f.PurgeAll(fixture.T0.Add(input.DefaultRetention.Std() + time.Hour))
	f.Expect("events after it", f.alertEvents(), "")
}

func testAlertImport(t *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	_, err := f.MuteAlert(t.Context(), "shop", "night", alert.Mute{Reason: "moving"}, fixture.At(fixture.T0))
	f.Must(err)
	_, _, err = f.PutApp(t.Context(), access.App{Name: "shop"}, fixture.At(fixture.T0))
	f.Must(err)
	export, err := f.ExportApp(t.Context(), "shop")
	f.Must(err)
	f.Expect("alerts of the export", len(export.Alerts), 1)
	f.Must(f.DeleteJob(t.Context(), "shop", "sync", fixture.At(fixture.T0)))
	f.Must(f.DeleteAlert(t.Context(), "shop", "night", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
	export.App.Enabled = true
	_, err = f.ImportApp(t.Context(), export, fixture.At(fixture.T0))
	f.Must(err)
	alert, err := f.Alert(t.Context(), "shop", "night")
	f.Must(err)
	f.Expect("why it is muted", alert.Muted.Reason, "moving")
	f.Expect("what the job follows", f.Prepared(run.JobID("shop", "sync")).Follows, run.FollowsAlerts)
}
