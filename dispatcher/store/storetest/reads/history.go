package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// The app "brief" of these tests keeps two days of history, the app "shop" the thirty of the
// default. What happened on the day of t0 goes at briefEnd and at shopEnd.
var (
	briefEnd = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	shopEnd  = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func (f *fixture) putBrief() {
	f.Helper()
	f.must(f.PutApp(f.Context(), access.App{Name: "brief",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(48 * time.Hour)}}, at(t0)))
}

// fire claims the first fire of a new job, a minute after t0.
func (f *fixture) fire(app, name, expression string) run.HeldRun {
	f.Helper()
	trigger := every(time.Minute, t0.Add(time.Minute))
	trigger.Expression = expression
	j := job(name, map[string]dispatcher.Trigger{"tick": trigger})
	j.App = app
	f.put(j, t0)
	for _, d := range f.dueAll(t0.Add(time.Minute)) {
		if d.ID == run.TriggerID(app, name, "tick") {
			return f.claim(f.advance(d))[0]
		}
	}
	f.Fatalf("job %s of app %s is not due", name, app)
	return run.HeldRun{}
}

// end records a run as ended at an instant.
func (f *fixture) end(run run.HeldRun, at time.Time) {
	f.Helper()
	f.must(f.Record(f.Context(), []dispatcher.Record{record(run, outcome(at.Add(-time.Second)))}))
}

// purge runs until nothing is left to do.
func (f *fixture) purge(now time.Time) (removed dispatcher.Purged) {
	f.Helper()
	for more := true; more; {
		one, err := f.Purge(f.Context(), nodeA, now)
		f.must(err)
		removed.Runs, removed.Misfires, more = removed.Runs+one.Runs, removed.Misfires+one.Misfires, one.More
		removed.Jobs += one.Jobs
	}
	return removed
}

// left returns which of runs there are.
func (f *fixture) left(runs map[string]run.HeldRun) map[string]bool {
	f.Helper()
	left := map[string]bool{}
	for name, run := range runs {
		_, err := f.Store.Run(f.Context(), run.String())
		if left[name] = err == nil; err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
			f.Fatal(err)
		}
	}
	return left
}

func testRetention(t *testing.T, f *fixture) {
	f.putBrief()
	runs := map[string]run.HeldRun{}
	for _, app := range []string{"brief", "shop"} {
		for _, name := range []string{"ended", "live", "late"} {
			runs[app+" "+name] = f.fire(app, name, "rate(1m)")
		}
		f.end(runs[app+" ended"], t0.Add(2*time.Minute))
	}
	// A run that ends long after its instant is as young as its end.
	f.end(runs["brief late"], briefEnd.Add(-24*time.Hour))
	f.end(runs["shop late"], shopEnd.Add(-24*time.Hour))

	check := func(what string, now time.Time, removed dispatcher.Purged, gone ...string) {
		t.Helper()
		if diff := cmp.Diff(removed, f.purge(now)); diff != "" {
			t.Errorf("%s: removed (-want +got):\n%s", what, diff)
		}
		want := map[string]bool{}
		for name := range runs {
			want[name] = true
		}
		for _, name := range gone {
			want[name] = false
		}
		if diff := cmp.Diff(want, f.left(runs)); diff != "" {
			t.Errorf("%s: the runs that are left (-want +got):\n%s", what, diff)
		}
	}
	check("within all retentions", briefEnd.Add(-time.Millisecond), dispatcher.Purged{})
	check("beyond that of brief", briefEnd, dispatcher.Purged{Runs: 1}, "brief ended")
	check("again", briefEnd, dispatcher.Purged{}, "brief ended")
	f.must(f.DeleteJob(t.Context(), "shop", "ended", at(t0)))
	check("beyond that of shop", shopEnd, dispatcher.Purged{Runs: 2}, "brief ended", "brief late", "shop ended")
}

