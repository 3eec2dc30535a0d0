package definitions

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func testApps(t *testing.T, f *wing) {
	ctx := t.Context()
	app := access.App{Name: "books", AppSpec: access.AppSpec{Description: "Books", Enabled: true, Defaults: &dispatcher.JobDefaults{
		Timezone: "Europe/Berlin", Headers: map[string]string{"X-Team": "books"}, MisfirePolicy: dispatcher.Skip,
	}}}
	stored, _, err := f.PutApp(ctx, app, input.Change{IfAbsent: true, Now: fixture.T0})
	f.Must(err)
	want := app
	defaults := target.Bounds{}.WithDefaults("books")
	want.Bounds, want.Retention, want.AWSExternalID = &defaults, input.DefaultRetention, stored.AWSExternalID // the defaults
	want.Revision, want.CreatedAt, want.UpdatedAt, want.Usage = 1, fixture.T0, fixture.T0, &target.Usage{}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error("a new app (-want +got):\n" + diff)
	}
	_, _, err = f.PutApp(ctx, app, input.Change{IfAbsent: true, Now: fixture.T0})
	fixture.WantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutApp(ctx, app, input.Change{IfRevision: 7, Now: fixture.T0})
	fixture.WantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutApp(ctx, access.App{Name: "none"}, input.Change{IfRevision: 1, Now: fixture.T0})
	fixture.WantError(t, "put of a revision of no app", err, dispatcher.ErrPrecondition)

	bounds := defaults
	bounds.Weight = 7
	app.Enabled, app.Description, app.Bounds, app.Retention = false, "", &bounds, input.Duration(48*time.Hour)
	stored, _, err = f.PutApp(ctx, app, input.Change{IfRevision: 1, Now: fixture.T0.Add(time.Hour), Operator: true})
	f.Must(err)
	want = app
	want.AWSExternalID, want.Usage = stored.AWSExternalID, &target.Usage{}
	want.Revision, want.CreatedAt, want.UpdatedAt = 2, fixture.T0, fixture.T0.Add(time.Hour)
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error("a changed app (-want +got):\n" + diff)
	}
	read, err := f.AppWithUsage(ctx, "books")
	f.Must(err)
	if diff := cmp.Diff(want, read); diff != "" {
		t.Error("the app read back (-want +got):\n" + diff)
	}
	given, err := f.JobDefaults(ctx, "books")
	f.Must(err)
	if diff := cmp.Diff(app.Defaults, given); diff != "" {
		t.Error("the defaults of the app (-want +got):\n" + diff)
	}
	app.Defaults = &dispatcher.JobDefaults{} // without values
	stored, _, err = f.PutApp(ctx, app, input.Change{IfRevision: 2, Now: fixture.T0.Add(time.Hour), Operator: true})
	f.Must(err)
	if given, err = f.JobDefaults(ctx, "books"); err != nil || given != nil || stored.Defaults != nil {
		t.Errorf("defaults that give nothing are %+v, %v, and %+v of the app", given, err, stored.Defaults)
	}
	if given, err = f.JobDefaults(ctx, "nosuch"); err != nil || given != nil {
		t.Errorf("defaults of no app are %+v, %v", given, err)
	}
	var names []string
	for cursor := ""; ; cursor = names[len(names)-1] {
		page, err := f.Apps(ctx, input.Page{Limit: 1, Cursor: cursor})
		f.Must(err)
		if len(page) == 0 {
			break
		}
		names = append(names, page[0].Name)
	}
	if diff := cmp.Diff([]string{"books", "shop"}, names); diff != "" {
		t.Error("the apps, page by page (-want +got):\n" + diff)
	}

	f.PutEvery("tick", time.Minute)
	err = f.DeleteApp(ctx, "shop", fixture.At(fixture.T0))
	fixture.WantError(t, "delete an app with jobs", err, dispatcher.ErrNotEmpty)
	if want := `job "tick": app is not empty`; err == nil || err.Error() != want {
		t.Errorf("delete an app with jobs: got error %v, want %s", err, want)
	}
	fixture.WantError(t, "delete another revision", f.DeleteApp(ctx, "books", input.Change{IfRevision: 1}), dispatcher.ErrPrecondition)
	f.Must(f.DeleteApp(ctx, "books", fixture.At(fixture.T0)))
	fixture.WantError(t, "delete twice", f.DeleteApp(ctx, "books", fixture.At(fixture.T0)), dispatcher.ErrNotFound)
	_, err = f.App(ctx, "books")
	fixture.WantError(t, "read a deleted app", err, dispatcher.ErrNotFound)
	_, _, err = f.PutJob(ctx, dispatcher.Job{App: "books", Name: "x", JobSpec: dispatcher.JobSpec{Target: fixture.Job("x", nil).Target}},
		fixture.At(fixture.T0))
	fixture.WantError(t, "put a job into a deleted app", err, dispatcher.ErrNotFound)
	again, _, err := f.PutApp(ctx, app, input.Change{IfAbsent: true, Now: fixture.T0})
	f.Must(err)
	if again.Revision <= 2 {
		t.Errorf("the app made again has revision %d, want more than 2", again.Revision)
	}
}

