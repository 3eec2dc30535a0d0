package storetest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// renameTests are those of renamed jobs and triggers.
func renameTests() tests {
	return tests{
		"a rename changes names and nothing else":                   testRename,
		"a rename keeps the history":                                testRenamedHistory,
		"live runs outlive a rename":                                testRenamedRuns,
		"a trigger that is renamed twice keeps its fire times":      testRenamedSchedule,
		"names that are taken are refused":                          testRenameToTakenNames,
		"a name that a rename freed gives new event ids":            testFreedName,
		"a trigger's name that a rename freed gives new event ids":  testFreedTriggerName,
		"a renamed job that is deleted and declared again goes on":  testRenamedJobDeclaredAgain,
		"a trigger takes the name of one that was removed":          testRenameToRemovedTrigger,
		"a calendar and a resume reach triggers that were renamed":  testRenamedTriggersAreRescheduled,
		"of renames to the same name at the same time one succeeds": testRenameRace,
	}
}

// rename renames a job of the app "shop" and triggers of it.
func (f *fixture) rename(name, to string, triggers map[string]string, now time.Time) dispatcher.Job {
	f.Helper()
	renamed, err := f.RenameJob(f.Context(), "shop", name, dispatcher.JobRename{Name: to, Triggers: triggers}, at(now))
	f.must(err)
	read, err := f.Job(f.Context(), "shop", renamed.Name)
	f.must(err)
	if diff := cmp.Diff(read, renamed); diff != "" {
		f.Error("the job as RenameJob returned it (-read back +got):\n" + diff)
	}
	return renamed
}

// prepared returns a job as the engine has it.
func (f *fixture) prepared(id int64) dispatcher.JobVersion {
	f.Helper()
	versions, err := f.JobsByID(f.Context(), []int64{id})
	f.must(err)
	if len(versions) != 1 {
		f.Fatalf("%d jobs of id %d, want one", len(versions), id)
	}
	return versions[0]
}

// hashed is a trigger whose fire times depend on its identity: by H, and by jitter.
func hashed() dispatcher.Trigger {
	return dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule: dispatcher.Schedule{Expression: "H H * * *", Timezone: "UTC", Jitter: input.Duration(time.Hour)}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter,
		},
	}
}

func testRename(t *testing.T, f *fixture) {
	f.put(job("first", map[string]dispatcher.Trigger{"a": hashed(), "b": hashed(), "c": every(time.Hour, t0)}), t0)
	f.must(f.PauseJob(t.Context(), "shop", "first", "b", true, at(t0)))
	before, err := f.Job(t.Context(), "shop", "first")
	f.must(err)
	id := run.JobID("shop", "first")
	was, due := f.prepared(id), f.dueAll(t0.Add(48*time.Hour))
	notifications := f.listen()

	swapped := map[string]string{"a": "b", "b": "a"}
	after := f.rename("first", "second", swapped, minutes(1))
	if heard, want := notifications.next(t, "the rename"), (dispatcher.Notification{JobID: id}); heard != want {
		t.Errorf("heard %+v, want %+v", heard, want)
	}
	want := before
	want.Name, want.Origin, want.Revision, want.UpdatedAt = "second", "first", before.Revision+1, minutes(1)
	a, b := before.Triggers["a"], before.Triggers["b"]
	a.Origin, b.Origin = "a", "b"
	want.Triggers = map[string]dispatcher.Trigger{"a": b, "b": a, "c": before.Triggers["c"]}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error("the renamed job (-want +got):\n" + diff)
	}
	is := f.prepared(id)
	if is.Name != "second" || !slices.Equal(is.TriggerNames, was.TriggerNames) {
		t.Errorf("a node sees job %s with triggers %v", is.Name, is.TriggerNames)
	}
	for from, to := range map[string]string{"a": "b", "b": "a", "c": "c", "": ""} { // without a trigger: a manual run
		if got, want := is.EventID("i", to, t0, run.KindSchedule),
			was.EventID("i", from, t0, run.KindSchedule); got != want {
			t.Errorf("trigger %q, now %q: event id %s, want %s", from, to, got, want)
		}
		if got, want := is.TriggerKey(to), was.TriggerKey(from); got != want {
			t.Errorf("trigger %q, now %q: key %d, want %d", from, to, got, want)
		}
	}
	for i := range due {
		due[i].Revision++
	}
	if diff := cmp.Diff(due, f.dueAll(t0.Add(48*time.Hour))); diff != "" {
		t.Error("what is due (-want +got):\n" + diff)
	}
	// The definition that is stored, under its new names, changes nothing.
	again := after
	again.Origin = ""
	again.Triggers = maps.Clone(after.Triggers)
	for name, t := range again.Triggers {
		t.Origin = ""
		again.Triggers[name] = t
	}
	if got := f.put(again, minutes(2)).Revision; got != after.Revision {
		t.Errorf("put as it is: revision %d, want %d", got, after.Revision)
	}
	back := f.rename("second", "first", swapped, minutes(3))
	want = before
	want.Revision, want.UpdatedAt = before.Revision+2, minutes(3)
	if diff := cmp.Diff(want, back); diff != "" {
		t.Error("renamed back (-want +got):\n" + diff)
	}
}