// What the apps keep is what they keep now, also one that was deleted.
func testRetentionChanges(t *testing.T, f *fixture) {
	f.putBrief()
	held := f.fire("brief", "job", "rate(1m)")
	f.end(held, t0.Add(2*time.Minute))
	runs := map[string]run.HeldRun{"run": held}
	f.must(f.PutApp(t.Context(), access.App{Name: "brief", AppSpec: access.AppSpec{Retention: input.Duration(72 * time.Hour)}}, at(t0)))
	if f.purge(briefEnd); !f.left(runs)["run"] {
		t.Error("a run was removed that the app keeps by now")
	}
	f.must(f.PutApp(t.Context(), access.App{Name: "brief", AppSpec: access.AppSpec{Retention: input.Duration(48 * time.Hour)}}, at(t0)))
	f.must(f.DeleteJob(t.Context(), "brief", "job", at(t0)))
	f.must(f.DeleteApp(t.Context(), "brief", at(t0)))
	if f.purge(briefEnd); f.left(runs)["run"] {
		t.Error("a run of a deleted app was kept")
	}
}

// What is queued again stays with its attempts, however old they are.
func testRetentionOfRetries(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putBrief()
	held := f.fire("brief", "job", "rate(1m)")
	f.end(held, t0.Add(2*time.Minute))
	f.must(f.RetryRun(ctx, held.String(), at(t0)))
	if f.purge(briefEnd); len(f.run(held.Key).Attempts) != 1 {
		t.Errorf("a queued run: got %+v, want it there with its attempt", f.run(held.Key))
	}
	f.must(f.CancelRun(ctx, held.String(), at(briefEnd)))
	if removed := f.purge(briefEnd.AddDate(0, 0, 3)); removed.Runs != 1 {
		t.Errorf("three days after it was cancelled: removed %+v, want the run", removed)
	}
}

func testRetentionOfMisfires(t *testing.T, f *fixture) {
	f.putBrief()
	for _, app := range []string{"brief", "shop"} {
		for name, decided := range map[string]time.Time{"early": t0.Add(3 * time.Minute), "long": briefEnd.Add(-time.Hour)} {
			j := job(name, map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))})
			j.App = app
			f.put(j, t0)
			j.Triggers = nil
			f.put(j, decided) // what was due is skipped
		}
	}
	left := func() (names []string) {
		for _, app := range []string{"brief", "shop"} {
			all, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: app, Page: input.Page{Limit: 10}})
			f.must(err)
			for _, m := range all {
				names = append(names, m.App+" "+m.Job)
			}
		}
		return names
	}
	before := left()
	if removed := f.purge(briefEnd.Add(-time.Millisecond)); removed.Misfires != 0 || len(before) != 4 {
		t.Errorf("within all retentions: removed %+v of %v, want none of four", removed, before)
	}
	removed := f.purge(briefEnd)
	var want []string
	for _, name := range before {
		if name != "brief early" {
			want = append(want, name)
		}
	}
	if diff := cmp.Diff(want, left()); diff != "" || removed.Misfires != 1 {
		t.Errorf("beyond that of brief: removed %+v, left (-want +got):\n%s", removed, diff)
	}
	if removed := f.purge(shopEnd); removed.Misfires != 2 {
		t.Errorf("beyond that of shop: removed %+v, want two", removed)
	}
}

// A fixed delay counts on from the end of its run, however long no node was there to do it, and whether or not the run is
// still in the history.
func testRetentionOfDelays(t *testing.T, f *fixture) {
	f.putBrief()
	held := f.fire("brief", "job", "delay(1m)")
	ended := t0.Add(2 * time.Minute)
	f.end(held, ended)
	if removed := f.purge(shopEnd); removed.Runs != 1 {
		t.Errorf("removed %+v, want the run", removed)
	}
	if delays := f.ended(); len(delays) != 1 || !delays[0].EndedAt.Equal(ended) {
		t.Errorf("fixed delays to count on: %+v, want one from %s", delays, ended)
	}
}

