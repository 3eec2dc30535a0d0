package dispatch

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func testFollowTarget(t *testing.T, f *wing) {
	deliver := func(url string) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) { j.OnFailure = &dispatcher.Follow{FollowDestination: fixture.Hook(url)} }
	}
	f.PutFollowed(deliver("https://example.com/one"))
	held := f.FireOf("parent")
	f.RecordFollowed(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("deliveries that were queued", f.FollowAll(fixture.T0.Add(time.Minute)), 1)
	f.Expect("runs of the delivery", f.RunsOf("parent.on_failure"), "follow queued")
	id := run.JobID("shop", "parent.on_failure")
	first := f.Prepared(id)
	f.Expect("where the delivery goes", first.Target.Webhook.URL, "https://example.com/one")
	f.Expect("how often it is attempted", first.Retry.MaxAttempts, run.DefaultAttempts)
	jobs, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 10})
	f.Must(err)
	f.Expect("jobs of the app", len(jobs), 2)
	app, err := f.AppWithUsage(t.Context(), "shop")
	f.Must(err)
	if app.Usage != nil {
		f.Expect("jobs that count", app.Usage.Jobs, int64(2))
	}
	f.PutFollowed(deliver("https://example.com/one"))
	f.Expect("the revision of what is put as it was", f.Prepared(id).Revision, first.Revision)
	f.PutFollowed(deliver("https://example.com/two"))
	second := f.Prepared(id)
	f.Expect("where deliveries go now", second.Target.Webhook.URL, "https://example.com/two")
	f.Expect("their revision", second.Revision, first.Revision+1)
	f.PutFollowed(func(*dispatcher.Job) {})
	gone, err := f.JobsByID(t.Context(), []int64{id})
	f.Must(err)
	f.Expect("jobs that deliver when nothing follows", len(gone), 0)
	f.Must(f.DeleteJob(t.Context(), "shop", "parent", fixture.At(fixture.T0)))
	f.PutFollowed(deliver("https://example.com/one"))
	if again := f.Prepared(id); again.Revision <= second.Revision {
		t.Errorf("a delivery that is declared again has revision %d, want more than %d", again.Revision, second.Revision)
	}
}

func testFollowCycle(t *testing.T, f *wing) {
	put := func(name string, followers ...string) error {
		j := fixture.Job(name, nil)
		if len(followers) > 0 {
			j.OnSuccess = &dispatcher.Follow{Jobs: followers}
		}
		_, _, err := f.PutJob(t.Context(), j, fixture.At(fixture.T0))
		return err
	}
	for _, tt := range []struct {
		what      string
		name      string
		followers []string
		want      string
	}{
		{"the job itself", "a", []string{"a"}, "follow_cycle /on_success/jobs/0"},
		{"nothing", "c", nil, ""},
		{"a job", "b", []string{"c"}, ""},
		{"a chain", "a", []string{"b", "c"}, ""},
		{"a circle of three", "c", []string{"a"}, "follow_cycle /on_success/jobs/0"},
		{"a circle of two", "b", []string{"c", "a"}, "follow_cycle /on_success/jobs/1"},
		{"a job that is named twice", "a", []string{"b", "b"}, "follow_twice /on_success/jobs/1"},
		{"a delivery", "a", []string{"b.on_success"}, "name_format /on_success/jobs/0"},
	} {
		switch err := put(tt.name, tt.followers...); {
		case tt.want == "":
			f.Must(err)
		default:
			f.WantProblem(tt.what, err, tt.want)
		}
	}
	// A circle over two events is a circle, too.
	c := fixture.Job("c", nil)
	c.OnMisfire = &dispatcher.Follow{Jobs: []string{"a"}}
	_, _, err := f.PutJob(t.Context(), c, fixture.At(fixture.T0))
	f.WantProblem("a circle over two events", err, "follow_cycle /on_misfire/jobs/0")
	// It is none after a link was removed.
	f.Must(put("a"))
	f.Must(put("c", "a"))
	// The job that gets an awaited name closes a circle.
	f.Must(put("d", "e"))
	f.WantProblem("a new job that closes a circle", put("e", "f", "d"), "follow_cycle /on_success/jobs/1")
	f.Must(put("other", "d"))
	_, err = f.RenameJob(t.Context(), "shop", "other", dispatcher.JobRename{Name: "e"}, fixture.At(fixture.T0))
	f.WantProblem("a rename that closes a circle", err, "follow_cycle /on_success/jobs/0")
}