func testJobs(t *testing.T, f *wing) {
	ctx := t.Context()
	declared := fixture.Job("report", map[string]dispatcher.Trigger{
		"eu": fixture.Every(time.Minute, fixture.T0.Add(time.Hour)),
		"us": {
			TriggerSpec: dispatcher.TriggerSpec{
				Schedule:     dispatcher.Schedule{Expression: "0 30 9 * * ?", Timezone: "America/New_York"},
				MisfireAfter: input.Duration(90 * time.Second), MisfirePolicy: dispatcher.FireAll,
				CatchUpWindow: input.Duration(2 * time.Hour),
			},
		},
	})
	declared.Priority, declared.Acknowledge = 3, []string{input.WarnDST, input.CodeBodyMethod}
	stored, _, err := f.PutJob(ctx, declared, input.Change{IfAbsent: true, Now: fixture.T0})
	f.Must(err)
	want, _, err := dispatcher.Apply(nil, declared, dispatcher.Prior{}, nil, fixture.T0)
	f.Must(err)
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error("a new job (-want by Revise, +got):\n" + diff)
	}
	read, err := f.Job(ctx, "shop", "report")
	f.Must(err)
	if diff := cmp.Diff(want, read); diff != "" {
		t.Error("the job read back (-want +got):\n" + diff)
	}
	_, _, err = f.PutJob(ctx, declared, input.Change{IfAbsent: true, Now: fixture.T0})
	fixture.WantError(t, "put if absent", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutJob(ctx, declared, input.Change{IfRevision: 9, Now: fixture.T0})
	fixture.WantError(t, "put of another revision", err, dispatcher.ErrPrecondition)
	_, _, err = f.PutJob(ctx, fixture.Job("other", nil), input.Change{IfRevision: 1, Now: fixture.T0})
	fixture.WantError(t, "put of a revision of no job", err, dispatcher.ErrPrecondition)
	_, err = f.Job(ctx, "shop", "other")
	fixture.WantError(t, "read what was refused", err, dispatcher.ErrNotFound)

	bad := fixture.Job("bad",
		map[string]dispatcher.Trigger{"never": {TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "0 0 0 30 2 ?"},
			Enabled: true}}})
	var problems input.Problems
	if _, _, err = f.PutJob(ctx, bad, fixture.At(fixture.T0)); !errors.As(err, &problems) {
		t.Errorf("put of a wrong definition: got error %v, want Faults", err)
	}
	f.Put(fixture.Job("audit", nil), fixture.T0)
	var names []string
	for cursor := ""; ; cursor = names[len(names)-1] {
		page, err := f.Jobs(ctx, "shop", input.Page{Limit: 1, Cursor: cursor})
		f.Must(err)
		if len(page) == 0 {
			break
		}
		names = append(names, page[0].Name)
	}
	if diff := cmp.Diff([]string{"audit", "report"}, names); diff != "" {
		t.Error("the jobs, page by page (-want +got):\n" + diff)
	}
	_, err = f.Jobs(ctx, "none", input.Page{Limit: 1})
	fixture.WantError(t, "jobs of no app", err, dispatcher.ErrNotFound)

	id := run.JobID("shop", "report")
	versions, err := f.JobsByID(ctx, []int64{id, 12345})
	f.Must(err)
	bare := want
	bare.Warnings, bare.Triggers = nil, nil
	triggers := slices.Sorted(maps.Keys(want.Triggers))
	app, err := f.App(ctx, "shop")
	f.Must(err)
	version := dispatcher.JobVersion{ID: id, Job: bare, Bounds: app.Bounds, AWSExternalID: app.AWSExternalID, TriggerNames: triggers}
	if len(versions) == 1 && len(versions[0].Salt) == run.SaltBytes {
		version.Salt = versions[0].Salt // random
	}
	if diff := cmp.Diff([]dispatcher.JobVersion{version}, versions); diff != "" {
		t.Error("jobs by id (-want +got):\n" + diff)
	}
	if !json.Valid(read.Payload) {
		t.Errorf("payload %q is not JSON", read.Payload)
	}
	f.deleteJob("report", id)
}

