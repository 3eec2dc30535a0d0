package engine

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// The other jobs fire and are settled, the handler's round succeeds, and users see a reason.
func TestUnreadableRowsStopNoOtherJob(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"expression":         `UPDATE triggers SET expression = '0 0 30 2 ?x'`,
		"dialect":            `UPDATE triggers SET dialect = 'of a newer version'`,
		"time zone":          `UPDATE triggers SET timezone = 'Mars/Olympus'`,
		"gap":                `UPDATE triggers SET gap = 'jump'`,
		"overlap":            `UPDATE triggers SET overlap = 'thrice'`,
		"calendar":           `UPDATE triggers SET calendar = 'nosuch'`,
		"on excluded":        `UPDATE triggers SET calendar = 'nosuch', on_excluded = 'dance'`,
		"jitter":             `UPDATE triggers SET jitter = -5`,
		"repeat count":       `UPDATE triggers SET repeat_count = -5`,
		"end before start":   `UPDATE triggers SET start_at = 2000000000000, end_at = 1000000000000`,
		"target":             `UPDATE jobs SET target = '{"teleport":{}}'`,
		"target, cut off":    `UPDATE jobs SET target = '{"web'`,
		"template":           `UPDATE jobs SET target = json_set(target, '$.webhook.url', 'http://127.0.0.1/{{.Newer}}')`,
		"payload":            `UPDATE jobs SET payload = '{'`,
		"names of triggers":  `UPDATE jobs SET trigger_names = 'only'`,
		"trigger not in job": `UPDATE jobs SET trigger_names = '[]'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			for _, job := range []string{"bad", "good"} {
				r.declare(job, "rate(4s)", nil)
				r.declare(job+"-late", "rate(4s)", func(t *dispatcher.Trigger) { t.MisfireAfter = input.Duration(time.Second) })
			}
			r.poison(set)
			r.now = r.now.Add(6 * time.Second)
			for range 2 { // a trigger in quarantine is not read again
				if err := r.chores.Round(t.Context(), r.now); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.round(t.Context(), r.now); err != nil { // as the round of the next window
				t.Fatal(err)
			}
			r.poll(0)
			r.claimOnce(t.Context(), r.now)
			fired := map[string]bool{}
			for _, run := range r.settled() {
				fired[run.Job] = true
			}
			if !fired["good"] || !fired["good-late"] {
				t.Errorf("fired: %v, want the jobs that can be read", fired)
			}
			jobs, err := r.store.Jobs(t.Context(), "app", input.Page{Limit: 10})
			if err != nil || len(jobs) != 4 {
				t.Fatalf("list: %d jobs, %v, want all", len(jobs), err)
			}
			for _, job := range jobs {
				bad := job.Name == "bad" || job.Name == "bad-late"
				if failed := job.State == dispatcher.JobError; failed != bad && name != "trigger not in job" {
					t.Errorf("job %s is %s", job.Name, job.State)
				}
			}
		})
	}
}

// poison runs a statement on the rows of the jobs "bad" and "bad-late", past the store.
func (r *rig) poison(set string) {
	r.t.Helper()
	for _, job := range []string{"bad", "bad-late"} {
		column := "id"
		if set[:len("UPDATE triggers")] == "UPDATE triggers" {
			column = "job_id"
		}
		r.exec(fmt.Sprintf("%s WHERE %s = %d", set, column, run.JobID("app", job)))
	}
}

// exec runs a statement past the store.
func (r *rig) exec(statement string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(r.t.Context(), statement); err != nil {
		r.t.Fatal(err)
	}
}

// An app with unreadable bounds fires nothing, and keeps no other app from firing. The same holds for an app with an
// unreadable calendar.
func TestUnreadableAppStopsNoOtherApp(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"bounds":   `UPDATE apps SET bounds = '{"quotas":' WHERE name = 'evil'`,
		"calendar": `UPDATE calendars SET definition = '{'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			change := input.Change{Actor: "test", Now: r.now}
			_, _, err := r.store.PutApp(t.Context(), access.App{Name: "evil", AppSpec: access.AppSpec{Enabled: true}}, change)
			if err == nil {
				_, _, err = r.store.PutCalendar(t.Context(), dispatcher.Calendar{App: "evil", Name: "holidays"}, change)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.declare("good", "rate(4s)", nil)
			bad, err := r.store.Job(t.Context(), "app", "good")
			if err == nil {
				tick := bad.Triggers["only"]
				bad.App, tick.Calendar = "evil", "holidays"
				bad.Triggers["only"] = tick
				_, _, err = r.store.PutJob(t.Context(), bad, change)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.exec(set)
			r.now = r.now.Add(6 * time.Second)
			if err := r.chores.Round(t.Context(), r.now); err != nil {
				t.Fatal(err)
			}
			r.poll(0)
			r.claimOnce(t.Context(), r.now)
			for _, run := range r.settled() {
				if run.Job == "good" {
					return
				}
			}
			t.Error("the job of the other app did not fire")
		})
	}
}

// A run that cannot be adopted is set aside, the manual run of the other job is made, and the next round tries again.
func TestRunThatCannotBeAdoptedStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, job := range []string{"bad", "good"} {
		r.declare(job, "rate(1h)", nil)
		if _, err := r.store.RequestRun(t.Context(), "app", job, nil, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	ofBad := fmt.Sprintf(" WHERE job_id = %d", run.JobID("app", "bad"))
	r.exec("UPDATE live_runs SET attempt = 9223372036854775807" + ofBad)
	states := func() map[string]run.State {
		t.Helper()
		all := map[string]run.State{}
		for _, run := range r.settled() {
			all[run.Job] = run.State
		}
		return all
	}
	for range 2 {
		if err := r.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := states(); got["good"] != run.Succeeded || got["bad"] != run.Queued {
		t.Fatalf("the runs are %v, want that of good succeeded and that of bad queued", got)
	}
	r.exec("UPDATE live_runs SET attempt = 0" + ofBad)
	if err := r.round(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := states(); got["bad"] != run.Succeeded {
		t.Errorf("once it can be adopted, the run is %s", got["bad"])
	}
}
