package definitions

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
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// renameTests test renamed jobs and triggers.
func renameTests() tests {
	return tests{
		"a rename changes only names":                                    testRename,
		"a rename keeps the history":                                     testRenamedHistory,
		"live runs outlive a rename":                                     testRenamedRuns,
		"a trigger that is renamed twice keeps its fire times":           testRenamedSchedule,
		"names that are taken are refused":                               testRenameToTakenNames,
		"a name that a rename freed gives new event ids":                 testFreedName,
		"a trigger's name that a rename freed gives new event ids":       testFreedTriggerName,
		"a renamed job continues after it is deleted and declared again": testRenamedJobDeclaredAgain,
		"a trigger takes the name of one that was removed":               testRenameToRemovedTrigger,
		"a calendar and a resume reach triggers that were renamed":       testRenamedTriggersAreRescheduled,
		"one of several simultaneous renames to the same name succeeds":  testRenameRace,
	}
}

// hashed returns a trigger with fire times that depend on its identity: by H, and by jitter.
func hashed() dispatcher.Trigger {
	return dispatcher.Trigger{
		TriggerSpec: dispatcher.TriggerSpec{
			Schedule: dispatcher.Schedule{Expression: "H H * * *", Timezone: "UTC", Jitter: input.Duration(time.Hour)}, Enabled: true,
			MisfireAfter: dispatcher.DefaultMisfireAfter,
		},
	}
}

func testRename(t *testing.T, f *wing) {
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": hashed(), "b": hashed(), "c": fixture.Every(time.Hour, fixture.T0)}),
		fixture.T0)
	f.Must(f.PauseJob(t.Context(), "shop", "first", "b", true, fixture.At(fixture.T0)))
	before, err := f.Job(t.Context(), "shop", "first")
	f.Must(err)
	id := run.JobID("shop", "first")
	was, due := f.Prepared(id), f.DueAll(fixture.T0.Add(48*time.Hour))
	notifications := f.Hear()

	swapped := map[string]string{"a": "b", "b": "a"}
	after := f.Rename("first", "second", swapped, fixture.Minutes(1))
	if heard, want := notifications.Next(t, "the rename"), (dispatcher.Notification{JobID: id}); heard != want {
		t.Errorf("heard %+v, want %+v", heard, want)
	}
	want := before
	want.Name, want.Origin, want.Revision, want.UpdatedAt = "second", "first", before.Revision+1, fixture.Minutes(1)
	a, b := before.Triggers["a"], before.Triggers["b"]
	a.Origin, b.Origin = "a", "b"
	want.Triggers = map[string]dispatcher.Trigger{"a": b, "b": a, "c": before.Triggers["c"]}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error("the renamed job (-want +got):\n" + diff)
	}
	is := f.Prepared(id)
	if is.Name != "second" || !slices.Equal(is.TriggerNames, was.TriggerNames) {
		t.Errorf("a node sees job %s with triggers %v", is.Name, is.TriggerNames)
	}
	for from, to := range map[string]string{"a": "b", "b": "a", "c": "c", "": ""} { // without a trigger: a manual run
		if got, want := is.EventID("i", to, fixture.T0, run.KindSchedule),
			was.EventID("i", from, fixture.T0, run.KindSchedule); got != want {
			t.Errorf("trigger %q, now %q: event id %s, want %s", from, to, got, want)
		}
		if got, want := is.TriggerKey(to), was.TriggerKey(from); got != want {
			t.Errorf("trigger %q, now %q: key %d, want %d", from, to, got, want)
		}
	}
	for i := range due {
		due[i].Revision++
	}
	if diff := cmp.Diff(due, f.DueAll(fixture.T0.Add(48*time.Hour))); diff != "" {
		t.Error("what is due (-want +got):\n" + diff)
	}
	// Putting the stored definition with its new names changes nothing.
	again := after
	again.Origin = ""
	again.Triggers = maps.Clone(after.Triggers)
	for name, t := range again.Triggers {
		t.Origin = ""
		again.Triggers[name] = t
	}
	if got := f.Put(again, fixture.Minutes(2)).Revision; got != after.Revision {
		t.Errorf("put as it is: revision %d, want %d", got, after.Revision)
	}
	back := f.Rename("second", "first", swapped, fixture.Minutes(3))
	want = before
	want.Revision, want.UpdatedAt = before.Revision+2, fixture.Minutes(3)
	if diff := cmp.Diff(want, back); diff != "" {
		t.Error("renamed back (-want +got):\n" + diff)
	}
}

