package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A definition that this version cannot read concerns nobody but its own job.
func TestUnreadableJobDoesNotHideOthers(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"target":               `target = '{"webhook":{"timeout":{"s":1}}}'`,
		"kind of target":       `target = '{"queue":{"name":"q"}}'`,
		"payload":              `payload = '{'`,
		"names of triggers":    `trigger_names = '{"tick":1}'`,
		"retries":              `retry = '['`,
		"followers":            `followers = '{'`,
		"target that is empty": `target = ''`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("SQLite", func(t *testing.T) { t.Parallel(); testUnreadableJob(t, open(t, newFile(t)), set) })
			t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); testUnreadableJob(t, open(t, pgtest.New(t)), set) })
		})
	}
}

func testUnreadableJob(t *testing.T, s *store.Store, set string) {
	t.Helper()
	change := input.Change{Actor: "test"}
	_, _, err := s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	for _, name := range []string{"bad", "good"} {
		_, _, err := s.PutJob(t.Context(), dispatcher.Job{
			App: "app", Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Payload: []byte(`{"n": 1}`),
				Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}},
				Triggers: map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
					Schedule:     dispatcher.Schedule{Expression: "rate(1h)"},
					MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}}},
		}, change)
		must(t, err)
	}
	must(t, store.Exec(t.Context(), s, `UPDATE jobs SET `+set+` WHERE name = 'bad'`))

	bad, good := run.JobID("app", "bad"), run.JobID("app", "good")
	versions, err := s.JobsByID(t.Context(), []int64{bad, good})
	if err != nil || len(versions) != 2 {
		t.Fatalf("by id: got %d jobs, %v, want both", len(versions), err)
	}
	for _, v := range versions {
		switch {
		case v.ID == good && (v.Err != nil || len(v.TriggerNames) != 1):
			t.Errorf("the other job: got %+v, error %v", v.Job, v.Err)
		case v.ID == bad && (v.App != "app" || v.Name != "bad" || v.Revision != 1):
			t.Errorf("the job: got %+v, want its names and revision", v)
		case v.ID == bad && (v.Err == nil || !strings.Contains(v.Err.Error(), "job app/bad: ")):
			t.Errorf("the job: got error %v, want one that names it", v.Err)
		}
	}
	if _, err = s.Job(t.Context(), "app", "bad"); err == nil || !strings.Contains(err.Error(), "job app/bad: ") {
		t.Errorf("read: got error %v, want one that names the job", err)
	}
	if _, err := s.Job(t.Context(), "app", "good"); err != nil {
		t.Errorf("read the other job: %v", err)
	}
	jobs, err := s.Jobs(t.Context(), "app", input.Page{Limit: 10})
	if err != nil || len(jobs) != 2 {
		t.Fatalf("list: got %d jobs, %v, want both", len(jobs), err)
	}
	if got := jobs[0]; got.Name != "bad" || got.State != dispatcher.JobError || len(got.Warnings) != 1 || got.Triggers == nil {
		t.Errorf("in the list: got %+v, want state ERROR and a warning", got)
	}
	must(t, s.DeleteJob(t.Context(), "app", "bad", change))
	if n, err := store.Count(t.Context(), s, `SELECT count(*) FROM triggers WHERE deleted_at IS NULL`); err != nil || n != 1 {
		t.Errorf("after the job was deleted there are %d triggers, %v, want that of the other job", n, err)
	}
	if _, err := s.Job(t.Context(), "app", "bad"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("read the deleted job: %v", err)
	}
	if got := jobs[1]; got.Name != "good" || got.State != dispatcher.JobExecuting {
		t.Errorf("in the list: got %+v, want the other job as it is", got)
	}
}
