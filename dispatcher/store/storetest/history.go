package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
)

// The app "brief" of these tests keeps two days of history, the app "shop" the thirty of the
// default. What happened on the day of t0 goes at briefEnd and at shopEnd.
var (
	briefEnd = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)
	shopEnd  = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

func (f *fixture) putBrief() {
	f.Helper()
	f.must(f.PutApp(f.Context(), dispatcher.App{Name: "brief", Enabled: true, Retention: dispatcher.Duration(48 * time.Hour)}, at(t0)))
}

// fire claims the first fire of a new job, a minute after t0.
func (f *fixture) fire(app, name, expression string) dispatcher.HeldRun {
	f.Helper()
	trigger := every(time.Minute, t0.Add(time.Minute))
	trigger.Expression = expression
	j := job(name, map[string]dispatcher.Trigger{"tick": trigger})
	j.App = app
	f.put(j, t0)
	for _, d := range f.dueAll(t0.Add(time.Minute)) {
		if d.ID == dispatcher.TriggerID(app, name, "tick") {
			return f.claim(f.advance(d))[0]
		}
	}
	f.Fatalf("job %s of app %s is not due", name, app)
	return dispatcher.HeldRun{}
}

// end records a run as ended at an instant.
func (f *fixture) end(run dispatcher.HeldRun, at time.Time) {
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
func (f *fixture) left(runs map[string]dispatcher.HeldRun) map[string]bool {
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
	runs := map[string]dispatcher.HeldRun{}
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
	runs := map[string]dispatcher.HeldRun{"run": held}
	f.must(f.PutApp(t.Context(), dispatcher.App{Name: "brief", Retention: dispatcher.Duration(72 * time.Hour)}, at(t0)))
	if f.purge(briefEnd); !f.left(runs)["run"] {
		t.Error("a run was removed that the app keeps by now")
	}
	f.must(f.PutApp(t.Context(), dispatcher.App{Name: "brief", Retention: dispatcher.Duration(48 * time.Hour)}, at(t0)))
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
	if f.purge(briefEnd); len(f.run(held.RunKey).Attempts) != 1 {
		t.Errorf("a queued run: got %+v, want it there with its attempt", f.run(held.RunKey))
	}
	f.must(f.CancelRun(ctx, held.String(), at(t0.Add(time.Hour))))
	if removed := f.purge(briefEnd); removed.Runs != 1 {
		t.Errorf("after it was cancelled: removed %+v, want the run", removed)
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
			all, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: app, Page: dispatcher.Page{Limit: 10}})
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

// A fixed delay counts on from the end of its run, however long no node was there to do it.
func testRetentionOfDelays(t *testing.T, f *fixture) {
	f.putBrief()
	held := f.fire("brief", "job", "delay(1m)")
	f.end(held, t0.Add(2*time.Minute))
	if f.purge(shopEnd); len(f.ended()) != 1 {
		t.Fatal("the run from which a fixed delay is to count on was removed")
	}
	next := shopEnd.Add(time.Minute)
	f.must(f.ScheduleNext(t.Context(), []dispatcher.DelayedFire{{
		TriggerID: held.TriggerID, Revision: 1, Prev: held.ScheduledAt, Anchor: t0, Next: next, Due: next,
	}}))
	if removed := f.purge(shopEnd); removed.Runs != 1 {
		t.Errorf("once it is armed: removed %+v, want the run", removed)
	}
}