func testRenamedSchedule(t *testing.T, f *wing) {
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": hashed()}), fixture.T0)
	f.Rename("first", "second", map[string]string{"a": "b"}, fixture.T0)
	f.Rename("second", "third", map[string]string{"b": "c"}, fixture.T0)
	// A new schedule uses the same hash as the first one.
	changed := hashed()
	changed.Expression = "H H * * 1-5"
	got := f.Put(fixture.Job("third", map[string]dispatcher.Trigger{"c": changed}), fixture.Minutes(1))
	s, err := changed.Parse(dispatcher.Identity("shop", "first", "a"), fixture.Minutes(1), nil)
	f.Must(err)
	next, _ := s.Next(fixture.Minutes(1))
	if c := got.Triggers["c"]; !c.NextFireTime.Equal(next) || !c.DueAt.Equal(next.Add(s.Delay(next))) {
		t.Errorf("the next fire is at %s, due at %s; want %s, due at %s", c.NextFireTime, c.DueAt, next, next.Add(s.Delay(next)))
	}
	specs := f.Version(run.TriggerID("shop", "first", "a"))
	if specs.Name != "c" {
		t.Errorf("the trigger is called %s, want c", specs.Name)
	}
}

func testRenamedHistory(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("first", time.Minute)
	f.FireUntil(fixture.Minutes(2))
	before := f.RunOf(run.Key{TriggerID: run.TriggerID("shop", "first", "tick"), ScheduledAt: fixture.Minutes(1),
		Kind: run.KindSchedule})
	f.SettleAll("first", fixture.Minutes(5))
	f.Rename("first", "second", map[string]string{"tick": "tock"}, fixture.Minutes(5).Add(time.Second))
	for _, d := range f.DueAll(fixture.Minutes(7)) {
		f.End(f.ClaimAll(f.Advance(d))[0], fixture.Minutes(7))
	}
	after := f.RunOf(run.Key{TriggerID: run.TriggerID("shop", "first", "tick"), ScheduledAt: fixture.Minutes(1),
		Kind: run.KindSchedule})
	want := before
	want.Job, want.Trigger = "second", "tock"
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error("a run from before the rename (-want +got):\n" + diff)
	}
	query := dispatcher.RunQuery{App: "shop", Job: "second", Trigger: "tock", Page: input.Page{Limit: 10}}
	runs, err := f.Runs(ctx, query)
	f.Must(err)
	misfires, err := f.Misfires(ctx, query)
	f.Must(err)
	if len(runs) != 4 || len(misfires) != 1 || misfires[0].Job != "second" || misfires[0].Trigger != "tock" {
		t.Errorf("under the new names there are %d runs, want 2 from before, a catch-up run and 1; and misfires %+v, want 1", len(runs), misfires)
	}
	for _, name := range []string{"first", "none"} {
		_, err = f.Runs(ctx, dispatcher.RunQuery{App: "shop", Job: name, Page: input.Page{Limit: 10}})
		fixture.WantError(t, "runs of job "+name, err, dispatcher.ErrNotFound)
	}
	query.Trigger = "tick"
	_, err = f.Misfires(ctx, query)
	fixture.WantError(t, "misfires of the old name", err, dispatcher.ErrNotFound)
	if diff := cmp.Diff(map[string]string{"second/tock": "6: 3 runs, 3 misfired, 0 open, 0 unexplained"},
		f.Audit(fixture.Minutes(1), fixture.Minutes(6), fixture.Minutes(8))); diff != "" {
		t.Error("verify (-want +got):\n" + diff)
	}
	explain := func(trigger string, minute int) (verify.Explanation, error) {
		query := verify.ExplainQuery{App: "shop", Job: "second", Trigger: trigger, At: fixture.Minutes(minute), Now: fixture.Minutes(8)}
		return verify.Explain(ctx, f.Store, query)
	}
	for minute, verdict := range map[int]verify.Verdict{
		1: verify.VerdictRun, 4: verify.VerdictMisfire, 6: verify.VerdictRun, 9: verify.VerdictPlanned,
	} {
		got, err := explain("tock", minute)
		f.Must(err)
		step := `revision 1 came into force (put by test): "rate(1m0s)" in UTC, called tick`
		if minute > 5 {
			step = `revision 2 came into force (rename by test): "rate(1m0s)" in UTC`
		}
		if got.Verdict != verdict || got.Steps[0].What != step {
			t.Errorf("minute %d: %s (%s) after %q, want %s after %q", minute, got.Verdict, got.Reason, got.Steps[0].What, verdict, step)
		}
	}
	_, err = explain("tick", 1)
	fixture.WantError(t, "explain the old name", err, dispatcher.ErrNotFound)
}

