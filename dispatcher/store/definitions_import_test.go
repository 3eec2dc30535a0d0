package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// An import does not replace a run of another job with the same key, which only a hash collision could cause.
func TestImportReplacesNoRunOfAnotherJob(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("job", nil)
		r, err := m.old.RequestRun(t.Context(), "app", "job", nil, m.at(-time.Minute))
		must(t, err)
		key, err := run.ParseKey(r.ID)
		must(t, err)
		export := m.moveOnly()
		must(t, store.Exec(t.Context(), m.new, fmt.Sprintf(`INSERT INTO live_runs (app_id, scheduled_at, trigger_id, job_id, revision, node,
			token, attempt, kind, state) VALUES (1, %d, %d, 12345, 1, 0, 0, 0, %d, 'queued')`,
			key.ScheduledAt.UnixMilli(), key.TriggerID, key.Code())))
		if _, err = m.new.ImportApp(t.Context(), export, m.at(0)); !errors.Is(err, dispatcher.ErrConflict) {
			t.Errorf("over a run that waits: got error %v, want ErrConflict", err)
		}
		if n, err := store.Count(t.Context(), m.new, `SELECT COUNT(*) FROM live_runs WHERE job_id = 12345`); err != nil || n != 1 {
			t.Errorf("%d runs of the other job wait, %v; want 1", n, err)
		}
	})
}

// moveOnly exports the disabled app.
func (m moving) moveOnly() access.Export {
	m.t.Helper()
	m.disable()
	export, err := m.old.ExportApp(m.t.Context(), "app")
	must(m.t, err)
	return export
}

// importer imports a large app, "app", next to another one, "victim", which fires each second.
type importer struct {
	t      *testing.T
	s      *store.Store
	now    time.Time
	export access.Export
	token  run.Token
}

const (
	importedJobs, importedTriggers, importedRuns = 12, 100, 1500
	importingNode                                = run.NodeID(7)
)

func onImports(t *testing.T, test func(t *testing.T, m *importer)) {
	for name, database := range map[string]func(t *testing.T) string{
		"SQLite":     func(t *testing.T) string { return sqlitetest.New(t) },
		"PostgreSQL": func(t *testing.T) string { return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &importer{t: t, s: open(t, database(t)), now: time.Now().UTC().Truncate(time.Second)}
			m.export = m.large()
			must(t, m.s.Register(t.Context(), dispatcher.Node{ID: importingNode, Labels: map[string]string{}}, m.now))
			_, _, err := m.s.PutApp(t.Context(), access.App{Name: "victim", AppSpec: access.AppSpec{Enabled: true}}, m.change())
			must(t, err)
			_, _, err = m.s.PutJob(t.Context(), m.job("victim", "job", 1), m.change())
			must(t, err)
			test(t, m)
		})
	}
}

func (m *importer) change() input.Change {
	return input.Change{Actor: "test", Now: m.now, Operator: true}
}

func (m *importer) job(app, name string, triggers int) dispatcher.Job {
	job := dispatcher.Job{App: app, Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	job.SetDefaults()
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression, trigger.MisfireAfter = "rate(1s)", input.Duration(time.Hour)
	for i := range triggers {
		job.Triggers[fmt.Sprint("t", i)] = trigger
	}
	return job
}

// large is an app of many parts: each of its triggers has a due fire, and its runs may be adopted.
func (m *importer) large() access.Export {
	export := access.Export{
		Format: access.ExportFormat, Installation: "there", ExportedAt: m.now,
		App:       access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}},
		Calendars: []dispatcher.Calendar{{App: "app", Name: "freeze", CalendarSpec: dispatcher.CalendarSpec{Timezone: "UTC"}}},
		Alerts: []alert.Alert{{App: "app", Name: "pager", Spec: alert.Spec{AlertConditionsOf: alert.AlertConditionsOf{Missed: true},
			Destination: target.AlertDestination{Webhook: &target.AlertWebhook{}}}}},
	}
	export.Alerts[0].Destination.Webhook.SetDefaults()
	export.Alerts[0].Destination.Webhook.URL = "https://pager.example.com/"
	for i := range importedJobs {
		one := access.ExportedJob{Job: m.job("app", fmt.Sprint("j", i), importedTriggers), Revision: 3,
			Triggers: map[string]dispatcher.ExportedTrigger{}}
		if i > 0 {
			one.Job.OnFailure = &dispatcher.Follow{Jobs: []string{"j0"}}
		}
		for name := range one.Job.Triggers {
			one.Triggers[name] = dispatcher.ExportedTrigger{State: dispatcher.TriggerWaiting, AnchorAt: m.now.Add(-time.Hour), NextFireTime: &m.now}
		}
		export.Jobs = append(export.Jobs, one)
	}
	for i := range importedRuns {
		export.Waiting = append(export.Waiting, access.ExportedRun{Job: "j0", Kind: run.KindManual, State: run.Queued,
			ScheduledAt: m.now.Add(time.Duration(-i-1) * time.Second), Input: &run.Input{Payload: json.RawMessage(`{"a":1}`)}})
	}
	return export
}

