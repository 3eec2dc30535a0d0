package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// Triggers of a disabled app and of labels that no node has stay due for as long as that lasts. However many they
// are, a poll and the look for misfires of every node must not read them.
func TestTriggersThatAreOffCostAPollNothing(t *testing.T) {
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
	must(t, s.Register(ctx, dispatcher.Node{ID: 2}, may1)) // it finds that no node has the label
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

// overdueTriggers inserts triggers of an app that were due a second after may1, each in the next millisecond.
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

// A set of labels goes with the last job that required it, once that has been removed.
func TestLabelsThatNoJobRequiresAreForgotten(t *testing.T) {
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