func testRenamedRuns(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("first")
	manual, err := f.RequestRun(ctx, "shop", "first", nil, fixture.At(fixture.T0))
	f.Must(err)
	f.Rename("first", "second", map[string]string{"tick": "tock"}, fixture.Minutes(1))
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, fixture.Outcome(fixture.Minutes(1)))}))
	if r := f.RunOf(held.Key); r.State != run.Succeeded || r.Job != "second" || r.Trigger != "tock" {
		t.Errorf("the run in flight is %+v, want succeeded under the new names", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.Minutes(2)})
	f.Must(err)
	if len(adopted) != 1 || adopted[0].String() != manual.ID || adopted[0].JobID != run.JobID("shop", "first") {
		t.Errorf("adopted %+v, want the manual run %s", adopted, manual.ID)
	}
	if run, err := f.Store.Run(ctx, manual.ID); err != nil || run.Job != "second" || run.EventID != manual.EventID {
		t.Errorf("the manual run is %+v, %v, want it under the new name with event id %s", run, err, manual.EventID)
	}
	another, err := f.RequestRun(ctx, "shop", "second", nil, fixture.At(fixture.Minutes(3)))
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

func testRenameToTakenNames(t *testing.T, f *wing) {
	two := map[string]dispatcher.Trigger{"a": fixture.Every(time.Hour, fixture.T0), "b": fixture.Every(time.Hour, fixture.T0)}
	before := f.Put(fixture.Job("first", two), fixture.T0)
	f.Put(fixture.Job("other", nil), fixture.T0)
	f.Put(fixture.Job("deleted", nil), fixture.T0)
	f.Must(f.DeleteJob(t.Context(), "shop", "deleted", fixture.At(fixture.T0)))
	for what, one := range map[string]struct {
		rename dispatcher.JobRename
		want   []string
	}{
		"another job": {dispatcher.JobRename{Name: "other"}, []string{"/name name_taken"}},
		"a deleted job, and triggers": {dispatcher.JobRename{Name: "deleted", Triggers: map[string]string{"a": "b", "c": "d"}},
			[]string{"/triggers/a name_taken", "/triggers/c enum", "/name name_taken"}},
		"nothing": {dispatcher.JobRename{Name: "first", Triggers: map[string]string{"a": "a"}}, []string{" required"}},
	} {
		_, err := f.RenameJob(t.Context(), "shop", "first", one.rename, fixture.At(fixture.T0))
		if diff := cmp.Diff(one.want, problemsOf(err)); diff != "" {
			t.Errorf("%s: problems of %v (-want +got):\n%s", what, err, diff)
		}
	}
	_, err := f.RenameJob(t.Context(), "shop", "none", dispatcher.JobRename{Name: "x"}, fixture.At(fixture.T0))
	fixture.WantError(t, "a job that is not there", err, dispatcher.ErrNotFound)
	_, err = f.RenameJob(t.Context(), "shop", "first", dispatcher.JobRename{Name: "x"}, input.Change{IfRevision: 9})
	fixture.WantError(t, "another revision", err, dispatcher.ErrPrecondition)
	after, err := f.Job(t.Context(), "shop", "first")
	f.Must(err)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error("after refused renames (-want +got):\n" + diff)
	}
}

// keysAndEvents returns the keys of jobs with their event ids.
func (f *wing) keysAndEvents(jobs ...dispatcher.Job) map[int64]map[string]bool {
	f.Helper()
	all := map[int64]map[string]bool{}
	for _, j := range jobs {
		v := f.Prepared(j.Key())
		events := map[string]bool{v.EventID("i", "", fixture.T0, run.KindManual): true}
		for name := range j.Triggers {
			events[v.EventID("i", name, fixture.T0, run.KindSchedule)] = true
		}
		all[j.Key()] = events
	}
	return all
}