func testRenamedSchedule(t *testing.T, f *fixture) {
	f.put(job("first", map[string]dispatcher.Trigger{"a": hashed()}), t0)
	f.rename("first", "second", map[string]string{"a": "b"}, t0)
	f.rename("second", "third", map[string]string{"b": "c"}, t0)
	// A new schedule hashes what the first one did.
	changed := hashed()
	changed.Expression = "H H * * 1-5"
	got := f.put(job("third", map[string]dispatcher.Trigger{"c": changed}), minutes(1))
	s, err := changed.Parse(dispatcher.Identity("shop", "first", "a"), minutes(1), nil)
	f.must(err)
	next, _ := s.Next(minutes(1))
	if c := got.Triggers["c"]; !c.NextFireTime.Equal(next) || !c.DueAt.Equal(next.Add(s.Delay(next))) {
		t.Errorf("the next fire is at %s, due at %s; want %s, due at %s", c.NextFireTime, c.DueAt, next, next.Add(s.Delay(next)))
	}
	specs := f.version(run.TriggerID("shop", "first", "a"))
	if specs.Name != "c" {
		t.Errorf("the trigger is called %s, want c", specs.Name)
	}
}

func testRenamedHistory(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("first", time.Minute)
	f.fireUntil(minutes(2))
	before := f.run(run.Key{TriggerID: run.TriggerID("shop", "first", "tick"), ScheduledAt: minutes(1),
		Kind: run.KindSchedule})
	f.settleAll("first", minutes(5))
	f.rename("first", "second", map[string]string{"tick": "tock"}, minutes(5).Add(time.Second))
	for _, d := range f.dueAll(minutes(7)) {
		f.end(f.claim(f.advance(d))[0], minutes(7))
	}
	after := f.run(run.Key{TriggerID: run.TriggerID("shop", "first", "tick"), ScheduledAt: minutes(1),
		Kind: run.KindSchedule})
	want := before
	want.Job, want.Trigger = "second", "tock"
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error("a run from before the rename (-want +got):\n" + diff)
	}
	query := dispatcher.RunQuery{App: "shop", Job: "second", Trigger: "tock", Page: input.Page{Limit: 10}}
	runs, err := f.Runs(ctx, query)
	f.must(err)
	misfires, err := f.Misfires(ctx, query)
	f.must(err)
	if len(runs) != 4 || len(misfires) != 1 || misfires[0].Job != "second" || misfires[0].Trigger != "tock" {
		t.Errorf("under the new names there are %d runs, want 2 from before, a catch-up run and 1; and misfires %+v, want 1", len(runs), misfires)
	}
	for _, name := range []string{"first", "none"} {
		_, err = f.Runs(ctx, dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 10}})
		wantError(t, "runs of job "+name, err, dispatcher.ErrNotFound)
	}
	query.Trigger = "tick"
	_, err = f.Misfires(ctx, query)
	wantError(t, "misfires of the old name", err, dispatcher.ErrNotFound)
	if diff := cmp.Diff(map[string]string{"second/tock": "6: 3 runs, 3 misfired, 0 open, 0 unexplained"},
		f.audit(minutes(1), minutes(6), minutes(8))); diff != "" {
		t.Error("verify (-want +got):\n" + diff)
	}
	explain := func(trigger string, minute int) (verify.Explanation, error) {
		query := verify.ExplainQuery{App: "shop", Job: "second", Trigger: trigger, At: minutes(minute), Now: minutes(8)}
		return verify.Explain(ctx, f.Store, query)
	}
	for minute, verdict := range map[int]verify.Verdict{
		1: verify.VerdictRun, 4: verify.VerdictMisfire, 6: verify.VerdictRun, 9: verify.VerdictPlanned,
	} {
		got, err := explain("tock", minute)
		f.must(err)
		step := `revision 1 came into force (put): "rate(1m0s)" in UTC, called tick`
		if minute > 5 {
			step = `revision 2 came into force (rename): "rate(1m0s)" in UTC`
		}
		if got.Verdict != verdict || got.Steps[0].What != step {
			t.Errorf("minute %d: %s (%s) after %q, want %s after %q", minute, got.Verdict, got.Reason, got.Steps[0].What, verdict, step)
		}
	}
	_, err = explain("tick", 1)
	wantError(t, "explain the old name", err, dispatcher.ErrNotFound)
}

