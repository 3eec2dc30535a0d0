package definitions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// appPauseTests test pauses of apps, and pauses that end automatically.
func appPauseTests() tests {
	return tests{
		"a pause of an app holds its jobs, also later ones":         testPauseApp,
		"a pause of an app by labels holds jobs that have them":     testPauseByLabels,
		"a pause of an app shows who, when, why and until when":     testPauseAppShown,
		"a pause of an app reaches many jobs in portions":           testPauseManyJobs,
		"a pause of an app stops a fire that a node knows":          testPauseKnownFire,
		"a pause of an app holds retries and waits for hosts":       testPauseAppRetries,
		"an interrupted pause of an app continues":                  testInterruptedPause,
		"pauses end when their time is over":                        testPausesExpire,
		"a pause that is renewed outlives its first end":            testRenewedPause,
		"a deleted app leaves no pauses":                            testPauseOfDeletedApp,
		"explain knows the former pauses of an app that held a job": testPausesInHistory,
		"each of several apps has its own pauses and switches":      testHoldsOfApps,
		"explain names the pause of an app that held a fire":        testExplainPauses,
		"ended pauses of apps are removed with the history":         testRetentionOfPauses,
	}
}

// labelled returns a job of the app "shop" with a trigger that fires each minute.
func labelled(name string, labels input.Labels) dispatcher.Job {
	j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
	j.Labels = labels
	return j
}

// dueJobs are the jobs among these with a trigger due a minute after T0, in order.
func (f *wing) dueJobs(names ...string) (due []string) {
	f.Helper()
	found := map[int64]bool{}
	for _, d := range f.DueAll(fixture.T0.Add(time.Minute)) {
		found[d.ID] = true
	}
	for _, name := range names {
		if found[run.TriggerID("shop", name, "tick")] {
			due = append(due, name)
		}
	}
	return due
}

func testPauseApp(t *testing.T, f *wing) {
	f.Put(labelled("before", nil), fixture.T0)
	first, second := f.PauseLabelled(nil), f.PauseLabelled(nil)
	f.Put(labelled("later", fixture.Payments), fixture.T0)
	f.Put(labelled("before", fixture.Payments), fixture.T0) // a change of the definition does not release it
	names := []string{"before", "later"}
	check := func(when string, want ...string) {
		t.Helper()
		fixture.WantDiff(t, "due "+when, want, f.dueJobs(names...))
	}
	check("while two pauses hold all jobs")
	for _, name := range names {
		j, err := f.Job(t.Context(), "shop", name)
		f.Must(err)
		if len(j.Pauses) != 2 || j.Paused || j.Triggers["tick"].State != dispatcher.TriggerPaused || j.Triggers["tick"].Paused {
			t.Errorf("job %s shows the pauses %+v, paused %t, and its trigger in state %s", name, j.Pauses, j.Paused, j.Triggers["tick"].State)
		}
	}
	f.Must(f.EndAppPause(t.Context(), "shop", first.ID, fixture.At(fixture.T0)))
	check("while one of them is left")
	fixture.WantError(t, "end it again", f.EndAppPause(t.Context(), "shop", first.ID, fixture.At(fixture.T0)), dispatcher.ErrNotFound)
	f.Must(f.PauseJob(t.Context(), "shop", "later", "", true, fixture.At(fixture.T0)))
	f.Must(f.EndAppPause(t.Context(), "shop", second.ID, fixture.At(fixture.T0)))
	check("when both are over, and a job has a pause of its own", "before")
	f.Must(f.PauseJob(t.Context(), "shop", "later", "", false, fixture.At(fixture.T0)))
	check("when all are over", names...)
	third := f.PauseLabelled(nil)
	f.Must(f.PauseJob(t.Context(), "shop", "later", "", true, fixture.At(fixture.T0)))
	f.Must(f.PauseJob(t.Context(), "shop", "later", "", false, fixture.At(fixture.T0)))
	check("when a job is resumed while its app is paused")
	f.RollUpAll()
	if j, err := f.Job(t.Context(), "shop", "before"); err != nil || j.State != dispatcher.JobPaused {
		t.Errorf("rolled up: the job is in state %s, %v, want paused", j.State, err)
	}
	f.Must(f.EndAppPause(t.Context(), "shop", third.ID, fixture.At(fixture.T0)))
	_, err := f.PauseApp(t.Context(), "none", dispatcher.AppPauseRequest{}, fixture.At(fixture.T0))
	fixture.WantError(t, "pause no app", err, dispatcher.ErrNotFound)
	fixture.WantError(t, "end no pause", f.EndAppPause(t.Context(), "shop", "none", fixture.At(fixture.T0)), dispatcher.ErrNotFound)
}