// historyTests are those of lists of the history, and of what is kept of it.
func historyTests() tests {
	return tests{
		"runs of an app are listed however far apart":     testRunsOfApp,
		"runs are listed by job, trigger, state and time": testRuns,
		"a run is listed once, whatever holds it":         testRunsAreListedOnce,
		"a run is kept from its end on":                   testRetentionFromTheEnd,
	}
}

// pages returns the ids of the runs that a query selects, some at a time.
func (f *fixture) pages(query dispatcher.RunQuery, size int) (ids []string) {
	f.Helper()
	query.Page.Limit = size
	for {
		page, err := f.Runs(f.Context(), query)
		f.must(err)
		for _, run := range page {
			ids = append(ids, run.ID)
		}
		if len(page) < size {
			return ids
		}
		query.Page.Cursor = page[size-1].ID
	}
}

// Runs of an app may be years apart, or several at one instant, in the history or not yet over, and other apps have runs
// between them.
func testRunsOfApp(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putApp("other")
	for _, app := range []string{"shop", "other"} {
		for _, name := range []string{"a", "b", "c"} {
			j := job(name, nil)
			j.App = app
			f.put(j, t0)
		}
	}
	now, err := f.Clock(ctx)
	f.must(err)
	want := map[string][]string{}
	var states []run.State
	for i, ago := range []time.Duration{-time.Hour, 0, 0, 20 * time.Second, 2 * time.Minute, 2 * time.Minute, time.Hour, 30 * time.Hour,
		72 * time.Hour, 40 * 24 * time.Hour, 40*24*time.Hour + time.Second, 800 * 24 * time.Hour, 15 * 365 * 24 * time.Hour} {
		for _, app := range []string{"shop", "other"} {
			run, err := f.RequestRun(ctx, app, string(rune('a'+i%3)), nil, at(now.Add(-ago).Truncate(time.Millisecond)))
			f.must(err)
			if i%2 == 0 {
				run, err = f.CancelRun(ctx, run.ID, at(now))
				f.must(err)
			}
			want[app] = append(want[app], run.ID)
			if app == "shop" {
				states = append(states, run.State)
			}
		}
	}
	for app, ids := range want {
		slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) // the latest first, as ids are in order
		for _, size := range []int{1, 2, 5, 100} {
			if diff := cmp.Diff(ids, f.pages(dispatcher.RunQuery{App: app}, size)); diff != "" {
				t.Errorf("runs of app %s, %d a page (-want +got):\n%s", app, size, diff)
			}
		}
	}
	bounds := dispatcher.RunQuery{App: "shop", From: now.Add(-31 * time.Hour), To: now.Add(-time.Minute)}
	if got := f.pages(bounds, 2); len(got) != 4 {
		t.Errorf("between two instants: %d runs, want 4", len(got))
	}
	cancelled := 0
	for _, state := range states {
		if state == run.Cancelled {
			cancelled++
		}
	}
	if got := f.pages(dispatcher.RunQuery{App: "shop", State: run.Cancelled}, 2); len(got) != cancelled {
		t.Errorf("cancelled: %d runs, want %d", len(got), cancelled)
	}
	if got := f.pages(dispatcher.RunQuery{}, 3); len(got) != len(want["shop"])+len(want["other"]) {
		t.Errorf("of all apps: %d runs, want all", len(got))
	}
}

