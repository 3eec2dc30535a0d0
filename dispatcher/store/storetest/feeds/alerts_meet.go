package feeds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// alertObjectiveTests are the tests of alerts of objectives.
func alertObjectiveTests() tests {
	return tests{
		"a burning error budget and its end are notified once":   testAlertObjective,
		"old counts of an objective are ignored":                 testAlertObjectiveOld,
		"an alert follows objectives that are added and removed": testAlertObjectiveChanged,
	}
}

// budgetAlert returns an alert for the objectives of all jobs.
func budgetAlert() alert.Alert {
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{Objective: true}
	return a
}

// watchedStates returns the alert states of the app, as job and condition.
func (f *wing) watchedStates() string {
	f.Helper()
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Now: fixture.T0, Page: input.Page{Limit: 1000}})
	f.Must(err)
	var all []string
	for _, s := range states {
		all = append(all, s.Job+" "+string(s.Condition))
	}
	return strings.Join(all, ", ")
}

func testAlertObjective(t *testing.T, f *wing) {
	f.Punctual(time.Second)
	f.Watched("plain", nil) // without an objective
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Expect("what is watched", f.watchedStates(), "tick objective")
	f.Expect("notifications before anything is counted", f.watch(fixture.T0.Add(time.Second)), 0)
	f.Burn("tick", 15)
	f.Expect("notifications when the budget burns", f.watch(fixture.Minutes(16)), 1)
	f.Expect("notifications while it burns", f.watch(fixture.Minutes(16)), 0)
	f.Burn("tick", 25)
	f.Expect("notifications while it burns on", f.watch(fixture.Minutes(26)), 0)
	f.Expect("what holds", f.firing(), "tick objective")
	n := f.notifications("night")[0]
	if !n.Since.Equal(fixture.Minutes(15)) || !strings.HasPrefix(n.Error, "the error budget of 90% within 1s burns 10.0 times") {
		t.Errorf("notification %+v, want since minute 15 and why it burns", n)
	}
	for range 31 {
		f.Ends("tick", run.Succeeded) // up to minute 56
	}
	f.Roll(fixture.Minutes(57))
	f.Expect("notifications when it no longer burns", f.watch(fixture.Minutes(57)), 1)
	f.Expect("notifications afterwards", f.watch(fixture.Minutes(63)), 0)
	f.Expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
	f.Expect("events", f.alertEvents(), f.told("night"))
}

func testAlertObjectiveOld(_ *testing.T, f *wing) {
	f.Punctual(time.Second)
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Burn("tick", 15)
	f.Expect("notifications when the counts are old", f.watch(fixture.Minutes(46)), 0)
	f.Burn("tick", 50)
	f.Expect("notifications when they are not", f.watch(fixture.Minutes(51)), 1)
}

func testAlertObjectiveChanged(_ *testing.T, f *wing) {
	f.DeclareAlert(budgetAlert(), fixture.T0)
	f.Watched("tick", nil)
	f.Expect("what is watched without an objective", f.watchedStates(), "")
	j := f.Punctual(time.Second)
	f.Expect("what is watched with one", f.watchedStates(), "tick objective")
	f.Burn("tick", 15)
	f.Expect("notifications when the budget burns", f.watch(fixture.Minutes(16)), 1)
	j.Objective = nil
	f.Put(j, fixture.Minutes(17))
	f.Expect("notifications when the objective is gone", f.watch(fixture.Minutes(19)), 1)
	f.Expect("why it is told", f.notifications("night")[1].Reason, "the job no longer has an objective")
	f.Expect("what is watched in the end", f.watchedStates(), "")
	f.Expect("what is told", f.told("night"), "tick objective firing, tick objective resolved")
}

// adoptNotifications gives a node the waiting notifications, oldest first.
func (f *wing) adoptNotifications(now time.Time) (runs []run.HeldRun) {
	f.Helper()
	for _, r := range append(f.AdoptIdle(fixture.NodeA, now), f.AdoptRetries(now)...) {
		if r.Kind == run.KindAlert {
			runs = append(runs, r)
		}
	}
	return runs
}

