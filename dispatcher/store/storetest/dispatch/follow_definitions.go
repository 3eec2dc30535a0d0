package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// hook is a target of deliveries.
func hook(url string) *target.Target {
	w := &target.Webhook{URL: url}
	w.SetDefaults()
	return &target.Target{Webhook: w}
}

func testFollowTarget(t *testing.T, f *fixture) {
	deliver := func(url string) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) { j.OnFailure = &dispatcher.Follow{Target: hook(url)} }
	}
	f.putFollowed(deliver("https://example.com/one"))
	held := f.fireOf("parent")
	f.recordFollowed(held, ended(run.Failed, t0.Add(time.Minute)))
	f.expect("deliveries that were queued", f.followEnds(t0.Add(time.Minute)), 1)
	f.expect("runs of the delivery", f.runsOf("parent.on_failure"), "follow queued")
	id := run.JobID("shop", "parent.on_failure")
	first := f.prepared(id)
	f.expect("where the delivery goes", first.Target.Webhook.URL, "https://example.com/one")
	f.expect("how often it is attempted", first.Retry.MaxAttempts, run.DefaultAttempts)
	jobs, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 10})
	f.must(err)
	f.expect("jobs of the app", len(jobs), 2)
	app, err := f.App(t.Context(), "shop")
	f.must(err)
	if app.Usage != nil {
		f.expect("jobs that count", app.Usage.Jobs, int64(2))
	}
	f.putFollowed(deliver("https://example.com/one"))
	f.expect("the revision of what is put as it was", f.prepared(id).Revision, first.Revision)
	f.putFollowed(deliver("https://example.com/two"))
	second := f.prepared(id)
	f.expect("where deliveries go now", second.Target.Webhook.URL, "https://example.com/two")
	f.expect("their revision", second.Revision, first.Revision+1)
	f.putFollowed(func(*dispatcher.Job) {})
	gone, err := f.JobsByID(t.Context(), []int64{id})
	f.must(err)
	f.expect("jobs that deliver when nothing follows", len(gone), 0)
	f.must(f.DeleteJob(t.Context(), "shop", "parent", at(t0)))
	f.putFollowed(deliver("https://example.com/one"))
	if again := f.prepared(id); again.Revision <= second.Revision {
		t.Errorf("a delivery that is declared again has revision %d, want more than %d", again.Revision, second.Revision)
	}
}

func testFollowCycle(t *testing.T, f *fixture) {
	put := func(name string, followers ...string) error {
		j := job(name, nil)
		if len(followers) > 0 {
			j.OnSuccess = &dispatcher.Follow{Jobs: followers}
		}
		_, _, err := f.PutJob(t.Context(), j, at(t0))
		return err
	}
	for _, tt := range []struct {
		what      string
		name      string
		followers []string
		want      string
	}{
		{"a job that is not there", "a", []string{"b"}, "follow_job_unknown /on_success/jobs/0"},
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
			f.must(err)
		default:
			f.wantProblem(tt.what, err, tt.want)
		}
	}
	// A circle that goes over two events is one, too.
	c := job("c", nil)
	c.OnMisfire = &dispatcher.Follow{Jobs: []string{"a"}}
	_, _, err := f.PutJob(t.Context(), c, at(t0))
	f.wantProblem("a circle over two events", err, "follow_cycle /on_misfire/jobs/0")
	// It is none any more once a link is gone.
	f.must(put("a"))
	f.must(put("c", "a"))
}

// The one that comes first has put its job before the other one looks.
func testFollowCycleRace(t *testing.T, f *fixture) {
	f.put(job("a", nil), t0)
	f.put(job("b", nil), t0)
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		all.Go(func() {
			j := job(names[0], nil)
			j.OnSuccess = &dispatcher.Follow{Jobs: []string{names[1]}}
			_, _, errs[i] = f.PutJob(t.Context(), j, at(t0))
		})
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two jobs that follow each other were put with errors %v and %v, want one of them refused", errs[0], errs[1])
	}
}

func testFollowedJobInUse(t *testing.T, f *fixture) {
	f.putFollowed(onFailure("child"))
	err := f.DeleteJob(t.Context(), "shop", "child", at(t0))
	wantError(t, "delete a job that is named", err, dispatcher.ErrInUse)
	f.expect("the error", fmt.Sprint(err), `job "shop/child" follows job "parent": in use`)
	f.must(f.DeleteJob(t.Context(), "shop", "parent", at(t0)))
	f.must(f.DeleteJob(t.Context(), "shop", "child", at(t0)))
}