// The first one has put its job before the other one checks.
func testFollowCycleRace(t *testing.T, f *wing) {
	f.Put(fixture.Job("a", nil), fixture.T0)
	f.Put(fixture.Job("b", nil), fixture.T0)
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		all.Go(func() {
			j := fixture.Job(names[0], nil)
			j.OnSuccess = &dispatcher.Follow{Jobs: []string{names[1]}}
			_, _, errs[i] = f.PutJob(t.Context(), j, fixture.At(fixture.T0))
		})
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two jobs that follow each other were put with errors %v and %v, want one of them refused", errs[0], errs[1])
	}
}

// Neither of two new jobs that name each other exists when the other one is checked.
func testAwaitedCycleRace(t *testing.T, f *wing) {
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		all.Go(func() {
			j := fixture.Job(names[0], nil)
			j.OnSuccess = &dispatcher.Follow{Jobs: []string{names[1]}}
			_, _, errs[i] = f.PutJob(t.Context(), j, fixture.At(fixture.T0))
		})
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("two jobs that await each other were put with errors %v and %v, want one of them refused", errs[0], errs[1])
	}
	f.WantProblem("the later one", cmp.Or(errs[0], errs[1]), "follow_cycle /on_success/jobs/0")
}

// An app moves with names of jobs and of an alert that it does not have yet.
func testAwaitedImport(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child", "late"}, Alert: "night"}
	})
	f.Must(f.PutApp(t.Context(), access.App{Name: "shop"}, fixture.At(fixture.T0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(t.Context(), 100)
		f.Must(err)
		more = left
	}
	export, err := f.ExportApp(t.Context(), "shop")
	f.Must(err)
	f.Must(f.DeleteJob(t.Context(), "shop", "parent", fixture.At(fixture.T0)))
	f.Must(f.DeleteJob(t.Context(), "shop", "child", fixture.At(fixture.T0)))
	export.App.Name, export.App.Enabled = "copy", true
	for i := range export.Jobs {
		export.Jobs[i].Job.App = "copy"
	}
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	parent, err := f.Job(t.Context(), "copy", "parent")
	f.Must(err)
	f.Expect("warnings after the import", fmt.Sprint(fixture.ProblemCodes(input.Problems(parent.Warnings))),
		"[follow_unknown /on_failure/jobs/1 follow_unknown /on_failure/alert]")
	late := fixture.Job("late", nil)
	late.App = "copy"
	late.OnSuccess = &dispatcher.Follow{Jobs: []string{"parent"}}
	_, _, err = f.PutJob(t.Context(), late, fixture.At(fixture.T0))
	f.WantProblem("a job with the awaited name that closes a circle", err, "follow_cycle /on_success/jobs/0")
	late.OnSuccess = nil
	_, _, err = f.PutJob(t.Context(), late, fixture.At(fixture.T0))
	f.Must(err)
	pager := fixture.Pager("night")
	pager.App = "copy"
	f.DeclareAlert(pager, fixture.T0)
	parent, err = f.Job(t.Context(), "copy", "parent")
	f.Must(err)
	f.Expect("warnings when all are there", len(parent.Warnings), 0)
}

// warnings returns the warnings of a job, as it is read and as it is listed.
func (f *wing) warnings(t *testing.T, name string) string {
	one, err := f.Job(t.Context(), "shop", name)
	f.Must(err)
	all, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 100})
	f.Must(err)
	for _, listed := range all {
		if listed.Name == name {
			fixture.WantDiff(t, "warnings of the job in the list", one.Warnings, listed.Warnings)
		}
	}
	return fmt.Sprint(fixture.ProblemCodes(input.Problems(one.Warnings)))
}