func testPauseByLabels(t *testing.T, f *wing) {
	both := input.Labels{"team": "payments", "tier": "gold"}
	names := []string{"none", "team", "both"}
	f.Put(labelled("none", nil), fixture.T0)
	f.Put(labelled("team", fixture.Payments), fixture.T0)
	f.Put(labelled("both", both), fixture.T0)
	team, gold := f.PauseLabelled(fixture.Payments), f.PauseLabelled(both)
	check := func(when string, want ...string) {
		t.Helper()
		fixture.WantDiff(t, "due "+when, want, f.dueJobs(names...))
	}
	check("while a team is paused", "none")
	f.Put(labelled("none", fixture.Payments), fixture.T0)
	f.Put(labelled("team", nil), fixture.T0)
	check("when a job got the label and another lost it", "team")
	f.Must(f.EndAppPause(t.Context(), "shop", team.ID, fixture.At(fixture.T0)))
	check("while jobs with two labels are paused", "none", "team")
	f.Must(f.DeleteJob(t.Context(), "shop", "both", fixture.At(fixture.T0)))
	f.Put(labelled("both", nil), fixture.T0)
	check("when a job was declared again without labels", "none", "team", "both")
	f.Must(f.EndAppPause(t.Context(), "shop", gold.ID, fixture.At(fixture.T0)))
	f.Put(labelled("both", both), fixture.T0)
	check("when the pauses are over", "none", "team", "both")
}

func testPauseAppShown(t *testing.T, f *wing) {
	until := fixture.T0.Add(time.Hour)
	asked := dispatcher.AppPauseRequest{Labels: fixture.Payments, Reason: "the ledger is being migrated", Until: &until}
	change := fixture.At(fixture.T0)
	change.Actor = "ann"
	pause, err := f.PauseApp(t.Context(), "shop", asked, change)
	f.Must(err)
	want := dispatcher.AppPause{ID: pause.ID, App: "shop", AppPauseRequest: asked, PausedBy: "ann", PausedAt: fixture.T0}
	fixture.WantDiff(t, "as it was returned", want, pause)
	listed, err := f.AppPauses(t.Context(), "shop")
	f.Must(err)
	fixture.WantDiff(t, "listed", []dispatcher.AppPause{want}, listed)
	app, err := f.AppWithUsage(t.Context(), "shop")
	f.Must(err)
	fixture.WantDiff(t, "of the app", []dispatcher.AppPause{want}, app.Pauses)
	fixture.WantDiff(t, "of a job that is put", []dispatcher.AppPause{want}, f.Put(labelled("team", fixture.Payments), fixture.T0).Pauses)
	all, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 10})
	f.Must(err)
	fixture.WantDiff(t, "of a job in a list", []dispatcher.AppPause{want}, all[0].Pauses)
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0)))
	var entries []string
	for _, e := range f.AuditLog(access.AuditQuery{Subject: "pause " + pause.ID, OldestFirst: true}) {
		entries = append(entries, fmt.Sprint(e.Actor, " ", e.Action, " ", e.App, " ", string(e.Before), string(e.After)))
	}
	text := `{"labels":{"team":"payments"},"reason":"the ledger is being migrated","until":"2026-05-01T11:00:00Z"}`
	fixture.WantDiff(t, "audit log", []string{"ann pause shop " + text, "test resume shop " + text}, entries)
	_, err = f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Until: &fixture.T0}, fixture.At(fixture.T0))
	f.WantProblem("a pause that is over", err, "at_past /until")
	_, err = f.PauseJob(t.Context(), "shop", "team", "", true, input.Change{Actor: "ann", Until: &fixture.T0, Now: fixture.T0})
	f.WantProblem("a pause of a job that is over", err, "at_past /until")
	for range dispatcher.MaxAppPauses {
		f.PauseLabelled(nil)
	}
	_, err = f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{}, fixture.At(fixture.T0))
	f.WantProblem("one pause too many", err, "too_many")
}