func testFollowRename(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Target: hook("https://example.com/one")}
	})
	before, err := f.Job(t.Context(), "shop", "parent")
	f.must(err)
	f.rename("child", "kid", nil, t0)
	parent, err := f.Job(t.Context(), "shop", "parent")
	f.must(err)
	wantDiff(t, "the jobs that follow", []string{"kid"}, parent.OnFailure.Jobs)
	f.expect("the revision of the parent", parent.Revision, before.Revision)
	held := f.fireOf("parent")
	f.rename("parent", "mother", nil, t0)
	f.recordFollowed(held, ended(run.Failed, t0.Add(time.Minute)))
	f.expect("runs that follow", f.followEnds(t0.Add(time.Minute)), 2)
	f.expect("runs of the child", f.runsOf("kid"), "chain queued")
	f.expect("runs of the delivery", f.runsOf("mother.on_failure"), "follow queued")
	// The name is free for another job, whose deliveries are its own.
	f.put(job("parent", map[string]dispatcher.Trigger{"tick": every(time.Minute, t0.Add(time.Minute))}), t0)
	other := job("parent", nil)
	other.OnFailure = &dispatcher.Follow{Target: hook("https://example.com/two")}
	f.put(other, t0)
	f.expect("where the deliveries of the first go", f.prepared(run.JobID("shop", "parent.on_failure")).Target.Webhook.URL,
		"https://example.com/one")
	f.expect("runs of the deliveries of the second", f.runsOf("parent.on_failure"), "")
}

func testFollowImport(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}, Target: hook("https://example.com/one")}
	})
	held := f.fireOf("parent")
	f.recordFollowed(held, ended(run.Failed, t0.Add(time.Minute)))
	f.must(f.PutApp(t.Context(), access.App{Name: "shop"}, at(t0)))
	for more := true; more; {
		_, left, err := f.FollowSwitches(t.Context(), 100)
		f.must(err)
		more = left
	}
	_, err := f.ExportApp(t.Context(), "shop")
	wantConflict(t, "export an app whose runs have yet to be followed", err)
	f.expect("runs that follow", f.followEnds(t0.Add(time.Minute)), 2)
	export, err := f.ExportApp(t.Context(), "shop")
	f.must(err)
	f.expect("runs that move", len(export.Waiting), 2)
	f.expect("jobs of the export", len(export.Jobs), 2)
	export.App.Name, export.Waiting = "copy", nil // these runs are still here
	for i := range export.Jobs {
		export.Jobs[i].Job.App = "copy"
	}
	f.must(f.ImportApp(t.Context(), export, operator(t0)))
	err = f.DeleteJob(t.Context(), "copy", "child", at(t0))
	wantError(t, "delete a job that is named", err, dispatcher.ErrInUse)
	f.expect("where deliveries go", f.prepared(run.JobID("copy", "parent.on_failure")).Target.Webhook.URL, "https://example.com/one")
	export.App.Name = "circle"
	for i := range export.Jobs {
		export.Jobs[i].Job.App = "circle"
		if export.Jobs[i].Job.Name == "child" {
			export.Jobs[i].Job.OnSuccess = &dispatcher.Follow{Jobs: []string{"parent"}}
		}
	}
	_, err = f.ImportApp(t.Context(), export, operator(t0))
	f.wantProblem("an app whose jobs follow each other in a circle", err, "follow_cycle /jobs/1/job/on_failure/jobs/0")
}

func testFollowedWhateverEnded(t *testing.T, f *fixture) {
	f.putFollowed(func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"child"}}, &dispatcher.Follow{Jobs: []string{"child"}}
	})
	completed := f.fireOf("parent")
	f.accept(completed, completed.ScheduledAt)
	f.must(f.complete(completed.Key, 1, completed.ScheduledAt.Add(time.Second)))
	f.expect("runs that follow a completed one", f.followEnds(completed.ScheduledAt.Add(time.Minute)), 1)

	broadcast := f.fireOf("parent")
	f.spread(broadcast, 2)
	for _, shard := range f.adoptIdle(nodeA, broadcast.ScheduledAt) {
		if shard.Shard > 0 {
			f.recordFollowed(shard, ended(run.Failed, broadcast.ScheduledAt))
		}
	}
	f.expect("runs that follow shards", f.followEnds(broadcast.ScheduledAt), 0)
	f.expect("broadcasts that ended", f.endBroadcasts(broadcast.Key), 1)
	f.expect("runs that follow a broadcast", f.followEnds(broadcast.ScheduledAt.Add(time.Hour)), 1)

	cancelled := f.fireOf("parent")
	f.must(f.CancelRun(t.Context(), cancelled.String(), at(cancelled.ScheduledAt)))
	f.expect("runs that follow a cancelled one", f.followEnds(cancelled.ScheduledAt.Add(time.Hour)), 0)
}