// deleteJob deletes a job, and expects no trace of it.
func (f *wing) deleteJob(name string, id int64) {
	t, ctx := f.T, f.T.Context()
	fixture.WantError(t, "delete another revision", f.DeleteJob(ctx, "shop", name, input.Change{IfRevision: 9}), dispatcher.ErrPrecondition)
	f.Must(f.DeleteJob(ctx, "shop", name, fixture.At(fixture.T0)))
	fixture.WantError(t, "delete twice", f.DeleteJob(ctx, "shop", name, fixture.At(fixture.T0)), dispatcher.ErrNotFound)
	if versions, err := f.JobsByID(ctx, []int64{id}); err != nil || len(versions) != 0 {
		t.Errorf("deleted job by id: got %d, %v, want none", len(versions), err)
	}
	if due := f.DueAll(fixture.T0.Add(48 * time.Hour)); len(due) != 0 {
		t.Errorf("a deleted job has %d due triggers, want none", len(due))
	}
}

// A revision never repeats, so that no fire in a node's memory outlives a change.
func testRevisions(t *testing.T, f *wing) {
	ctx := t.Context()
	last := int64(0)
	up := func(what string, j dispatcher.Job) {
		t.Helper()
		if j.Revision != last+1 {
			t.Errorf("%s: revision %d, want %d", what, j.Revision, last+1)
		}
		last = j.Revision
	}
	up("create", f.PutEvery("tick", time.Minute))
	up("change the description", f.EditEvery("tick", time.Minute))
	paused, err := f.PauseJob(ctx, "shop", "tick", "", true, fixture.At(fixture.T0))
	f.Must(err)
	up("pause", paused)
	resumed, err := f.PauseJob(ctx, "shop", "tick", "", false, fixture.At(fixture.T0))
	f.Must(err)
	up("resume", resumed)
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(fixture.T0)))
	again := f.PutEvery("tick", time.Minute)
	up("create again", again)
	if again.Paused || !again.CreatedAt.Equal(fixture.T0) {
		t.Errorf("the job made again: paused %t, created %s", again.Paused, again.CreatedAt)
	}
	if due := f.DueAll(fixture.T0.Add(time.Hour)); len(due) != 1 || due[0].Revision != last {
		t.Errorf("due: got %+v, want one of revision %d", due, last)
	}
}

// An edit keeps unaffected triggers and accounts for removed fires.
func testEdits(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{
		"kept":    fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
		"changed": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
		"removed": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
	}), fixture.T0)
	now := fixture.T0.Add(150 * time.Second) // two fires of each are due
	j := f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{
		"kept":    fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
		"changed": fixture.Every(time.Hour, fixture.T0.Add(time.Minute)),
	}), now)
	if got, want := *j.Triggers["kept"].NextFireTime, fixture.T0.Add(time.Minute); !got.Equal(want) {
		t.Errorf("the trigger that was kept fires next at %s, want %s", got, want)
	}
	if got, want := *j.Triggers["changed"].NextFireTime, fixture.T0.Add(time.Minute); !got.Equal(want) {
		t.Errorf("the trigger that was changed fires next at %s, want %s, which both schedules contain", got, want)
	}
	misfires, err := f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 10}})
	f.Must(err)
	got := map[string]int{}
	for _, m := range misfires {
		got[m.Trigger] = m.Count
		want := map[string]dispatcher.Decision{"changed": dispatcher.DecisionFireOnce, "removed": dispatcher.DecisionSkip}[m.Trigger]
		if m.Node != nil || m.Decision != want || !m.DecidedAt.Equal(now) {
			t.Errorf("misfire: got %+v, want %s by no node, decided at %s", m, want, now)
		}
	}
	if diff := cmp.Diff(map[string]int{"changed": 1, "removed": 2}, got); diff != "" {
		t.Error("misfires of the edit (-want +got):\n" + diff)
	}
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(now)))
	misfires, err = f.Misfires(ctx, dispatcher.RunQuery{App: "shop", Job: "tick", Trigger: "kept", Page: input.Page{Limit: 10}})
	f.Must(err)
	if len(misfires) != 1 || misfires[0].Count != 2 {
		t.Errorf("misfires of the deletion: got %+v, want one of 2 fires", misfires)
	}
}