func (m *importer) count(query string) int64 {
	m.t.Helper()
	n, err := store.Count(m.t.Context(), m.s, query)
	must(m.t, err)
	return n
}

// rows counts the rows that an import writes.
func (m *importer) rows() (all int64) {
	for _, table := range []string{
		"jobs", "triggers", "trigger_clock", "trigger_revisions", "followers", "calendars", "live_runs", "run_inputs",
	} {
		all += m.count(`SELECT COUNT(*) FROM ` + table)
	}
	return all
}

// fire claims the next fire of the other app, while no fire or run of the import may be claimed or adopted.
func (m *importer) fire() {
	m.t.Helper()
	m.now, m.token = m.now.Add(time.Second), m.token+1
	due, err := m.s.Due(m.t.Context(), dispatcher.DueQuery{Until: m.now, Now: m.now, Limit: 1000})
	must(m.t, err)
	if len(due) != 1 || due[0].ID != run.TriggerID("victim", "job", "t0") {
		m.t.Fatalf("%d triggers are due, want that of the other app", len(due))
	}
	claimed, err := m.s.Claim(m.t.Context(), dispatcher.ClaimBatch{Node: importingNode, Token: m.token, Now: m.now,
		Advances: []dispatcher.Advance{{
			TriggerID: due[0].ID, JobID: run.JobID("victim", "job"), Revision: due[0].Revision,
			Prev: due[0].PrevFireTime, Next: due[0].NextFireTime,
			Then: m.now.Add(time.Second), ThenDue: m.now.Add(time.Second),
		}}})
	must(m.t, err)
	if len(claimed) != 1 {
		m.t.Errorf("%d fires of the other app were claimed, want 1", len(claimed))
	}
	runs, err := m.s.Adoptable(m.t.Context(), dispatcher.AdoptQuery{Node: importingNode, Token: m.token, Now: m.now, Limit: 1000})
	must(m.t, err)
	if len(runs) != 0 {
		m.t.Errorf("%d runs of the import may be adopted before its last part", len(runs))
	}
}

// wantLive expects the complete import.
func (m *importer) wantLive() {
	m.t.Helper()
	if app, err := m.s.App(m.t.Context(), "app"); err != nil || !app.Enabled || app.Importing {
		m.t.Fatalf("the app is %+v, %v; want it enabled", app, err)
	}
	for more := true; more; {
		_, left, err := m.s.FollowSwitches(m.t.Context(), 1000)
		must(m.t, err)
		more = left
	}
	for what, one := range map[string]struct {
		query string
		want  int64
	}{
		"jobs": {`SELECT COUNT(*) FROM jobs WHERE app <> 'victim' AND deleted_at IS NULL AND part_of = 0`, importedJobs},
		"clocks that may fire": {`SELECT COUNT(*) FROM trigger_clock WHERE off = 0 AND next_fire_time IS NOT NULL AND id <> ` +
			fmt.Sprint(run.TriggerID("victim", "job", "t0")), importedJobs * importedTriggers},
		"runs that wait":  {`SELECT COUNT(*) FROM live_runs WHERE state = 'queued'`, importedRuns},
		"runs that ended": {`SELECT COUNT(*) FROM runs`, 0},
		"inputs":          {`SELECT COUNT(*) FROM run_inputs`, importedRuns},
		"followers":       {`SELECT COUNT(*) FROM followers WHERE kind = 4`, importedJobs - 1},
		"missed fires":    {`SELECT COUNT(*) FROM misfires`, 0},
	} {
		if got := m.count(one.query); got != one.want {
			m.t.Errorf("there are %d %s, want %d", got, what, one.want)
		}
	}
}

// Each part of an import writes at most 1,000 rows. Others fire between the parts and see the app as importing.
func TestOthersFireBetweenThePartsOfAnImport(t *testing.T) {
	t.Parallel()
	onImports(t, func(t *testing.T, m *importer) {
		parts, before := 0, m.rows()
		must(t, store.ImportMeanwhile(t.Context(), m.s, m.export, m.change(), func() bool {
			parts++
			m.fire()
			if written := m.rows() - before; written > store.MostImported {
				t.Errorf("part %d of the import wrote %d rows, want at most %d", parts, written, store.MostImported)
			}
			before = m.rows()
			if app, err := m.s.App(t.Context(), "app"); err != nil || app.Enabled || !app.Importing {
				t.Errorf("after part %d the app is %+v, %v; want it disabled and importing", parts, app, err)
			}
			return true
		}))
		if written := m.rows() - before; written > store.MostImported {
			t.Errorf("the last part of the import wrote %d rows, want at most %d", written, store.MostImported)
		}
		if parts < 10 {
			t.Errorf("the import has %d parts, want one for each 1,000 rows", parts)
		}
		m.wantLive()
	})
}