func testFreedName(t *testing.T, f *wing) {
	tick := map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.T0)}
	f.Put(fixture.Job("first", tick), fixture.T0)
	var jobs []dispatcher.Job
	for i, to := range []string{"second", "third", "fourth"} {
		jobs = append(jobs, f.Rename("first", to, nil, fixture.Minutes(i)))
		if got := f.Put(fixture.Job("first", tick), fixture.Minutes(i)); i == 2 {
			jobs = append(jobs, got)
		}
	}
	for i, want := range []string{"first", "first~2", "first~3", "first~4"} {
		if jobs[i].Origin != want {
			t.Errorf("origin of job %s is %q, want %q", jobs[i].Name, jobs[i].Origin, want)
		}
		found, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 10, Origin: want})
		if err != nil || len(found) != 1 || found[0].Name != jobs[i].Name {
			t.Errorf("jobs with origin %s: %+v, %v; want only %s", want, found, err, jobs[i].Name)
		}
	}
	events := map[string]bool{}
	for _, of := range f.keysAndEvents(jobs...) {
		maps.Copy(events, of)
	}
	if len(events) != 2*len(jobs) {
		t.Errorf("%d jobs have %d event ids of the same time, want %d", len(jobs), len(events), 2*len(jobs))
	}
	if due := f.DueAll(fixture.T0.Add(2 * time.Hour)); len(due) != len(jobs) {
		t.Errorf("%d triggers are due, want %d", len(due), len(jobs))
	}
	for _, j := range jobs {
		f.Must(f.DeleteJob(t.Context(), "shop", j.Name, fixture.At(fixture.Minutes(9))))
	}
}

func testRenamedJobDeclaredAgain(t *testing.T, f *wing) {
	declared := func(name string) dispatcher.Job {
		return fixture.Job(name, map[string]dispatcher.Trigger{"b": fixture.Every(time.Hour, fixture.T0)})
	}
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": fixture.Every(time.Hour, fixture.T0)}), fixture.T0)
	before := f.Rename("first", "second", map[string]string{"a": "b"}, fixture.T0)
	f.Must(f.DeleteJob(t.Context(), "shop", "second", fixture.At(fixture.Minutes(1))))
	other := f.Put(declared("first"), fixture.Minutes(2))
	if other.Origin != "first~2" {
		t.Errorf("the origin of a new job of the freed name is %q, want first~2", other.Origin)
	}
	again := f.Put(declared("second"), fixture.Minutes(3))
	if again.Origin != "first" || again.Triggers["b"].Origin != "a" || again.Revision != before.Revision+1 {
		t.Errorf("declared again: origins %q and %q, revision %d; want those from before and revision %d", again.Origin,
			again.Triggers["b"].Origin, again.Revision, before.Revision+1)
	}
	if diff := cmp.Diff(f.keysAndEvents(before), f.keysAndEvents(again)); diff != "" {
		t.Error("keys and event ids (-before +declared again):\n" + diff)
	}
}

func testFreedTriggerName(t *testing.T, f *wing) {
	hourly := fixture.Every(time.Hour, fixture.T0)
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": hourly}), fixture.T0)
	f.Rename("first", "", map[string]string{"a": "b"}, fixture.T0)
	both := map[string]dispatcher.Trigger{"a": hourly, "b": hourly}
	want := f.Put(fixture.Job("first", both), fixture.Minutes(1))
	if a, b := want.Triggers["a"].Origin, want.Triggers["b"].Origin; a != "a~2" || b != "a" {
		t.Errorf("origins of a and b are %q and %q, want a~2 and a", a, b)
	}
	if got := f.keysAndEvents(want)[want.Key()]; len(got) != 3 {
		t.Errorf("the job has %d event ids of the same time, want 3", len(got))
	}
	// A trigger that is removed and declared again is the same trigger.
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"b": hourly}), fixture.Minutes(2))
	got := f.Put(fixture.Job("first", both), fixture.Minutes(3))
	if diff := cmp.Diff(f.keysAndEvents(want), f.keysAndEvents(got)); diff != "" {
		t.Error("keys and event ids (-before +declared again):\n" + diff)
	}
	if due := f.DueAll(fixture.T0.Add(2 * time.Hour)); len(due) != 2 || due[0].ID == due[1].ID {
		t.Errorf("due are %+v, want two triggers", due)
	}
}