func testPauseManyJobs(t *testing.T, f *wing) {
	f.putMany(nil)
	pause := f.PauseLabelled(nil)
	if n := f.dueCount(); n != left || !pause.Pending {
		t.Errorf("at once %d triggers are due, and pending is %t; want the last %d, and true", n, pause.Pending, left)
	}
	if pauses, err := f.AppPauses(t.Context(), "shop"); err != nil || !pauses[0].Pending {
		t.Errorf("the pause is listed as %+v, %v, want it pending", pauses, err)
	}
	for more := true; more; {
		var err error
		more, err = f.FollowPauses(t.Context(), "shop", 40)
		f.Must(err)
	}
	if pauses, err := f.AppPauses(t.Context(), "shop"); err != nil || pauses[0].Pending || f.dueCount() != 0 {
		t.Errorf("in the end %d triggers are due, and the pause is %+v, %v", f.dueCount(), pauses, err)
	}
	if n, more := f.follow(40); n != 0 || more {
		t.Errorf("after that %d triggers follow, want none", n)
	}
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0)))
	if n := f.dueCount(); n != many-left {
		t.Errorf("once it is over %d triggers are due at once, want %d", n, many-left)
	}
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("in the end %d triggers are due, want all %d", n, many)
	}
	// A pause that ends before all jobs follow it holds no job afterwards.
	pause = f.PauseLabelled(nil)
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0)))
	f.followAll()
	if n := f.dueCount(); n != many {
		t.Errorf("paused and resumed %d triggers are due, want all %d", n, many)
	}
}

func testPauseKnownFire(t *testing.T, f *wing) {
	f.Put(labelled("team", fixture.Payments), fixture.T0)
	known := f.NextAdvance()
	pause := f.PauseLabelled(fixture.Payments)
	if won := f.ClaimAll(known); len(won) != 0 {
		t.Errorf("%d fires of a paused job were claimed, want none", len(won))
	}
	settled, err := f.Settle(t.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token2, Now: fixture.T0.Add(time.Hour),
		Settlements: []dispatcher.Settlement{{Advance: known, To: known.Next, Count: 1, Decision: dispatcher.DecisionSkip, Reason: "late"}}})
	f.Must(err)
	if missed, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 1}}); err != nil ||
		len(missed)+len(settled) > 0 {
		t.Errorf("a fire of a paused job was settled: %+v, %v", missed, err)
	}
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0)))
	if won := f.ClaimAll(known); len(won) != 1 {
		t.Errorf("%d fires were claimed when the pause was over, want the one that is owed", len(won))
	}
}

func testPauseAppRetries(t *testing.T, f *wing) {
	start := fixture.T0.Add(time.Minute)
	due := start.Add(time.Second)
	f.Again(f.ClaimOne("retries"), fixture.Failure(start), fixture.FailedUntil(due))
	wait := fixture.WaitOf("waits", "down.example.com")
	f.Waits(f.ClaimOne("waits"), wait)
	pause := f.PauseLabelled(nil)
	manual := f.Requested("retries")
	fixture.WantDiff(t, "retries while the app is paused", 0, len(f.AdoptRetries(due)))
	fixture.WantDiff(t, "waits for hosts while the app is paused", 0, len(f.HostsDue(wait.ProbeAt))+len(f.WaitingFor(wait, wait.ProbeAt)))
	if got := f.AdoptIdle(fixture.NodeA, fixture.T0); len(got) != 1 || got[0].Key != manual {
		t.Errorf("adopted %+v while the app is paused, want the run that was asked for by hand", got)
	}
	f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(fixture.T0)))
	fixture.WantDiff(t, "retries when the pause is over", 1, len(f.AdoptRetries(due)))
	fixture.WantDiff(t, "waits for hosts when the pause is over", 2, len(f.HostsDue(wait.ProbeAt))+len(f.WaitingFor(wait, wait.ProbeAt)))
}

