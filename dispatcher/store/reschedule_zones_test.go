package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A program with another time zone database works out again what depends on it, and what moves is
// on record.
func TestFireTimesFollowTheTimeZoneDatabase(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testRescheduleForZones(t, open(t, newFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testRescheduleForZones(t, open(t, pgtest.New(t))) })
}

func testRescheduleForZones(t *testing.T, s *store.Store) {
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	_, _, err = s.PutCalendar(ctx, dispatcher.Calendar{App: "app", Name: "closed",
		CalendarSpec: dispatcher.CalendarSpec{Timezone: "Asia/Tokyo",
			Rules: []schedule.CalendarRule{{Dates: []string{"12-24"}}}}}, change)
	must(t, err)
	trigger := func(zone, calendar string) dispatcher.Trigger {
		return dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{
				Schedule:     dispatcher.Schedule{Expression: "0 0 6 * * ?", Timezone: zone, Calendar: calendar},
				MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true,
			},
		}
	}
	declared := map[string]dispatcher.Trigger{
		"berlin": trigger("Europe/Berlin", ""), "kept": trigger("Europe/Berlin", ""), "due": trigger("Europe/Berlin", ""),
		"dropped": trigger("Europe/Berlin", ""), "utc": trigger("", ""), "closed": trigger("", "closed"), "paused": trigger("America/Lima", ""),
	}
	job, _, err := s.PutJob(ctx, dispatcher.Job{
		App: "app", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: declared,
			Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
	}, change)
	must(t, err)
	_, err = s.PauseJob(ctx, "app", "job", "paused", true, change)
	must(t, err)

	rescheduleForZones := func() (moved int) {
		t.Helper()
		for after, more := int64(0), true; more; {
			done, err := s.RescheduleForZones(ctx, after, 2, may1.Add(5*time.Hour))
			must(t, err)
			moved, after, more = moved+done.Moved, done.Last, done.More
		}
		return moved
	}
	changed := func() bool {
		t.Helper()
		changed, err := s.ZonesChanged(ctx)
		must(t, err)
		return changed
	}
	if !changed() {
		t.Error("nobody has made sure of the fire times, and they count as sure")
	}
	if moved := rescheduleForZones(); moved != 0 || changed() {
		t.Errorf("with the same zones %d triggers moved, and it is to be done again: %v", moved, changed())
	}
	// As if Berlin and Lima had had other offsets then. It is 5:00 UTC, so what was due at 6:00 in
	// Berlin is over, and stays due where it is still an instant.
	for name, shift := range map[string]time.Duration{"berlin": time.Hour, "paused": -time.Hour, "utc": time.Hour, "dropped": -time.Hour} {
		must(t, store.Exec(ctx, s,
			fmt.Sprintf(`UPDATE trigger_clock SET next_fire_time = next_fire_time + %[1]d, due_at = due_at + %[1]d
				WHERE id = (SELECT id FROM triggers WHERE name = '%[2]s')`, shift.Milliseconds(), name)))
	}
	must(t, store.Exec(ctx, s, `UPDATE installation SET zones = 'older'`))
	if !changed() {
		t.Error("the zones of the installation are others, and nothing is to be done")
	}
	if moved := rescheduleForZones(); moved != 3 || changed() {
		t.Errorf("%d triggers moved, want berlin, paused and dropped; it is to be done again: %v", moved, changed())
	}
	after, err := s.Job(ctx, "app", "job")
	must(t, err)
	next := map[string]time.Duration{}
	for name, trigger := range after.Triggers {
		next[name] = trigger.NextFireTime.Sub(*job.Triggers[name].NextFireTime)
		if !trigger.NextFireTime.Equal(*trigger.DueAt) || trigger.State == dispatcher.TriggerError {
			t.Errorf("trigger %s: %+v", name, trigger)
		}
	}
	want := map[string]time.Duration{"berlin": 24 * time.Hour, "kept": 0, "due": 0, "dropped": 0,
		"utc": time.Hour, "closed": 0, "paused": 0}
	if diff := cmp.Diff(want, next); diff != "" {
		t.Errorf("next fires, as they moved (-want +got):\n%s", diff)
	}
	misfires, err := s.Misfires(ctx, dispatcher.RunQuery{App: "app", Page: input.Page{Limit: 10}})
	must(t, err)
	decisions := map[string]dispatcher.Decision{}
	for _, m := range misfires {
		decisions[m.Trigger] = m.Decision
	}
	// The fire of dropped is pending at its new time, which has passed, too. That of berlin would have been before it was due.
	decided := map[string]dispatcher.Decision{"berlin": dispatcher.DecisionFireOnce, "dropped": dispatcher.DecisionSkip}
	if diff := cmp.Diff(decided, decisions); diff != "" {
		t.Errorf("what became of the fires that were due and are no more (-want +got):\n%s", diff)
	}
	n, err := store.Count(ctx, s, `SELECT count(*) FROM audit_log WHERE action = 'zones'`)
	if err != nil || n != 3 {
		t.Errorf("%d audited, %v, want the 3 that moved", n, err)
	}
	records, err := s.TriggerHistories(ctx, run.JobID("app", "job"), may1)
	must(t, err)
	for _, r := range records {
		last := r.Revisions[len(r.Revisions)-1]
		if moved := r.Name == "berlin" || r.Name == "paused" || r.Name == "dropped"; moved != (last.Cause == dispatcher.CauseZones) {
			t.Errorf("trigger %s is on record as %s", r.Name, last.Cause)
		}
	}

	// In a fleet of two versions the last to be replaced leaves fire times of its own.
	must(t, s.Register(ctx, dispatcher.Node{ID: 7}, may1.Add(6*time.Hour)))
	if changed() {
		t.Error("a node with the same zones makes it count as changed")
	}
	must(t, store.Exec(ctx, s, `UPDATE nodes SET zones = 'older'`))
	if changed() {
		t.Error("two versions are at work, and would undo each other's work")
	}
	must(t, s.Deregister(ctx, 7))
	if !changed() {
		t.Error("a node with other zones was at work since, and nothing is to be done")
	}
}
