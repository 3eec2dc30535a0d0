package definitions

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

// unchangedTests test changes without effect.
func unchangedTests() tests {
	return tests{
		"a change without effect writes nothing":            testUnchanged,
		"an unchanged PUT still has to meet its conditions": testUnchangedConditions,
		"a trigger in error is scheduled again by a resume": testResumeOfError,
	}
}

// Putting stored definitions, pausing paused jobs and resuming others keep the revision and leave no trace: no entry in
// the audit log, no revision of a trigger, no notification.
func testUnchanged(t *testing.T, f *wing) {
	ctx := t.Context()
	holidays := fixture.Calendar("holidays")
	holidays.Description = "Holidays"
	f.DeclareCalendar(holidays, fixture.T0)
	paused := fixture.Every(time.Hour, fixture.T0.Add(time.Hour).In(time.FixedZone("", 3600)))
	paused.Calendar = "holidays"
	j := fixture.Job("tick", map[string]dispatcher.Trigger{"a": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)), "b": paused})
	f.Put(j, fixture.T0)
	f.Must(f.PauseJob(ctx, "shop", "tick", "b", true, fixture.At(fixture.T0)))
	later := fixture.T0.Add(time.Minute)
	notifications := f.Hear()

	type definitions struct {
		App      access.App
		Calendar dispatcher.Calendar
		Job      dispatcher.Job
	}
	read := func() (d definitions) {
		t.Helper()
		var err error
		d.App, err = f.AppWithUsage(ctx, "shop")
		f.Must(err)
		d.Calendar, err = f.Calendar(ctx, "shop", "holidays")
		f.Must(err)
		d.Job, err = f.Job(ctx, "shop", "tick")
		f.Must(err)
		return d
	}
	traces := func() [2]int {
		t.Helper()
		revisions, err := f.TriggerHistories(ctx, fixture.T0.Add(-time.Hour), []int64{run.JobID("shop", "tick")})
		f.Must(err)
		count := 0
		for _, one := range revisions {
			count += len(one.Revisions)
		}
		return [2]int{len(f.AuditLog(access.AuditQuery{})), count}
	}
	before, left := read(), traces()
	var got definitions
	var created [3]bool
	var err error
	got.App, created[0], err = f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, fixture.At(later))
	f.Must(err)
	got.Calendar, created[1], err = f.PutCalendar(ctx, holidays, fixture.At(later))
	f.Must(err)
	got.Job, created[2], err = f.PutJob(ctx, j, fixture.At(later))
	f.Must(err)
	if diff := cmp.Diff(before, got); diff != "" || created != [3]bool{} {
		t.Errorf("put as they are stored: created %v (-want +got):\n%s", created, diff)
	}
	for what, put := range f.putsOf(before.App, before.Calendar, before.Job, later) {
		_, is, err := put()
		f.Must(err)
		if is {
			t.Errorf("%s as it was read: was created", what)
		}
	}
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Error("after changes of nothing (-want +got):\n" + diff)
	}
	if now := traces(); now != left {
		t.Errorf("entries of the audit log and revisions of triggers: got %v, want %v", now, left)
	}
	// The first notification is that of the change after them.
	j.Description = "changed"
	if got := f.Put(j, later).Revision; got != before.Job.Revision+1 {
		t.Errorf("a changed description: got revision %d, want %d", got, before.Job.Revision+1)
	}
	if heard, want := notifications.Next(t, "the change"), (dispatcher.Notification{JobID: run.JobID("shop", "tick")}); heard != want {
		t.Errorf("heard first %+v, want %+v", heard, want)
	}
}

// putsOf are all ways to put a stored definition again.
func (f *wing) putsOf(
	app access.App, c dispatcher.Calendar, j dispatcher.Job, later time.Time,
) map[string]func() (any, bool, error) {
	ctx := f.T.Context()
	return map[string]func() (any, bool, error){
		"app": func() (any, bool, error) {
			stored, is, err := f.PutApp(ctx, app, fixture.At(later))
			return stored, is, err
		},
		"calendar": func() (any, bool, error) {
			stored, is, err := f.PutCalendar(ctx, c, fixture.At(later))
			return stored, is, err
		},
		"job": func() (any, bool, error) {
			stored, is, err := f.PutJob(ctx, j, fixture.At(later))
			return stored, is, err
		},
		"pause": func() (any, bool, error) {
			stored, err := f.PauseJob(ctx, "shop", "tick", "b", true, fixture.At(later))
			return stored, false, err
		},
		"resume": func() (any, bool, error) {
			stored, err := f.PauseJob(ctx, "shop", "tick", "", false, fixture.At(later))
			return stored, false, err
		},
	}
}

// A client that expects another revision, or none, has not seen the stored definition.
func testUnchangedConditions(t *testing.T, f *wing) {
	ctx := t.Context()
	j := f.PutEvery("tick", time.Minute)
	for name, by := range map[string]input.Change{
		"another revision": {IfRevision: j.Revision + 1, Now: fixture.T0}, "nothing": {IfAbsent: true, Now: fixture.T0},
	} {
		_, _, err := f.PutJob(ctx, j, by)
		fixture.WantError(t, "put a job, expecting "+name, err, dispatcher.ErrPrecondition)
		_, _, err = f.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, by)
		fixture.WantError(t, "put an app, expecting "+name, err, dispatcher.ErrPrecondition)
		_, err = f.PauseJob(ctx, "shop", "tick", "", false, by)
		fixture.WantError(t, "resume a job, expecting "+name, err, dispatcher.ErrPrecondition)
	}
	same, _, err := f.PutJob(ctx, j, input.Change{IfRevision: j.Revision, Now: fixture.T0})
	if err != nil || same.Revision != j.Revision {
		t.Errorf("put of the revision that is there: got revision %d, %v, want %d", same.Revision, err, j.Revision)
	}
	_, err = f.PauseJob(ctx, "shop", "tick", "none", false, fixture.At(fixture.T0))
	fixture.WantError(t, "resume no trigger", err, dispatcher.ErrNotFound)
}

func testResumeOfError(t *testing.T, f *wing) {
	j := f.PutEvery("tick", time.Minute)
	f.Must(f.Quarantine(t.Context(), run.TriggerID("shop", "tick", "tick"), j.Revision, "unreadable"))
	got, err := f.PauseJob(t.Context(), "shop", "tick", "tick", false, fixture.At(fixture.T0))
	f.Must(err)
	if got.Revision != j.Revision+1 || got.Triggers["tick"].State != dispatcher.TriggerWaiting {
		t.Errorf("got revision %d, trigger %s, want revision %d, waiting", got.Revision, got.Triggers["tick"].State, j.Revision+1)
	}
}