// order returns which runs are held or overtaken.
func (f *wing) order(runs ...run.HeldRun) string {
	f.Helper()
	keys := make([]run.Key, len(runs))
	for i, run := range runs {
		keys[i] = run.Key
	}
	inputs, err := f.RunInputs(f.Context(), keys)
	f.Must(err)
	var all []string
	for _, key := range keys {
		var of []string
		if input := inputs[key]; input.Held != "" {
			of = append(of, "held")
		}
		if inputs[key].Overtaken != "" {
			of = append(of, "overtaken")
		}
		all = append(all, strings.Join(of, " and "))
	}
	return strings.Join(all, ", ")
}

// fails records a failed attempt, to be retried a minute later.
func (f *wing) fails(r run.HeldRun, now time.Time) {
	f.Helper()
	f.Again(r, run.Outcome{State: run.Failed, StartedAt: now, EndedAt: now, Class: run.ClassHTTP5xx},
		dispatcher.NextAttempt{At: now.Add(time.Minute), Until: now.Add(time.Hour), CountsAsFailure: true})
}

func testAlertOvertaken(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	at := f.Ends("sync", run.Failed).ScheduledAt.Add(time.Minute)
	firing := f.adoptNotifications(at)
	f.Expect("the first", f.order(firing...), "")
	f.fails(firing[0], at)
	f.Ends("sync", run.Succeeded)
	resolved := f.adoptNotifications(at.Add(time.Second))
	f.Expect("the end, while the first waits for its next attempt", f.order(resolved...), "")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(resolved[0], fixture.Outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.Expect("the first, once the end was told", f.order(again...), "overtaken")
	f.watch(at.Add(48 * time.Hour)) // this removes the state
	f.Expect("the first, when nothing is known of it any more", f.order(again...), "overtaken")
	f.Ends("sync", run.Failed)
	f.Expect("the next", f.order(f.adoptNotifications(at.Add(49*time.Hour))...), "")
	f.Expect("the first and the end, while it fails again", f.order(again[0], resolved[0]), "overtaken, held and overtaken")
}

// 200 jobs of one host fail at once, and one of another. Each has its state and event, and the run that delivers it.
func testAlertGrouped(t *testing.T, f *wing) {
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	const jobs = 200
	var names []string
	for i := range jobs + 1 {
		name := fmt.Sprintf("job-%03d", i)
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
		if j.Target.Webhook.URL = "https://down.example.com/" + name; i == jobs {
			j.Target.Webhook.URL = "https://other.example.com/"
		}
		f.Put(j, fixture.T0)
		names = append(names, name)
	}
	ends := func(state run.State) (at time.Time) {
		for _, name := range names {
			held := f.FireOf(name)
			at = held.ScheduledAt.Add(time.Second)
			f.RecordFollowed(held, fixture.Ended(state, held.ScheduledAt))
		}
		f.Must(f.FollowEnds(f.Context(), dispatcher.FollowQuery{Limit: 1000, Now: at}))
		return at
	}
	at := ends(run.Failed)
	firing := f.adoptNotifications(at)
	f.Expect("runs that tell of failures", len(firing), 2)
	f.Expect("what they tell", len(f.notifications("night")), jobs+1)
	f.Expect("what waits", f.order(firing...), ", ")
	names = names[:jobs-1]
	at = ends(run.Succeeded)
	resolved := f.adoptNotifications(at)
	f.Expect("runs that tell of recoveries", len(resolved), 1)
	f.Expect("the recoveries, while the failures are being sent", f.order(resolved...), "held")
	inputs, err := f.RunInputs(f.Context(), []run.Key{firing[0].Key, firing[1].Key})
	f.Must(err)
	var left []string
	for _, in := range inputs {
		var n target.AlertNotification
		f.Must(json.Unmarshal(in.Payload, &n))
		for _, one := range n.All() {
			left = append(left, one.Job)
		}
	}
	slices.Sort(left)
	f.Expect("failures that are still to be told", strings.Join(left, " "), "job-199 job-200")
	f.Must(f.Record(f.Context(), []dispatcher.Record{
		fixture.Record(firing[0], fixture.Outcome(at)), fixture.Record(firing[1], fixture.Outcome(at)),
	}))
	f.Expect("the recoveries then", f.order(resolved...), "")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(resolved[0], fixture.Outcome(at))}))
	events, err := f.AlertEvents(t.Context(), alert.EventQuery{App: "shop", Page: input.Page{Limit: 1000}})
	f.Must(err)
	f.Expect("events", len(events), jobs+1+jobs-1)
	for _, e := range events {
		if !e.Notified {
			t.Errorf("%s of job %s was not notified: %+v", e.Transition, e.Job, e.Notification)
		}
	}
	states, err := f.AlertStates(t.Context(), alert.StateQuery{App: "shop", Job: "job-007", Now: at, Page: input.Page{Limit: 10}})
	f.Must(err)
	f.Expect("the latest notification of one job", string(states[0].Notification.Transition)+" in "+states[0].Notification.Run,
		"resolved in "+resolved[0].String())
}