// The node that serves the request dies after its first portion, and another node meets an error.
func testInterruptedPause(t *testing.T, f *wing) {
	f.putMany(nil)
	f.PauseLabelled(nil)
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if more, err := f.FollowPauses(dead, "shop", 40); !errors.Is(err, context.Canceled) || more {
		t.Errorf("interrupted: %v, more to do is %t; want the error, and not to be called at once again", err, more)
	}
	if n, more := f.follow(1000); n != left || more {
		t.Errorf("the handler let %d triggers follow, want %d and no more", n, left)
	}
	if n := f.dueCount(); n != 0 {
		t.Errorf("%d triggers are due, want none", n)
	}
}

// expire ends expired pauses, and returns how many.
func (f *wing) expire(now time.Time) int {
	f.Helper()
	ended, err := f.ExpirePauses(f.Context(), 10, now)
	f.Must(err)
	return ended
}

func testPausesExpire(t *testing.T, f *wing) {
	until := fixture.T0.Add(time.Hour)
	f.Put(labelled("app", fixture.Payments), fixture.T0)
	f.Put(labelled("job", nil), fixture.T0)
	f.Put(labelled("trigger", nil), fixture.T0)
	names := []string{"app", "job", "trigger"}
	f.Must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: fixture.Payments, Until: &until}, fixture.At(fixture.T0)))
	f.Must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "none"}}, fixture.At(fixture.T0)))
	change := fixture.At(fixture.T0)
	change.Until = &until
	paused, err := f.PauseJob(t.Context(), "shop", "job", "", true, change)
	f.Must(err)
	fixture.WantDiff(t, "until when the job is paused", &until, paused.PausedUntil)
	f.Must(f.PauseJob(t.Context(), "shop", "trigger", "tick", true, change))
	if n := f.expire(until.Add(-time.Millisecond)); n != 0 || len(f.dueJobs(names...)) != 0 {
		t.Errorf("before their time is over, %d pauses ended, and %v are due", n, f.dueJobs(names...))
	}
	if n := f.expire(until); n != 3 {
		t.Errorf("%d pauses ended, want 3", n)
	}
	fixture.WantDiff(t, "due", names, f.dueJobs(names...))
	if n := f.expire(until); n != 0 {
		t.Errorf("%d pauses ended again, want none", n)
	}
	resumed := f.AuditLog(access.AuditQuery{Action: "resume"})
	if len(resumed) != 3 || resumed[0].Actor != "system" || !resumed[0].At.Equal(until) {
		t.Errorf("audit log: %+v, want 3 entries by system", resumed)
	}
	if pauses, err := f.AppPauses(t.Context(), "shop"); err != nil || len(pauses) != 1 || pauses[0].Until != nil {
		t.Errorf("left are the pauses %+v, %v, want the one that somebody has to end", pauses, err)
	}
}

func testRenewedPause(t *testing.T, f *wing) {
	f.Put(labelled("job", nil), fixture.T0)
	for _, until := range []time.Time{fixture.T0.Add(time.Hour), fixture.T0.Add(2 * time.Hour)} {
		f.Must(f.PauseJob(t.Context(), "shop", "job", "", false, fixture.At(fixture.T0)))
		change := fixture.At(fixture.T0)
		change.Until = &until
		f.Must(f.PauseJob(t.Context(), "shop", "job", "", true, change))
	}
	f.Put(labelled("job", fixture.Payments), fixture.T0) // a change of the definition does not end the pause
	fixture.WantDiff(t, "pauses that ended at the first end", 0, f.expire(fixture.T0.Add(time.Hour)))
	fixture.WantDiff(t, "pauses that ended at the second end", 1, f.expire(fixture.T0.Add(2*time.Hour)))
	f.Must(f.PauseJob(t.Context(), "shop", "job", "", true, fixture.At(fixture.T0)))
	fixture.WantDiff(t, "pauses without an end that ended", 0, f.expire(fixture.T0.Add(3*time.Hour)))
}

