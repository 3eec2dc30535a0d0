package engine

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
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
				r.declare(job+"-late", "rate(4s)", func(t *dispatcher.Trigger) { t.MisfireAfter = dispatcher.Duration(time.Second) })
			}
			r.poison(set)
			r.now = r.now.Add(6 * time.Second)
			for range 2 { // a trigger in quarantine is not read again
				if err := r.handleOnce(t.Context(), r.now); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.rollUpStates(t.Context()); err != nil { // as the round of the next window
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
			jobs, err := r.store.Jobs(t.Context(), "app", dispatcher.Page{Limit: 10})
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
	db, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	for _, job := range []string{"bad", "bad-late"} {
		column := "id"
		if set[:len("UPDATE triggers")] == "UPDATE triggers" {
			column = "job_id"
		}
		if _, err := db.ExecContext(r.t.Context(), fmt.Sprintf("%s WHERE %s = %d", set, column, dispatcher.JobID("app", job))); err != nil {
			r.t.Fatal(err)
		}
	}
}