func testAlertInOrder(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	a := fixture.Pager("night")
	a.Failure.RepeatEvery = 1
	f.DeclareAlert(a, fixture.T0)
	last := f.Ends("sync", run.Failed, run.Failed, run.Succeeded)
	at := last.ScheduledAt.Add(time.Minute)
	all := f.adoptNotifications(at)
	f.Expect("what is told", f.told("night"), "sync failure firing, sync failure still_firing, sync failure resolved")
	f.Expect("the notifications at once", f.order(all...), "overtaken, held and overtaken, held")
	f.Again(all[1], run.Outcome{State: run.Failed, StartedAt: at, EndedAt: at, Class: run.ClassOther},
		dispatcher.NextAttempt{At: at.Add(time.Minute), Until: at.Add(time.Hour), NotAttempted: true})
	f.Expect("the end, while the one before it waits for the first", f.order(all[2]), "held")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(all[0], fixture.Outcome(at))}))
	again := f.adoptNotifications(at.Add(2 * time.Minute))
	f.Expect("the second, once the first has ended", f.order(again...), "overtaken")
	f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(again[0], fixture.Outcome(at))}))
	f.Expect("the end, once the second has ended", f.order(all[2]), "")
}

// A backfill repeats the past. So neither its runs nor their direct and indirect followers make an alert fire, end a
// current condition, or count as a success.
func testAlertOfBackfillFollower(_ *testing.T, f *wing) {
	f.Watched("last", nil)
	middle := fixture.Job("middle", nil)
	middle.OnSuccess = &dispatcher.Follow{Jobs: []string{"last"}}
	f.Put(middle, fixture.T0)
	first := fixture.Job("tick", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	first.OnSuccess = &dispatcher.Follow{Jobs: []string{"middle"}}
	f.Put(first, fixture.T0)
	a := fixture.Pager("night")
	a.Jobs = []string{"last"}
	a.NoSuccessFor = input.Duration(10 * time.Minute)
	f.DeclareAlert(a, fixture.T0)
	f.Ends("last", run.Failed)
	f.Expect("what is told of a fire", f.told("night"), "last failure firing")

	b := f.BackfillOfTick(func(s *repeat.BackfillSpec) { s.To = fixture.T0.Add(2 * time.Minute) })
	_, err := f.FeedBackfill(f.Context(), b.ID, b.Now)
	f.Must(err)
	f.adoptAndEnd(b.Now, run.Succeeded, run.KindBackfill)
	f.adoptAndEnd(b.Now, run.Succeeded, run.KindChain) // of middle
	descendants := f.adoptAndEnd(b.Now, run.Succeeded, run.KindChain)
	if len(descendants) == 0 {
		f.Fatal("no run of the last job follows")
	}
	cause := f.RunOf(descendants[0].Key).Cause
	f.Expect("the backfill that the last run descends from", cause.Backfill, repeat.BackfillID(b.ID))
	f.Expect("what its success ends", f.told("night"), "last failure firing")
	f.watch(b.Now.Add(2 * time.Minute))
	f.Expect("what holds after a look at the history", f.firing(), "last failure, last no_success")
	if why := run.WhyStateStays(run.KindChain, cause); why == "" {
		f.Error("the run that follows a backfill changes the state of its job")
	}
}

// adoptAndEnd ends the waiting runs, all of a kind, and follows their ends.
func (f *wing) adoptAndEnd(now time.Time, state run.State, kind run.Kind) []run.HeldRun {
	f.Helper()
	var runs []run.HeldRun
	for _, run := range f.AdoptIdle(fixture.NodeA, now) {
		if run.Kind == kind {
			runs = append(runs, run)
			f.RecordFollowed(run, fixture.Ended(state, now))
		}
	}
	f.FollowAll(now.Add(time.Second))
	return runs
}

// A run has the slot of its job by the clock of the database, and the later fires are skipped.
func testAlertBlocked(t *testing.T, f *wing) {
	runs := f.Bounded(4, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
	for _, name := range []string{"day", "night"} {
		a := fixture.Pager(name)
		a.Jobs, a.AlertConditionsOf = []string{"tick"}, alert.AlertConditionsOf{Blocked: true}
		f.DeclareAlert(a, fixture.T0)
	}
	f.Expect("runs with the slot", f.AcquireSlots(runs[0]), []int{1})
	f.Expect("later runs with the slot", f.AcquireSlots(runs[1:]...), []int{})
	taken, err := f.Slots(t.Context(), "shop", "tick")
	f.Must(err)
	since := taken[0].Since
	after := func(d time.Duration) int { return f.watch(since.Add(d)) }
	f.Expect("notifications within ten minutes", after(10*time.Minute-time.Second), 0)
	f.Expect("notifications after that", after(10*time.Minute+time.Second), 2)
	f.Expect("notifications while it lasts", after(time.Hour), 0)
	n := f.notifications("night")[0]
	f.Expect("the title", n.Title(), "Job shop/tick does not run: one run has had its slot for 10m1s")
	f.Expect("what is wrong", n.Error, "run "+runs[0].String()+" has had its slot since "+input.FormatInstant(since)+
		" on node 000000000000000a; 3 later fires were skipped; if it hangs, cancel it with carillon run cancel "+runs[0].String())
	f.Expect("the run that blocks it", n.Run, runs[0].String())
	f.Must(f.Record(t.Context(), []dispatcher.Record{fixture.Record(runs[0], fixture.Outcome(runs[0].ScheduledAt))}))
	f.Must(f.ReleaseSlots(t.Context(), runs[:1]))
	f.Expect("notifications once its slot is free", after(2*time.Hour), 2)
	f.Expect("what is told", f.told("night"), "tick blocked firing, tick blocked resolved")
	f.Expect("what holds", f.firing(), "")
}

// testAlertOfNoJob: an alert is stored although it selects missing jobs, and warns until they exist.
func testAlertOfNoJob(t *testing.T, f *wing) {
	warnings := func(a alert.Alert) string {
		var all []string
		for _, w := range a.Warnings {
			all = append(all, w.Path+" "+w.Code)
		}
		return strings.Join(all, ", ")
	}
	f.Watched("orders", input.Labels{"team": "shop"})
	a := fixture.Pager("duty")
	a.Jobs, a.Labels = []string{"orders", "invoices", "refunds"}, input.Labels{"team": "billing"}
	const all = "/jobs/1 alert_job_unknown, /jobs/2 alert_job_unknown, /labels alert_job_unknown"
	stored := f.DeclareAlert(a, fixture.T0)
	if got := warnings(stored); got != all {
		t.Errorf("warnings = %q, want %q", got, all)
	}
	if again := f.DeclareAlert(a, fixture.T0.Add(time.Second)); again.Revision != stored.Revision || warnings(again) != all {
		t.Errorf("put again: revision %d, warnings %q, want %d with the same ones", again.Revision, warnings(again), stored.Revision)
	}
	f.Watched("invoices", input.Labels{"team": "billing", "tier": "1"})
	read, err := f.Alert(f.Context(), "shop", "duty")
	f.Must(err)
	if got := warnings(read); got != "/jobs/2 alert_job_unknown" {
		t.Errorf("warnings = %q, want none of invoices, which is declared", got)
	}
	f.Must(f.DeleteJob(f.Context(), "shop", "invoices", fixture.At(fixture.T0)))
	read, err = f.Alert(f.Context(), "shop", "duty")
	f.Must(err)
	if got := warnings(read); got != all {
		t.Errorf("warnings = %q after the job is deleted, want %q", got, all)
	}
	if got := f.DeclareAlert(fixture.Pager("default"), fixture.T0); len(got.Warnings) > 0 {
		t.Errorf("warnings of a default = %v, want none", got.Warnings)
	}
}

// A notification says what its reader would look up first.
func testAlertDetails(_ *testing.T, f *wing) {
	j := fixture.Job("sync", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	j.Description, j.RunbookURL = "Copies orders.", "https://wiki.example.com/sync"
	f.Put(j, fixture.T0)
	f.DeclareAlert(fixture.Pager("night"), fixture.T0)
	held := f.FireOf("sync")
	o := fixture.Ended(run.Failed, held.ScheduledAt)
	o.Response = &run.Response{Body: "\n{\n\"error\": \"" + strings.Repeat("ä", 300) + "\"}"}
	f.RecordFollowed(held, o)
	f.FollowAll(held.ScheduledAt.Add(time.Second))
	f.Ends("sync", run.Succeeded, run.Failed)
	all := f.notifications("night")
	n := all[0]
	f.Expect("the job", n.JobDescription+" "+n.RunbookURL, j.Description+" "+j.RunbookURL)
	if !strings.HasPrefix(n.Response, `{ "error": "ää`) || len(n.Response) > 300 || !strings.HasSuffix(n.Response, "…") {
		f.Errorf("response is %q, want its beginning on one line", n.Response)
	}
	fixture.WantDiff(f.T, "the last success, of a job that never succeeded",
		[]*time.Time{nil, &fixture.T0}, []*time.Time{n.LastSuccess, n.DeclaredAt})
	fixture.WantDiff(f.T, "the last success in a recovery", []*time.Time{nil, nil}, []*time.Time{all[1].LastSuccess, all[1].DeclaredAt})
	fixture.WantDiff(f.T, "the last success afterwards", new(held.ScheduledAt.Add(time.Minute+time.Second)), all[2].LastSuccess)
}

// A day that the calendar of a job excludes, and the pause of its only trigger, do not count as time without success.
func testAlertNoSuccessExcluded(_ *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Closed("2026-05-02"), fixture.T0)
	f.Careful("mail")
	f.Watched("held", nil)
	_, err := f.PauseJob(f.Context(), "shop", "held", "tick", true, fixture.At(fixture.T0))
	f.Must(err)
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{NoSuccessFor: input.Duration(10 * time.Minute)}
	day := fixture.T0.Add(14 * time.Hour)
	f.DeclareAlert(a, day.Add(-time.Second))
	for _, after := range []time.Duration{10 * time.Minute, 23 * time.Hour, 24*time.Hour + 8*time.Minute} {
		f.Expect("notifications before a success is missing", f.watch(day.Add(after)), 0)
	}
	f.Expect("notifications ten minutes after the last fire that was not due", f.watch(day.Add(24*time.Hour+9*time.Minute)), 1)
	f.Expect("what is told", f.told("night"), "mail no_success firing")
}
