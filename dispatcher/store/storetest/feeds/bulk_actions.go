package feeds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// bulkTests test actions on all jobs or runs that a filter selects.
func bulkTests() tests {
	return tests{
		"a bulk action pauses and resumes jobs":      testBulkPause,
		"a bulk action runs each job once":           testBulkRunsOnce,
		"a bulk action cancels and retries runs":     testBulkRuns,
		"a bulk action waits for a quota":            testBulkQuota,
		"a cancelled bulk action stops":              testBulkCancel,
		"a bulk action ends when its job is deleted": testBulkOfDeletedJob,
		"bulk actions are listed and removed":        testBulkList,
	}
}

// bulk begins a bulk action on shop, and returns it with its key.
func (f *wing) bulk(action repeat.BulkVerb, filter repeat.BulkFilter) (repeat.BulkAction, int64) {
	f.Helper()
	spec := repeat.BulkSpec{Action: action, Filter: filter, Reason: "freeze"}
	f.Must(spec.Validate())
	count, err := f.CountBulk(f.Context(), "shop", spec)
	f.Must(err)
	by := input.Change{Actor: "ada", TokenID: "t1", Address: "192.0.2.1", RequestID: "q1", Now: fixture.T0}
	created, err := f.CreateBulkAction(f.Context(), "shop", spec, count, by)
	f.Must(err)
	id, err := repeat.ParseBulkActionID(created.ID)
	f.Must(err)
	return created, id
}

// stepBulk takes steps until an action does not advance, and returns it.
func (f *wing) stepBulk(b repeat.BulkAction, id int64) repeat.BulkAction {
	f.Helper()
	for more := true; more; {
		step, err := f.StepBulkAction(f.Context(), id, fixture.T0)
		f.Must(err)
		more = step.More
	}
	found, err := f.BulkAction(f.Context(), "shop", b.ID)
	f.Must(err)
	return found
}

// progressOf returns the progress of an action as text.
func progressOf(b repeat.BulkAction) string {
	return fmt.Sprintf("%s: %d of %d, %d skipped", b.State, b.Done, b.Total, b.Skipped)
}

func (f *wing) wantProgress(b repeat.BulkAction, want string) {
	f.Helper()
	if got := progressOf(b); got != want {
		f.Errorf("the action is %q, want %q", got, want)
	}
}

func testBulkPause(t *testing.T, f *wing) {
	for i := range 60 { // more than a step
		f.PutEvery(fmt.Sprintf("job-%02d", i), time.Minute)
	}
	if _, err := f.PauseJob(t.Context(), "shop", "job-07", "", true, input.Change{Actor: "bob", Reason: "mine",
		Now: fixture.T0}); err != nil {
		t.Fatal(err)
	}
	f.PutEvery("other", time.Minute)
	b, id := f.bulk(repeat.BulkPauseJobs, repeat.BulkFilter{Name: "job-"})
	f.wantProgress(f.stepBulk(b, id), "complete: 59 of 60, 1 skipped")
	for name, want := range map[string]string{"job-00": "true ada freeze", "job-59": "true ada freeze", "job-07": "true bob mine",
		"other": "false  "} {
		job, err := f.Job(t.Context(), "shop", name)
		f.Must(err)
		if got := fmt.Sprint(job.Paused, " ", job.PausedBy, " ", job.PauseReason); got != want {
			t.Errorf("job %s is paused %q, want %q", name, got, want)
		}
	}
	var changed []string
	for _, entry := range f.AuditLog(access.AuditQuery{Actor: "ada", Action: "pause", Page: input.Page{Limit: 100}}) {
		changed = append(changed, entry.Subject)
		if entry.TokenID != "t1" || entry.Address != "192.0.2.1" || entry.RequestID != "q1" {
			t.Errorf("the log says %+v of %s, want who asked", entry, entry.Subject)
		}
	}
	if len(changed) != 59 {
		t.Errorf("the log has %d changes of jobs by who asked, want one for each of 59", len(changed))
	}
	b, id = f.bulk(repeat.BulkResumeJobs, repeat.BulkFilter{})
	f.wantProgress(f.stepBulk(b, id), "complete: 60 of 61, 1 skipped")
}

func testBulkRunsOnce(t *testing.T, f *wing) {
	for _, name := range []string{"a", "b", "c"} {
		f.PutEvery(name, time.Minute)
	}
	b, id := f.bulk(repeat.BulkRunJobs, repeat.BulkFilter{})
	errs := make(chan error, 4)
	for range cap(errs) { // several nodes at once
		go func() {
			_, err := f.StepBulkAction(t.Context(), id, fixture.T0)
			errs <- err
		}()
	}
	for range cap(errs) {
		f.Must(<-errs)
	}
	f.wantProgress(f.stepBulk(b, id), "complete: 3 of 3, 0 skipped")
	var runs []string
	for _, run := range f.AdoptIdle(fixture.NodeA, fixture.T0.Add(time.Second)) {
		runs = append(runs, string(run.Kind))
	}
	if diff := cmp.Diff([]string{"manual", "manual", "manual"}, runs); diff != "" {
		t.Errorf("the runs (-want +got):\n%s", diff)
	}
}

