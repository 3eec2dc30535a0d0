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
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// A program with another time zone database reschedules the triggers that depend on it, and records the moves.
func TestFireTimesFollowTheTimeZoneDatabase(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); testRescheduleForZones(t, open(t, sqlitetest.New(t))) })
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
	// This simulates other offsets of Berlin and Lima. It is 5:00 UTC, so fires due at 6:00 in Berlin are overdue, and
	// stay due if the instant is still a fire time.
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
	// The fire of dropped is pending at its new, past time. That of berlin would have been before it was due.
	decided := map[string]dispatcher.Decision{"berlin": dispatcher.DecisionFireOnce, "dropped": dispatcher.DecisionSkip}
	if diff := cmp.Diff(decided, decisions); diff != "" {
		t.Errorf("what became of the fires that were due and are no more (-want +got):\n%s", diff)
	}
	n, err := store.Count(ctx, s, `SELECT count(*) FROM audit_log WHERE action = 'zones'`)
	if err != nil || n != 3 {
		t.Errorf("%d audited, %v, want the 3 that moved", n, err)
	}
	records, err := s.TriggerHistories(ctx, may1, []int64{run.JobID("app", "job")})
	must(t, err)
	for _, r := range records {
		last := r.Revisions[len(r.Revisions)-1]
		if moved := r.Name == "berlin" || r.Name == "paused" || r.Name == "dropped"; moved != (last.Cause == dispatcher.CauseZones) {
			t.Errorf("trigger %s is on record as %s", r.Name, last.Cause)
		}
	}

	// In a fleet of two versions, the last node to be replaced writes its own fire times.
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

// Triggers of a disabled app, or with labels that no node has, stay due all that time. No node's poll or search for
// misfires may read them, however many there are.
func TestPollDoesNotReadTriggersThatAreOff(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	s := open(t, pgtest.New(t))
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	for _, app := range []string{"disabled", "busy"} {
		_, _, err := s.PutApp(ctx, access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
	}
	must(t, s.Register(ctx, dispatcher.Node{ID: 1}, may1))
	now := may1.Add(time.Hour)
	const each = 100_000
	overdueTriggers(t, s, "disabled", "", 0, each)
	overdueTriggers(t, s, "busy", "gpu=yes", each, each)
	must(t, store.Exec(ctx, s, `INSERT INTO label_sets (node_labels, served) VALUES ('gpu=yes', TRUE);
		INSERT INTO jobs (id, app_id, name, description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy,
			max_concurrency, queue_limit, target, payload, trigger_names, revision, created_at, updated_at)
		SELECT 1, id, 'j', '', TRUE, FALSE, 0, 'gpu=yes', '', '{}', 'allow', 0, 0, '{}', '', '[]', 1, 0, 0 FROM apps WHERE name = 'busy'`))
	cost := func() map[string]int {
		t.Helper()
		must(t, store.Exec(ctx, s, `VACUUM (ANALYZE) trigger_clock`))
		window, err := store.DueBuffers(ctx, s, dispatcher.DueQuery{Until: now, Now: now, Limit: 500})
		must(t, err)
		misfires, err := store.DueBuffers(ctx, s, dispatcher.DueQuery{Until: now, Now: now, Overdue: true, Limit: 500})
		must(t, err)
		apps, err := store.OverdueAppsBuffers(ctx, s, now)
		must(t, err)
		return map[string]int{"a poll": window, "a page of misfires": misfires, "the look for overdue apps": apps}
	}
	for read, pages := range cost() {
		t.Logf("while they fire, %s reads %d pages", read, pages)
		if pages < 500 && read != "a page of misfires" {
			t.Errorf("while they fire, %s reads %d pages; this test does not see what it is about", read, pages)
		}
	}
	_, _, err := s.PutApp(ctx, access.App{Name: "disabled"}, change)
	must(t, err)
	must(t, s.Register(ctx, dispatcher.Node{ID: 2}, may1)) // it finds the label missing on all nodes
	for more := true; more; {
		_, more, err = s.FollowSwitches(ctx, 10_000)
		must(t, err)
	}
	for read, pages := range cost() {
		t.Logf("when all are off, %s reads %d pages", read, pages)
		if pages > 40 {
			t.Errorf("when all are off, %s reads %d pages, want hardly any", read, pages)
		}
	}
}

// overdueTriggers inserts triggers of an app that were due a second after may1, a millisecond apart.
func overdueTriggers(t *testing.T, s *store.Store, app, labels string, first, count int) {
	t.Helper()
	must(t, store.Exec(t.Context(), s, fmt.Sprintf(`INSERT INTO triggers (id, job_id, app_id, revision, misfire_after, anchor_at, jitter,
			repeat_count, fired, enabled, paused, job_paused, delayed, drift_hour, name, expression, dialect, timezone, gap, overlap, calendar,
			on_excluded, error, node_labels)
		SELECT %[1]d + n, 1, a.id, 1, 60000, 0, 0, 0, 0, TRUE, FALSE, FALSE, FALSE, FALSE, '', '', '', '', '', '', '', '', '', '%[5]s'
		FROM apps AS a CROSS JOIN generate_series(1, %[2]d) AS s (n) WHERE a.name = '%[3]s';
		INSERT INTO trigger_clock (id, app_id, revision, calendar_revision, next_fire_time, due_at, misfire_after, off, delayed, state,
			node_labels)
		SELECT id, app_id, 1, 0, %[4]d + id, %[4]d + id, 60000, 0, FALSE, 'waiting', node_labels FROM triggers WHERE id > %[1]d`,
		first, count, app, may1.UnixMilli(), labels)))
}

// A set of labels is deleted after the last job that required it was removed.
func TestUnusedLabelSetsAreDeleted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		sets := func() int64 {
			t.Helper()
			n, err := store.Count(t.Context(), s, `SELECT count(*) FROM label_sets`)
			must(t, err)
			return n
		}
		for _, name := range []string{"kept", "removed"} {
			job := tick(name, "", may1, "tick")
			job.NodeLabels = input.Labels{"for": name}
			_, _, err := s.PutJob(t.Context(), job, input.Change{Actor: "test", Now: may1})
			must(t, err)
		}
		must(t, s.DeleteJob(t.Context(), "app", "removed", input.Change{Actor: "test", Now: may1}))
		must(t, s.Register(t.Context(), dispatcher.Node{ID: 1}, may1))
		if n := sets(); n != 2 {
			t.Errorf("while the job is kept for its history there are %d sets, want 2", n)
		}
		must(t, store.Exec(t.Context(), s, `DELETE FROM jobs WHERE name = 'removed'`))
		must(t, s.Register(t.Context(), dispatcher.Node{ID: 2}, may1))
		if n := sets(); n != 1 {
			t.Errorf("after the job was removed there are %d sets, want 1", n)
		}
	})
}
