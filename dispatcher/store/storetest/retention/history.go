package retention

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// briefEnd is the same for the app "brief", which keeps two days of history.
var briefEnd = time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC)

func testRetention(t *testing.T, f *wing) {
	f.PutBrief()
	runs := map[string]run.HeldRun{}
	for _, app := range []string{"brief", "shop"} {
		for _, name := range []string{"ended", "live", "late"} {
			runs[app+" "+name] = f.Fire(app, name, "rate(1m)")
		}
		f.End(runs[app+" ended"], fixture.T0.Add(2*time.Minute))
	}
	// A run that ends long after its instant is as young as its end.
	f.End(runs["brief late"], briefEnd.Add(-24*time.Hour))
	f.End(runs["shop late"], fixture.ShopEnd.Add(-24*time.Hour))

	check := func(what string, now time.Time, removed dispatcher.Purged, gone ...string) {
		t.Helper()
		if diff := cmp.Diff(removed, f.PurgeAll(now)); diff != "" {
			t.Errorf("%s: removed (-want +got):\n%s", what, diff)
		}
		want := map[string]bool{}
		for name := range runs {
			want[name] = true
		}
		for _, name := range gone {
			want[name] = false
		}
		if diff := cmp.Diff(want, f.Left(runs)); diff != "" {
			t.Errorf("%s: the runs that are left (-want +got):\n%s", what, diff)
		}
	}
	check("within all retentions", briefEnd.Add(-time.Millisecond), dispatcher.Purged{})
	check("beyond that of brief", briefEnd, dispatcher.Purged{Runs: 1}, "brief ended")
	check("again", briefEnd, dispatcher.Purged{}, "brief ended")
	f.Must(f.DeleteJob(t.Context(), "shop", "ended", fixture.At(fixture.T0)))
	check("beyond that of shop", fixture.ShopEnd, dispatcher.Purged{Runs: 2}, "brief ended", "brief late", "shop ended")
}

// The current retentions of the apps decide, including those of deleted apps.
func testRetentionChanges(t *testing.T, f *wing) {
	f.PutBrief()
	held := f.Fire("brief", "job", "rate(1m)")
	f.End(held, fixture.T0.Add(2*time.Minute))
	runs := map[string]run.HeldRun{"run": held}
	f.Must(f.PutApp(t.Context(), access.App{Name: "brief", AppSpec: access.AppSpec{Retention: input.Duration(72 * time.Hour)}},
		fixture.At(fixture.T0)))
	if f.PurgeAll(briefEnd); !f.Left(runs)["run"] {
		t.Error("a run was removed that the app keeps by now")
	}
	f.Must(f.PutApp(t.Context(), access.App{Name: "brief", AppSpec: access.AppSpec{Retention: input.Duration(48 * time.Hour)}},
		fixture.At(fixture.T0)))
	f.Must(f.DeleteJob(t.Context(), "brief", "job", fixture.At(fixture.T0)))
	f.Must(f.DeleteApp(t.Context(), "brief", fixture.At(fixture.T0)))
	if f.PurgeAll(briefEnd); f.Left(runs)["run"] {
		t.Error("a run of a deleted app was kept")
	}
}

// A run that is queued again keeps its attempts, however old they are.
func testRetentionOfRetries(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutBrief()
	held := f.Fire("brief", "job", "rate(1m)")
	f.End(held, fixture.T0.Add(2*time.Minute))
	f.Must(f.RetryRun(ctx, held.String(), fixture.At(fixture.T0)))
	if f.PurgeAll(briefEnd); len(f.RunOf(held.Key).Attempts) != 1 {
		t.Errorf("a queued run: got %+v, want it there with its attempt", f.RunOf(held.Key))
	}
	f.Must(f.CancelRun(ctx, held.String(), fixture.At(briefEnd)))
	if removed := f.PurgeAll(briefEnd.AddDate(0, 0, 3)); removed.Runs != 1 {
		t.Errorf("three days after it was cancelled: removed %+v, want the run", removed)
	}
}

func testRetentionOfMisfires(t *testing.T, f *wing) {
	f.PutBrief()
	for _, app := range []string{"brief", "shop"} {
		for name, decided := range map[string]time.Time{"early": fixture.T0.Add(3 * time.Minute), "long": briefEnd.Add(-time.Hour)} {
			j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))})
			j.App = app
			f.Put(j, fixture.T0)
			j.Triggers = nil
			f.Put(j, decided) // due fires are skipped
		}
	}
	left := func() (names []string) {
		for _, app := range []string{"brief", "shop"} {
			all, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: app, Page: input.Page{Limit: 10}})
			f.Must(err)
			for _, m := range all {
				names = append(names, m.App+" "+m.Job)
			}
		}
		return names
	}
	before := left()
	if removed := f.PurgeAll(briefEnd.Add(-time.Millisecond)); removed.Misfires != 0 || len(before) != 4 {
		t.Errorf("within all retentions: removed %+v of %v, want none of four", removed, before)
	}
	removed := f.PurgeAll(briefEnd)
	var want []string
	for _, name := range before {
		if name != "brief early" {
			want = append(want, name)
		}
	}
	if diff := cmp.Diff(want, left()); diff != "" || removed.Misfires != 1 {
		t.Errorf("beyond that of brief: removed %+v, left (-want +got):\n%s", removed, diff)
	}
	if removed := f.PurgeAll(fixture.ShopEnd); removed.Misfires != 2 {
		t.Errorf("beyond that of shop: removed %+v, want two", removed)
	}
}

// A fixed delay counts on from the end of its run, however long no node did so, and whether or not the run is still in
// the history.
func testRetentionOfDelays(t *testing.T, f *wing) {
	f.PutBrief()
	held := f.Fire("brief", "job", "delay(1m)")
	ended := fixture.T0.Add(2 * time.Minute)
	f.End(held, ended)
	if removed := f.PurgeAll(fixture.ShopEnd); removed.Runs != 1 {
		t.Errorf("removed %+v, want the run", removed)
	}
	if delays := f.DelaysToArm(); len(delays) != 1 || !delays[0].EndedAt.Equal(ended) {
		t.Errorf("fixed delays to count on: %+v, want one from %s", delays, ended)
	}
}

// A slot that outlived its job could never be released: its release locks the row of the job.
func testRetentionOfSlots(t *testing.T, f *wing) {
	runs := f.Bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1, 2})
	f.Waits(runs[1], fixture.WaitOf("tick", "down.example.com"))
	for _, run := range runs {
		f.Must(f.CancelRun(t.Context(), run.String(), fixture.At(fixture.T0)))
	}
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(fixture.T0)))
	f.PurgeAll(fixture.T0.AddDate(0, 0, 60))
	if names, err := f.EveryJobName(t.Context(), "shop", input.Page{Limit: 10}); err != nil || len(names) != 0 {
		t.Fatalf("jobs %v, %v, want the job purged", names, err)
	}
	left, err := f.LeftSlots(t.Context(), fixture.NodeA, dispatcher.SlotKey{}, 10)
	f.Must(err)
	f.Expect("slots that are left", len(left.Runs), 0)
	dropped, err := f.DropHostWait(t.Context(), fixture.WaitOf("tick", "down.example.com").ID)
	f.Must(err)
	f.Expect("a wait that is left", dropped, false)
}
