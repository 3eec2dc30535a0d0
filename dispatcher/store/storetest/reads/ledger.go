package reads

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func testRuns(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareApp("books")
	f.Put(fixture.Job("two", map[string]dispatcher.Trigger{
		"x": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)), "y": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
	}), fixture.T0)
	f.PutEvery("one", time.Minute)
	for range 3 { // at minutes 1, 2 and 3: runs of x, y and one's tick
		var advances []dispatcher.Advance
		for _, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
			advances = append(advances, f.Advance(d))
		}
		for _, held := range f.ClaimAll(advances...) {
			if held.ScheduledAt.Equal(fixture.T0.Add(time.Minute)) {
				f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, fixture.Outcome(fixture.T0))}))
			}
		}
	}
	f.Must(f.RequestRun(ctx, "shop", "one", nil, fixture.At(fixture.T0.Add(150*time.Second))))
	f.Must(f.DeleteJob(ctx, "shop", "two", fixture.At(fixture.T0.Add(3*time.Minute))))

	list := func(q dispatcher.RunQuery) []string {
		t.Helper()
		q.Page.Limit = 2
		got := []string{}
		for {
			page, err := f.Runs(ctx, q)
			f.Must(err)
			for _, run := range page {
				got = append(got, run.Job+"/"+run.Trigger+" "+run.ScheduledAt.Format("04:05"))
				q.Page.Cursor = run.ID
			}
			if len(page) < 2 {
				return got
			}
		}
	}
	check := func(what string, q dispatcher.RunQuery, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), list(q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if got := list(dispatcher.RunQuery{App: "shop"}); len(got) != 10 || got[3] != "one/ 02:30" {
		t.Errorf("runs of the app: got %q, want 10, the manual run fourth", got)
	}
	if got := list(dispatcher.RunQuery{}); len(got) != 10 {
		t.Errorf("all runs: got %q, want 10", got)
	}
	check("of an app without runs", dispatcher.RunQuery{App: "books"})
	check("of a job", dispatcher.RunQuery{App: "shop", Job: "one"}, "one/tick 03:00", "one/ 02:30", "one/tick 02:00", "one/tick 01:00")
	check("of a deleted trigger", dispatcher.RunQuery{App: "shop", Job: "two", Trigger: "x"}, "two/x 03:00", "two/x 02:00", "two/x 01:00")
	check("in a state", dispatcher.RunQuery{App: "shop", Job: "one", State: run.Succeeded}, "one/tick 01:00")
	check("queued", dispatcher.RunQuery{App: "shop", State: run.Queued}, "one/ 02:30")
	check("between instants", dispatcher.RunQuery{App: "shop", Job: "one", From: fixture.T0.Add(2 * time.Minute),
		To: fixture.T0.Add(150 * time.Second)},
		"one/ 02:30", "one/tick 02:00")
	for _, q := range []dispatcher.RunQuery{{App: "none"}, {App: "shop", Job: "none"}, {App: "shop", Job: "one", Trigger: "none"}} {
		q.Page.Limit = 1
		_, err := f.Runs(ctx, q)
		fixture.WantError(t, "runs of what never existed", err, dispatcher.ErrNotFound)
		_, err = f.Misfires(ctx, q)
		fixture.WantError(t, "misfires of what never existed", err, dispatcher.ErrNotFound)
	}
}

func testMisfires(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	f.PutEvery("tock", time.Minute)
	for range 3 {
		var settlements []dispatcher.Settlement
		for _, d := range f.DueAll(fixture.T0.Add(time.Hour)) {
			settlements = append(settlements, dispatcher.Settlement{Advance: f.Advance(d), To: d.NextFireTime, Count: 1,
				Decision: dispatcher.DecisionSkip})
		}
		f.Must(f.Settle(ctx, dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Settlements: settlements,
			Now: fixture.T0.Add(time.Hour)}))
	}
	list := func(q dispatcher.RunQuery) []string {
		t.Helper()
		q.Page.Limit = 1
		got := []string{}
		for {
			page, err := f.Misfires(ctx, q)
			f.Must(err)
			if len(page) == 0 {
				return got
			}
			got = append(got, page[0].Job+" "+page[0].From.Format("04:05"))
			q.Page.Cursor = page[0].Cursor()
		}
	}
	if got := list(dispatcher.RunQuery{App: "shop"}); len(got) != 6 {
		t.Errorf("misfires of the app: got %q, want 6", got)
	}
	if diff := cmp.Diff([]string{"tock 03:00", "tock 02:00", "tock 01:00"},
		list(dispatcher.RunQuery{App: "shop", Job: "tock", Trigger: "tick"})); diff != "" {
		t.Error("of a trigger (-want +got):\n" + diff)
	}
	if diff := cmp.Diff([]string{"tick 02:00"}, list(dispatcher.RunQuery{App: "shop", Job: "tick",
		From: fixture.T0.Add(2 * time.Minute), To: fixture.T0.Add(2 * time.Minute)})); diff != "" {
		t.Error("between instants (-want +got):\n" + diff)
	}
}