func testBulkRuns(t *testing.T, f *wing) {
	f.DeadLettersOf("a", run.Failed, run.TimedOut, run.Failed)
	f.DeadLettersOf("b", run.Failed)
	b, id := f.bulk(repeat.BulkRetryRuns, repeat.BulkFilter{Job: "a", State: "failed"})
	f.wantProgress(f.stepBulk(b, id), "complete: 2 of 2, 0 skipped")
	left, err := f.DeadLetters(t.Context(), repeat.DeadLetterQuery{App: "shop", Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(left) != 2 {
		t.Errorf("%d dead letters are left, want the one that timed out and that of the other job", len(left))
	}
	b, id = f.bulk(repeat.BulkCancelRuns, repeat.BulkFilter{Job: "a", State: "queued"})
	f.wantProgress(f.stepBulk(b, id), "complete: 2 of 2, 0 skipped")
	cancelled, err := f.Runs(t.Context(), dispatcher.RunQuery{App: "shop", State: run.Cancelled,
		Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(cancelled) != 2 {
		t.Errorf("%d runs are cancelled, want 2", len(cancelled))
	}
}

func testBulkQuota(t *testing.T, f *wing) {
	for _, name := range []string{"a", "b", "c"} {
		f.PutEvery(name, time.Minute)
	}
	f.Bound(target.Bounds{Quotas: target.Quotas{ManualRunsPerMinute: 2}})
	b, id := f.bulk(repeat.BulkRunJobs, repeat.BulkFilter{})
	step, err := f.StepBulkAction(t.Context(), id, fixture.T0)
	f.Must(err)
	b = f.stepBulk(b, id)
	f.wantProgress(b, "running: 2 of 3, 0 skipped")
	if !strings.Contains(b.Waits, "manual_runs_per_minute") || step.Waits == 0 || step.More {
		t.Errorf("the action waits because %q, for %s", b.Waits, step.Waits)
	}
	if _, err := f.StepBulkAction(t.Context(), id, fixture.T0.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b = f.stepBulk(b, id)
	f.wantProgress(b, "complete: 3 of 3, 0 skipped")
	if b.Waits != "" || b.EndedAt == nil {
		t.Errorf("the action waits because %q at its end, %v", b.Waits, b.EndedAt)
	}
}

func testBulkCancel(t *testing.T, f *wing) {
	f.PutEvery("a", time.Minute)
	b, id := f.bulk(repeat.BulkPauseJobs, repeat.BulkFilter{})
	for range 2 {
		cancelled, err := f.CancelBulkAction(t.Context(), "shop", b.ID, fixture.At(fixture.T0))
		f.Must(err)
		f.wantProgress(cancelled, "cancelled: 0 of 1, 0 skipped")
	}
	f.wantProgress(f.stepBulk(b, id), "cancelled: 0 of 1, 0 skipped")
	if open, err := f.OpenBulkActions(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("open actions: %v, %v, want none", open, err)
	}
	b, id = f.bulk(repeat.BulkPauseJobs, repeat.BulkFilter{})
	f.stepBulk(b, id)
	if _, err := f.CancelBulkAction(t.Context(), "shop", b.ID, fixture.At(fixture.T0)); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("cancel of one that is complete: %v, want ErrConflict", err)
	}
	for _, id := range []string{"none", "1"} {
		if _, err := f.BulkAction(t.Context(), "shop", id); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("action %s: %v, want ErrNotFound", id, err)
		}
	}
}

func testBulkOfDeletedJob(t *testing.T, f *wing) {
	f.PutEvery("a", time.Minute)
	b, id := f.bulk(repeat.BulkCancelRuns, repeat.BulkFilter{Job: "a", State: "queued"})
	f.Must(f.DeleteJob(t.Context(), "shop", "a", fixture.At(fixture.T0)))
	f.wantProgress(f.stepBulk(b, id), "complete: 0 of 0, 0 skipped")
}

func testBulkList(t *testing.T, f *wing) {
	f.PutEvery("a", time.Minute)
	var ids []string
	for i := range 3 {
		b, id := f.bulk(repeat.BulkPauseJobs, repeat.BulkFilter{})
		ids = append(ids, b.ID)
		if i < 2 {
			f.stepBulk(b, id)
		}
	}
	list := func(cursor string) (found []string) {
		page, err := f.BulkActions(t.Context(), "shop", input.Page{Limit: 2, Cursor: cursor})
		f.Must(err)
		for _, b := range page {
			found = append(found, b.ID)
		}
		return found
	}
	all := list("")
	if all = append(all, list(all[1])...); len(all) != 3 {
		t.Errorf("the list has %q, want %q", all, ids)
	}
	f.PurgeAll(fixture.T0.Add(2 * 400 * 24 * time.Hour))
	if left := list(""); len(left) != 1 {
		t.Errorf("retention left %q, want the one that has not ended", left)
	}
}
