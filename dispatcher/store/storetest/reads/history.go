package reads

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// historyTests test lists of the history, and its retention.
func historyTests() tests {
	return tests{
		"runs of an app are listed however far apart":     testRunsOfApp,
		"runs are listed by job, trigger, state and time": testRuns,
		"runs of several apps are searched":               testRunSearch,
		"a run is listed once, whatever holds it":         testRunsAreListedOnce,
		"a run is kept from its end on":                   testRetentionFromTheEnd,
	}
}

// pages returns the ids of the runs that a query selects, some at a time.
func (f *wing) pages(query dispatcher.RunQuery, size int) (ids []string) {
	f.Helper()
	query.Page.Limit = size
	for {
		page, err := f.Runs(f.Context(), query)
		f.Must(err)
		for _, run := range page {
			ids = append(ids, run.ID)
		}
		if len(page) < size {
			return ids
		}
		query.Page.Cursor = page[size-1].ID
	}
}

// Runs of an app may be years apart, or several at one instant, in the history or unfinished, with runs of other apps
// between them.
func testRunsOfApp(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareApp("other")
	for _, app := range []string{"shop", "other"} {
		for _, name := range []string{"a", "b", "c"} {
			j := fixture.Job(name, nil)
			j.App = app
			f.Put(j, fixture.T0)
		}
	}
	now, err := f.Clock(ctx)
	f.Must(err)
	want := map[string][]string{}
	var states []run.State
	for i, ago := range []time.Duration{-time.Hour, 0, 0, 20 * time.Second, 2 * time.Minute, 2 * time.Minute, time.Hour, 30 * time.Hour,
		72 * time.Hour, 40 * 24 * time.Hour, 40*24*time.Hour + time.Second, 800 * 24 * time.Hour, 15 * 365 * 24 * time.Hour} {
		for _, app := range []string{"shop", "other"} {
			run, err := f.RequestRun(ctx, app, string(rune('a'+i%3)), nil, fixture.At(now.Add(-ago).Truncate(time.Millisecond)))
			f.Must(err)
			if i%2 == 0 {
				run, err = f.CancelRun(ctx, run.ID, fixture.At(now))
				f.Must(err)
			}
			want[app] = append(want[app], run.ID)
			if app == "shop" {
				states = append(states, run.State)
			}
		}
	}
	for app, ids := range want {
		slices.SortFunc(ids, func(a, b string) int { return strings.Compare(b, a) }) // latest first: ids are in order
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

// Some fires of one claim are still in it, and others have ended or will be attempted again.
func testRunsAreListedOnce(t *testing.T, f *wing) {
	var advances []dispatcher.Advance
	for _, name := range []string{"claimed", "ended", "retried"} {
		f.PutEvery(name, time.Minute)
	}
	for _, d := range f.DueAll(fixture.Minutes(1)) {
		advances = append(advances, f.Advance(d))
	}
	held := f.ClaimAll(advances...)
	if len(held) != 3 {
		t.Fatalf("%d fires were claimed, want 3", len(held))
	}
	for _, r := range held {
		switch r.JobID {
		case run.JobID("shop", "ended"):
			f.End(r, fixture.Minutes(2))
		case run.JobID("shop", "retried"):
			again := fixture.Record(r, fixture.Outcome(fixture.Minutes(1)))
			again.Outcome.State, again.Outcome.Class = run.Failed, run.ClassHTTP5xx
			again.Next = &dispatcher.NextAttempt{At: fixture.Minutes(3), Until: fixture.Minutes(9), CountsAsFailure: true}
			f.Must(f.Record(t.Context(), []dispatcher.Record{again}))
		}
	}
	want := map[string]run.State{
		"claimed": run.Claimed, "ended": run.Succeeded, "retried": run.Retrying,
	}
	for what, query := range map[string]dispatcher.RunQuery{"of the app": {App: "shop"}, "of all apps": {}} {
		query.Page.Limit = 10
		all, err := f.Runs(t.Context(), query)
		f.Must(err)
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
		f.Must(err)
		if len(all) != 1 || all[0].State != state {
			t.Errorf("runs of job %s: %+v, want one that is %s", name, all, state)
		}
	}
	for _, run := range held {
		if got := f.RunOf(run.Key); got.State != want[got.Job] || got.Node == nil || *got.Node != fixture.NodeA || got.ClaimedAt == nil {
			t.Errorf("run of job %s: %+v, want it %s, by the node that claimed it", got.Job, got, want[got.Job])
		}
	}
	fires, err := f.Fires(t.Context(), run.JobID("shop", "claimed"), fixture.T0, fixture.Minutes(9), 10)
	if err != nil || len(fires) != 1 {
		t.Errorf("fires of the job that is claimed: %v, %v, want one", fires, err)
	}
}

// The day of an instant may have expired long before the run ends, after retries or a catch-up; run, attempts and
// responses are kept as if it had been scheduled then.
func testRetentionFromTheEnd(t *testing.T, f *wing) {
	f.PurgeAll(fixture.T0) // makes a partition for the day
	held := f.Fire("shop", "job", "rate(1m)")
	again := fixture.Record(held, fixture.Outcome(fixture.Minutes(1)))
	again.Outcome.State, again.Outcome.Class = run.Failed, run.ClassHTTP5xx
	again.Outcome.Response = &run.Response{Body: "no"}
	again.Next = &dispatcher.NextAttempt{At: fixture.ShopEnd.Add(-49 * time.Hour), Until: fixture.ShopEnd, CountsAsFailure: true}
	f.Must(f.Record(t.Context(), []dispatcher.Record{again}))
	// Its day has expired and would be dropped, while it waits to be attempted again.
	f.PurgeAll(fixture.ShopEnd.Add(24 * time.Hour))
	if got := f.RunOf(held.Key); got.State != run.Retrying || len(got.Attempts) != 1 || got.Attempts[0].Response == nil {
		t.Errorf("while it waits: got %+v, want it with its attempt and response", got)
	}
	query := dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.ShopEnd.Add(-48 * time.Hour),
		Retries: true}
	adopted, err := f.Adopt(t.Context(), query)
	f.Must(err)
	if len(adopted) != 1 {
		t.Fatalf("%d runs were adopted, want the one that waits", len(adopted))
	}
	ended := fixture.ShopEnd.Add(-47 * time.Hour)
	f.End(adopted[0], ended)
	for _, tt := range []struct {
		now  time.Time
		kept bool
	}{
		{fixture.ShopEnd.Add(48 * time.Hour), true},
		{ended.Add(30 * 24 * time.Hour), true},
		{ended.Add(31 * 24 * time.Hour), false},
	} {
		f.PurgeAll(tt.now)
		if !tt.kept {
			if f.Left(map[string]run.HeldRun{"run": held})["run"] {
				t.Errorf("at %s it is still there, want it gone", tt.now)
			}
			continue
		}
		if got := f.RunOf(held.Key); got.State != run.Succeeded || len(got.Attempts) != 2 || got.Attempts[0].Response == nil {
			t.Errorf("at %s: got %+v, want it with its attempts and response", tt.now, got)
		}
	}
}