func testRenamedRuns(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("first")
	manual, err := f.RequestRun(ctx, "shop", "first", nil, at(t0))
	f.must(err)
	f.rename("first", "second", map[string]string{"tick": "tock"}, minutes(1))
	f.must(f.Record(ctx, []dispatcher.Record{record(held, outcome(minutes(1)))}))
	if r := f.run(held.Key); r.State != run.Succeeded || r.Job != "second" || r.Trigger != "tock" {
		t.Errorf("the run in flight is %+v, want succeeded under the new names", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: minutes(2)})
	f.must(err)
	if len(adopted) != 1 || adopted[0].String() != manual.ID || adopted[0].JobID != run.JobID("shop", "first") {
		t.Errorf("adopted %+v, want the manual run %s", adopted, manual.ID)
	}
	if run, err := f.Store.Run(ctx, manual.ID); err != nil || run.Job != "second" || run.EventID != manual.EventID {
		t.Errorf("the manual run is %+v, %v, want it under the new name with event id %s", run, err, manual.EventID)
	}
	another, err := f.RequestRun(ctx, "shop", "second", nil, at(minutes(3)))
	if err != nil || another.Job != "second" {
		t.Errorf("a run of the renamed job: %+v, %v", another, err)
	}
}

// problemsOf returns the problems of an error as "path code".
func problemsOf(err error) (all []string) {
	var problems input.Problems
	errors.As(err, &problems)
	for _, p := range problems {
		all = append(all, p.Path+" "+p.Code)
	}
	return all
}

func testRenameToTakenNames(t *testing.T, f *fixture) {
	two := map[string]dispatcher.Trigger{"a": every(time.Hour, t0), "b": every(time.Hour, t0)}
	before := f.put(job("first", two), t0)
	f.put(job("other", nil), t0)
	f.put(job("deleted", nil), t0)
	f.must(f.DeleteJob(t.Context(), "shop", "deleted", at(t0)))
	for what, one := range map[string]struct {
		rename dispatcher.JobRename
		want   []string
	}{
		"another job": {dispatcher.JobRename{Name: "other"}, []string{"/name name_taken"}},
		"a deleted job, and triggers": {dispatcher.JobRename{Name: "deleted", Triggers: map[string]string{"a": "b", "c": "d"}},
			[]string{"/triggers/a name_taken", "/triggers/c enum", "/name name_taken"}},
		"nothing": {dispatcher.JobRename{Name: "first", Triggers: map[string]string{"a": "a"}}, []string{" required"}},
	} {
		_, err := f.RenameJob(t.Context(), "shop", "first", one.rename, at(t0))
		if diff := cmp.Diff(one.want, problemsOf(err)); diff != "" {
			t.Errorf("%s: problems of %v (-want +got):\n%s", what, err, diff)
		}
	}
	_, err := f.RenameJob(t.Context(), "shop", "none", dispatcher.JobRename{Name: "x"}, at(t0))
	wantError(t, "a job that is not there", err, dispatcher.ErrNotFound)
	_, err = f.RenameJob(t.Context(), "shop", "first", dispatcher.JobRename{Name: "x"}, input.Change{IfRevision: 9})
	wantError(t, "another revision", err, dispatcher.ErrPrecondition)
	after, err := f.Job(t.Context(), "shop", "first")
	f.must(err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error("after refused renames (-want +got):\n" + diff)
	}
}

// keysAndEvents returns the keys of jobs, in which event ids are as far apart.
func (f *fixture) keysAndEvents(jobs ...dispatcher.Job) map[int64]map[string]bool {
	f.Helper()
	all := map[int64]map[string]bool{}
	for _, j := range jobs {
		v := f.prepared(j.Key())
		events := map[string]bool{v.EventID("i", "", t0, run.KindManual): true}
		for name := range j.Triggers {
			events[v.EventID("i", name, t0, run.KindSchedule)] = true
		}
		all[j.Key()] = events
	}
	return all
}