// No job of a cut-off import fires, wherever it stopped, and the import can be repeated.
func TestCutOffImportCanBeRepeated(t *testing.T) {
	t.Parallel()
	onImports(t, func(t *testing.T, m *importer) {
		for _, parts := range []int{1, 5, 12} {
			at := 0
			must(t, store.ImportMeanwhile(t.Context(), m.s, m.export, m.change(), func() bool { at++; return at < parts }))
			if at != parts {
				t.Fatalf("the import was not cut off after part %d", parts)
			}
			m.fire()
			if _, err := m.s.ImportApp(t.Context(), m.export, m.change()); !errors.Is(err, dispatcher.ErrConflict) {
				t.Errorf("a second import at once: got error %v, want ErrConflict", err)
			}
			m.now = m.now.Add(2 * time.Minute)
		}
		_, err := m.s.ImportApp(t.Context(), m.export, m.change())
		must(t, err)
		m.wantLive()
	})
}

// The handler removes a cut-off import in small parts if it is not repeated, and does not touch an active one.
func TestCutOffImportIsRemoved(t *testing.T) {
	t.Parallel()
	onImports(t, func(t *testing.T, m *importer) {
		must(t, store.ImportMeanwhile(t.Context(), m.s, m.export, m.change(), func() bool {
			n, err := m.s.RemoveCutOffImports(t.Context(), m.now)
			must(t, err)
			if n != 0 {
				t.Errorf("%d imports that go on were removed", n)
			}
			return m.count(`SELECT COUNT(*) FROM live_runs`) < 1000
		}))
		n, err := m.s.RemoveCutOffImports(t.Context(), m.now.Add(2*time.Minute))
		must(t, err)
		if n != 1 {
			t.Errorf("%d imports were removed, want 1", n)
		}
		if _, err := m.s.App(t.Context(), "app"); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("the app: got error %v, want ErrNotFound", err)
		}
		if left := m.count(`SELECT (SELECT COUNT(*) FROM live_runs) + (SELECT COUNT(*) FROM run_inputs) + (SELECT COUNT(*) FROM runs)
			+ (SELECT COUNT(*) FROM misfires) + (SELECT COUNT(*) FROM followers)
			+ (SELECT COUNT(*) FROM jobs WHERE app <> 'victim' AND deleted_at IS NULL)`); left != 0 {
			t.Errorf("%d rows of the import are left", left)
		}
		m.fire()
		_, err = m.s.ImportApp(t.Context(), m.export, m.change())
		must(t, err)
		m.wantLive()
	})
}

// A frozen import that wakes after its removal writes no more.
func TestRemovedImportDoesNotContinue(t *testing.T) {
	t.Parallel()
	onImports(t, func(t *testing.T, m *importer) {
		change, repeated := m.change(), false
		err := store.ImportMeanwhile(t.Context(), m.s, m.export, change, func() bool {
			if repeated {
				t.Error("it wrote another part")
			}
			repeated, m.now = true, m.now.Add(2*time.Minute)
			_, err := m.s.ImportApp(t.Context(), m.export, m.change())
			must(t, err)
			return true
		})
		if !errors.Is(err, dispatcher.ErrConflict) {
			t.Errorf("got error %v, want ErrConflict", err)
		}
		m.wantLive()
	})
}

// A problem found by a late part leaves no trace, and an app during import accepts no change.
func TestImportWithALateProblemLeavesNoTrace(t *testing.T) {
	t.Parallel()
	onImports(t, func(t *testing.T, m *importer) {
		first, last := &m.export.Jobs[0].Job, m.export.Jobs[importedJobs-1].Job
		first.OnSuccess = &dispatcher.Follow{Jobs: []string{last.Name}} // the last one leads back to it
		_, err := m.s.ImportApp(t.Context(), m.export, m.change())
		var problems input.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("got error %v, want the problem of the last job", err)
		}
		if _, err := m.s.App(t.Context(), "app"); !errors.Is(err, dispatcher.ErrNotFound) {
			t.Errorf("the app: got error %v, want ErrNotFound", err)
		}
		first.OnSuccess = nil
		must(t, store.ImportMeanwhile(t.Context(), m.s, m.export, m.change(), func() bool {
			m.wantRefused()
			return true
		}))
		m.wantLive()
	})
}

// wantRefused expects changes of an app during import to be refused.
func (m *importer) wantRefused() {
	m.t.Helper()
	ctx := m.t.Context()
	for what, change := range map[string]func() error{
		"to enable it": func() error {
			_, _, err := m.s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, m.change())
			return err
		},
		"a job of it": func() error {
			_, _, err := m.s.PutJob(ctx, m.job("app", "other", 1), m.change())
			return err
		},
		"to delete it": func() error { return m.s.DeleteApp(ctx, "app", m.change()) },
		"to export it": func() error {
			_, err := m.s.ExportApp(ctx, "app")
			return err
		},
	} {
		if err := change(); !errors.Is(err, dispatcher.ErrConflict) {
			m.t.Errorf("%s: got error %v, want ErrConflict", what, err)
		}
	}
}