// Of the fires of one claim, some are still in it, and others have ended or will be attempted again.
func testRunsAreListedOnce(t *testing.T, f *fixture) {
	var advances []dispatcher.Advance
	for _, name := range []string{"claimed", "ended", "retried"} {
		f.putEvery(name, time.Minute)
	}
	for _, d := range f.dueAll(minutes(1)) {
		advances = append(advances, f.advance(d))
	}
	held := f.claim(advances...)
	if len(held) != 3 {
		t.Fatalf("%d fires were claimed, want 3", len(held))
	}
	for _, r := range held {
		switch r.JobID {
		case run.JobID("shop", "ended"):
			f.end(r, minutes(2))
		case run.JobID("shop", "retried"):
			again := record(r, outcome(minutes(1)))
			again.Outcome.State, again.Outcome.Class = run.Failed, run.ClassHTTP5xx
			again.Next = &dispatcher.NextAttempt{At: minutes(3), Until: minutes(9), CountsAsFailure: true}
			f.must(f.Record(t.Context(), []dispatcher.Record{again}))
		}
	}
	want := map[string]run.State{
		"claimed": run.Claimed, "ended": run.Succeeded, "retried": run.Retrying,
	}
	for what, query := range map[string]dispatcher.RunQuery{"of the app": {App: "shop"}, "of all apps": {}} {
		query.Page.Limit = 10
		all, err := f.Runs(t.Context(), query)
		f.must(err)
		got := map[string]run.State{}
		for _, run := range all {
			got[run.Job] = run.State
		}
		if diff := cmp.Diff(want, got); diff != "" || len(all) != 3 {
			t.Errorf("%s: %d runs (-want +got):\n%s", what, len(all), diff)
		}
	}
	for name, state := range want {
		all, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 10}})
		f.must(err)
		if len(all) != 1 || all[0].State != state {
			t.Errorf("runs of job %s: %+v, want one that is %s", name, all, state)
		}
	}
	for _, run := range held {
		if got := f.run(run.Key); got.State != want[got.Job] || got.Node == nil || *got.Node != nodeA || got.ClaimedAt == nil {
			t.Errorf("run of job %s: %+v, want it %s, by the node that claimed it", got.Job, got, want[got.Job])
		}
	}
	fires, err := f.Fires(t.Context(), run.JobID("shop", "claimed"), t0, minutes(9), 10)
	if err != nil || len(fires) != 1 {
		t.Errorf("fires of the job that is claimed: %v, %v, want one", fires, err)
	}
}

// The day of an instant may be long gone when the run ends, after retries or a catch-up; run, attempts and responses
// stay as long as if it had been scheduled then.
func testRetentionFromTheEnd(t *testing.T, f *fixture) {
	f.purge(t0) // makes a partition for the day
	held := f.fire("shop", "job", "rate(1m)")
	again := record(held, outcome(minutes(1)))
	again.Outcome.State, again.Outcome.Class = run.Failed, run.ClassHTTP5xx
	again.Outcome.Response = &run.Response{Body: "no"}
	again.Next = &dispatcher.NextAttempt{At: shopEnd.Add(-49 * time.Hour), Until: shopEnd, CountsAsFailure: true}
	f.must(f.Record(t.Context(), []dispatcher.Record{again}))
	// Its day is over and would be dropped, while it waits to be attempted again.
	f.purge(shopEnd.Add(24 * time.Hour))
	if got := f.run(held.Key); got.State != run.Retrying || len(got.Attempts) != 1 || got.Attempts[0].Response == nil {
		t.Errorf("while it waits: got %+v, want it with its attempt and response", got)
	}
	query := dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: shopEnd.Add(-48 * time.Hour), Retries: true}
	adopted, err := f.Adopt(t.Context(), query)
	f.must(err)
	if len(adopted) != 1 {
		t.Fatalf("%d runs were adopted, want the one that waits", len(adopted))
	}
	ended := shopEnd.Add(-47 * time.Hour)
	f.end(adopted[0], ended)
	for _, tt := range []struct {
		now  time.Time
		kept bool
	}{
		{shopEnd.Add(48 * time.Hour), true},
		{ended.Add(30 * 24 * time.Hour), true},
		{ended.Add(31 * 24 * time.Hour), false},
	} {
		f.purge(tt.now)
		if !tt.kept {
			if f.left(map[string]run.HeldRun{"run": held})["run"] {
				t.Errorf("at %s it is still there, want it gone", tt.now)
			}
			continue
		}
		if got := f.run(held.Key); got.State != run.Succeeded || len(got.Attempts) != 2 || got.Attempts[0].Response == nil {
			t.Errorf("at %s: got %+v, want it with its attempts and response", tt.now, got)
		}
	}
}