func testFreedName(t *testing.T, f *fixture) {
	tick := map[string]dispatcher.Trigger{"tick": every(time.Hour, t0)}
	f.put(job("first", tick), t0)
	var jobs []dispatcher.Job
	for i, to := range []string{"second", "third", "fourth"} {
		jobs = append(jobs, f.rename("first", to, nil, minutes(i)))
		if got := f.put(job("first", tick), minutes(i)); i == 2 {
			jobs = append(jobs, got)
		}
	}
	for i, want := range []string{"first", "first~2", "first~3", "first~4"} {
		if jobs[i].Origin != want {
			t.Errorf("origin of job %s is %q, want %q", jobs[i].Name, jobs[i].Origin, want)
		}
	}
	events := map[string]bool{}
	for _, of := range f.keysAndEvents(jobs...) {
		maps.Copy(events, of)
	}
	if len(events) != 2*len(jobs) {
		t.Errorf("%d jobs have %d event ids of the same time, want %d", len(jobs), len(events), 2*len(jobs))
	}
	if due := f.dueAll(t0.Add(2 * time.Hour)); len(due) != len(jobs) {
		t.Errorf("%d triggers are due, want %d", len(due), len(jobs))
	}
	for _, j := range jobs {
		f.must(f.DeleteJob(t.Context(), "shop", j.Name, at(minutes(9))))
	}
}

func testRenamedJobDeclaredAgain(t *testing.T, f *fixture) {
	declared := func(name string) dispatcher.Job {
		return job(name, map[string]dispatcher.Trigger{"b": every(time.Hour, t0)})
	}
	f.put(job("first", map[string]dispatcher.Trigger{"a": every(time.Hour, t0)}), t0)
	before := f.rename("first", "second", map[string]string{"a": "b"}, t0)
	f.must(f.DeleteJob(t.Context(), "shop", "second", at(minutes(1))))
	other := f.put(declared("first"), minutes(2))
	if other.Origin != "first~2" {
		t.Errorf("the origin of a new job of the freed name is %q, want first~2", other.Origin)
	}
	again := f.put(declared("second"), minutes(3))
	if again.Origin != "first" || again.Triggers["b"].Origin != "a" || again.Revision != before.Revision+1 {
		t.Errorf("declared again: origins %q and %q, revision %d; want those from before and revision %d", again.Origin,
			again.Triggers["b"].Origin, again.Revision, before.Revision+1)
	}
	if diff := cmp.Diff(f.keysAndEvents(before), f.keysAndEvents(again)); diff != "" {
		t.Error("keys and event ids (-before +declared again):\n" + diff)
	}
}

func testFreedTriggerName(t *testing.T, f *fixture) {
	hourly := every(time.Hour, t0)
	f.put(job("first", map[string]dispatcher.Trigger{"a": hourly}), t0)
	f.rename("first", "", map[string]string{"a": "b"}, t0)
	both := map[string]dispatcher.Trigger{"a": hourly, "b": hourly}
	want := f.put(job("first", both), minutes(1))
	if a, b := want.Triggers["a"].Origin, want.Triggers["b"].Origin; a != "a~2" || b != "a" {
		t.Errorf("origins of a and b are %q and %q, want a~2 and a", a, b)
	}
	if got := f.keysAndEvents(want)[want.Key()]; len(got) != 3 {
		t.Errorf("the job has %d event ids of the same time, want 3", len(got))
	}
	// What is removed and declared again is the same trigger.
	f.put(job("first", map[string]dispatcher.Trigger{"b": hourly}), minutes(2))
	got := f.put(job("first", both), minutes(3))
	if diff := cmp.Diff(f.keysAndEvents(want), f.keysAndEvents(got)); diff != "" {
		t.Error("keys and event ids (-before +declared again):\n" + diff)
	}
	if due := f.dueAll(t0.Add(2 * time.Hour)); len(due) != 2 || due[0].ID == due[1].ID {
		t.Errorf("due are %+v, want two triggers", due)
	}
}