func testPauseOfDeletedApp(t *testing.T, f *wing) {
	f.Put(labelled("job", nil), fixture.T0)
	f.PauseLabelled(nil)
	f.Must(f.DeleteJob(t.Context(), "shop", "job", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
	f.DeclareApp("shop")
	f.Put(labelled("job", nil), fixture.T0)
	fixture.WantDiff(t, "due in the app that was declared again", []string{"job"}, f.dueJobs("job"))
	if pauses, err := f.AppPauses(t.Context(), "shop"); err != nil || len(pauses) != 0 {
		t.Errorf("the app that was declared again has the pauses %+v, %v", pauses, err)
	}
}

func testPausesInHistory(t *testing.T, f *wing) {
	minute := func(n int) time.Time { return fixture.T0.Add(time.Duration(n) * time.Minute) }
	f.Put(labelled("team", fixture.Payments), fixture.T0)
	for i, labels := range []input.Labels{fixture.Payments, {"team": "other"}} {
		from := minute(1).Add(time.Duration(i) * time.Second)
		pause, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: labels, Reason: fmt.Sprint(i)}, fixture.At(from))
		f.Must(err)
		f.Must(f.EndAppPause(t.Context(), "shop", pause.ID, fixture.At(minute(3))))
	}
	f.Must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Reason: "now"}, fixture.At(minute(5))))
	got := map[int][]string{}
	for _, n := range []int{0, 1, 2, 3, 6} {
		history, err := f.AppHistory(t.Context(), "shop", minute(n), minute(6))
		f.Must(err)
		for _, p := range history.Pauses {
			got[n] = append(got[n], p.Reason)
		}
	}
	want := map[int][]string{0: {"now", "1", "0"}, 1: {"now", "1", "0"}, 2: {"now", "1", "0"}, 3: {"now"}, 6: {"now"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("pauses around minutes (-want +got):\n" + diff)
	}
	histories, err := f.TriggerHistories(t.Context(), fixture.T0, []int64{run.JobID("shop", "team")})
	f.Must(err)
	fixture.WantDiff(t, "labels of the revision", fixture.Payments, histories[0].Revisions[0].Labels)
}

// Each app is paused, disabled and enabled at minutes of its own; what was over before minute 3 does not count, apart from
// the state that the app was left in.
func testHoldsOfApps(t *testing.T, f *wing) {
	minute := func(n int) input.Change {
		return input.Change{Actor: "ann", Operator: true, Now: fixture.T0.Add(time.Duration(n) * time.Minute)}
	}
	f.DeclareApp("bakery")
	for app, from := range map[string]int{"shop": 1, "bakery": 4} {
		pause, err := f.PauseApp(t.Context(), app, dispatcher.AppPauseRequest{Reason: app}, minute(from))
		f.Must(err)
		f.Must(f.EndAppPause(t.Context(), app, pause.ID, minute(from+1)))
		for i, enabled := range []bool{false, true} {
			f.Must(f.PutApp(t.Context(), access.App{Name: app, AppSpec: access.AppSpec{Enabled: enabled}}, minute(from+i)))
		}
	}
	// One was deleted while it was disabled, which holds no fire of the next one of its name.
	f.DeclareApp("again")
	f.Must(f.PutApp(t.Context(), access.App{Name: "again"}, minute(1)))
	f.Must(f.DeleteApp(t.Context(), "again", minute(2)))
	f.Must(f.PutApp(t.Context(), access.App{Name: "again", AppSpec: access.AppSpec{Enabled: true}}, minute(3)))
	f.Must(f.RecordOutage(t.Context(), dispatcher.Outage{Node: fixture.NodeA, From: minute(5).Now, To: minute(6).Now}))
	holds, err := f.AppHolds(t.Context(), minute(3).Now, []string{"again", "bakery", "deleted", "shop"})
	f.Must(err)
	got := map[string]string{}
	for app, of := range holds {
		for _, p := range of.Pauses {
			got[app] += "paused: " + p.Reason + "; "
		}
		for _, s := range of.Switches {
			got[app] += fmt.Sprintf("enabled %t at %s; ", s.Enabled, s.At.Sub(fixture.T0))
		}
		for _, o := range of.Outages {
			got[app] += "outage until " + o.To.Sub(fixture.T0).String()
		}
	}
	fixture.WantDiff(t, "holds", map[string]string{
		"again":   "enabled true at 2m0s; outage until 6m0s",
		"bakery":  "paused: bakery; enabled false at 4m0s; enabled true at 5m0s; outage until 6m0s",
		"deleted": "outage until 6m0s",
		"shop":    "enabled true at 2m0s; outage until 6m0s",
	}, got)
}