func (f *wing) followersAfterFailure(parent string) int {
	held := f.FireOf(parent)
	f.RecordFollowed(held, fixture.Ended(run.Failed, held.ScheduledAt.Add(time.Second)))
	return f.FollowAll(held.ScheduledAt.Add(time.Minute))
}

func testAwaitedFollower(t *testing.T, f *wing) {
	const missing = "[follow_unknown /on_failure/jobs/1]"
	f.PutFollowed(fixture.OnFailure("child", "late"))
	f.Expect("warnings before the job exists", f.warnings(t, "parent"), missing)
	for _, description := range []string{"", "another", "another"} { // unchanged, changed, unchanged
		parent, err := f.Job(t.Context(), "shop", "parent")
		f.Must(err)
		parent.Description = description
		put, _, err := f.PutJob(t.Context(), parent, fixture.At(fixture.T0))
		f.Must(err)
		f.Expect("warnings of the response", fmt.Sprint(fixture.ProblemCodes(input.Problems(put.Warnings))), missing)
	}
	f.Expect("followers before the job exists", f.followersAfterFailure("parent"), 1)

	f.Put(fixture.Job("late", nil), fixture.T0)
	f.Expect("warnings after the job was made", f.warnings(t, "parent"), "[]")
	f.Expect("followers after the job was made", f.followersAfterFailure("parent"), 2)

	f.Must(f.DeleteJob(t.Context(), "shop", "late", fixture.At(fixture.T0)))
	f.Expect("warnings after the job was deleted", f.warnings(t, "parent"), missing)
	f.Expect("followers after the job was deleted", f.followersAfterFailure("parent"), 1)
	f.Put(fixture.Job("late", nil), fixture.T0)
	f.Expect("followers after the job was made again", f.followersAfterFailure("parent"), 2)

	f.Must(f.DeleteJob(t.Context(), "shop", "late", fixture.At(fixture.T0)))
	f.Rename("parent", "mother", nil, fixture.T0)
	f.Put(fixture.Job("early", nil), fixture.T0)
	_, err := f.RenameJob(t.Context(), "shop", "early", dispatcher.JobRename{Name: "late"}, fixture.At(fixture.T0))
	f.WantProblem("a rename to the name of a deleted job", err, "name_taken /name")
	f.Must(f.DeleteJob(t.Context(), "shop", "mother", fixture.At(fixture.T0)))
	f.Must(f.DeleteJob(t.Context(), "shop", "child", fixture.At(fixture.T0)))
}

// A job that is renamed to an awaited name of its own leader follows it once.
func testAwaitedName(t *testing.T, f *wing) {
	f.PutFollowed(fixture.OnFailure("child", "late"))
	f.Rename("child", "late", nil, fixture.T0)
	parent, err := f.Job(t.Context(), "shop", "parent")
	f.Must(err)
	fixture.WantDiff(t, "the jobs that follow", []string{"late"}, parent.OnFailure.Jobs)
	f.Expect("warnings after the rename", f.warnings(t, "parent"), "[]")
	f.Expect("followers after the rename", f.followersAfterFailure("parent"), 1)
}