// The history of a removed trigger stays apart from that of one that gets its name.
func testRenameToRemovedTrigger(t *testing.T, f *fixture) {
	ctx := t.Context()
	minutely := every(time.Minute, minutes(1))
	f.put(job("first", map[string]dispatcher.Trigger{"a": minutely, "b": minutely}), t0)
	f.fireUntil(minutes(2))
	f.put(job("first", map[string]dispatcher.Trigger{"b": minutely}), minutes(2).Add(time.Second))
	f.rename("first", "", map[string]string{"b": "a"}, minutes(2).Add(2*time.Second))
	f.fireUntil(minutes(3))
	runs, err := f.Runs(ctx, dispatcher.RunQuery{App: "shop", Job: "first", Page: input.Page{Limit: 10}})
	f.must(err)
	count := map[string]int{}
	for _, run := range runs {
		count[run.Trigger]++
	}
	if diff := cmp.Diff(map[string]int{"a": 3, "a~": 2}, count); diff != "" {
		t.Error("runs by trigger (-want +got):\n" + diff)
	}
	if diff := cmp.Diff(map[string]string{
		"first/a":  "3: 3 runs, 0 misfired, 0 open, 0 unexplained",
		"first/a~": "2: 2 runs, 0 misfired, 0 open, 0 unexplained",
	}, f.audit(minutes(1), minutes(3), minutes(4))); diff != "" {
		t.Error("verify (-want +got):\n" + diff)
	}
	again := f.put(job("first", map[string]dispatcher.Trigger{"a": minutely, "b": minutely}), minutes(5))
	if again.Triggers["a"].Origin != "b" || again.Triggers["b"].Origin != "b~2" {
		t.Errorf("origins of a and b are %q and %q, want b and b~2", again.Triggers["a"].Origin, again.Triggers["b"].Origin)
	}
}

func testRenamedTriggersAreRescheduled(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putCalendar(closed("11-11"), t0)
	bound := hashed()
	bound.Calendar, bound.Timezone = "freeze", "Europe/Berlin"
	f.put(job("first", map[string]dispatcher.Trigger{"a": bound, "b": hashed()}), t0)
	before := f.rename("first", "second", map[string]string{"a": "b", "b": "a"}, t0)
	f.putCalendar(closed("12-12"), minutes(1)) // excludes no fire that is near
	if moved, err := f.RescheduleForZones(ctx, 0, 10, minutes(1)); err != nil || moved.Moved != 0 {
		t.Errorf("the same time zone data moved %d triggers, %v", moved.Moved, err)
	}
	broken := run.TriggerID("shop", "first", "b")
	f.must(f.Quarantine(ctx, broken, before.Revision, "unreadable"))
	if rolled, err := f.RollUp(ctx, 10); err != nil || rolled.Changed != 0 { // Quarantine wrote it
		t.Errorf("rolled up %+v, %v, want that the state is true already", rolled, err)
	}
	paused, err := f.PauseJob(ctx, "shop", "second", "b", true, at(minutes(2)))
	if f.must(err); !paused.Triggers["b"].Paused || paused.Triggers["a"].Paused || len(f.dueAll(t0.Add(48*time.Hour))) != 0 {
		t.Errorf("after a pause of b and an error of a, triggers are %+v and some are due", paused.Triggers)
	}
	f.must(f.PauseJob(ctx, "shop", "second", "b", false, at(minutes(2))))
	if due := f.dueAll(t0.Add(48 * time.Hour)); len(due) != 1 || due[0].ID != run.TriggerID("shop", "first", "a") {
		t.Errorf("after a resume of b, %+v are due, want b", due)
	}
	f.must(f.PauseJob(ctx, "shop", "second", "a", true, at(minutes(2))))
	f.must(f.PauseJob(ctx, "shop", "second", "a", false, at(minutes(3))))
	after, err := f.Job(ctx, "shop", "second")
	f.must(err)
	for _, name := range []string{"a", "b"} {
		was, is := before.Triggers[name], after.Triggers[name]
		if is.Origin != was.Origin || !is.NextFireTime.Equal(*was.NextFireTime) || !is.DueAt.Equal(*was.DueAt) || is.Error != "" {
			t.Errorf("trigger %s: origin %q, next fire at %s, due at %s, error %q; want %q, %s, %s", name, is.Origin, is.NextFireTime,
				is.DueAt, is.Error, was.Origin, was.NextFireTime, was.DueAt)
		}
	}
}

func testRenameRace(t *testing.T, f *fixture) {
	const jobs = 8
	names := make([]string, jobs)
	for i := range names {
		names[i] = "job-" + string(rune('a'+i))
		f.put(job(names[i], nil), t0)
	}
	done := make(chan error, jobs)
	for _, name := range names {
		go func() {
			_, err := f.RenameJob(t.Context(), "shop", name, dispatcher.JobRename{Name: "winner"}, at(t0))
			done <- err
		}()
	}
	won := 0
	for range names {
		switch err := <-done; {
		case err == nil:
			won++
		case !slices.Equal(problemsOf(err), []string{"/name name_taken"}):
			t.Errorf("a rename that comes later: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d renames succeeded, want 1", won)
	}
}
