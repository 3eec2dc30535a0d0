package retention

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// Jobs are deleted some time after their completion if they declare so, when all their runs have ended.
func testDeleteAfterCompletion(t *testing.T, f *wing) {
	ctx, begun, hour := t.Context(), time.Now().UTC().Truncate(time.Second), input.Duration(time.Hour)
	end := begun.Add(2 * time.Minute)
	tick := fixture.Every(time.Minute, begun.Add(time.Minute))
	tick.EndAt = &end
	off := tick
	off.Enabled = false
	for name, after := range map[string]input.Duration{"kept": 0, "long": 48 * hour, "spent": hour, "live": hour, "half": hour} {
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": tick})
		if name == "half" {
			j.Triggers["off"] = off
		}
		j.DeleteAfterCompletion = after
		if stored := f.Put(j, begun); stored.DeleteAfterCompletion != after {
			t.Errorf("job %s: stored delete_after_completion %s, want %s", name, stored.DeleteAfterCompletion, after)
		}
	}
	var live []run.HeldRun
	for _, at := range []time.Time{begun.Add(time.Minute), end} {
		for _, d := range f.DueAll(at) {
			for _, r := range f.ClaimAll(f.Advance(d)) {
				if r.JobID == run.JobID("shop", "live") {
					live = append(live, r)
					continue
				}
				f.End(r, end)
			}
		}
	}
	left := func() (names []string) {
		t.Helper()
		jobs, err := f.Jobs(ctx, "shop", input.Page{Limit: 10})
		f.Must(err)
		for _, j := range jobs {
			names = append(names, j.Name)
		}
		return names
	}
	check := func(what string, now time.Time, deleted int, want ...string) {
		t.Helper()
		removed := f.PurgeAll(now)
		if diff := cmp.Diff(want, left()); removed.Jobs != deleted || diff != "" {
			t.Errorf("%s: %d jobs deleted, want %d; left (-want +got):\n%s", what, removed.Jobs, deleted, diff)
		}
	}
	f.RollUpAll()
	completed := time.Now().Add(time.Second)
	check("within its time", begun.Add(time.Hour), 0, "half", "kept", "live", "long", "spent")
	check("after it", completed.Add(time.Hour), 1, "half", "kept", "live", "long")
	if _, err := f.Job(ctx, "shop", "spent"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("the deleted job: got %v, want ErrNotFound", err)
	}

	for _, run := range live {
		f.End(run, end)
	}
	f.RollUpAll()
	check("when its last run has ended", time.Now().Add(time.Hour+time.Second), 1, "half", "kept", "long")
	check("of those that last longer", completed.Add(48*time.Hour), 1, "half", "kept")

	// All of this is explained.
	page, err := verify.Ledger(ctx, f.Store, verify.Query{App: "shop", Page: input.Page{Limit: 10}, Now: completed.Add(time.Hour)})
	f.Must(err)
	found := 0
	for _, a := range page.Items {
		if found += a.Runs; a.Unexplained > 0 {
			t.Errorf("audit: %+v", a)
		}
	}
	if found != 10 {
		t.Errorf("the audit accounts for %d runs, want the 10 of five jobs", found)
	}
	// In the end only the audit log has traces of them, and their names are free.
	f.PurgeAll(begun.AddDate(0, 0, 60))
	names, err := f.EveryJobName(ctx, "shop", input.Page{Limit: 10})
	f.Must(err)
	if diff := cmp.Diff([]string{"half", "kept"}, names); diff != "" {
		t.Error("jobs on record beyond the retention (-want +got):\n" + diff)
	}
	if again := f.Put(fixture.Job("spent", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, end.Add(time.Hour))}),
		end); again.Revision != 1 {
		t.Errorf("declared again, it has revision %d, want 1", again.Revision)
	}
}