func testFollowRename(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: fixture.Hook("https://example.com/one")}
	})
	before, err := f.Job(t.Context(), "shop", "parent")
	f.Must(err)
	f.Rename("child", "kid", nil, fixture.T0)
	parent, err := f.Job(t.Context(), "shop", "parent")
	f.Must(err)
	fixture.WantDiff(t, "the jobs that follow", []string{"kid"}, parent.OnFailure.Jobs)
	f.Expect("the revision of the parent", parent.Revision, before.Revision)
	held := f.FireOf("parent")
	f.Rename("parent", "mother", nil, fixture.T0)
	f.RecordFollowed(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 2)
	f.Expect("runs of the child", f.RunsOf("kid"), "chain queued")
	f.Expect("runs of the delivery", f.RunsOf("mother.on_failure"), "follow queued")
	// Another job may use the name, and has its own deliveries.
	f.Put(fixture.Job("parent", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0.Add(time.Minute))}), fixture.T0)
	other := fixture.Job("parent", nil)
	other.OnFailure = &dispatcher.Follow{FollowDestination: fixture.Hook("https://example.com/two")}
	f.Put(other, fixture.T0)
	f.Expect("where the deliveries of the first go", f.Prepared(run.JobID("shop", "parent.on_failure")).Target.Webhook.URL,
		"https://example.com/one")
	f.Expect("runs of the deliveries of the second", f.RunsOf("parent.on_failure"), "")
}

func testFollowImport(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, FollowDestination: fixture.Hook("https://example.com/one")}
	})
	held := f.FireOf("parent")
	f.RecordFollowed(held, fixture.Ended(run.Failed, fixture.T0.Add(time.Minute)))
	f.Must(f.PutApp(t.Context(), access.App{Name: "shop"}, fixture.At(fixture.T0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(t.Context(), 100)
		f.Must(err)
		more = left
	}
	_, err := f.ExportApp(t.Context(), "shop")
	wantConflict(t, "export an app whose runs have yet to be followed", err)
	f.Expect("runs that follow", f.FollowAll(fixture.T0.Add(time.Minute)), 2)
	export, err := f.ExportApp(t.Context(), "shop")
	f.Must(err)
	f.Expect("runs that move", len(export.Waiting), 2)
	f.Expect("jobs of the export", len(export.Jobs), 2)
	export.App.Name, export.Waiting = "copy", nil // these runs are still here
	for i := range export.Jobs {
		export.Jobs[i].Job.App = "copy"
	}
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	f.Expect("where deliveries go", f.Prepared(run.JobID("copy", "parent.on_failure")).Target.Webhook.URL, "https://example.com/one")
	export.App.Name = "circle"
	for i := range export.Jobs {
		export.Jobs[i].Job.App = "circle"
		if export.Jobs[i].Job.Name == "child" {
			export.Jobs[i].Job.OnSuccess = &dispatcher.Follow{Jobs: []string{"parent"}}
		}
	}
	_, err = f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0))
	f.WantProblem("an app whose jobs follow each other in a circle", err, "follow_cycle /jobs/1/job/on_failure/jobs/0")
}

func testFollowedWhateverEnded(t *testing.T, f *wing) {
	f.PutFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	completed := f.FireOf("parent")
	f.accept(completed, completed.ScheduledAt)
	f.Must(f.complete(completed.Key, 1, completed.ScheduledAt.Add(time.Second)))
	f.Expect("runs that follow a completed one", f.FollowAll(completed.ScheduledAt.Add(time.Minute)), 1)

	broadcast := f.FireOf("parent")
	f.spread(broadcast, 2)
	for _, shard := range f.AdoptIdle(fixture.NodeA, broadcast.ScheduledAt) {
		if shard.Shard > 0 {
			f.RecordFollowed(shard, fixture.Ended(run.Failed, broadcast.ScheduledAt))
		}
	}
	f.Expect("runs that follow shards", f.FollowAll(broadcast.ScheduledAt), 0)
	f.Expect("broadcasts that ended", f.endBroadcasts(broadcast.Key), 1)
	f.Expect("runs that follow a broadcast", f.FollowAll(broadcast.ScheduledAt.Add(time.Hour)), 1)

	cancelled := f.FireOf("parent")
	f.Must(f.CancelRun(t.Context(), cancelled.String(), fixture.At(cancelled.ScheduledAt)))
	f.Expect("runs that follow a cancelled one", f.FollowAll(cancelled.ScheduledAt.Add(time.Hour)), 0)
}