func testRetentionOfPauses(t *testing.T, f *wing) {
	over, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Reason: "over"}, fixture.At(fixture.T0))
	f.Must(err)
	f.Must(f.EndAppPause(t.Context(), "shop", over.ID, fixture.At(fixture.T0.Add(time.Minute))))
	f.Must(f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Reason: "held"}, fixture.At(fixture.T0)))
	known := func() map[string]bool {
		t.Helper()
		history, err := f.AppHistory(t.Context(), "shop", fixture.T0, fixture.T0)
		f.Must(err)
		reasons := map[string]bool{}
		for _, p := range history.Pauses {
			reasons[p.Reason] = true
		}
		return reasons
	}
	fixture.WantDiff(t, "known at first", map[string]bool{"over": true, "held": true}, known())
	f.PurgeAll(fixture.T0.Add(2 * input.DefaultRetention.Std()))
	fixture.WantDiff(t, "known after their retention", map[string]bool{"held": true}, known())
}

// A job with the label is held from minute 2 to 4, and again from minute 6 to minute 30.
func testExplainPauses(t *testing.T, f *wing) {
	minute := func(n int) time.Time { return fixture.T0.Add(time.Duration(n) * time.Minute) }
	f.Put(labelled("team", fixture.Payments), fixture.T0)
	f.Put(labelled("other", nil), fixture.T0)
	change := func(n int) input.Change { return input.Change{Actor: "ann", Now: minute(n)} }
	first, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: fixture.Payments, Reason: "a migration"}, change(2))
	f.Must(err)
	f.Must(f.EndAppPause(t.Context(), "shop", first.ID, change(4)))
	until := minute(30)
	second, err := f.PauseApp(t.Context(), "shop", dispatcher.AppPauseRequest{Labels: fixture.Payments, Until: &until}, change(6))
	f.Must(err)
	for _, tt := range []struct {
		job     string
		minute  int
		verdict verify.Verdict
		reason  string
		steps   []string // that name a pause
	}{
		{"team", 1, verify.VerdictOpen, "it is due, but jobs of app shop with labels team=payments are paused by ann since " +
			"2026-05-01T10:06:00.000Z, until 2026-05-01T10:30:00.000Z", nil},
		{"team", 3, verify.VerdictOpen, "it is due, but jobs of app shop", []string{
			"pause " + first.ID + " began: jobs of app shop with labels team=payments are paused by ann since " +
				`2026-05-01T10:02:00.000Z: "a migration"`,
			"pause " + first.ID + " was ended by ann",
		}},
		{"team", 4, verify.VerdictOpen, "it is due, but jobs of app shop", nil},
		{"team", 20, verify.VerdictPlanned, "jobs of app shop", []string{"pause " + second.ID + " began"}},
		{"team", 40, verify.VerdictPlanned, "it is in the future", []string{"pause " + second.ID + " began"}},
		{"other", 3, verify.VerdictOpen, "it is due and not yet claimed or settled", nil},
	} {
		found, err := verify.Explain(t.Context(), f.Store, verify.ExplainQuery{
			App: "shop", Job: tt.job, Trigger: "tick", At: minute(tt.minute), Now: minute(10)})
		f.Must(err)
		var steps []string
		for _, step := range found.Steps {
			if strings.HasPrefix(step.What, "pause ") {
				steps = append(steps, step.What)
			}
		}
		same := len(steps) == len(tt.steps)
		for i := range min(len(steps), len(tt.steps)) {
			same = same && strings.HasPrefix(steps[i], tt.steps[i])
		}
		whole := strings.HasPrefix(found.Reason, tt.reason) && (tt.minute != 40 || found.Reason == tt.reason)
		if found.Verdict != tt.verdict || !whole || !same {
			t.Errorf("%s at minute %d: %s: %s, with the steps %q; want %s: %s, with %q",
				tt.job, tt.minute, found.Verdict, found.Reason, steps, tt.verdict, tt.reason, tt.steps)
		}
	}
}