// The history of a removed trigger stays separate from that of a trigger that gets its name.
func testRenameToRemovedTrigger(t *testing.T, f *wing) {
	ctx := t.Context()
	minutely := fixture.Every(time.Minute, fixture.Minutes(1))
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": minutely, "b": minutely}), fixture.T0)
	f.FireUntil(fixture.Minutes(2))
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"b": minutely}), fixture.Minutes(2).Add(time.Second))
	f.Rename("first", "", map[string]string{"b": "a"}, fixture.Minutes(2).Add(2*time.Second))
	f.FireUntil(fixture.Minutes(3))
	runs, err := f.Runs(ctx, dispatcher.RunQuery{App: "shop", Job: "first", Page: input.Page{Limit: 10}})
	f.Must(err)
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
	}, f.Audit(fixture.Minutes(1), fixture.Minutes(3), fixture.Minutes(4))); diff != "" {
		t.Error("verify (-want +got):\n" + diff)
	}
	again := f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": minutely, "b": minutely}), fixture.Minutes(5))
	if again.Triggers["a"].Origin != "b" || again.Triggers["b"].Origin != "b~2" {
		t.Errorf("origins of a and b are %q and %q, want b and b~2", again.Triggers["a"].Origin, again.Triggers["b"].Origin)
	}
}

func testRenamedTriggersAreRescheduled(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Closed("11-11"), fixture.T0)
	bound := hashed()
	bound.Calendar, bound.Timezone = "freeze", "Europe/Berlin"
	f.Put(fixture.Job("first", map[string]dispatcher.Trigger{"a": bound, "b": hashed()}), fixture.T0)
	before := f.Rename("first", "second", map[string]string{"a": "b", "b": "a"}, fixture.T0)
	f.DeclareCalendar(fixture.Closed("12-12"), fixture.Minutes(1)) // excludes no fire soon
	if moved, err := f.RescheduleForZones(ctx, 0, 10, fixture.Minutes(1)); err != nil || moved.Moved != 0 {
		t.Errorf("the same time zone data moved %d triggers, %v", moved.Moved, err)
	}
	broken := run.TriggerID("shop", "first", "b")
	f.Must(f.Quarantine(ctx, broken, before.Revision, "unreadable"))
	if rolled, err := f.RollUp(ctx, 10); err != nil || rolled.Changed != 0 { // Quarantine wrote it
		t.Errorf("rolled up %+v, %v, want that the state is true already", rolled, err)
	}
	paused, err := f.PauseJob(ctx, "shop", "second", "b", true, fixture.At(fixture.Minutes(2)))
	if f.Must(err); !paused.Triggers["b"].Paused || paused.Triggers["a"].Paused || len(f.DueAll(fixture.T0.Add(48*time.Hour))) != 0 {
		t.Errorf("after a pause of b and an error of a, triggers are %+v and some are due", paused.Triggers)
	}
	f.Must(f.PauseJob(ctx, "shop", "second", "b", false, fixture.At(fixture.Minutes(2))))
	if due := f.DueAll(fixture.T0.Add(48 * time.Hour)); len(due) != 1 || due[0].ID != run.TriggerID("shop", "first", "a") {
		t.Errorf("after a resume of b, %+v are due, want b", due)
	}
	f.Must(f.PauseJob(ctx, "shop", "second", "a", true, fixture.At(fixture.Minutes(2))))
	f.Must(f.PauseJob(ctx, "shop", "second", "a", false, fixture.At(fixture.Minutes(3))))
	after, err := f.Job(ctx, "shop", "second")
	f.Must(err)
	for _, name := range []string{"a", "b"} {
		was, is := before.Triggers[name], after.Triggers[name]
		if is.Origin != was.Origin || !is.NextFireTime.Equal(*was.NextFireTime) || !is.DueAt.Equal(*was.DueAt) || is.Error != "" {
			t.Errorf("trigger %s: origin %q, next fire at %s, due at %s, error %q; want %q, %s, %s", name, is.Origin, is.NextFireTime,
				is.DueAt, is.Error, was.Origin, was.NextFireTime, was.DueAt)
		}
	}
}

func testRenameRace(t *testing.T, f *wing) {
	const jobs = 8
	names := make([]string, jobs)
	for i := range names {
		names[i] = "job-" + string(rune('a'+i))
		f.Put(fixture.Job(names[i], nil), fixture.T0)
	}
	done := make(chan error, jobs)
	for _, name := range names {
		go func() {
			_, err := f.RenameJob(t.Context(), "shop", name, dispatcher.JobRename{Name: "winner"}, fixture.At(fixture.T0))
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