func testPause(t *testing.T, f *wing) {
	ctx := t.Context()
	f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{
		"a": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)), "b": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
	}), fixture.T0)
	due := func() int { t.Helper(); return len(f.DueAll(fixture.T0.Add(time.Minute))) }
	pause := func(trigger string, paused bool) dispatcher.Job {
		t.Helper()
		j, err := f.PauseJob(ctx, "shop", "tick", trigger, paused, fixture.At(fixture.T0))
		f.Must(err)
		return j
	}
	j, err := f.PauseJob(ctx, "shop", "tick", "a", true, input.Change{Actor: "ann", Reason: "a migration", Now: fixture.T0})
	f.Must(err)
	why := dispatcher.Pause{PausedBy: "ann", PausedAt: new(fixture.T0), PauseReason: "a migration"}
	if diff := cmp.Diff(why, j.Triggers["a"].Pause); diff != "" {
		t.Error("the pause of a trigger (-want +got):\n" + diff)
	}
	if a, b := j.Triggers["a"], j.Triggers["b"]; !a.Paused || a.State != dispatcher.TriggerPaused || b.Paused ||
		b.State != dispatcher.TriggerWaiting || j.State != dispatcher.JobExecuting || due() != 1 {
		t.Errorf("one trigger paused: got %+v and %d due", j, due())
	}
	j = pause("", true)
	if diff := cmp.Diff(dispatcher.Pause{PausedBy: "test", PausedAt: new(fixture.T0)}, j.Pause); diff != "" {
		t.Error("the pause of the job (-want +got):\n" + diff)
	}
	if b := j.Triggers["b"]; !j.Paused || b.Paused || b.State != dispatcher.TriggerPaused || j.State != dispatcher.JobPaused || due() != 0 {
		t.Errorf("the job paused: got %+v and %d due", j, due())
	}
	// A change of the definition does not affect an operator's pauses.
	j = f.Put(fixture.Job("tick", map[string]dispatcher.Trigger{
		"a": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)), "b": fixture.Every(2*time.Minute, fixture.T0.Add(time.Minute)),
		"c": fixture.Every(time.Minute, fixture.T0.Add(time.Minute)),
	}), fixture.T0)
	if j.PausedBy != "test" || !cmp.Equal(j.Triggers["a"].Pause, why) {
		t.Errorf("changed while paused: the pauses are %+v and %+v", j.Pause, j.Triggers["a"].Pause)
	}
	if !j.Paused || !j.Triggers["a"].Paused || j.Triggers["c"].State != dispatcher.TriggerPaused || due() != 0 {
		t.Errorf("changed while paused: got %+v and %d due", j, due())
	}
	if j = pause("", false); j.Paused || j.Pause != (dispatcher.Pause{}) || !j.Triggers["a"].Paused || due() != 2 {
		t.Errorf("the job resumed: got %+v and %d due, want 2", j, due())
	}
	if j = pause("a", false); j.Triggers["a"].State != dispatcher.TriggerWaiting || due() != 3 {
		t.Errorf("all resumed: got %+v and %d due, want 3", j, due())
	}
	_, err = f.PauseJob(ctx, "shop", "tick", "none", true, fixture.At(fixture.T0))
	fixture.WantError(t, "pause no trigger", err, dispatcher.ErrNotFound)
	_, err = f.PauseJob(ctx, "shop", "none", "", true, fixture.At(fixture.T0))
	fixture.WantError(t, "pause no job", err, dispatcher.ErrNotFound)
	_, err = f.PauseJob(ctx, "shop", "tick", "", true, input.Change{IfRevision: 1})
	fixture.WantError(t, "pause another revision", err, dispatcher.ErrPrecondition)
}

// Jobs are found by all requested labels, page by page; a part of a label is another label.
func testJobLabels(t *testing.T, f *wing) {
	for name, labels := range map[string]input.Labels{
		"a": {"team": "pay", "tier": "1"}, "b": {"team": "pay"}, "c": {"team": "payments", "tier": "1"}, "d": nil,
		"e": {"xteam": "pay", "tier": "1", "a.b": "c_d"}, "f": {"team": "pay", "tier": "1", "zone": "eu"}, "g": {"a.b": "cxd"},
	} {
		j := fixture.Job(name, nil)
		j.Labels = labels
		f.Put(j, fixture.T0)
	}
	for _, tt := range []struct {
		labels input.Labels
		want   string
	}{
		{nil, "a b c d e f g"},
		{input.Labels{"team": "pay"}, "a b f"},
		{input.Labels{"team": "pay", "tier": "1"}, "a f"},
		{input.Labels{"tier": "1"}, "a c e f"},
		{input.Labels{"a.b": "c_d"}, "e"},
		{input.Labels{"team": "none"}, ""},
	} {
		var names []string
		for cursor := ""; ; cursor = names[len(names)-1] {
			page, err := f.Jobs(t.Context(), "shop", input.Page{Limit: 2, Cursor: cursor, Labels: tt.labels})
			f.Must(err)
			if len(page) == 0 {
				break
			}
			for _, j := range page {
				names = append(names, j.Name)
			}
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("jobs with %v: got %q, want %q", tt.labels, got, tt.want)
		}
	}
}

// The revisions of triggers are kept as long as their history.
func testRecords(t *testing.T, f *wing) {
	ctx := t.Context()
	f.DeclareCalendar(fixture.Closed("12-24"), fixture.T0)
	f.PutEvery("tick", time.Hour)
	for day := range 3 {
		f.Must(f.PauseJob(ctx, "shop", "tick", "", day%2 == 0, fixture.At(fixture.T0.AddDate(0, 0, day))))
		f.DeclareCalendar(fixture.Closed(fmt.Sprintf("12-1%d", day)), fixture.T0.AddDate(0, 0, day))
	}
	revisions := func() (n int) {
		records, err := f.TriggerHistories(ctx, fixture.T0, []int64{run.JobID("shop", "tick")})
		f.Must(err)
		for _, r := range records {
			n += len(r.Revisions)
		}
		return n
	}
	calendarAt := func(revision int64) int {
		all, err := f.CalendarsAt(ctx, "shop", revision)
		f.Must(err)
		return len(all)
	}
	if n := revisions(); n != 4 || calendarAt(1) != 1 || calendarAt(4) != 1 {
		t.Errorf("%d revisions, want the first and three pauses; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.PurgeAll(fixture.ShopEnd.Add(-time.Millisecond))
	if n := revisions(); n != 4 {
		t.Errorf("%d revisions are left while the day of their end is kept", n)
	}
	f.PurgeAll(fixture.ShopEnd.AddDate(0, 0, 1))
	if n := revisions(); n != 2 || calendarAt(1) != 0 || calendarAt(4) != 1 {
		t.Errorf("%d revisions are left, want that which ended later and that in force; %d and %d calendars", n, calendarAt(1), calendarAt(4))
	}
	f.Must(f.DeleteJob(ctx, "shop", "tick", fixture.At(fixture.ShopEnd)))
	f.PurgeAll(fixture.ShopEnd.AddDate(1, 0, 0))
	if n := revisions(); n != 0 {
		t.Errorf("%d revisions of a deleted job are left", n)
	}

	// A longer retention restores nothing.
	f.Must(f.PutApp(ctx, access.App{Name: "shop",
		AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(90 * 24 * time.Hour)}}, fixture.At(fixture.ShopEnd)))
	for day, want := range map[int]time.Time{0: fixture.ShopEnd.AddDate(0, 0, -30), 59: fixture.ShopEnd.AddDate(0, 0, -30),
		70: fixture.ShopEnd.AddDate(0, 0, -20)} {
		record, err := f.AppHistory(ctx, "shop", time.Time{}, fixture.ShopEnd.AddDate(0, 0, day))
		if err != nil || !record.Since.Equal(want) {
			t.Errorf("history on day %d goes back to %s, %v, want %s", day, record.Since, err, want)
		}
	}
}
